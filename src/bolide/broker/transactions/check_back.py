"""Check-back: open half messages have their producers asked, and are given up at last."""

import asyncio
import itertools
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple

from bolide.broker.metadata.clients import ClientTable
from bolide.broker.metadata.topics import TopicTable
from bolide.broker.settings.config import BrokerConfig
from bolide.broker.transactions.half_messages import Half
from bolide.broker.transactions.half_queue import HalfQueue
from bolide.config import ConfigCell
from bolide.errors import BolideError
from bolide.model.message import Host
from bolide.model.names import HALF_TOPIC, TRANS_CHECK_MAX_TIME_TOPIC
from bolide.protocol.codes import RequestCode
from bolide.protocol.frame import Frame
from bolide.protocol.headers.transactions import CheckTransactionHeader
from bolide.protocol.message_id import OffsetId
from bolide.protocol.record_errors import RecordTooLarge
from bolide.remoting.connection import Connection
from bolide.remoting.errors import RemotingError
from bolide.store.appending import Appended
from bolide.store.config import StoreConfig
from bolide.store.contract import Store
from bolide.store.errors import NotInMemory
from bolide.store.reading import ReadLimits, ReadResult

log = logging.getLogger(__name__)


class AllBlocked(Exception):
    """The producers of a group are there, and none of them reads."""


class CheckBackSender:
    """Any producer of a group may be asked: each in turn, those that do not read aside."""

    def __init__(self, clients: ClientTable, host: Host, broker_name: str) -> None:
        self._clients = clients
        self._host = host
        self._broker_name = broker_name
        self._turn = itertools.count()

    def choose(self, group: str) -> Connection | None:
        """Whom to ask; None if nobody of the group is there.

        Raises:
            AllBlocked: try later.
        """
        members = self._clients.producers(group)
        if not members:
            return None
        ready = [each.connection for each in members if not each.connection.is_blocked]
        if not ready:
            raise AllBlocked
        return ready[next(self._turn) % len(ready)]

    async def ask(self, producer: Connection, half: Half) -> None:
        """Send the question; the answer is an END_TRANSACTION, if one comes."""
        record, unique_id = half.record, half.unique_id or None
        header = CheckTransactionHeader(
            topic=HALF_TOPIC,
            tran_state_table_offset=record.queue_offset,
            commit_log_offset=record.physical_offset,
            msg_id=unique_id,
            transaction_id=unique_id,
            offset_msg_id=OffsetId(self._host, record.physical_offset).encode(),
            broker_name=self._broker_name,
        )
        with suppress(RemotingError, AllBlocked):  # it is asked again, or another one is
            if producer.is_blocked:
                producer = self.choose(half.group) or producer
            await producer.notify(
                Frame(
                    code=RequestCode.CHECK_TRANSACTION_STATE,
                    fields=header.to_fields(),
                    body=half.shown(),
                )
            )


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

    def is_too_old(self, half: Half, now: float) -> bool:
        """Whether it has waited as long as the log keeps messages."""
        return now - half.began > self.longest

    def fades(self, half: Half) -> float:
        """When it has to be moved, lest its file be deleted."""
        return half.record.store_timestamp / 1000 + self.longest / 2

    def judge(self, half: Half, now: float) -> Verdict:
        """As RocketMQ does; but the clock of the producer counts only where ours cannot, and what
        is old is asked about first."""
        if half.times >= self.most_times:
            return Verdict.GIVE_UP
        # Of the future: the clock was set back, and nobody wants to wait that long.
        if self.due(half) <= now or half.record.store_timestamp / 1000 > now + self.timeout:
            return Verdict.ASK
        if self.is_too_old(half, now):
            return Verdict.GIVE_UP
        return Verdict.HOLD if half.immunity is not None else Verdict.YOUNG


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
class CheckBackParts:
    """What the looks need of the broker."""

    cell: ConfigCell[BrokerConfig]
    store_cell: ConfigCell[StoreConfig]
    store: Store
    topics: TopicTable
    now: Callable[[], float] = time.time


class CheckBack:
    """The looks of one broker; `run` is their task."""

    def __init__(self, parts: CheckBackParts, queue: HalfQueue, asking: CheckBackSender) -> None:
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

    async def _read(self, offset: int) -> ReadResult:
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
