import ast
import subprocess
import sys
from pathlib import Path

import pytest

import bolide


@pytest.mark.parametrize("name", bolide.__all__)
def test_every_public_name_is_found(name: str) -> None:
    assert getattr(bolide, name) is not None
    assert name in dir(bolide)


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="Nonsense"):
        _ = bolide.Nonsense  # type: ignore[attr-defined]  # the point of the test


def test_type_checkers_are_told_the_same_names() -> None:
    stub = Path(bolide.__file__).with_name("__init__.pyi").read_text(encoding="utf-8")
    told = {
        alias.asname: node.module
        for node in ast.parse(stub).body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert told.pop("__version__") == "bolide.version"
    assert told == bolide._HOMES  # type: ignore[attr-defined]  # the stub leaves it out


def test_importing_bolide_loads_nothing_heavy() -> None:
    program = "import sys, bolide; print(*sorted(m for m in sys.modules if 'bolide' in m))"
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert done.stdout.split() == ["bolide", "bolide.version"]
