"""Compiled modules, built where Cython and a C compiler are there; else the install is pure Python.

Everything else is in pyproject.toml.
"""

import os
from pathlib import Path

from setuptools import Extension, setup

try:
    from Cython.Build import cythonize
except ImportError:
    cythonize = None

COMPILER_FLAGS = os.environ.get("BOLIDE_COMPILER_FLAGS", "").split()
"""Flags for compiling, but not for linking, the modules; `make fuzz` sets them."""
PACKAGES = ("src/bolide/kernel", "src/bolide/broker/fast_path")
"""Folders with compiled modules beside their Python modules."""


def extensions() -> list[Extension]:
    if cythonize is None:
        return []
    sources = [
        Extension(
            ".".join((*Path(package).parts[1:], source.stem)),
            [str(source)],
            extra_compile_args=COMPILER_FLAGS,
        )
        for package in PACKAGES
        for source in sorted(Path(package).glob("*.pyx"))
    ]
    found = cythonize(sources, build_dir="build/cython", include_path=["src"])
    for each in found:
        each.optional = True  # cythonize drops it; with it a compiler that fails is a warning
    return found


setup(ext_modules=extensions())
