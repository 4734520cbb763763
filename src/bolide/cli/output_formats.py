"""Rows of a report for programs: JSON, YAML or CSV."""

import csv
import sys
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Annotated

import msgspec
import typer

from bolide.logs import plain_json

Row = Mapping[str, object]


class OutputFormat(StrEnum):
    JSON = "json"
    YAML = "yaml"
    CSV = "csv"


Output = Annotated[
    OutputFormat | None, typer.Option("--output", help="Print a document instead of a table.")
]
JsonFlag = Annotated[bool, typer.Option("--json", help="The same as --output json.")]


def chosen_format(output: OutputFormat | None, as_json: bool) -> OutputFormat | None:
    """The format that the two options choose; None for a table."""
    if as_json and output not in {None, OutputFormat.JSON}:
        raise typer.BadParameter(f"--json and --output {output} exclude each other")
    return OutputFormat.JSON if as_json else output


def print_document(document: object, rows: Sequence[Row], output: OutputFormat) -> None:
    """Print a document; as CSV, its rows, a list in a cell as words."""
    match output:
        case OutputFormat.JSON:
            text = msgspec.json.format(msgspec.json.encode(document), indent=2).decode()
            sys.stdout.write(plain_json(text) + "\n")
        case OutputFormat.YAML:
            import yaml  # noqa: PLC0415  slow to import

            plain = msgspec.to_builtins(document)
            sys.stdout.write(yaml.safe_dump(plain, sort_keys=False, allow_unicode=False))
        case OutputFormat.CSV:
            writer = csv.writer(sys.stdout, lineterminator="\n")
            for number, row in enumerate(rows):
                if number == 0:
                    writer.writerow(row)
                writer.writerow(_cell(value) for value in row.values())


def _cell(value: object) -> object:
    if isinstance(value, list | tuple):
        return " ".join(map(str, value))
    return "" if value is None else value
