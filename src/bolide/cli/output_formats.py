"""The options `--output` and `--json` of commands that are not of `bolide admin`."""

from typing import Annotated

import typer

from bolide.cli.documents import Format

Output = Annotated[
    Format | None, typer.Option("--output", help="Print a document instead of a table.")
]
JsonFlag = Annotated[bool, typer.Option("--json", help="The same as --output json.")]


def chosen_format(output: Format | None, as_json: bool) -> Format | None:
    """The format that the two options choose; None for a table."""
    if as_json and output not in {None, Format.JSON}:
        raise typer.BadParameter(f"--json and --output {output} exclude each other")
    return Format.JSON if as_json else output
