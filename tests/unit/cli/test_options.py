"""Options of the commands: none of them means two things."""

from collections import Counter
from collections.abc import Iterator

import typer

from bolide.cli.program import app


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
