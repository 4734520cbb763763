"""Work that many callers want at once: done one time, and all go on together."""

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, Generic, TypeVar

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")


class Joint(Generic[K, T]):
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
