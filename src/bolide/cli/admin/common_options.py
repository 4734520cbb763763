"""Options that every admin command has: `--output`, and `--watch` if it changes nothing."""

import os
import sys
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import cache
from typing import Annotated, Any

import typer

from bolide.cli.admin.session import complete_or_exit
from bolide.cli.admin.times import check_seconds
from bolide.cli.command_line import UNREACHABLE, USAGE, fail
from bolide.cli.documents import Format, documents_in
from bolide.logs import one_line

_CLEAR = "\x1b[2J\x1b[H"


def add_common_options(command: Any, *, repeats: bool) -> None:
    """Add the options to a command; one that changes something is not repeated."""
    has_document = any(each.name == "as_document" for each in command.params)
    wanted = {"output": has_document, "watch": repeats}
    parameters = [each for each in _parameters() if wanted[str(each.name)]]
    command.params = [*command.params, *parameters]
    command.callback = _with_options(command.callback)


@cache
def _parameters() -> tuple[Any, ...]:
    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    app.command()(_declare)
    return tuple(typer.main.get_command(app).params)


def _declare(
    output: Annotated[
        Format | None,
        typer.Option("--output", help="Print a document for programs; --json is --output json."),
    ] = None,
    watch: Annotated[
        float | None,
        typer.Option(
            "--watch", metavar="SECONDS", callback=check_seconds, help="Repeat until interrupted."
        ),
    ] = None,
) -> None:
    """Never runs: only its parameters are used."""


def _with_options(command: Callable[..., object]) -> Callable[..., object]:
    def run(*, output: Format | None = None, watch: float | None = None, **values: Any) -> None:
        if output is not None:
            values["as_document"] = True
        _check_numbers(values)
        with _NamesFiles(), documents_in(output or Format.JSON):
            if watch is None:
                _complete(command, values)
            else:
                _repeat(lambda: _complete(command, values), watch)

    return run


def _check_numbers(values: Mapping[str, object]) -> None:
    """No number is larger than the widest on the wire."""
    for name, value in values.items():
        if isinstance(value, int) and not -(2**63) <= value < 2**63:
            raise typer.BadParameter(f"{value} is too large for {name}: a number has 64 bits")


def _complete(command: Callable[..., object], values: Mapping[str, Any]) -> None:
    with complete_or_exit():
        command(**values)


def _repeat(show: Callable[[], object], seconds: float) -> None:
    """Show again and again; a server that does not answer now may do so the next time."""
    draws = sys.stdout.isatty()
    try:
        while True:
            if draws:
                words = one_line(" ".join([os.path.basename(sys.argv[0]), *sys.argv[1:]]))  # noqa: PTH119
                print(f"{_CLEAR}{datetime.now().astimezone():%H:%M:%S}  {words}\n", flush=True)
            try:
                show()
            except typer.Exit as ended:
                if ended.exit_code not in {0, UNREACHABLE}:
                    raise
            sys.stdout.flush()
            time.sleep(seconds)
    except KeyboardInterrupt:
        return


class _NamesFiles:
    """Context manager: a file that cannot be used ends the program with one line that names it."""

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, exc: BaseException | None, traceback: object) -> None:
        if isinstance(exc, OSError) and exc.filename is not None:
            fail(f"cannot use {exc.filename}: {exc.strerror}", USAGE)
