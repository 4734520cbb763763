"""Work off the event loop: background tasks, table-writing threads, cold reads, large JSON."""

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from bolide.protocol import fastjson
from bolide.protocol.errors import ProtocolError
from bolide.remoting.dispatch import DeferredReply, H, Reply, Request
from bolide.store.contract import Store
from bolide.store.errors import NotInMemory
from bolide.store.queries import Queries


class Background:
    """The tasks of one broker; belongs to one event loop."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def answer(self, work: Coroutine[Any, Any, Reply]) -> DeferredReply:
        """A promise that is kept with what `work` returns or raises."""
        later = DeferredReply()
        self.settle(later, work)
        return later

    def settle(self, later: DeferredReply, work: Coroutine[Any, Any, Reply]) -> None:
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


async def _settle(later: DeferredReply, work: Coroutine[Any, Any, Reply]) -> None:
    try:
        reply = await work
    except Exception as exc:  # noqa: BLE001  the dispatcher turns it into a response
        later.fail(exc)
    else:
        later.answer(reply)


T = TypeVar("T")

_THREADS = ThreadPoolExecutor(3, "bolide-tables")
"""One each for topics, groups and offsets: who waits for one file does not hold up another."""


async def on_saving_thread(work: Callable[[], T]) -> T:
    """Have `work`, which blocks, done by one of these threads."""
    return await asyncio.get_running_loop().run_in_executor(_THREADS, work)


MAX_BODY = 4 * 1024 * 1024
"""Longest body with JSON that handlers read: a few ten thousand queues or subscriptions."""

_SHORT = 64 * 1024


async def read_json(request: Request[H], shape: type[T]) -> T:
    """The body of a request; a long one is read on a thread, as fastjson's dialect takes time.

    Raises:
        ProtocolError: there is none, or not of that shape; says what is missing.
    """
    if not request.body:
        raise ProtocolError(
            f"request {request.frame.code} needs a body: the JSON of a {shape.__name__}"
        )
    if len(request.body) > _SHORT:
        return await asyncio.to_thread(fastjson.decode, request.body, shape)
    return fastjson.decode(request.body, shape)


async def record_at(store: Store | Queries, physical_offset: int) -> bytes | None:
    """The whole record that begins there, or None if none does; the disk is read on a thread."""
    try:
        data = store.record_at(physical_offset, may_block=False)
    except NotInMemory:
        data = await asyncio.to_thread(store.record_at, physical_offset)
    return None if data is None else bytes(data)
