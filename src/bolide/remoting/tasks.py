"""Single-flight work, and work that a cancelled caller does not interrupt."""

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, Generic, TypeVar

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


class SingleFlight(Generic[K, T]):
    """One task at a time for each key. A caller that gives up does not stop the others' task.

    A lock would let go of one caller in each turn of the loop, and the last of thousands would be
    late.
    """

    def __init__(self, closed: Callable[[K], Exception]) -> None:
        """`closed` makes the error of those who wait when all is ended."""
        self._closed = closed
        self._tasks: dict[K, asyncio.Task[T]] = {}

    async def done(self, key: K, work: Callable[[], Coroutine[Any, Any, T]], name: str) -> T:
        """Wait for the task of this key; `work` begins it if there is none."""
        task = self._tasks.get(key)
        if task is None:
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
        """End what is under way."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _forget(self, key: K, ended: asyncio.Task[T]) -> None:
        self._tasks.pop(key, None)
        if not ended.cancelled():
            ended.exception()  # those who waited may have given up: then nobody else asks


async def uninterrupted(work: Coroutine[Any, Any, T]) -> T:
    """Await `work` to its end; if the caller is cancelled meanwhile, it is so only then.

    A thread cannot be cancelled: without this, the lock that guards a file would be given up while
    the file is still being written.
    """
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        if not task.cancelled():
            task.exception()  # nobody is left to be told
        raise
