"""Credentials of the admin commands, and secrets that they are given.

Secrets on a command line are visible to all users of a machine while the command runs, so every
secret can come from the environment, from standard input or from a prompt instead.
"""

import os
import sys
from pathlib import Path

import typer

from bolide.errors import ConfigError

ACCESS_KEY = "BOLIDE_ACCESS_KEY"
SECRET_KEY = "BOLIDE_SECRET_KEY"  # noqa: S105  the name of a variable
FROM_INPUT = "-"
_TOOLS_FILE = Path("conf") / "tools.yml"


def own_credentials() -> tuple[str | None, str | None]:
    """Access key and secret key that sign the requests of a command; None without them.

    They are in BOLIDE_ACCESS_KEY and BOLIDE_SECRET_KEY, or as RocketMQ's mqadmin has them, in
    `$ROCKETMQ_HOME/conf/tools.yml`.

    Raises:
        ConfigError: one key is given without the other, or the file is invalid.
    """
    given = os.environ.get(ACCESS_KEY) or None, os.environ.get(SECRET_KEY) or None
    if any(given):
        if not all(given):
            raise ConfigError(f"{ACCESS_KEY} and {SECRET_KEY} must be set together")
        return given
    home = os.environ.get("ROCKETMQ_HOME")
    file = Path(home) / _TOOLS_FILE if home else None
    return _from_file(file) if file is not None and file.is_file() else (None, None)


def _from_file(file: Path) -> tuple[str | None, str | None]:
    from bolide.auth.plain.yaml_nodes import read_nodes  # noqa: PLC0415  YAML is slow to import

    try:
        content = read_nodes(file.read_bytes(), str(file)).as_mapping("the file")
    except OSError as exc:
        raise ConfigError(f"cannot read {file}: {exc.strerror}") from exc
    keys = [
        content[name].as_text(name) if name in content and not content[name].is_empty else None
        for name in ("accessKey", "secretKey")
    ]
    return (keys[0], keys[1]) if all(keys) else (None, None)


def new_secret(given: str | None, variable: str, what: str) -> str:
    """A secret that a command sets: its option, else an environment variable, else typed.

    `-` as the option reads it: from a prompt on a terminal, otherwise the first line of standard
    input.

    Args:
        what: the prompt's name for the secret.
    """
    if given is None:
        return os.environ.get(variable) or _typed(what)
    if given != FROM_INPUT:
        return given
    secret = _typed(what) if sys.stdin.isatty() else sys.stdin.readline().rstrip("\r\n")
    if not secret:
        raise typer.BadParameter("standard input has no secret")
    return secret


def changed_secret(given: str | None, variable: str, what: str, *, asked: bool) -> str | None:
    """As `new_secret`, for a command that may leave a secret as it is; None if it does.

    Args:
        asked: whether an option asks for a new secret. A variable alone does not: it may be left
            over from another command.
    """
    return new_secret(given, variable, what) if asked or given is not None else None


def _typed(what: str) -> str:
    typed: str = typer.prompt(what, hide_input=True, confirmation_prompt=True)
    return typed
