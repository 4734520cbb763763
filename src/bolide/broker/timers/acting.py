"""Delivers timer messages that are due while a group has no master, at the slave that acts for it.

The log of a slave does not grow without a master, so what is pending is known at once: the timer
topic is read one time, and the messages are kept in memory by due time. Wheel and timer log are not
used. A message is delivered through another broker group. The checkpoint says how far this is done;
the master takes it over when it comes back.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop
from typing import NamedTuple

from bolide.broker.background import TIMERS, on_thread
from bolide.broker.delay import Elsewhere
from bolide.broker.settings.config import BrokerConfig
from bolide.broker.timers.checkpointing import DeliveryIdentity, delivered_since
from bolide.broker.timers.delivery import Continuation, delivered_draft, rolled_draft
from bolide.broker.timers.due_queue import recall_key, recalled_by
from bolide.broker.timers.enqueue import (
    DEFAULT_WINDOW_MS,
    MAX_ENQUEUE_DELAY_MS,
    choose_slot,
    is_done,
)
from bolide.broker.timers.scheduler import Timers
from bolide.broker.timers.timetable import due_of
from bolide.config import ConfigCell
from bolide.errors import BolideError
from bolide.kernel import read_record
from bolide.model.names import TIMER_TOPIC
from bolide.model.properties import PropertyName
from bolide.protocol.record import Record, RecordDraft
from bolide.protocol.record_errors import BadRecord
from bolide.remoting.tasks import uninterrupted
from bolide.store.message_store import MessageStore
from bolide.store.reading import ReadLimits
from bolide.store.timers import ROLL, TimerCheckpoint

log = logging.getLogger(__name__)

_READ_LIMITS = ReadLimits(max_count=512, max_size=4 * 1024 * 1024, max_scanned=512)
_BATCH = 64
_LONGEST_SLEEP = 1.0
_SAVE_INTERVAL = 1.0
_RETRY_DELAY = 1.0


class PendingEntry(NamedTuple):
    """A message of the timer topic; sorts by time."""

    time: int
    """Milliseconds at which it is due, or at which it moves to another group's timers."""
    physical_offset: int
    is_rolled: bool


@dataclass(slots=True)
class PendingTimers:
    """What is left to deliver."""

    waiting: list[PendingEntry] = field(default_factory=list)
    """A heap."""
    refused: list[PendingEntry] = field(default_factory=list)
    """Entries that no other group took when they were due."""
    next_retry: float = 0.0
    recalled: set[str] = field(default_factory=set)
    delivered: set[DeliveryIdentity] = field(default_factory=set)
    queue_end: int = 0
    begun: TimerCheckpoint = field(default_factory=TimerCheckpoint)
    """Where the master had come to."""

    def take(self, now_ms: int, monotonic: float) -> list[PendingEntry]:
        """Remove a batch of what is due, or of what was refused a while ago."""
        taken: list[PendingEntry] = []
        while self.waiting and self.waiting[0].time <= now_ms and len(taken) < _BATCH:
            taken.append(heappop(self.waiting))
        if not taken and monotonic >= self.next_retry:
            taken, self.refused = self.refused[:_BATCH], self.refused[_BATCH:]
        return taken

    def refuse(self, entry: PendingEntry, monotonic: float) -> None:
        self.refused.append(entry)
        self.next_retry = monotonic + _RETRY_DELAY

    def done_before(self, now_ms: int) -> int:
        """A time before which everything is delivered."""
        first = [each.time for each in self.refused] + [each.time for each in self.waiting[:1]]
        return min([now_ms, *first])


class ActingTimers:
    """The timer of an acting master; belongs to one event loop, `run` is its task.

    Args:
        timers: keeps the checkpoint; it does not run meanwhile.
    """

    def __init__(
        self,
        store: MessageStore,
        timers: Timers,
        *,
        cell: ConfigCell[BrokerConfig],
        store_host: bytes,
        now: Callable[[], float] = time.time,
        continuations: Sequence[Continuation] = (),
    ) -> None:
        self._store = store
        self._timers = timers
        self._cell = cell
        self._store_host = store_host
        self._now = now
        self._continuations = continuations
        self._saved = 0.0

    async def run(self, elsewhere: Elsewhere) -> None:
        """Deliver what is due through `elsewhere`, until cancelled."""
        begun = await uninterrupted(on_thread(TIMERS, self._timers.load_checkpoint))
        pending = await uninterrupted(on_thread(TIMERS, self._find_pending, begun))
        try:
            while True:
                if batch := pending.take(self._now_ms(), time.monotonic()):
                    # What is under way is recorded before the task ends.
                    await uninterrupted(self._deliver(pending, batch, elsewhere))
                if time.monotonic() - self._saved >= _SAVE_INTERVAL:
                    await uninterrupted(self._save(pending))
                if not batch:
                    await asyncio.sleep(self._pause(pending))
        finally:
            await self._save(pending)

    def _pause(self, pending: PendingTimers) -> float:
        if not pending.waiting:
            return _LONGEST_SLEEP
        left = pending.waiting[0].time / 1000 - self._now()
        return min(max(left, 0.001), _LONGEST_SLEEP)

    # ---- what is pending

    def _find_pending(self, begun: TimerCheckpoint) -> PendingTimers:
        """Read the timer topic. Blocks."""
        found = PendingTimers(queue_end=self._store.max_offset(TIMER_TOPIC, 0), begun=begun)
        if begun.recovery_point is not None and found.queue_end:
            found.delivered = delivered_since(self._store.log, begun.recovery_point.delivered_from)
        position = self._store.min_offset(TIMER_TOPIC, 0)
        while position < found.queue_end:
            result = self._store.read(TIMER_TOPIC, 0, position, _READ_LIMITS)
            for data in result.records:
                self._add(found, data)
            position = max(result.next_offset, position + 1)
        heapify(found.waiting)
        return found

    def _add(self, found: PendingTimers, data: memoryview) -> None:
        record = _readable(data)
        if record is None:
            return
        config, properties, begun = self._cell.value, record.decode_properties(), found.begun
        if (key := recalled_by(properties)) is not None:
            found.recalled.add(key)
            return
        due = due_of(properties, config.timer_precision_ms)
        carried_to = begun.recovery_point.carried_to if begun.recovery_point else 0
        if due is None or record.physical_offset < carried_to:
            return
        window = max(config.timer_roll_window_slot * config.timer_precision_ms, DEFAULT_WINDOW_MS)
        if is_done(record, due, window, begun.read_time, begun.queue_offset):
            return
        slot_time, magic = choose_slot(due, record.store_timestamp, window)
        # Not before the time from which a master takes it for re-appended.
        moves_at = slot_time + MAX_ENQUEUE_DELAY_MS
        is_rolled = bool(magic & ROLL) and moves_at < due
        entry = PendingEntry(moves_at if is_rolled else due, record.physical_offset, is_rolled)
        found.waiting.append(entry)

    # ---- delivery

    async def _deliver(
        self, pending: PendingTimers, batch: list[PendingEntry], elsewhere: Elsewhere
    ) -> None:
        outcomes = await asyncio.gather(
            *(self._deliver_one(pending, each, elsewhere) for each in batch), return_exceptions=True
        )
        for entry, outcome in zip(batch, outcomes, strict=True):
            if isinstance(outcome, BaseException):
                pending.refuse(entry, time.monotonic())
                if not isinstance(outcome, BolideError):
                    log.error("a timer message is delayed", exc_info=outcome)

    async def _deliver_one(
        self, pending: PendingTimers, entry: PendingEntry, elsewhere: Elsewhere
    ) -> None:
        data = await on_thread(TIMERS, self._store.record_at, entry.physical_offset)
        record = None if data is None else _readable(data)
        if record is None:
            log.warning("the timer message at %s no longer exists", entry.physical_offset)
            return
        for draft in self._drafts(pending, record, is_rolled=entry.is_rolled):
            await elsewhere(draft)

    def _drafts(
        self, pending: PendingTimers, record: Record, *, is_rolled: bool
    ) -> Sequence[RecordDraft]:
        """What is to be sent: the message, or nothing if it was recalled or delivered before."""
        properties = record.decode_properties()
        topic = properties.get(PropertyName.REAL_TOPIC, "")
        key = recall_key(topic, properties.get(PropertyName.UNIQUE_ID, ""))
        if key in pending.recalled:
            return ()
        if is_rolled:
            return (rolled_draft(record, properties, self._store_host),)
        if DeliveryIdentity.of(topic, properties) in pending.delivered:
            return ()
        draft = delivered_draft(record, properties, self._store_host)
        if draft is None:
            log.error("the timer message at %s names no valid topic", record.physical_offset)
            return ()
        for continuation in self._continuations:
            if (drafts := continuation(draft, properties)) is not None:
                return drafts
        return (draft,)

    # ---- progress

    async def _save(self, pending: PendingTimers) -> None:
        read_time, last = pending.done_before(self._now_ms()), self._timers.checkpoint
        self._saved = time.monotonic()
        if read_time <= last.read_time or not pending.queue_end:
            return
        checkpoint = TimerCheckpoint(
            read_time=read_time,
            queue_offset=pending.queue_end,
            master_queue_offset=pending.queue_end,
            state_version=last.state_version,
            timestamp=self._now_ms(),
            counter=last.counter + 1,
            recovery_point=pending.begun.recovery_point,
        )
        await on_thread(TIMERS, self._timers.record_acting, checkpoint)

    def _now_ms(self) -> int:
        return int(self._now() * 1000)


def _readable(data: memoryview) -> Record | None:
    try:
        record = read_record(bytes(data))
    except BadRecord as exc:
        log.warning("skipping a damaged timer message: %s", exc.reason)
        return None
    return record if isinstance(record, Record) and record.topic == TIMER_TOPIC else None
