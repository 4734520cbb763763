"""Single-flight tasks, and work that survives the cancellation of its caller."""

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, Generic, TypeVar

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


class SingleFlight(Generic[K, T]):
    """Runs one task at a time for each key; concurrent callers share its result.

    Cancelling a caller does not cancel the task. A lock would release one caller per iteration of
    the event loop, so the last of thousands would be late.
    """

    def __init__(self, closed: Callable[[K], Exception]) -> None:
        """`closed` makes the error for callers that still wait at `close`."""
        self._closed = closed
        self._tasks: dict[K, asyncio.Task[T]] = {}

    async def run(self, key: K, work: Callable[[], Coroutine[Any, Any, T]], name: str) -> T:
        """Wait for the task of this key; without one, start it with `work`."""
        task = self._tasks.get(key)
        # A task that has ended is forgotten in the next iteration of the loop. Awaiting it would
        # not yield, so a caller that repeats its call would never let that iteration come.
        if task is None or task.done():
            task = self._tasks[key] = asyncio.create_task(work(), name=name)
            task.add_done_callback(lambda ended: self._forget(key, ended))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            caller = asyncio.current_task()
            if caller is not None and caller.cancelling():
                raise
            raise self._closed(key) from None

    async def close(self) -> None:
        """Cancel the running tasks."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _forget(self, key: K, ended: asyncio.Task[T]) -> None:
        if self._tasks.get(key) is ended:
            del self._tasks[key]
        if not ended.cancelled():
            ended.exception()  # retrieved here: all callers may have been cancelled


async def uninterrupted(work: Coroutine[Any, Any, T]) -> T:
    """Await `work` to its end; a cancellation of the caller takes effect only afterwards.

    A thread cannot be cancelled: otherwise the lock that guards a file would be released while a
    thread still writes the file.
    """
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        if not task.cancelled():
            task.exception()  # retrieved here: the caller is cancelled
        raise
