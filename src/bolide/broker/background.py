"""Tasks that handlers start and the broker owns: what is left at the end is cancelled."""

import asyncio
from collections.abc import Coroutine
from typing import Any

from bolide.remoting.dispatch import Later, Reply


class Background:
    """The tasks of one broker; belongs to one event loop."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def answer(self, work: Coroutine[Any, Any, Reply]) -> Later:
        """A promise that is kept with what `work` returns or raises."""
        later = Later()
        self.settle(later, work)
        return later

    def settle(self, later: Later, work: Coroutine[Any, Any, Reply]) -> None:
        """Keep a promise with what `work` returns or raises."""
        task = self.start(_settle(later, work), "broker-answer")
        later.on_lost = lambda: _cancel(task)
        # A task that is cancelled before its first step never comes to close what it was given.
        task.add_done_callback(lambda _: work.close())

    async def stop(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()


async def _settle(later: Later, work: Coroutine[Any, Any, Reply]) -> None:
    try:
        reply = await work
    except Exception as exc:  # noqa: BLE001  the dispatcher turns it into a response
        later.fail(exc)
    else:
        later.answer(reply)
