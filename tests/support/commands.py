"""Commands as they are installed: run to their end, or started and watched."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

COMMANDS = Path(sys.executable).parent
PATIENCE = 20.0
WITHOUT_CONSOLE = {"BOLIDE_CONSOLE": "false"}
"""The console is a process more, which takes a second of a processor to start."""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home, current directory and environment, all under `tmp_path`."""
    for name in list(os.environ):
        if name.startswith(("BOLIDE_", "ROCKETMQ_", "_BOLIDE")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(command: str, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(COMMANDS / command), *words],
        env=WITHOUT_CONSOLE | os.environ | environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


class Running:
    """A command that serves; its output is read as it comes."""

    def __init__(self, *words: str) -> None:
        self.output = ""
        self.process = subprocess.Popen(
            [str(COMMANDS / words[0]), *words[1:]],
            env=WITHOUT_CONSOLE | os.environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        assert self.process.stdout is not None
        os.set_blocking(self.process.stdout.fileno(), False)

    def wait_for(self, pattern: str) -> re.Match[str]:
        """Look until the output holds it."""
        deadline = time.monotonic() + PATIENCE
        while (found := re.search(pattern, self.output)) is None:
            ended = self.process.poll() is not None
            self._read()
            assert time.monotonic() < deadline, self.output
            assert not ended or re.search(pattern, self.output), self.output
            time.sleep(0.005)
        return found

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Stop the command and return its exit code. It could not end with a full pipe."""
        self.process.send_signal(number)
        deadline = time.monotonic() + PATIENCE
        while (code := self.process.poll()) is None:
            assert time.monotonic() < deadline, f"still running: {self.output[-2000:]}"
            self._read()
            time.sleep(0.005)
        self._read()
        return code

    def _read(self) -> None:
        assert self.process.stdout is not None
        self.output += (self.process.stdout.read() or b"").decode()


@pytest.fixture
def started(home: Path) -> Iterator[list[Running]]:
    """Commands put in this list are ended with the test."""
    running: list[Running] = []
    yield running
    for each in running:
        if each.process.poll() is None:
            each.process.kill()
        each.process.communicate()
