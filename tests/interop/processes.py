"""Processes that never outlive the Python process that started them."""

import atexit
import os
import re
import signal
import socket
import subprocess
import sys
import time
import weakref
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from threading import Condition, Thread
from typing import IO, Self

TIED = Path(__file__).with_name("tied.py")
SHOWN_LINES = 40

# The kernel ties a process to the thread that forked it, so one lasting thread starts them all.
_spawner = ThreadPoolExecutor(max_workers=1, thread_name_prefix="spawner")
_running: weakref.WeakSet["ChildProcess"] = weakref.WeakSet()


class ProcessFailed(Exception):
    """A process ended badly or did not do in time what was awaited."""


class ChildProcess:
    """A running command whose output is collected line by line."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        environment: Mapping[str, str],
        directory: Path | None = None,
    ) -> None:
        self.name = name
        self._news = Condition()
        self._lines: list[tuple[bool, str]] = []
        self._open_streams = 2
        self._popen = _spawner.submit(_spawn, command, environment, directory).result()
        self._pumps = [
            Thread(target=self._pump, args=(stream, stream is self._popen.stderr), daemon=True)
            for stream in (self._popen.stdout, self._popen.stderr)
        ]
        for pump in self._pumps:
            pump.start()
        _running.add(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def pid(self) -> int:
        return self._popen.pid

    @property
    def running(self) -> bool:
        return self._popen.poll() is None

    @property
    def stdout(self) -> list[str]:
        with self._news:
            return [line for is_error, line in self._lines if not is_error]

    @property
    def stderr(self) -> list[str]:
        with self._news:
            return [line for is_error, line in self._lines if is_error]

    @property
    def output(self) -> list[str]:
        """Both streams, interleaved as they came."""
        with self._news:
            return [line for _, line in self._lines]

    def wait_for_line(self, pattern: str, timeout: float = 60) -> str:
        """The first line of output, past or to come, in which the pattern is found."""
        deadline = time.monotonic() + timeout
        seen = 0
        with self._news:
            while True:
                for _, line in self._lines[seen:]:
                    if re.search(pattern, line):
                        return line
                seen = len(self._lines)
                left = deadline - time.monotonic()
                if left <= 0:
                    raise self.failure(f"did not print {pattern!r} within {timeout:.0f} s")
                if not self._open_streams:
                    raise self.failure(f"ended without printing {pattern!r}")
                self._news.wait(left)

    def wait(self, timeout: float = 60) -> list[str]:
        """The lines of standard output, once the process has ended well."""
        try:
            code = self._popen.wait(timeout)
        except subprocess.TimeoutExpired:
            raise self.failure(f"did not end within {timeout:.0f} s") from None
        self._finish()
        if code:
            raise self.failure(f"ended with exit code {code}")
        return self.stdout

    def wait_for_end(self, timeout: float = 60) -> None:
        """Return when it has ended, well or badly, or when the time is over."""
        with suppress(subprocess.TimeoutExpired):
            self._popen.wait(timeout)

    def failure(self, what: str) -> ProcessFailed:
        tail = "\n".join(self.output[-SHOWN_LINES:]) or "(nothing)"
        return ProcessFailed(f"{self.name} {what}. Its last output:\n{tail}")

    def stop(self, timeout: float = 20) -> None:
        """Ask it to end, as an operator does, and insist when it does not."""
        if self.running:
            self._popen.terminate()
            try:
                self._popen.wait(timeout)
            except subprocess.TimeoutExpired:
                self.kill()
        self._finish()

    def kill(self) -> None:
        if self.running:
            os.killpg(self.pid, signal.SIGKILL)
            self._popen.wait()
        self._finish()

    def _pump(self, stream: IO[str], is_error: bool) -> None:
        with stream:
            for line in stream:
                with self._news:
                    self._lines.append((is_error, line.rstrip("\n")))
                    self._news.notify_all()
        with self._news:
            self._open_streams -= 1
            self._news.notify_all()

    def _finish(self) -> None:
        for pump in self._pumps:
            pump.join()
        _running.discard(self)


def _spawn(
    command: Sequence[str], environment: Mapping[str, str], directory: Path | None
) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-I", "-S", str(TIED), str(os.getpid()), *command],
        env=environment,
        cwd=directory,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        start_new_session=True,
    )


@atexit.register
def _kill_leftovers() -> None:
    for process in list(_running):
        process.kill()


def accepts_connections(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def is_alive(pid: int) -> bool:
    """Whether the process runs; one that has ended and is not yet reaped does not."""
    found = subprocess.run(
        ["ps", "-o", "stat=", "-p", str(pid)], check=False, capture_output=True, text=True
    )
    state = found.stdout.strip()
    return bool(state) and not state.startswith("Z")
