"""`bolide store verify` and `bolide store dump`.

The store is imported when a command runs, so that other commands start faster.
"""

from pathlib import Path
from typing import Annotated, Literal

import typer

from bolide.cli.command_line import DAMAGE_FOUND, ExitOnError


def verify(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Root of the store.")],
    config: Annotated[
        Path | None,
        typer.Option(
            "-c", "--config", help="broker.conf; by default, sizes are taken from the files."
        ),
    ] = None,
    repair: Annotated[
        bool, typer.Option("--repair", help="Rebuild consume queues and index from the log.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print only damage.")] = False,
) -> None:
    """Check all files of a store that is not in use, and report damage."""
    from bolide.cli.store_tools import print_json_report, print_report, run_verify  # noqa: PLC0415

    with ExitOnError(OSError):
        report = run_verify(directory, config, repair=repair, silent=quiet or as_json)
    if as_json:
        print_json_report(report)
    else:
        print_report(report, quiet=quiet)
    raise typer.Exit(0 if report.sound else DAMAGE_FOUND)


def dump(
    path: Annotated[
        Path, typer.Argument(metavar="PATH", help="Store directory, or one commit log file.")
    ],
    topic: Annotated[str | None, typer.Option(help="Only this topic.")] = None,
    queue: Annotated[int | None, typer.Option(help="Only this queue.")] = None,
    first: Annotated[
        str | None,
        typer.Option("--from", help="First offset, or store time in ISO 8601 or as @milliseconds."),
    ] = None,
    last: Annotated[str | None, typer.Option("--to", help="End offset or time, exclusive.")] = None,
    limit: Annotated[int | None, typer.Option(help="Maximum number of messages.", min=0)] = None,
    body: Annotated[
        Literal["text", "base64", "hex", "none"], typer.Option(help="Format of bodies.")
    ] = "text",
    key: Annotated[str | None, typer.Option(help="Only this key or unique id.")] = None,
) -> None:
    """Print messages as JSON lines. Changes nothing; a broker may have the store open."""
    from bolide.cli.store_tools import parse_selection, print_records  # noqa: PLC0415

    with ExitOnError(OSError):
        selection = parse_selection(topic, queue, key, first, last)
        print_records(path, selection, limit, body)
