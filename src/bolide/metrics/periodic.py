"""`PeriodicExport` sends the metrics of a server to another program from time to time."""

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import Protocol

from bolide.metrics.families import Family

log = logging.getLogger(__name__)

_STOP_TIMEOUT = 5.0
"""Seconds at the end for an export that runs, and for the last one."""
_CLOSE_TIMEOUT = 1.0
"""Seconds for what was interrupted to end."""


class Stopped(Exception):
    """The server stops: a collection ends early."""


class Sender(Protocol):
    """Sends families to another program."""

    def export(self, families: Iterable[Family]) -> None:
        """Blocks. One thread at a time calls it."""
        ...

    def close(self) -> None:
        """Interrupts an export that another thread is in."""
        ...


class PeriodicExport:
    """Exports at an interval, one export at a time, and once more at the end.

    Each export has a daemon thread: a receiver that hangs must not keep the process alive.

    Args:
        begin: begins a collection on the event loop; what it returns is read by the thread.
    """

    def __init__(
        self, sender: Sender, interval: float, begin: Callable[[], Awaitable[Iterable[Family]]]
    ) -> None:
        self._sender = sender
        self._interval = interval
        self._begin = begin
        self._running: asyncio.Future[None] | None = None
        self._task = asyncio.create_task(self._repeat(), name="metrics-export")

    async def finish(self) -> None:
        """Wait for the export that runs and export a last time, within a few seconds."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        with suppress(TimeoutError):
            async with asyncio.timeout(_STOP_TIMEOUT):
                if self._running is not None:
                    await asyncio.wait({self._running})
                await self._export()

    async def close(self) -> None:
        """Interrupt what still runs."""
        closed = _on_daemon(self._sender.close)
        await asyncio.wait({closed, self._running or closed}, timeout=_CLOSE_TIMEOUT)

    async def _repeat(self) -> None:
        while True:
            await asyncio.sleep(self._interval)
            await self._export()

    async def _export(self) -> None:
        """Export once; cancelling it does not end the export."""
        try:
            families = await self._begin()
        except Stopped:
            return
        except Exception:
            log.exception("the metrics could not be collected for an export")
            return
        self._running = _on_daemon(lambda: self._send(families))
        await asyncio.wait({self._running})

    def _send(self, families: Iterable[Family]) -> None:
        with suppress(Stopped):
            self._sender.export(families)


def _on_daemon(work: Callable[[], None]) -> asyncio.Future[None]:
    """Run blocking work on a thread that the end of the process does not wait for."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[None] = loop.create_future()

    def run() -> None:
        try:
            work()
        except Exception:
            log.exception("the metrics could not be exported")
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(ended.set_result, None)

    threading.Thread(target=run, name="bolide-metrics-export", daemon=True).start()
    return ended
