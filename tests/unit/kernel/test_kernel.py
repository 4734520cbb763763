"""Selection of the compiled or plain-Python kernel."""

import importlib.machinery
import os
import subprocess
import sys

import pytest

from bolide import kernel
from tests.unit.kernel.kernels import FUNCTIONS, MISSING, kernel_named

ASK = "from bolide import kernel; print(kernel.COMPILED, kernel.scan.__module__)"


def ask(**environment: str) -> list[str]:
    clean = {name: text for name, text in os.environ.items() if name != "BOLIDE_KERNEL"}
    done = subprocess.run(
        [sys.executable, "-c", ASK],
        env=clean | environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.split()


def test_the_environment_can_force_plain_python() -> None:
    assert ask(BOLIDE_KERNEL="python") == ["False", "bolide.kernel.records"]


@pytest.mark.skipif(bool(MISSING), reason=MISSING)
def test_the_compiled_kernel_is_taken_where_it_is_there() -> None:
    assert ask() == ["True", "bolide.kernel._records"]


@pytest.mark.skipif(bool(MISSING), reason=MISSING)
def test_the_compiled_kernel_is_really_compiled() -> None:
    from bolide.kernel import _columns, _index, _records

    for module in (_columns, _index, _records):
        assert str(module.__file__).endswith(tuple(importlib.machinery.EXTENSION_SUFFIXES))


def test_the_package_exports_every_function_of_the_chosen_kernel() -> None:
    chosen = kernel_named("compiled" if kernel.COMPILED else "reference")
    assert [getattr(kernel, name) for name in FUNCTIONS] == list(chosen)
