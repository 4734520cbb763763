"""Keeps servers running that are processes of their own.

They are started in stages, a stage when all of the one before serve, and end in the opposite order.
One that ends by itself is started again after a pause, which grows while it does not last. One that
ends before it ever served has a mistake that no second start would mend: then all are stopped.

The servers are started by exec, not as forks: they share no memory with this process, which does
nothing but wait.
"""

import asyncio
import logging
import os
import signal
import socket
import sys
from asyncio.subprocess import DEVNULL, Process
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from bolide.cli.server_process import handed_to_child
from bolide.errors import BolideError

log = logging.getLogger(__name__)

_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 30.0
_LASTING = 60.0
"""Seconds after which a server that ends gets the first pause again."""
_AS_ASKED = {0, -signal.SIGTERM}
"""The latter of one that had only begun to start."""


@dataclass(frozen=True, slots=True)
class Server:
    """One that is kept running: a name for it, and its words after `bolide`."""

    label: str
    words: tuple[str, ...]


class FailedToStart(BolideError):
    """A server could not be started, or ended before it served and has said why itself."""

    def __init__(self, label: str, reason: str) -> None:
        super().__init__(f"{label} {reason}; nothing is left running")


class Supervisor:
    """Belongs to one event loop."""

    def __init__(self, stages: Sequence[Sequence[Server]]) -> None:
        self._stages = [[_Keeper(server) for server in stage] for stage in stages]

    async def run(self, on_ready: Callable[[], None]) -> None:
        """Start all and keep them running; when it is cancelled, they end first.

        Raises:
            FailedToStart: one of them did not; the others have ended.
        """
        failed: list[FailedToStart] = []
        try:
            async with asyncio.TaskGroup() as group:
                for stage in self._stages:
                    for keeper in stage:
                        group.create_task(keeper.run())
                    for keeper in stage:
                        await keeper.serves.wait()
                on_ready()
        except* FailedToStart as several:
            failed += [each for each in several.exceptions if isinstance(each, FailedToStart)]
        finally:
            await self._stop()
        if failed:
            raise failed[0]

    def pass_on(self, number: signal.Signals) -> None:
        """Send a signal to all that serve; one that starts might not be ready for it."""
        for keeper in self._keepers():
            if keeper.is_serving:
                keeper.send(number)

    @property
    def ended_well(self) -> bool:
        return all(keeper.ended_well for keeper in self._keepers())

    async def _stop(self) -> None:
        for stage in reversed(self._stages):
            await asyncio.gather(*(keeper.stop() for keeper in stage))

    def _keepers(self) -> Iterator["_Keeper"]:
        return (keeper for stage in self._stages for keeper in stage)


class _Keeper:
    """Runs one server again and again."""

    def __init__(self, server: Server) -> None:
        self.serves = asyncio.Event()
        """Set when it serves for the first time."""
        self.is_serving = False
        self.ended_well = True
        self._server = server
        self._process: Process | None = None
        self._lifeline = socket.socket()
        self._begun = 0.0
        self._pause = _FIRST_PAUSE

    async def run(self) -> None:
        """Start it, and again whenever it ends, until it is cancelled."""
        label = self._server.label
        try:
            process = await self._start()
        except OSError as exc:
            raise FailedToStart(label, f"cannot be started: {exc}") from exc
        if not await self._hear():
            raise FailedToStart(label, f"{ending(await process.wait())} before it served")
        self.serves.set()
        while True:
            await self._wait(ending(await process.wait()))
            process = await self._start_again()
            if await self._hear():
                log.info("%s serves again", label)

    def send(self, number: signal.Signals) -> None:
        if self._process is not None:
            send_signal(self._process, number)

    async def stop(self) -> None:
        """Have it end in order; however long that takes, nobody kills it."""
        if self._process is not None:
            self.send(signal.SIGTERM)
            self.ended_well = await self._process.wait() in _AS_ASKED
        self._lifeline.close()

    async def _start(self) -> Process:
        self.is_serving = False
        self._lifeline.close()
        self._lifeline, theirs = socket.socketpair()
        self._lifeline.setblocking(False)
        self._begun = asyncio.get_running_loop().time()
        with theirs:
            self._process = await asyncio.create_subprocess_exec(
                # Not what happens to be called bolide in the directory it is started in.
                sys.executable, "-P", "-m", "bolide", *self._server.words,
                # Ctrl-C is for this process, which knows the order of the end.
                stdin=DEVNULL, start_new_session=True, pass_fds=[theirs.fileno()],
                env=os.environ | handed_to_child(theirs, self._server.label),
            )  # fmt: skip
        return self._process

    async def _start_again(self) -> Process:
        while True:
            try:
                return await self._start()
            except OSError as exc:
                await self._wait(f"cannot be started: {exc}")

    async def _hear(self) -> bool:
        """Wait until it says that it serves, or ends."""
        with suppress(ConnectionError):
            word = await asyncio.get_running_loop().sock_recv(self._lifeline, 1)
            self.is_serving = word != b""
        return self.is_serving

    async def _wait(self, reason: str) -> None:
        if asyncio.get_running_loop().time() - self._begun >= _LASTING:
            self._pause = _FIRST_PAUSE
        pause, self._pause = self._pause, min(self._pause * 2, _LONGEST_PAUSE)
        log.error("%s %s; it is started again in %g s", self._server.label, reason, pause)
        await asyncio.sleep(pause)


def send_signal(process: Process, number: signal.Signals) -> None:
    """Send it a signal unless it has ended.

    Its own `send_signal` asks for the exit code of one that ends just then, and older Pythons have
    it lost by that: it reads 255.
    """
    if process.returncode is None:
        with suppress(ProcessLookupError):
            os.kill(process.pid, number)


def ending(code: int) -> str:
    """What a return code says of the end of a process."""
    if code >= 0:
        return f"ended with exit code {code}"
    named = {each.value: each.name for each in signal.Signals}  # most real-time ones are not there
    return f"was ended by {named.get(-code) or f'signal {-code}'}"
