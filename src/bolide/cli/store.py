"""`bolide store verify` and `bolide store dump`.

The store is loaded when one of them runs: a NameServer starts faster without it.
"""

from pathlib import Path
from typing import Annotated, Literal

import typer

from bolide.cli.command_line import DAMAGE_FOUND, Refusing


def verify(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Root of the store.")],
    config: Annotated[
        Path | None,
        typer.Option("-c", "--config", help="broker.conf; without it the files tell their sizes."),
    ] = None,
    repair: Annotated[
        bool, typer.Option("--repair", help="Write consume queues and index again from the log.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print only damage.")] = False,
) -> None:
    """Read a whole store that is not in use, and tell what is damaged."""
    from bolide.cli.store_tools import look, print_document, print_report  # noqa: PLC0415

    with Refusing(OSError):
        report = look(directory, config, repair=repair, silent=quiet or as_json)
    if as_json:
        print_document(report)
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
    last: Annotated[
        str | None, typer.Option("--to", help="Offset or time behind the last one.")
    ] = None,
    limit: Annotated[int | None, typer.Option(help="Stop after so many messages.", min=0)] = None,
    body: Annotated[
        Literal["text", "base64", "hex", "none"], typer.Option(help="How to write bodies.")
    ] = "text",
    key: Annotated[str | None, typer.Option(help="Only this key or unique id.")] = None,
) -> None:
    """Print messages as JSON lines. Changes nothing; a broker may have the store open."""
    from bolide.cli.store_tools import print_records, selection_of  # noqa: PLC0415

    with Refusing(OSError):
        selection = selection_of(topic, queue, key, first, last)
        print_records(path, selection, limit, body)
