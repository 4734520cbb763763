"""Preparation of the brokers before they start."""

from importlib.util import cache_from_source
from pathlib import Path

from benchmarks.brokers import write_bytecode


def test_bytecode_is_written_for_each_module_as_in_an_install(tmp_path: Path) -> None:
    modules = [tmp_path / "outer.py", tmp_path / "inner" / "module.py"]
    modules[1].parent.mkdir()
    for module in modules:
        module.write_text("VALUE = 1\n")
    write_bytecode(tmp_path)
    assert all(Path(cache_from_source(str(module))).exists() for module in modules)
