"""Check-back: asks producers about open half messages, and gives up on them at last."""

import asyncio
import itertools
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple

from bolide.auth.access import Identity
from bolide.broker.background import TRANSACTIONS, on_thread
from bolide.broker.metadata.clients import ClientTable, Member
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

_READ_LIMITS = ReadLimits(max_count=32, max_size=1024 * 1024, max_scanned=32)
_MAX_DEFERRED = 100_000
_SKIPPED_PER_TURN = 1000
_MAX_CLOSED_BEHIND = 200_000
"""Closed halves that may lie behind an open one; a restart reads that many op messages."""
_RETRY_DELAY = 1.0
_MAX_BLOCKED_WAIT, _BLOCKED_POLL = 2.0, 0.05
"""Seconds that one round waits for blocked producers, and between two attempts."""


class AllBlocked(Exception):
    """Producers of the group are connected, but none of them reads."""


MaySend = Callable[[Identity, str], bool]


class CheckBackSender:
    """Sends check requests to the producers of a group, round robin, skipping those that do not
    read, and those that may not send to the topic of the half: a check shows its message, and a
    heartbeat may name any group.

    Args:
        may_send: whether a producer may send to a topic; None if everybody may.
    """

    def __init__(
        self,
        clients: ClientTable,
        host: Host,
        broker_name: str,
        may_send: MaySend | None = None,
    ) -> None:
        self._may_send = may_send
        self._clients = clients
        self._host = host
        self._broker_name = broker_name
        self._round_robin = itertools.count()

    def choose(self, half: Half) -> Connection | None:
        """Return the producer to ask; None if no producer that may be asked is connected.

        Raises:
            AllBlocked: try again later.
        """
        members = self._clients.producers(half.group)
        if self._may_send is not None:
            members = [each for each in members if self._may_send(_identity(each), half.topic)]
        if not members:
            return None
        ready = [each.connection for each in members if not each.connection.is_blocked]
        if not ready:
            raise AllBlocked
        return ready[next(self._round_robin) % len(ready)]

    async def send_check(self, producer: Connection, half: Half) -> None:
        """Send the check request; the producer may answer with END_TRANSACTION."""
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
        with suppress(RemotingError, AllBlocked):  # a later round asks again
            if producer.is_blocked:
                producer = self.choose(half) or producer
            await producer.notify(
                Frame(
                    code=RequestCode.CHECK_TRANSACTION_STATE,
                    fields=header.to_fields(),
                    body=half.for_producer(),
                )
            )


def _identity(member: Member) -> Identity:
    return member.identity or Identity(None, member.connection.peer)


class Verdict(Enum):
    """What to do with an open half message."""

    YOUNG = auto()
    """Nothing, and later halves are younger still."""
    DEFER = auto()
    """Nothing until its immunity ends."""
    CHECK = auto()
    GIVE_UP = auto()


@dataclass(frozen=True, slots=True)
class CheckRules:
    """Check-back settings; durations are in seconds."""

    timeout: float
    max_checks: int
    max_age: float

    @classmethod
    def of(cls, config: BrokerConfig, store: StoreConfig) -> "CheckRules":
        return cls(
            config.transaction_timeout,
            config.transaction_check_max,
            store.file_reserved_hours * 3600.0,
        )

    def due(self, half: Half) -> float:
        """When the producer may be asked."""
        if half.immunity is not None:
            return half.began + half.immunity
        return half.began + self.timeout if not half.check_times else 0.0

    def is_too_old(self, half: Half, now: float) -> bool:
        """Whether the half has been open for as long as the log retains messages."""
        return now - half.began > self.max_age

    def move_by(self, half: Half) -> float:
        """When the half must be moved, before retention deletes its log file."""
        return half.record.store_timestamp / 1000 + self.max_age / 2

    def decide(self, half: Half, now: float) -> Verdict:
        """Decide as RocketMQ does, except that the clock of the producer counts only where the
        store time is unknown, and that old halves are checked before they are given up."""
        if half.check_times >= self.max_checks:
            return Verdict.GIVE_UP
        # A store time in the future means that the clock was set back.
        if self.due(half) <= now or half.record.store_timestamp / 1000 > now + self.timeout:
            return Verdict.CHECK
        if self.is_too_old(half, now):
            return Verdict.GIVE_UP
        return Verdict.DEFER if half.immunity is not None else Verdict.YOUNG


class PendingCheck(NamedTuple):
    """A check request to send. An answer counts only once the copy of the half is readable."""

    producer: Connection
    half: Half
    copy: Appended | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckBackParts:
    """Collaborators of `CheckBack`."""

    cell: ConfigCell[BrokerConfig]
    store_cell: ConfigCell[StoreConfig]
    store: Store
    topics: TopicTable
    now: Callable[[], float] = time.time


class CheckBack:
    """Runs the check-back rounds of one broker; `run` is the background task."""

    def __init__(self, parts: CheckBackParts, queue: HalfQueue, sender: CheckBackSender) -> None:
        self._parts = parts
        self._queue = queue
        self._sender = sender
        self._deferred: dict[int, float] = {}
        """Halves not to be examined before a time, by queue offset."""
        self._blocked_wait_left = 0.0
        self._closed, self._counted_from = 0, -1
        self._is_failing = False
        self._wake = asyncio.Event()
        self.next_round = parts.now() + parts.cell.value.transaction_check_interval
        parts.cell.on_change(lambda _: self._wake.set())

    @property
    def rules(self) -> CheckRules:
        return CheckRules.of(self._parts.cell.value, self._parts.store_cell.value)

    async def run(self) -> None:
        while True:
            if await self._attempt(self._queue.load()):
                break
            await asyncio.sleep(_RETRY_DELAY)
        while True:
            await self._sleep()
            await self._attempt(self.run_round())

    async def _attempt(self, work: Awaitable[object]) -> bool:
        """Run one step; return whether it succeeded. Failures are logged, and the task
        continues."""
        try:
            await work
        except BolideError as exc:
            self._log_once(exc)
        except Exception:
            log.exception("check-back of open transactions failed; it is retried")
        else:
            self._is_failing = False
            return True
        return False

    def _log_once(self, exc: BolideError) -> None:
        if not self._is_failing:
            self._is_failing = True
            log.error("check-back of open transactions is delayed: %s", exc)

    async def _sleep(self) -> None:
        """Sleep until the check interval has passed; a changed setting applies at once."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        while (left := began + self._interval - loop.time()) > 0:
            self.next_round = self._parts.now() + left
            self._wake.clear()
            try:
                async with asyncio.timeout(left):
                    await self._wake.wait()
            except TimeoutError:
                return

    @property
    def _interval(self) -> float:
        return self._parts.cell.value.transaction_check_interval

    # ---- a round

    async def run_round(self) -> int:
        """Examine the open halves once; return the number of check requests sent."""
        self._queue.retry_unwritten_ops()
        is_open = self._queue.open.is_open
        self._deferred = {
            queue_offset: due
            for queue_offset, due in self._deferred.items()
            if is_open(queue_offset)
        }
        self._blocked_wait_left = _MAX_BLOCKED_WAIT
        self._counted_from = -1
        sent, checks = 0, list[PendingCheck]()
        async for half in self._due_halves(self._parts.store.max_offset(HALF_TOPIC, 0)):
            verdict = self.rules.decide(half, self._parts.now())
            if verdict is Verdict.YOUNG and not self._blocks_progress():
                break
            checks += await self._act(half, verdict)
            if len(checks) >= self._batch_size:
                sent += await self._send_checks(checks)
        sent += await self._send_checks(checks)
        await self._queue.checkpoint()
        return sent

    async def _due_halves(self, end: int) -> AsyncIterator[Half]:
        """Yield the due open halves before `end`, in queue order."""
        queue_offset = await self._next_due(0)
        while queue_offset < end:
            found = await self._read(queue_offset)
            behind = min(found.next_offset, end)
            halves = [half for data in found.records if (half := Half.find(data))]
            self._close_missing(queue_offset, behind, halves)
            for half in halves:
                if half.queue_offset < end and self._is_due(half.queue_offset):
                    yield half
            if behind <= queue_offset:
                return
            queue_offset = await self._next_due(behind)

    async def _next_due(self, queue_offset: int) -> int:
        """Return the first queue offset from there on that may be due."""
        for skipped in itertools.count():
            if not skipped % _SKIPPED_PER_TURN:
                await asyncio.sleep(0)  # let other tasks run
            queue_offset = self._queue.open.next_open(queue_offset)
            if self._is_due(queue_offset):
                break
            queue_offset += 1
        return queue_offset

    def _is_due(self, queue_offset: int) -> bool:
        deferred_until = self._deferred.get(queue_offset, 0.0)
        return deferred_until <= self._parts.now() and self._queue.open.is_open(queue_offset)

    async def _read(self, queue_offset: int) -> ReadResult:
        queue = (HALF_TOPIC, 0, queue_offset, _READ_LIMITS)
        try:
            return self._parts.store.read(*queue, may_block=False)
        except NotInMemory:
            return await on_thread(TRANSACTIONS, self._parts.store.read, *queue)

    def _close_missing(self, begin: int, end: int, halves: list[Half]) -> None:
        """Close halves that could not be read: damaged, or deleted with their log file."""
        present = {half.queue_offset for half in halves}
        missing = [each for each in self._queue.open.between(begin, end) if each not in present]
        for queue_offset in missing:
            self._queue.open.close(queue_offset)
        if missing:
            log.error(
                "%s half messages from queue offset %s on are missing: deleted or damaged",
                len(missing), missing[0],
            )  # fmt: skip

    # ---- one half

    async def _act(self, half: Half, verdict: Verdict) -> list[PendingCheck]:
        """Act on a half; return the check requests to send."""
        if verdict is Verdict.CHECK:
            return await self._prepare_check(half)
        if verdict is Verdict.GIVE_UP:
            await self._give_up(half)
        else:
            self._defer(half, self.rules.due(half))
        return []

    async def _give_up(self, half: Half) -> None:
        await self._parts.topics.create_retry(TRANS_CHECK_MAX_TIME_TOPIC, 1)
        if not self._queue.open.is_open(half.queue_offset):
            return
        try:
            self._queue.set_aside(half)
        except RecordTooLarge as exc:  # stored under a larger maxMessageSize
            self._defer_too_large(half, exc)
            return
        log.error(
            "transaction %s of %s is set aside after %s checks: its message for %s goes to"
            " %s; commit or resume it with bolide admin",
            half.unique_id, half.group, half.check_times, half.topic, TRANS_CHECK_MAX_TIME_TOPIC,
        )  # fmt: skip

    def _defer(self, half: Half, until: float = 0.0) -> None:
        """Defer the half, or move it if it cannot stay where it is."""
        now, move_by = self._parts.now(), self.rules.move_by(half)
        if move_by <= now or self._blocks_progress():
            self._move(half, check_times=half.check_times)
        elif until > now and len(self._deferred) < _MAX_DEFERRED:
            # Beyond the limit, halves are read again in each round.
            self._deferred[half.queue_offset] = min(until, move_by)

    def _blocks_progress(self) -> bool:
        """Whether too many closed halves lie behind the first open one."""
        opened, end = self._queue.open, self._parts.store.max_offset(HALF_TOPIC, 0)
        first = opened.first
        if first != self._counted_from:  # counting takes time in proportion to the range
            self._counted_from = first
            self._closed = end - first - opened.count(end)
        return self._closed > _MAX_CLOSED_BEHIND

    def _move(self, half: Half, *, check_times: int) -> tuple[Half, Appended | None]:
        """Append a copy of the half; return the copy and its position."""
        try:
            return self._queue.move(half, check_times=check_times)
        except RecordTooLarge as exc:
            self._defer_too_large(half, exc)
            return half, None

    def _defer_too_large(self, half: Half, exc: RecordTooLarge) -> None:
        """Defer a half that cannot be copied; it can still be ended."""
        log.warning(
            "transaction %s cannot be copied, its check is not counted: %s", half.unique_id, exc
        )
        self._deferred[half.queue_offset] = self._parts.now() + self._interval

    # ---- check requests

    async def _prepare_check(self, half: Half) -> list[PendingCheck]:
        try:
            producer = await self._choose_producer(half)
        except AllBlocked:
            self._defer(half, self._parts.now() + self._interval)
            return []
        if not self._queue.open.is_open(half.queue_offset):
            return []
        if producer is None:
            await self._wait_for_producers(half)
            return []
        return [PendingCheck(producer, *self._move(half, check_times=half.check_times + 1))]

    async def _wait_for_producers(self, half: Half) -> None:
        """No producer that may be asked is connected: the round does not count as a check."""
        now = self._parts.now()
        if self.rules.is_too_old(half, now):
            await self._give_up(half)
        else:
            self._defer(half)

    @property
    def _batch_size(self) -> int:
        """Number of check requests that share one wait for a flush."""
        return _READ_LIMITS.max_count if self._queue.waits else 1

    async def _send_checks(self, checks: list[PendingCheck]) -> int:
        """Send the check requests once their halves can be ended; return their number."""
        copies = [each.copy for each in checks if each.copy is not None]
        if copies:
            await self._queue.wait_readable(copies[-1])
        for each in checks:
            await self._sender.send_check(each.producer, each.half)
        count = len(checks)
        checks.clear()
        return count

    async def _choose_producer(self, half: Half) -> Connection | None:
        """Choose a producer; wait for a blocked one, within the limit of the round."""
        while True:
            try:
                return self._sender.choose(half)
            except AllBlocked:
                if self._blocked_wait_left <= 0:
                    raise
            self._blocked_wait_left -= _BLOCKED_POLL
            await asyncio.sleep(_BLOCKED_POLL)
