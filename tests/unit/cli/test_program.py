"""Options of the commands: unique within a command, and required ones are named in errors."""

from collections import Counter
from collections.abc import Iterator

import typer
from typer.testing import CliRunner

from bolide.cli.program import LazyCommand, app


def test_no_option_of_a_command_is_given_twice() -> None:
    doubled = {
        name: twice
        for name, options in _options(typer.main.get_command(app), "bolide")
        if (twice := [option for option, count in Counter(options).items() if count > 1])
    }
    assert doubled == {}


def _options(command: object, name: str) -> Iterator[tuple[str, list[str]]]:
    params = getattr(command, "params", [])
    yield name, [option for each in params for option in (*each.opts, *each.secondary_opts)]
    for word, inner in getattr(command, "commands", {}).items():
        yield from _options(inner, f"{name} {word}")


def test_who_ends_a_transaction_must_say_how() -> None:
    done = CliRunner().invoke(app, ["admin", "resolveTransaction", "-i", "7F00"])
    assert done.exit_code == 2
    assert "give --commit to deliver the message, or --rollback to discard it" in done.output


def test_a_command_that_is_loaded_late_is_announced_by_its_own_first_line() -> None:
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    late = [each for each in commands.values() if isinstance(each, LazyCommand)]
    assert {each.name for each in late} == {"export", "apply"}
    for each in late:
        assert each.loaded.help.partition("\n")[0] == each.help
