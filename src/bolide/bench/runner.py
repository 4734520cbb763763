"""The run of a benchmark: its end conditions and its periodic progress line."""

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
    """End of a run after a duration in seconds or a message count; without both, on a signal."""

    duration: float | None = None
    count: int | None = None
    interval: float = 10.0
    """Seconds between two lines of progress."""


class RunTime(NamedTuple):
    """Wall time of a run and CPU time of this process."""

    seconds: float
    cpu_seconds: float


class Run:
    """One run of a benchmark; `stop` is set at its end."""

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self._left = bounds.count
        self.stop = asyncio.Event()
        self.is_interrupted = False

    def interrupt(self) -> None:
        """End the run before its bounds are reached, on a signal."""
        self.is_interrupted = True
        self.stop.set()

    def claim(self, wanted: int = 1) -> int:
        """Reserve up to `wanted` messages of the count; returns 0 at the end of the run."""
        if self.stop.is_set():
            return 0
        if self._left is None:
            return wanted
        given = min(wanted, self._left)
        self._left -= given
        return given

    async def pause(self, seconds: float) -> None:
        """Sleep; a long sleep ends with the run."""
        if seconds < _SHORT:
            await asyncio.sleep(seconds)
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.stop.wait()

    async def until_done(
        self, work: Iterable[Coroutine[Any, Any, None]], progress: Callable[[], None]
    ) -> RunTime:
        """Run the coroutines, which end when `stop` is set, and call `progress` periodically."""
        begin, cpu = time.perf_counter(), time.process_time()
        with self._stop_conditions():
            ticker = asyncio.create_task(self._tick(progress), name="bench-progress")
            try:
                async with asyncio.TaskGroup() as group:
                    for each in work:
                        group.create_task(each)
            finally:
                self.stop.set()
                await ticker
        return RunTime(time.perf_counter() - begin, time.process_time() - cpu)

    async def _tick(self, progress: Callable[[], None]) -> None:
        await self.pause(self._bounds.interval)
        while not self.stop.is_set():
            progress()
            await self.pause(self._bounds.interval)

    @contextmanager
    def _stop_conditions(self) -> Iterator[None]:
        """Set `stop` after the duration, and on SIGINT or SIGTERM."""
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
