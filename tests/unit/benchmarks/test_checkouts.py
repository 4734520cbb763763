"""Which directories are accepted as a checkout to measure."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.checkouts import Checkout, UnusableCheckout

PACKAGE = {
    "__init__.py": "",
    "version.py": '__version__ = "9.9"\n',
    "kernel/__init__.py": "COMPILED = False\n",
}


def make_checkout(root: Path, imported_from: Path | None = None) -> Path:
    """A directory with a `bolide` package and an interpreter that imports one."""
    for name, text in PACKAGE.items():
        file = root / "src/bolide" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    python = root / ".venv/bin/python"
    python.parent.mkdir(parents=True)
    source = imported_from or root / "src"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={source} exec {sys.executable} -S "$@"\n')
    python.chmod(0o755)
    return root


def test_a_checkout_is_described_by_its_own_interpreter(tmp_path: Path) -> None:
    found = Checkout.at(make_checkout(tmp_path))
    assert (found.release, found.kernel) == ("9.9", "plain-Python")
    assert found.package == tmp_path.resolve() / "src/bolide"
    assert found.python == tmp_path.resolve() / ".venv/bin/python"


def test_a_directory_without_a_venv_is_refused_with_the_command_that_makes_one(
    tmp_path: Path,
) -> None:
    with pytest.raises(UnusableCheckout, match=rf"make -C {tmp_path.resolve()} \.venv/test\.stamp"):
        Checkout.at(tmp_path)


def test_an_interpreter_that_imports_another_checkout_is_refused(tmp_path: Path) -> None:
    other = make_checkout(tmp_path / "other")
    with pytest.raises(UnusableCheckout, match=r"imports bolide from .*other"):
        Checkout.at(make_checkout(tmp_path / "one", imported_from=other / "src"))


def test_an_interpreter_that_cannot_import_the_package_is_refused(tmp_path: Path) -> None:
    root = make_checkout(tmp_path)
    (root / "src/bolide/kernel/__init__.py").write_text("raise ImportError('no kernel')\n")
    with pytest.raises(UnusableCheckout, match=r"cannot import bolide: .*no kernel"):
        Checkout.at(root)


def test_checkouts_that_differ_in_kernel_or_python_are_not_compared() -> None:
    current = Checkout.current()
    current.require_same_runtime(current)
    with pytest.raises(UnusableCheckout, match=r"^kernel of"):
        current.require_same_runtime(replace(current, compiled=not current.compiled))
    with pytest.raises(UnusableCheckout, match=r"^Python of"):
        current.require_same_runtime(replace(current, python_version="2.7"))
