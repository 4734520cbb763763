"""Conventions of the command line: shared options, exit codes, one-line error messages."""

import sys
from collections.abc import Container, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from bolide import logs
from bolide.config import from_reference
from bolide.errors import BolideError, ConfigError

ConfigFile = Annotated[
    Path | None,
    typer.Option("-c", "--config", "--configFile", help="RocketMQ key=value file."),
]
PrintConfig = Annotated[
    bool,
    typer.Option("-p", "--print", "--printConfigItem", help="Print all settings and exit."),
]
Strict = Annotated[bool, typer.Option("--strict", help="Refuse unknown keys.")]
LogFile = Annotated[
    Path | None, typer.Option("--log-config", help="TOML file with the logging configuration.")
]
Workers = Annotated[
    int | None,
    typer.Option(help="Worker processes, each a broker group with its own ports and store."),
]
SettingWords = Annotated[
    list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Settings.")
]
FAILED = 1
"""Exit code: the request was refused or failed."""
USAGE = 2
"""Exit code: an option or its value cannot be used."""
UNREACHABLE = 3
"""Exit code: a server could not be reached, or did not answer."""
NOT_APPLICABLE = 4
"""Exit code: the command has no meaning for these servers."""
DAMAGE_FOUND = 1
START_FAILED = 3
_SPARK_PACKAGES = {"pyspark", "pyarrow", "pandas", "rich"}


def parse_settings(words: list[str] | None) -> dict[str, str]:
    """Parse settings given as `key=value` words; a value `${NAME}` is read from the environment.

    Raises:
        ConfigError: a word does not have this form, or there is no such variable.
    """
    found = {}
    for word in words or []:
        key, equals, value = word.partition("=")
        if not equals:
            raise ConfigError(f"{word!r} is not of the form key=value")
        found[key.strip()] = from_reference(value.strip())
    return found


class ExitOnError:
    """Context manager that ends the program with a one-line message for expected errors.

    Expected are `BolideError` and the exception types given.
    """

    def __init__(self, *others: type[Exception]) -> None:
        self._kinds: tuple[type[Exception], ...] = (BolideError, *others)

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, exc: BaseException | None, traceback: object) -> None:
        if isinstance(exc, self._kinds):
            fail(str(exc))


def fail(reason: str, code: int = START_FAILED) -> NoReturn:
    """Print a one-line message to standard error and exit."""
    logs.shutdown()
    print(f"{program_name()}: {reason}", file=sys.stderr)
    raise typer.Exit(code)


def program_name() -> str:
    """The name by which this program was started."""
    name = Path(sys.argv[0]).name
    return "bolide" if name == "__main__.py" else name


@contextmanager
def require_extra(extra: str, packages: Container[str]) -> Iterator[None]:
    """Exit with a one-line message if a package of an extra of Bolide is not installed."""
    try:
        yield
    except ModuleNotFoundError as exc:
        if (exc.name or "").partition(".")[0] not in packages:
            raise
        fail(f'this needs the package {exc.name}: pip install "bolide[{extra}]"')


def require_spark() -> AbstractContextManager[None]:
    """Exit with a one-line message if a package of `bolide[spark]` is not installed."""
    return require_extra("spark", _SPARK_PACKAGES)
