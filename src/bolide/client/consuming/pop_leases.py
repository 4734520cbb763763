"""How long popped messages are ours: prolonged while they are under way, ended when they are done.

Every renewal gives a message another receipt, and only the newest one counts. So whatever ends a
lease waits for a renewal that is on its way.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from typing import Any

from bolide.client.consuming.popped_queue import PoppedQueue
from bolide.client.consuming.receipts import Receipts
from bolide.client.rare_log import RareLog
from bolide.errors import BolideError
from bolide.model.message import StoredMessage
from bolide.protocol.refusals import Refusal

log = logging.getLogger(__name__)

_TRIES = 3
AGAIN = 1.0
"""Seconds until a broker that did not listen is told again."""

_GIVEN_BACK = 1.0
"""Seconds until a message that was not dealt with is visible again."""

_AT_ONCE = 64

Popped = tuple[PoppedQueue, StoredMessage]
Tell = Callable[[], Awaitable[None]]


class Leases:
    """Ends and prolongs the leases of one consumer; acknowledgements of a moment go together."""

    def __init__(self, receipts: Receipts, seconds: float) -> None:
        self._receipts = receipts
        self._seconds = seconds
        self._done: dict[str, list[Popped]] = {}  # by broker
        self._ending: set[int] = set()
        self._flushing: set[str] = set()
        self._renewals: dict[int, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._places = asyncio.Semaphore(_AT_ONCE)
        self._rare = RareLog(log)

    def begin(self, held: PoppedQueue, messages: Iterable[StoredMessage]) -> None:
        """Messages were popped just now. The clock is ours: a broker's may be another."""
        held.lease(messages, _now() + self._seconds)

    def done(self, held: PoppedQueue, messages: Iterable[StoredMessage]) -> None:
        """Have messages acknowledged."""
        for message in messages:
            self._ending.add(id(message))
            broker = message.broker_name
            self._done.setdefault(broker, []).append((held, message))
            if broker not in self._flushing:
                self._flushing.add(broker)
                self._spawn(self._flush(broker))

    def again(self, held: PoppedQueue, message: StoredMessage, seconds: float) -> None:
        """Have a message come again after so many seconds."""
        self._spawn(self._again(held, message, seconds))

    def renew(self, helds: Iterable[PoppedQueue]) -> None:
        """Prolong what is half over."""
        half = _now() + self._seconds / 2
        for held in helds:
            for message in held.ending(half):
                if id(message) not in self._renewals and id(message) not in self._ending:
                    self._renewals[id(message)] = self._spawn(self._renew(held, message))

    async def give_back(self, held: PoppedQueue, messages: Sequence[StoredMessage]) -> None:
        """Let others have messages soon that nobody here will deal with."""
        await asyncio.gather(*(self._again(held, each, _GIVEN_BACK) for each in messages))

    async def close(self, within: float) -> None:
        """Wait for what is on its way; what is not told by then comes again."""
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=within)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late)

    async def _flush(self, broker: str) -> None:
        await asyncio.sleep(0)  # what ends in the same turn of the loop goes along
        try:
            while ended := self._done.pop(broker, None):
                await self._ack(ended)
        finally:
            self._flushing.discard(broker)

    async def _ack(self, ended: list[Popped]) -> None:
        messages = [message for _, message in ended]
        for message in messages:
            await self._renewed(message)
        try:
            await self._insist(lambda: self._receipts.ack(messages))
        finally:
            for held, message in ended:
                held.settle([message])
                self._ending.discard(id(message))

    async def _again(self, held: PoppedQueue, message: StoredMessage, seconds: float) -> None:
        await self._renewed(message)
        held.settle([message])  # first: it is not to be prolonged any more
        async with self._places:
            await self._insist(lambda: self._receipts.change_invisible(message, seconds))

    async def _renew(self, held: PoppedQueue, message: StoredMessage) -> None:
        try:
            async with self._places:
                until = _now() + self._seconds
                await self._receipts.change_invisible(message, self._seconds)
            held.prolong(message, until)
        except BolideError as exc:
            self._rare.warning("renew", "a popped message cannot be kept: %s", exc)
        finally:
            del self._renewals[id(message)]

    async def _renewed(self, message: StoredMessage) -> None:
        renewal = self._renewals.get(id(message))
        if renewal is not None:
            with suppress(asyncio.CancelledError):
                await asyncio.shield(renewal)

    async def _insist(self, tell: Tell) -> None:
        """Tell the broker, and again if that fails: then the message comes too early at worst."""
        for attempt in range(_TRIES):
            try:
                await tell()
            except BolideError as exc:
                self._rare.warning("tell", "a broker is not told of a popped message: %s", exc)
                if attempt == _TRIES - 1 or (isinstance(exc, Refusal) and not exc.retriable):
                    return
                await asyncio.sleep(AGAIN)
            else:
                return

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work, name="bolide-pop-lease")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def _now() -> float:
    return asyncio.get_running_loop().time()
