"""Looks after half messages that stay open: has their producers asked, and gives up at last."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from enum import Enum, auto

from bolide.broker.config import BrokerConfig
from bolide.broker.topics import TopicTable
from bolide.broker.transactions.asking import AllBlocked, Asking
from bolide.broker.transactions.half import Half
from bolide.broker.transactions.half_queue import HalfQueue
from bolide.config import ConfigCell
from bolide.errors import BolideError
from bolide.model.names import HALF_TOPIC, TRANS_CHECK_MAX_TIME_TOPIC
from bolide.protocol.record_errors import RecordTooLarge
from bolide.remoting.connection import Connection
from bolide.store.config import StoreConfig
from bolide.store.contract import Store
from bolide.store.errors import NotInMemory
from bolide.store.reading import Found, ReadLimits

log = logging.getLogger(__name__)

_AT_ONCE = ReadLimits(max_count=32, max_size=1024 * 1024, max_scanned=32)
_MOST_HELD = 100_000
_MOST_CLOSED = 200_000
"""Halves that are done with and may lie behind one that is not: a restart reads as many ops."""
_AFTER_FAILURE = 1.0
_PATIENCE, _PAUSE = 2.0, 0.05
"""Seconds that one look waits for producers that do not read."""


class Verdict(Enum):
    """What is to be done with an open half."""

    YOUNG = auto()
    """Nothing, nor with those behind it."""
    HOLD = auto()
    """Nothing yet."""
    ASK = auto()
    GIVE_UP = auto()


@dataclass(frozen=True, slots=True)
class Rules:
    """What the settings say; durations are seconds."""

    timeout: float
    most_times: int
    longest: float

    @classmethod
    def of(cls, config: BrokerConfig, store: StoreConfig) -> "Rules":
        return cls(
            config.transaction_timeout,
            config.transaction_check_max,
            store.file_reserved_hours * 3600.0,
        )

    def due(self, half: Half) -> float:
        """When its producer may be asked."""
        if half.immunity is not None:
            return half.began + half.immunity
        return half.began + self.timeout if not half.times else 0.0

    def judge(self, half: Half, now: float) -> Verdict:
        """As RocketMQ does; but the clock of the producer counts only where ours cannot."""
        if half.times >= self.most_times or (not half.times and now - half.began > self.longest):
            return Verdict.GIVE_UP
        # Of the future: the clock was set back, and nobody wants to wait that long.
        if self.due(half) <= now or half.record.store_timestamp / 1000 > now + self.timeout:
            return Verdict.ASK
        return Verdict.HOLD if half.immunity is not None else Verdict.YOUNG


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
        first = self._queue.open.first
        self._held = {offset: due for offset, due in self._held.items() if offset >= first}
        self._patience = _PATIENCE
        asked = 0
        async for half in self._waiting(self._parts.store.max_offset(HALF_TOPIC, 0)):
            verdict = self.rules.judge(half, self._parts.now())
            if verdict is Verdict.YOUNG and not self._is_in_the_way():
                break
            asked += await self._handle(half, verdict)
        await self._queue.checkpoint()
        return asked

    async def _waiting(self, end: int) -> AsyncIterator[Half]:
        """The halves before `end` that are open and not held, in their order."""
        offset = self._next(0)
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
            offset = self._next(behind)
            await asyncio.sleep(0)  # others want to be served too

    def _next(self, offset: int) -> int:
        """The first from there on that may need something."""
        offset = self._queue.open.next_open(offset)
        while not self._may_need_something(offset):
            offset = self._queue.open.next_open(offset + 1)
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

    async def _handle(self, half: Half, verdict: Verdict) -> int:
        if verdict is Verdict.GIVE_UP:
            await self._give_up(half)
            return 0
        if verdict is Verdict.ASK:
            return await self._ask(half)
        self._hold(half, self.rules.due(half))
        return 0

    async def _give_up(self, half: Half) -> None:
        await self._parts.topics.create_retry(TRANS_CHECK_MAX_TIME_TOPIC, 1)
        if self._queue.open.is_open(half.queue_offset):
            log.error(
                "transaction %s of %s is set aside after %s questions: its message for %s goes to"
                " %s; commit or resume it with bolide admin",
                half.unique_id, half.group, half.times, half.topic, TRANS_CHECK_MAX_TIME_TOPIC,
            )  # fmt: skip
            self._queue.set_aside(half)

    def _hold(self, half: Half, until: float) -> None:
        """Leave it where it is, or move it if it is in the way there."""
        if self._is_in_the_way():
            self._queue.move(half, times=half.times)
        elif len(self._held) < _MOST_HELD:  # further ones are read again at each look
            self._held[half.queue_offset] = until

    def _is_in_the_way(self) -> bool:
        """Whether too many lie behind the first open one that need not be known any more."""
        opened, end = self._queue.open, self._parts.store.max_offset(HALF_TOPIC, 0)
        return end - opened.first - opened.count(end) > _MOST_CLOSED

    async def _ask(self, half: Half) -> int:
        try:
            producer = await self._producer(half.group)
        except AllBlocked:
            self._hold(half, self._parts.now() + self._interval)
            return 0
        if not self._queue.open.is_open(half.queue_offset):
            return 0
        try:
            half, _ = self._queue.move(half, times=half.times + 1)
        except RecordTooLarge as exc:  # it can be ended all the same
            log.warning("the questions for transaction %s do not count: %s", half.unique_id, exc)
            self._held[half.queue_offset] = self._parts.now() + self._interval
        if producer is None:
            return 0
        await self._asking.ask(producer, half)
        return 1

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
