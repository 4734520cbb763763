"""What compiled code spells out of layouts is defined once, and compared with Python at import."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import bolide
from bolide import kernel

SOURCES = Path(bolide.__file__).parent
COMPILED = [
    path
    for package in ("kernel", "broker/fast_path")
    for path in sorted((SOURCES / package).glob("_*.p[xy][dx]"))
]
LAYOUTS = SOURCES / "kernel/_layouts.pxd"

needs_compiled = pytest.mark.skipif(not kernel.COMPILED, reason="the kernel is not compiled")


def spelled_names(source: str) -> set[str]:
    """The names that a compiled source defines with a value: enum members and C macros."""
    members = re.findall(r"^    ([A-Z][A-Z0-9_]+) = ", source, re.MULTILINE)
    return {*members, *re.findall(r'([A-Z][A-Z0-9_]+) "BOLIDE_', source)}


@needs_compiled
def test_every_layout_that_compiled_code_spells_out_is_compared() -> None:
    from bolide.kernel import _records

    assert spelled_names(LAYOUTS.read_text()) == _records.LAYOUTS.keys()


def test_no_compiled_module_spells_a_layout_out_again() -> None:
    names = spelled_names(LAYOUTS.read_text())
    assert {"UNIT_SIZE", "MAGIC_V1"} <= names, "the sources are read as they are written"
    again = {
        path.name: found
        for path in COMPILED
        if path != LAYOUTS and (found := spelled_names(path.read_text()) & names)
    }
    assert not again


@needs_compiled
@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("bolide.protocol.record", "FIXED_SIZE"),
        ("bolide.protocol.record", "MAGIC_V2"),
        ("bolide.kernel.units", "UNIT_SIZE"),
        ("bolide.kernel.index_entries", "ENTRY_SIZE"),
        ("bolide.protocol.record_seal", "SEAL_SIZE"),
        ("bolide.model.properties", "INT_DIGITS"),
    ],
)
def test_a_layout_that_has_changed_stops_the_import_but_not_as_a_missing_module(
    module: str, name: str
) -> None:
    lines = [
        "import sys, types",
        # The package itself would import the compiled modules before the change.
        "package = types.ModuleType('bolide.kernel')",
        f"package.__path__ = [{str(SOURCES / 'kernel')!r}]",
        "sys.modules['bolide.kernel'] = package",
        f"import {module} as changed",
        f"changed.{name} += 1",
        "import bolide.kernel._records",
    ]
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith(f"RuntimeError: {name} is"), done.stderr
