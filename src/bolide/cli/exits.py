"""How the program ends."""

import sys
from pathlib import Path
from typing import NoReturn

import typer

from bolide import logs
from bolide.errors import BolideError

FAILED = 1
"""What was asked for was refused, or did not work."""

DAMAGE_FOUND = 1
START_FAILED = 3


class Refusing:
    """Ends the program with one clear line where a mistake of the user is found.

    Errors of ours are such mistakes, and others that the command names.
    """

    def __init__(self, *others: type[Exception]) -> None:
        self._kinds: tuple[type[Exception], ...] = (BolideError, *others)

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, exc: BaseException | None, traceback: object) -> None:
        if isinstance(exc, self._kinds):
            fail(str(exc))


def fail(reason: str, code: int = START_FAILED) -> NoReturn:
    logs.shutdown()
    print(f"{Path(sys.argv[0]).name}: {reason}", file=sys.stderr)
    raise typer.Exit(code)
