"""The compiled kernel, where Cython and a C compiler are there; without them the install is pure.

Everything else is in pyproject.toml.
"""

from pathlib import Path

from setuptools import Extension, setup

try:
    from Cython.Build import cythonize
except ImportError:
    cythonize = None

SOURCES = sorted(Path("src/bolide/kernel").glob("*.pyx"))


def extensions() -> list[Extension]:
    if cythonize is None:
        return []
    sources = [Extension(f"bolide.kernel.{source.stem}", [str(source)]) for source in SOURCES]
    found = cythonize(sources, build_dir="build/cython", include_path=["src"])
    for each in found:
        each.optional = True  # cythonize drops it; with it a compiler that fails is a warning
    return found


setup(ext_modules=extensions())
