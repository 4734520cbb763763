"""Commands that destroy or move something say what they will do, and ask.

With `--yes` they do not ask, with `--dry-run` they only say it.
"""

import sys
from typing import Annotated

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


def confirm(
    question: str,
    effect: Table | str,
    document: object,
    *,
    yes: bool,
    dry_run: bool,
    as_document: bool,
) -> None:
    """Show what a command will do; return if it is to be done, else end the program.

    Args:
        question: what to ask, such as "Delete topic Orders?".
        effect: what will happen, for people.
        document: the same for programs, printed for `--dry-run` with `--output`.
    """
    if dry_run and as_document:
        print_document(document)
    elif not (as_document or (yes and isinstance(effect, str))):
        effect.print() if isinstance(effect, Table) else print(effect)
    if dry_run:
        raise typer.Exit
    if not yes and not _is_agreed(question, shows_effect=as_document, effect=effect):
        fail(
            f"nothing was changed; answer y, give --yes, or set {ASSUME_YES}=true not to be asked",
            FAILED,
        )


def _is_agreed(question: str, *, shows_effect: bool, effect: Table | str) -> bool:
    """Ask on standard error: standard output may be read by a program."""
    if shows_effect and isinstance(effect, str):
        print(effect, file=sys.stderr)
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    answer = sys.stdin.readline()
    if not answer.endswith("\n"):
        print(file=sys.stderr)
    return answer.strip().lower() in {"y", "yes"}
