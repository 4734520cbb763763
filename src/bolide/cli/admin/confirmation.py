"""Commands that destroy or move something say what they will do, and ask.

With `--yes` they do not ask, with `--dry-run` they only say it.
"""

import sys
from collections.abc import Sequence
from typing import Annotated, TextIO

import typer

from bolide.cli.command_line import FAILED, fail
from bolide.cli.documents import print_document
from bolide.cli.tables import Table

ASSUME_YES = "BOLIDE_ASSUME_YES"

Yes = Annotated[
    bool,
    typer.Option("--yes", "-y", envvar=ASSUME_YES, help="Do not ask."),
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Only show what the command would do, and exit.")
]


Effect = Table | str | Sequence[Table | str]


def confirm(
    question: str,
    effect: Effect,
    document: object,
    *,
    yes: bool,
    dry_run: bool,
    as_document: bool,
) -> None:
    """Return if something is to be done, else end the program.

    Effect and question go to standard error: what a program reads is only the result.

    Args:
        question: what to ask, such as "Delete topic Orders?".
        effect: what will happen, for people: text, a table, or several of them.
        document: the same for programs, printed by `--dry-run` with `--output`.
    """
    if dry_run:
        print_document(document) if as_document else _show(effect, sys.stdout)
        raise typer.Exit
    if yes:
        return
    _show(effect, sys.stderr)
    if not _is_agreed(question):
        fail(
            f"nothing was changed; answer y, give --yes, or set {ASSUME_YES}=true not to be asked",
            FAILED,
        )


def _show(effect: Effect, to: TextIO) -> None:
    for part in [effect] if isinstance(effect, Table | str) else effect:
        part.print(to) if isinstance(part, Table) else print(part, file=to)


def _is_agreed(question: str) -> bool:
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    answer = sys.stdin.readline()
    if not answer.endswith("\n"):
        print(file=sys.stderr)
    return answer.strip().lower() in {"y", "yes"}
