"""Which code is measured, and measures: figures of different code do not belong together."""

import hashlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

import bolide
from bolide.kernel import COMPILED
from bolide.version import __version__

_BENCHMARKS = Path(__file__).parents[1]
_OF_THE_PAGE = {"bars.py", "figures.py", "plot.py", "report.py", "results.py"}
_KINDS = {".py", ".pyx", ".pxd", ".c", ".so"}


def version() -> str:
    """The release and the commit for readers, and a digest that any change changes."""
    kernel = "compiled" if COMPILED else "plain-Python"
    return f"Bolide {__version__}, {kernel} kernel{_commit()}, sources {digest()}"


def same(one: str, other: str) -> bool:
    """Whether two versions are of the same sources; commits of other things do not matter."""
    return one.rpartition(" ")[2] == other.rpartition(" ")[2]


def digest() -> str:
    found = hashlib.sha256()
    for file in sorted(_files()):
        found.update(file.name.encode() + b"\0" + file.read_bytes())
    return found.hexdigest()[:12]


def _files() -> Iterator[Path]:
    package = Path(bolide.__file__).parent
    yield from (each for each in package.rglob("*") if each.suffix in _KINDS)
    for place in (_BENCHMARKS, _BENCHMARKS / "compare"):
        kept = (each for each in place.iterdir() if each.suffix in _KINDS)
        yield from (each for each in kept if each.name not in _OF_THE_PAGE)


def _commit() -> str:
    command = ["git", "-C", str(_BENCHMARKS), "rev-parse", "--short=10", "HEAD"]
    try:
        done = subprocess.run(command, check=True, capture_output=True, text=True)
    except (OSError, subprocess.CalledProcessError):
        return ""  # an archive of the sources
    return f", commit {done.stdout.strip()}"
