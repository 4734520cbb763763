"""Options that every admin command has, and the question that dangerous ones ask."""

import io
import os
import pty
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import typer

from bolide.cli.admin.commands import COMMANDS, load
from bolide.cli.admin.common_options import add_common_options
from bolide.cli.admin.confirmation import ASSUME_YES, DryRun, Yes, confirm
from bolide.cli.admin.session import AsDocument
from bolide.cli.command_line import FAILED, UNREACHABLE, fail
from bolide.cli.documents import print_document
from bolide.cli.tables import Table

DRAW = """
from bolide.cli.tables import Table
table = Table("#Name", "#Size")
table.add("a", 12)
table.print()
"""


def show(as_document: AsDocument = False) -> None:
    print_document([{"n": 1}]) if as_document else typer.echo("one")


def remove(
    name: str, yes: Yes = False, dry_run: DryRun = False, as_document: AsDocument = False
) -> None:
    confirm(
        f"Remove {name}?",
        "3 messages will be lost",
        {"lost": 3},
        yes=yes,
        dry_run=dry_run,
        as_document=as_document,
    )
    typer.echo("removed")


@dataclass(frozen=True)
class Ran:
    code: object
    out: str
    err: str


class Program:
    """The options around some commands; `answers` is its standard input."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch = monkeypatch
        self._capsys = capsys

    def __call__(self, *words: str, answers: str = "", more: Callable[..., None] = show) -> Ran:
        app = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False)
        commands: set[Callable[..., None]] = {show, remove, more}
        for command in commands:
            app.command(command.__name__)(command)
        group: Any = typer.main.get_group(app)
        for name, command in group.commands.items():
            add_common_options(command, repeats=name != "remove")
        self._monkeypatch.setattr("sys.stdin", io.StringIO(answers))
        with pytest.raises(SystemExit) as ended:
            group.main(list(words), prog_name="bolide")
        return Ran(ended.value.code, *self._capsys.readouterr())


@pytest.fixture
def invoke(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Program:
    return Program(monkeypatch, capsys)


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (["show"], "one\n"),
        (["show", "--json"], '[{"n":1}]\n'),
        (["show", "--output", "json"], '[{"n":1}]\n'),
        (["show", "--output", "yaml"], "- n: 1\n"),
        (["show", "--output", "csv"], "n\n1\n"),
    ],
)
def test_the_output_is_in_the_format_asked_for(
    invoke: Program, words: list[str], wanted: str
) -> None:
    assert invoke(*words) == Ran(0, wanted, "")


def test_an_unknown_format_is_refused(invoke: Program) -> None:
    done = invoke("show", "--output", "xml")
    assert done.code == 2
    assert "'xml' is not one of 'json', 'yaml', 'csv'" in done.err


@pytest.mark.parametrize("answers", ["n\n", "\n", "", "maybe\n"])
def test_nothing_is_done_without_a_yes(invoke: Program, answers: str) -> None:
    done = invoke("remove", "x", answers=answers)
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith("3 messages will be lost\nRemove x? [y/N]")
    assert "nothing was changed" in done.err


def test_it_is_done_after_a_yes(invoke: Program) -> None:
    done = invoke("remove", "x", answers="y\n")
    assert (done.code, done.out) == (0, "removed\n")
    assert invoke("remove", "x", "--yes") == Ran(0, "removed\n", "")


def test_the_environment_can_say_yes(invoke: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ASSUME_YES, "true")
    assert invoke("remove", "x").code == 0


def test_a_dry_run_only_tells(invoke: Program) -> None:
    assert invoke("remove", "x", "--dry-run", "--yes") == Ran(0, "3 messages will be lost\n", "")
    assert invoke("remove", "x", "--dry-run", "--json") == Ran(0, '{"lost":3}\n', "")


def test_only_commands_that_look_are_repeated(invoke: Program) -> None:
    done = invoke("remove", "x", "--watch", "1")
    assert done.code == 2
    assert "--watch" in done.err
    for name, command in load().items():
        if name in COMMANDS:
            options = {option for each in command.params for option in each.opts}
            assert ("--watch" in options) is not COMMANDS[name].changes, name
            assert "--yes" not in options or COMMANDS[name].changes, name


@pytest.mark.parametrize("seconds", ["nan", "inf", "0", "-1", "soon"])
def test_an_interval_is_a_length_of_time(invoke: Program, seconds: str) -> None:
    assert invoke("show", "--watch", seconds).code == 2


def test_a_number_has_64_bits(invoke: Program) -> None:
    def count(number: int = 0) -> None:
        typer.echo(number)

    assert invoke("count", "--number", str(2**63 - 1), more=count).code == 0
    done = invoke("count", "--number", str(2**63), more=count)
    assert done.code == 2
    assert "too large for number" in done.err


def test_watching_goes_on_while_a_server_is_away(invoke: Program) -> None:
    looks: list[int] = []

    def look() -> None:
        looks.append(len(looks))
        if len(looks) == 3:
            raise KeyboardInterrupt
        fail("nobody there", UNREACHABLE)

    done = invoke("look", "--watch", "0.1", more=look)
    assert (done.code, len(looks)) == (0, 3)
    assert done.err.count("nobody there") == 2


def test_watching_ends_at_a_refusal(invoke: Program) -> None:
    def look() -> None:
        fail("no permission", FAILED)

    assert invoke("look", "--watch", "0.1", more=look).code == FAILED


def test_a_file_that_is_not_there_is_named(invoke: Program) -> None:
    def read() -> None:
        Path("/nowhere/at/all").read_text(encoding="utf-8")

    done = invoke("read", more=read)
    assert done.code == 2
    assert "cannot use /nowhere/at/all: No such file or directory" in done.err


def test_tables_are_columns_for_programs_and_drawn_on_a_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    table = Table("#Name", "#Size")
    table.add("a\x1b[31m", 12)
    table.print()
    assert capsys.readouterr().out == "#Name      #Size\na\\x1b[31m  12\n"

    ours, theirs = pty.openpty()
    subprocess.run([sys.executable, "-c", DRAW], stdout=theirs, check=True)
    os.close(theirs)
    drawn = os.read(ours, 10_000).decode()
    os.close(ours)
    assert "#Name" not in drawn
    assert "Name" in drawn
    assert "12" in drawn
