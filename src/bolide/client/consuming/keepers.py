"""Tasks that do something every so often while a consumer runs."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

log = logging.getLogger(__name__)


class Keepers:
    """Owns such tasks; what they raise is logged and does not end them."""

    def __init__(self) -> None:
        self._tasks: list[asyncio.Task[None]] = []

    def every(self, seconds: float, work: Callable[[], Awaitable[object] | object]) -> None:
        """Call `work`, a function or a coroutine function, again and again."""
        self.run(_repeat(seconds, work))

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        self._tasks.append(asyncio.create_task(work, name="bolide-consumer-keeper"))

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        self._tasks.clear()


async def _repeat(seconds: float, work: Callable[[], Awaitable[object] | object]) -> None:
    while True:
        await asyncio.sleep(seconds)
        try:
            outcome = work()
            if isinstance(outcome, Awaitable):
                await outcome
        except Exception:
            log.exception("%s failed", work)
