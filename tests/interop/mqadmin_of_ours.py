"""Many commands of our mqadmin in one process, as `run_commands` runs those of Java's.

`python -m tests.interop.mqadmin_of_ours FILE` runs what the file lists, and prints what came of it.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import FrameType
from typing import NamedTuple, NoReturn

from typer.testing import CliRunner

from bolide.cli import app

REPOSITORY = Path(__file__).resolve().parents[2]
LONGEST = 20
"""Seconds that a command may take."""


class Done(NamedTuple):
    exit_code: int
    output: str
    """Both streams."""
    trouble: str
    """An exception that left the program."""


class Line(NamedTuple):
    words: Sequence[str]
    seconds: float = 0
    """How long a command runs that does not end by itself."""


def run_ours(
    lines: Iterable[Line], name_server: str, directory: Path, access_key: str, secret_key: str
) -> list[Done]:
    """What came of each command; none asks before it destroys something."""
    directory.mkdir(parents=True, exist_ok=True)
    file = directory / "commands.json"
    file.write_text(json.dumps([*lines]))
    environment = os.environ | {
        "NAMESRV_ADDR": name_server,
        "BOLIDE_ACCESS_KEY": access_key,
        "BOLIDE_SECRET_KEY": secret_key,
        "BOLIDE_ASSUME_YES": "true",
        "PYTHONPATH": os.pathsep.join([str(REPOSITORY), *sys.path]),
        "COLUMNS": "400",
    }
    done = subprocess.run(
        [sys.executable, "-m", "tests.interop.mqadmin_of_ours", str(file)],
        check=False, capture_output=True, text=True, cwd=directory, env=environment, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return [Done(*each) for each in json.loads(done.stdout.splitlines()[-1])]


def _run(words: Sequence[str], seconds: float) -> Done:
    signal.setitimer(signal.ITIMER_REAL, seconds or LONGEST)
    try:
        result = CliRunner().invoke(app, ["admin", *words], catch_exceptions=True)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    trouble = result.exception
    is_plain = trouble is None or isinstance(trouble, SystemExit | KeyboardInterrupt)
    return Done(result.exit_code, result.output, "" if is_plain else repr(trouble))


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


if __name__ == "__main__":
    signal.signal(signal.SIGALRM, _interrupt)
    print(json.dumps([_run(*each) for each in json.loads(Path(sys.argv[1]).read_text())]))
