"""Identify the code that was measured, so that figures of different code are not mixed."""

import hashlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

from benchmarks.checkouts import Checkout

_BENCHMARKS = Path(__file__).parents[1]
# Modules that only read and print results do not change what is measured.
_PRESENTATION = {"baseline.py", "goals.py", "figures.py", "plot.py", "report.py", "results.py"}
_SUFFIXES = {".py", ".pyx", ".pxd", ".c", ".so"}


def version(checkout: Checkout | None = None) -> str:
    """Release, kernel and commit for readers, and a digest that changes with any source."""
    checkout = checkout or Checkout.current()
    return (
        f"Bolide {checkout.release}, {checkout.kernel} kernel{_commit(checkout.root)},"
        f" sources {digest(checkout.package)}"
    )


def same(one: str, other: str) -> bool:
    """Whether two versions have the same digest; their commits may differ."""
    return one.rpartition(" ")[2] == other.rpartition(" ")[2]


def digest(package: Path | None = None) -> str:
    """Digest of a `bolide` package and of these benchmarks."""
    found = hashlib.sha256()
    for file in _files(package or Checkout.current().package):
        found.update(file.name.encode() + b"\0" + file.read_bytes())
    return found.hexdigest()[:12]


def _files(package: Path) -> Iterator[Path]:
    """In an order that does not depend on where the checkout lies."""
    yield from (each for each in sorted(package.rglob("*")) if each.suffix in _SUFFIXES)
    for directory in (_BENCHMARKS, _BENCHMARKS / "compare"):
        sources = (each for each in sorted(directory.iterdir()) if each.suffix in _SUFFIXES)
        yield from (each for each in sources if each.name not in _PRESENTATION)


def _commit(root: Path) -> str:
    """The commit of a checkout, with `-dirty` if tracked files differ from it."""
    command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=10"]
    try:
        done = subprocess.run([*command, "--exclude=*"], check=True, capture_output=True, text=True)
    except (OSError, subprocess.CalledProcessError):
        return ""  # an archive of the sources has no commits
    return f", commit {done.stdout.strip()}"
