"""Options that several commands have, and what is made of them."""

from pathlib import Path
from typing import Annotated

import typer

from bolide.errors import ConfigError

ConfigFile = Annotated[
    Path | None,
    typer.Option("-c", "--config", "--configFile", help="RocketMQ key=value file."),
]
PrintConfig = Annotated[
    bool,
    typer.Option("-p", "--print", "--printConfigItem", help="Print every setting and leave."),
]
Strict = Annotated[bool, typer.Option("--strict", help="Refuse unknown keys.")]
LogFile = Annotated[
    Path | None, typer.Option("--log-config", help="TOML file that says what is logged and where.")
]
Workers = Annotated[
    int | None,
    typer.Option(
        help="Processes that share the work, each a broker group with ports and store of its own."
    ),
]
Words = Annotated[
    list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Settings by their keys.")
]


def settings_of(words: list[str] | None) -> dict[str, str]:
    """Settings given as key=value words.

    Raises:
        ConfigError: a word is not of that form.
    """
    found = {}
    for word in words or []:
        key, equals, value = word.partition("=")
        if not equals:
            raise ConfigError(f"{word!r} is not of the form key=value")
        found[key.strip()] = value.strip()
    return found
