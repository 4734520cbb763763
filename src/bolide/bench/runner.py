"""When a benchmark ends, and what happens at intervals meanwhile."""

import asyncio
import signal
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

_SHORT = 0.1
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """How long it runs: so many seconds, so many messages, or until it is told to stop."""

    duration: float | None = None
    count: int | None = None
    interval: float = 10.0
    """Seconds between two lines of progress."""


class Took(NamedTuple):
    """What a run took of the clock, and of this process's CPU time."""

    seconds: float
    cpu_seconds: float


class Run:
    """One run of a benchmark; `stop` is set when it is over."""

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self._left = bounds.count
        self.stop = asyncio.Event()
        self.is_interrupted = False

    def interrupt(self) -> None:
        """End before the bounds are reached: somebody has seen enough."""
        self.is_interrupted = True
        self.stop.set()

    def claim(self, wanted: int = 1) -> int:
        """How many of the messages wanted may still be sent; 0 at the end."""
        if self.stop.is_set():
            return 0
        if self._left is None:
            return wanted
        given = min(wanted, self._left)
        self._left -= given
        return given

    async def pause(self, seconds: float) -> None:
        """Wait, but not far past the end."""
        if seconds < _SHORT:
            await asyncio.sleep(seconds)
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.stop.wait()

    async def until_done(
        self, work: Iterable[Coroutine[Any, Any, None]], progress: Callable[[], None]
    ) -> Took:
        """Wait for all of the work, which ends when `stop` is set."""
        begin, cpu = time.perf_counter(), time.process_time()
        with self._ending():
            ticker = asyncio.create_task(self._tick(progress), name="bench-progress")
            try:
                async with asyncio.TaskGroup() as group:
                    for each in work:
                        group.create_task(each)
            finally:
                self.stop.set()
                await ticker
        return Took(time.perf_counter() - begin, time.process_time() - cpu)

    async def _tick(self, progress: Callable[[], None]) -> None:
        await self.pause(self._bounds.interval)
        while not self.stop.is_set():
            progress()
            await self.pause(self._bounds.interval)

    @contextmanager
    def _ending(self) -> Iterator[None]:
        """Have it end when the time is over, and at Ctrl-C or SIGTERM."""
        loop, duration = asyncio.get_running_loop(), self._bounds.duration
        timer = None if duration is None else loop.call_later(duration, self.stop.set)
        for number in _SIGNALS:
            loop.add_signal_handler(number, self.interrupt)
        try:
            yield
        finally:
            if timer is not None:
                timer.cancel()
            for number in _SIGNALS:
                loop.remove_signal_handler(number)
