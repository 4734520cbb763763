"""Checkouts of this repository whose broker can be started: this one, and others for comparison."""

import json
import platform
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import bolide
from bolide.kernel import COMPILED
from bolide.version import __version__

_PROBE = """
import json, platform
import bolide
from bolide.kernel import COMPILED
from bolide.version import __version__
print(json.dumps({"package": bolide.__file__, "release": __version__, "compiled": COMPILED,
                  "python_version": platform.python_version()}))
"""
_PROBE_TIMEOUT = 60.0


class UnusableCheckout(Exception):
    """The directory is no checkout that can be measured; the text says why and what to do."""


@dataclass(frozen=True)
class Checkout:
    """A working tree, and the interpreter that imports `bolide` from its `src`."""

    root: Path
    python: Path
    package: Path
    """Directory of the `bolide` package."""
    release: str
    compiled: bool
    """Whether the interpreter loads the compiled kernel."""
    python_version: str

    @classmethod
    def current(cls) -> Self:
        """The checkout that this module belongs to, with the running interpreter."""
        return cls(
            root=Path(__file__).parents[1],
            python=Path(sys.executable),
            package=Path(bolide.__file__).parent,
            release=__version__,
            compiled=COMPILED,
            python_version=platform.python_version(),
        )

    @classmethod
    def at(cls, path: Path) -> Self:
        """The checkout at a path, with the interpreter of its `.venv`.

        Raises:
            UnusableCheckout: there is no such interpreter, or it imports another `bolide`.
        """
        root = path.resolve()
        python = root / ".venv/bin/python"  # not resolved: the link's place selects the venv
        if not python.exists():
            raise UnusableCheckout(f"{python} is missing: run `make -C {root} .venv/test.stamp`")
        found = _probe(python)
        package = Path(found["package"]).resolve().parent
        if not package.is_relative_to(root):
            raise UnusableCheckout(
                f"{python} imports bolide from {package}, which is not below {root}:"
                f" unset PYTHONPATH, or run `make -C {root} .venv/test.stamp`"
            )
        return cls(
            root=root,
            python=python,
            package=package,
            release=found["release"],
            compiled=found["compiled"],
            python_version=found["python_version"],
        )

    @property
    def kernel(self) -> str:
        return "compiled" if self.compiled else "plain-Python"

    def require_same_runtime(self, other: "Checkout") -> None:
        """Refuse to compare checkouts that differ in more than their sources.

        Raises:
            UnusableCheckout: the kernels or the versions of Python differ.
        """
        for what, mine, theirs in (
            ("kernel", self.kernel, other.kernel),
            ("Python", self.python_version, other.python_version),
        ):
            if mine != theirs:
                raise UnusableCheckout(
                    f"{what} of {self.root} is {mine}, of {other.root} {theirs}:"
                    " the comparison needs the same in both"
                )


def _probe(python: Path) -> Any:
    try:
        done = subprocess.run(
            [str(python), "-c", _PROBE], check=True, capture_output=True, text=True,
            timeout=_PROBE_TIMEOUT,
        )  # fmt: skip
    except subprocess.CalledProcessError as failed:
        error = failed.stderr.strip().rpartition("\n")[2]
        raise UnusableCheckout(f"{python} cannot import bolide: {error}") from None
    except (OSError, subprocess.TimeoutExpired) as failed:
        raise UnusableCheckout(f"{python} does not run: {failed}") from None
    return json.loads(done.stdout)
