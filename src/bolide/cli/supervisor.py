"""Process supervisor: starts server processes and restarts those that end.

Servers start in stages: a stage starts when all servers of the previous one are ready. They stop in
reverse order. A server that ends is restarted with exponential backoff. A server that ends before
it was ever ready has a permanent error, so the supervisor then stops all servers.

The servers are started by exec, not by fork, and share no memory with the supervisor.
"""

import asyncio
import logging
import os
import signal
import socket
import sys
from asyncio.subprocess import DEVNULL, Process
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from bolide.errors import BolideError
from bolide.lifeline import lifeline_environment

log = logging.getLogger(__name__)

_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 30.0
_STABLE_AFTER = 60.0
"""Seconds of service after which the backoff of a server is reset."""
_CLEAN_EXITS = {0, -signal.SIGTERM}
"""SIGTERM ends a server that has not installed its signal handler yet."""


@dataclass(frozen=True, slots=True)
class Server:
    """A server to keep running: its label, and its command line after `bolide`."""

    label: str
    words: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    """What must not be on a command line, which every user of the machine can read."""


class FailedToStart(BolideError):
    """A server could not be started, or ended before it was ready; it has logged the reason."""

    def __init__(self, label: str, reason: str) -> None:
        super().__init__(f"{label} {reason}; nothing is left running")


class Supervisor:
    """Runs servers in stages; belongs to one event loop."""

    def __init__(self, stages: Sequence[Sequence[Server]]) -> None:
        self._stages = [[_ServerProcess(server) for server in stage] for stage in stages]

    async def run(self, on_ready: Callable[[], None]) -> None:
        """Start all servers and keep them running; on cancellation, stop them first.

        Raises:
            FailedToStart: a server failed to start; all others have been stopped.
        """
        failed: list[FailedToStart] = []
        try:
            async with asyncio.TaskGroup() as group:
                for stage in self._stages:
                    for process in stage:
                        group.create_task(process.run())
                    for process in stage:
                        await process.ready.wait()
                on_ready()
        except* FailedToStart as several:
            failed += [each for each in several.exceptions if isinstance(each, FailedToStart)]
        finally:
            await self._stop()
        if failed:
            raise failed[0]

    def forward_signal(self, number: signal.Signals) -> None:
        """Send a signal to all ready servers; a starting one may not handle it yet."""
        for process in self._processes():
            if process.is_serving:
                process.send(number)

    @property
    def ended_cleanly(self) -> bool:
        return all(process.ended_cleanly for process in self._processes())

    async def _stop(self) -> None:
        for stage in reversed(self._stages):
            await asyncio.gather(*(process.stop() for process in stage))

    def _processes(self) -> Iterator["_ServerProcess"]:
        return (process for stage in self._stages for process in stage)


class _ServerProcess:
    """Runs one server and restarts it whenever it ends."""

    def __init__(self, server: Server) -> None:
        self.ready = asyncio.Event()
        """Set when the server is ready for the first time."""
        self.is_serving = False
        self.ended_cleanly = True
        self._server = server
        self._process: Process | None = None
        self._lifeline = socket.socket()
        self._started_at = 0.0
        self._pause = _FIRST_PAUSE

    async def run(self) -> None:
        """Start the server, and restart it whenever it ends, until cancelled."""
        label = self._server.label
        try:
            process = await self._start()
        except OSError as exc:
            raise FailedToStart(label, f"cannot be started: {exc}") from exc
        if not await self._wait_until_ready():
            raise FailedToStart(label, f"{describe_exit(await process.wait())} before it served")
        self.ready.set()
        while True:
            await self._pause_before_restart(describe_exit(await process.wait()))
            process = await self._restart()
            if await self._wait_until_ready():
                log.info("%s serves again", label)

    def send(self, number: signal.Signals) -> None:
        if self._process is not None:
            send_signal_to(self._process, number)

    async def stop(self) -> None:
        """Stop the server with SIGTERM and wait without a time limit; it is never killed."""
        if self._process is not None:
            self.send(signal.SIGTERM)
            self.ended_cleanly = await self._process.wait() in _CLEAN_EXITS
        self._lifeline.close()

    async def _start(self) -> Process:
        self.is_serving = False
        self._lifeline.close()
        self._lifeline, child_end = socket.socketpair()
        self._lifeline.setblocking(False)
        self._started_at = asyncio.get_running_loop().time()
        with child_end:
            self._process = await asyncio.create_subprocess_exec(
                # -P: do not import a `bolide` from the current directory.
                sys.executable, "-P", "-m", "bolide", *self._server.words,
                # New session: Ctrl-C reaches only the supervisor, which stops servers in order.
                stdin=DEVNULL, start_new_session=True, pass_fds=[child_end.fileno()],
                env={
                    **os.environ,
                    **self._server.environment,
                    **lifeline_environment(child_end, self._server.label),
                },
            )  # fmt: skip
        return self._process

    async def _restart(self) -> Process:
        while True:
            try:
                return await self._start()
            except OSError as exc:
                await self._pause_before_restart(f"cannot be started: {exc}")

    async def _wait_until_ready(self) -> bool:
        """Wait for the ready byte on the lifeline; False if the server ends first."""
        with suppress(ConnectionError):
            received = await asyncio.get_running_loop().sock_recv(self._lifeline, 1)
            self.is_serving = received != b""
        return self.is_serving

    async def _pause_before_restart(self, reason: str) -> None:
        if asyncio.get_running_loop().time() - self._started_at >= _STABLE_AFTER:
            self._pause = _FIRST_PAUSE
        pause, self._pause = self._pause, min(self._pause * 2, _LONGEST_PAUSE)
        log.error("%s %s; it is started again in %g s", self._server.label, reason, pause)
        await asyncio.sleep(pause)


def send_signal_to(process: Process, number: signal.Signals) -> None:
    """Send a signal to a process unless it has ended.

    `Process.send_signal` polls the exit code, which older Python versions then lose if the process
    ends at that moment: the code becomes 255.
    """
    if process.returncode is None:
        with suppress(ProcessLookupError):
            os.kill(process.pid, number)


def describe_exit(code: int) -> str:
    """How a process ended, as a phrase."""
    if code >= 0:
        return f"ended with exit code {code}"
    named = {each.value: each.name for each in signal.Signals}  # lacks most real-time signals
    return f"was ended by {named.get(-code) or f'signal {-code}'}"
