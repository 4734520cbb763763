"""Our own servers as processes, beside the Java ones."""

import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.interop.bench import BROKER_NEIGHBOURS, Server
from tests.interop.processes import ChildProcess
from tests.support.ports import free_port


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


_SMALL_FILES = {
    "mappedFileSizeCommitLog": 64 * 1024 * 1024,
    "maxHashSlotNum": 100_000,
    "maxIndexNum": 400_000,
}
"""Many brokers of a run are there at once; with the defaults each allocates 1.4 GiB."""


@contextmanager
def bolide_broker(
    directory: Path, namesrv_address: str, *arguments: str, **properties: object
) -> Iterator[Server]:
    """A `bolide broker` on a free port, with a RocketMQ properties file and files of its own."""
    directory.mkdir(parents=True, exist_ok=True)
    settings = {
        "listenPort": free_port(BROKER_NEIGHBOURS),
        "namesrvAddr": namesrv_address,
        "storePathRootDir": directory / "store",
        "brokerName": "broker-a",
        "brokerIP1": "127.0.0.1",
        **_SMALL_FILES,
        **properties,
    }
    file = directory / "broker.conf"
    file.write_text("".join(f"{key}={_text(value)}\n" for key, value in settings.items()))
    command = [sys.executable, "-m", "bolide", "broker", "-c", str(file), *arguments]
    with _process("bolide broker", command, directory) as process:
        process.wait_for_line("boot success", 20)
        yield Server(process, int(str(settings["listenPort"])), directory)


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
