"""Our own servers as processes, beside the Java ones."""

import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.interop.bench import Server
from tests.interop.processes import ChildProcess


@contextmanager
def bolide_namesrv(
    directory: Path, *arguments: str, **properties: str | int | bool
) -> Iterator[Server]:
    """A `bolide namesrv` on a free port, with a RocketMQ properties file and files of its own."""
    directory.mkdir(parents=True, exist_ok=True)
    settings = {
        "listenPort": 0,
        "kvConfigPath": directory / "kvConfig.json",
        "configStorePath": directory / "namesrv.properties",
        **properties,
    }
    file = directory / "namesrv.conf"
    file.write_text("".join(f"{key}={_text(value)}\n" for key, value in settings.items()))
    command = [sys.executable, "-m", "bolide", "namesrv", "-c", str(file), *arguments]
    with _process("bolide namesrv", command, directory) as process:
        line = process.wait_for_line("boot success", 20)
        port = int(re.findall(r":(\d+)$", line)[0])
        yield Server(process, port, directory)


@contextmanager
def _process(name: str, command: Sequence[str], directory: Path) -> Iterator[ChildProcess]:
    environment = os.environ | {"HOME": str(directory), "ROCKETMQ_HOME": str(directory)}
    process = ChildProcess(name, command, environment)
    try:
        yield process
    finally:
        process.stop()


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
