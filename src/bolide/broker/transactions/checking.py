"""Looks after half messages that stay open: has their producers asked, and gives up at last."""

import asyncio
import itertools
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import NamedTuple

from bolide.broker.config import BrokerConfig
from bolide.broker.topics import TopicTable
from bolide.broker.transactions.asking import AllBlocked, Asking
from bolide.broker.transactions.half import Half
from bolide.broker.transactions.half_queue import HalfQueue
from bolide.broker.transactions.rules import Rules, Verdict
from bolide.config import ConfigCell
from bolide.errors import BolideError
from bolide.model.names import HALF_TOPIC, TRANS_CHECK_MAX_TIME_TOPIC
from bolide.protocol.record_errors import RecordTooLarge
from bolide.remoting.connection import Connection
from bolide.store.appending import Appended
from bolide.store.config import StoreConfig
from bolide.store.contract import Store
from bolide.store.errors import NotInMemory
from bolide.store.reading import Found, ReadLimits

log = logging.getLogger(__name__)

_AT_ONCE = ReadLimits(max_count=32, max_size=1024 * 1024, max_scanned=32)
_MOST_HELD = 100_000
_PASSED_AT_ONCE = 1000
_MOST_CLOSED = 200_000
"""Halves that are done with and may lie behind one that is not: a restart reads as many ops."""
_AFTER_FAILURE = 1.0
_PATIENCE, _PAUSE = 2.0, 0.05
"""Seconds that one look waits for producers that do not read."""


class Question(NamedTuple):
    """Whom to ask about a half, and when: its copy must be readable for an answer to count."""

    producer: Connection
    half: Half
    copy: Appended | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckingParts:
    """What the looks need of the broker."""

    cell: ConfigCell[BrokerConfig]
    store_cell: ConfigCell[StoreConfig]
    store: Store
    topics: TopicTable
    now: Callable[[], float] = time.time


class Checking:
    """The looks of one broker; `run` is their task."""

    def __init__(self, parts: CheckingParts, queue: HalfQueue, asking: Asking) -> None:
        self._parts = parts
        self._queue = queue
        self._asking = asking
        self._held: dict[int, float] = {}
        """Halves that are left where they are until a time."""
        self._patience = 0.0
        self._closed, self._counted_from = 0, -1
        self._is_failing = False
        self._wake = asyncio.Event()
        self.next_look = parts.now() + parts.cell.value.transaction_check_interval
        parts.cell.on_change(lambda _: self._wake.set())

    @property
    def rules(self) -> Rules:
        return Rules.of(self._parts.cell.value, self._parts.store_cell.value)

    async def run(self) -> None:
        while True:
            if await self._attempt(self._queue.load()):
                break
            await asyncio.sleep(_AFTER_FAILURE)
        while True:
            await self._sleep()
            await self._attempt(self.look())

    async def _attempt(self, work: Awaitable[object]) -> bool:
        """Says whether it was done; one failure must not be the last time."""
        try:
            await work
        except BolideError as exc:
            self._tell_once(exc)
        except Exception:
            log.exception("open transactions are looked at again later")
        else:
            self._is_failing = False
            return True
        return False

    def _tell_once(self, exc: BolideError) -> None:
        if not self._is_failing:
            self._is_failing = True
            log.error("open transactions have to wait: %s", exc)

    async def _sleep(self) -> None:
        """Until an interval has passed, by the settings of now."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        while (left := began + self._interval - loop.time()) > 0:
            self.next_look = self._parts.now() + left
            self._wake.clear()
            try:
                async with asyncio.timeout(left):
                    await self._wake.wait()
            except TimeoutError:
                return

    @property
    def _interval(self) -> float:
        return self._parts.cell.value.transaction_check_interval

    # ---- a look

    async def look(self) -> int:
        """Look once at what is open; returns how many questions were asked."""
        self._queue.write_missing()
        is_open = self._queue.open.is_open
        self._held = {offset: due for offset, due in self._held.items() if is_open(offset)}
        self._patience = _PATIENCE
        self._counted_from = -1
        asked, questions = 0, list[Question]()
        async for half in self._waiting(self._parts.store.max_offset(HALF_TOPIC, 0)):
            verdict = self.rules.judge(half, self._parts.now())
            if verdict is Verdict.YOUNG and not self._is_in_the_way():
                break
            questions += await self._handle(half, verdict)
            if len(questions) >= self._most_questions:
                asked += await self._put(questions)
        asked += await self._put(questions)
        await self._queue.checkpoint()
        return asked

    async def _waiting(self, end: int) -> AsyncIterator[Half]:
        """The halves before `end` that are open and not held, in their order."""
        offset = await self._next(0)
        while offset < end:
            found = await self._read(offset)
            behind = min(found.next_offset, end)
            halves = [half for data in found.records if (half := Half.find(data))]
            self._forget_gone(offset, behind, halves)
            for half in halves:
                if half.queue_offset < end and self._may_need_something(half.queue_offset):
                    yield half
            if behind <= offset:
                return
            offset = await self._next(behind)

    async def _next(self, offset: int) -> int:
        """The first from there on that may need something."""
        for passed in itertools.count():
            if not passed % _PASSED_AT_ONCE:
                await asyncio.sleep(0)  # others want to be served too
            offset = self._queue.open.next_open(offset)
            if self._may_need_something(offset):
                break
            offset += 1
        return offset

    def _may_need_something(self, offset: int) -> bool:
        held_until = self._held.get(offset, 0.0)
        return held_until <= self._parts.now() and self._queue.open.is_open(offset)

    async def _read(self, offset: int) -> Found:
        queue = (HALF_TOPIC, 0, offset, _AT_ONCE)
        try:
            return self._parts.store.read(*queue, may_block=False)
        except NotInMemory:
            return await asyncio.to_thread(self._parts.store.read, *queue)

    def _forget_gone(self, begin: int, end: int, halves: list[Half]) -> None:
        """What was passed over in reading is damaged, or its file was deleted."""
        there = {half.queue_offset for half in halves}
        gone = [each for each in self._queue.open.between(begin, end) if each not in there]
        for offset in gone:
            self._queue.open.close(offset)
        if gone:
            log.error(
                "%s half messages from number %s on are gone: deleted, or damaged",
                len(gone), gone[0],
            )  # fmt: skip

    # ---- one half

    async def _handle(self, half: Half, verdict: Verdict) -> list[Question]:
        """What is left to ask."""
        if verdict is Verdict.ASK:
            return await self._prepare(half)
        if verdict is Verdict.GIVE_UP:
            await self._give_up(half)
        else:
            self._hold(half, self.rules.due(half))
        return []

    async def _give_up(self, half: Half) -> None:
        await self._parts.topics.create_retry(TRANS_CHECK_MAX_TIME_TOPIC, 1)
        if not self._queue.open.is_open(half.queue_offset):
            return
        try:
            self._queue.set_aside(half)
        except RecordTooLarge as exc:  # of a time when larger ones were taken
            self._tell_too_large(half, exc)
            return
        log.error(
            "transaction %s of %s is set aside after %s questions: its message for %s goes to"
            " %s; commit or resume it with bolide admin",
            half.unique_id, half.group, half.times, half.topic, TRANS_CHECK_MAX_TIME_TOPIC,
        )  # fmt: skip

    def _hold(self, half: Half, until: float = 0.0) -> None:
        """Leave it where it is, or move it if it cannot stay there."""
        now, fades = self._parts.now(), self.rules.fades(half)
        if fades <= now or self._is_in_the_way():
            self._move(half, times=half.times)
        elif until > now and len(self._held) < _MOST_HELD:  # others are read again at each look
            self._held[half.queue_offset] = min(until, fades)

    def _is_in_the_way(self) -> bool:
        """Whether too many lie behind the first open one that need not be known any more."""
        opened, end = self._queue.open, self._parts.store.max_offset(HALF_TOPIC, 0)
        first = opened.first
        if first != self._counted_from:  # to count takes the longer the more there are
            self._counted_from = first
            self._closed = end - first - opened.count(end)
        return self._closed > _MOST_CLOSED

    def _move(self, half: Half, *, times: int) -> tuple[Half, Appended | None]:
        """The half where it lies now."""
        try:
            return self._queue.move(half, times=times)
        except RecordTooLarge as exc:
            self._tell_too_large(half, exc)
            return half, None

    def _tell_too_large(self, half: Half, exc: RecordTooLarge) -> None:
        """It stays where it is, and can be ended all the same."""
        log.warning("transaction %s cannot be copied, nor counted: %s", half.unique_id, exc)
        self._held[half.queue_offset] = self._parts.now() + self._interval

    # ---- questions

    async def _prepare(self, half: Half) -> list[Question]:
        try:
            producer = await self._producer(half.group)
        except AllBlocked:
            self._hold(half, self._parts.now() + self._interval)
            return []
        if not self._queue.open.is_open(half.queue_offset):
            return []
        if producer is None:
            await self._wait_for_producers(half)
            return []
        return [Question(producer, *self._move(half, times=half.times + 1))]

    async def _wait_for_producers(self, half: Half) -> None:
        """None of the group is there: nobody was asked, so it does not count."""
        now = self._parts.now()
        if self.rules.is_too_old(half, now):
            await self._give_up(half)
        else:
            self._hold(half)

    @property
    def _most_questions(self) -> int:
        """So many wait together for the disk, if it is waited for."""
        return _AT_ONCE.max_count if self._queue.waits else 1

    async def _put(self, questions: list[Question]) -> int:
        """Ask them all, when their halves can be ended; returns how many that were."""
        copies = [each.copy for each in questions if each.copy is not None]
        if copies:
            await self._queue.readable(copies[-1])
        for each in questions:
            await self._asking.ask(each.producer, each.half)
        count = len(questions)
        questions.clear()
        return count

    async def _producer(self, group: str) -> Connection | None:
        """Whom to ask; waits a little if all of them are busy, in one look once."""
        while True:
            try:
                return self._asking.choose(group)
            except AllBlocked:
                if self._patience <= 0:
                    raise
            self._patience -= _PAUSE
            await asyncio.sleep(_PAUSE)
