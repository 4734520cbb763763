"""Conventions of the command line: shared options, exit codes, one-line error messages."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from bolide import logs
from bolide.errors import BolideError, ConfigError

ConfigFile = Annotated[
    Path | None,
    typer.Option("-c", "--config", "--configFile", help="RocketMQ key=value file."),
]
PrintConfig = Annotated[
    bool,
    typer.Option("-p", "--print", "--printConfigItem", help="Print every setting and leave."),
]
Strict = Annotated[bool, typer.Option("--strict", help="Refuse unknown keys.")]
LogFile = Annotated[
    Path | None, typer.Option("--log-config", help="TOML file that says what is logged and where.")
]
Workers = Annotated[
    int | None,
    typer.Option(
        help="Processes that share the work, each a broker group with ports and store of its own."
    ),
]
Words = Annotated[
    list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Settings by their keys.")
]
FAILED = 1
"""What was asked for was refused, or did not work."""
DAMAGE_FOUND = 1
START_FAILED = 3
_PACKAGES = {"pyspark", "pyarrow", "pandas", "yaml", "rich"}


def settings_of(words: list[str] | None) -> dict[str, str]:
    """Settings given as key=value words.

    Raises:
        ConfigError: a word is not of that form.
    """
    found = {}
    for word in words or []:
        key, equals, value = word.partition("=")
        if not equals:
            raise ConfigError(f"{word!r} is not of the form key=value")
        found[key.strip()] = value.strip()
    return found


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


@contextmanager
def spark_needed() -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as exc:
        if (exc.name or "").partition(".")[0] not in _PACKAGES:
            raise
        fail(f'this needs the package {exc.name}: pip install "bolide[spark]"')
