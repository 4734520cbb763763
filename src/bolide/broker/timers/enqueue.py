"""Enqueues messages of the timer topic into the slots of the timer wheel."""

import logging
from typing import NamedTuple

from bolide.broker.background import TIMERS, on_thread
from bolide.broker.timers.due_queue import DueQueue, recalled_by
from bolide.broker.timers.inspection import TimerCounts
from bolide.broker.timers.timetable import due_of
from bolide.kernel import read_record
from bolide.model.names import TIMER_TOPIC
from bolide.model.properties import PropertyName
from bolide.protocol.record import Record
from bolide.protocol.record_errors import BadRecord
from bolide.protocol.tags import java_hash
from bolide.remoting.tasks import uninterrupted
from bolide.store.contract import Store
from bolide.store.errors import NotInMemory
from bolide.store.reading import ReadLimits, ReadResult, ReadStatus
from bolide.store.timers import DELETE, PLAIN, ROLL, TimerEntry, TimerFiles

log = logging.getLogger(__name__)

_READ_LIMITS = ReadLimits(max_count=96, max_size=512 * 1024, max_scanned=96)
MAX_ENQUEUE_DELAY_MS = 600_000
"""How much later than its store time a message may have been put into its slot."""
_SPARE_SLOTS = 3600
DEFAULT_WINDOW_MS = 2 * 24 * 3600 * 1000
"""Roll window assumed for messages enqueued before, which may be larger than the configured one."""


class SlottedTimer(NamedTuple):
    """A timer message with its slot."""

    entry: TimerEntry
    due: int
    topic: str
    recalls: str | None
    """Recall key of the message that this one recalls."""


class TimerEnqueuer:
    """Reads the timer queue and fills slots.

    Args:
        queue_offset: queue offset of the next message to enqueue.
        done_before_ms: messages below `done_below_offset` that were due before this time are
            delivered already. They are read again because the timer files were lost.
    """

    def __init__(  # noqa: PLR0913
        self,
        store: Store,
        files: TimerFiles,
        due_queue: DueQueue,
        counts: TimerCounts,
        *,
        queue_offset: int,
        window_ms: int,
        done_before_ms: int = 0,
        done_below_offset: int = 0,
    ) -> None:
        self.queue_offset = queue_offset
        self.reached_offset = 0
        """Physical offset of the newest enqueued message."""
        self._store = store
        self._files = files
        self._due_queue = due_queue
        self._counts = counts
        self._window_ms = window_ms
        self._done_before_ms = done_before_ms
        self._done_below_offset = done_below_offset
        self._read_again_to = min(done_below_offset, store.max_offset(TIMER_TOPIC, 0))

    @property
    def is_rebuilding(self) -> bool:
        """Whether messages are read again that had a slot before the timer files were lost."""
        return self.queue_offset < self._read_again_to

    @property
    def behind(self) -> int:
        """Number of messages not enqueued yet."""
        return max(self._store.max_offset(TIMER_TOPIC, 0) - self.queue_offset, 0)

    async def step(self, now_ms: int) -> bool:
        """Enqueue a batch; return whether there may be more."""
        if not self.behind:
            return False
        found = await self._read()
        if not found.records:
            return self._skip_gap(found)
        before = self.queue_offset
        slotted, next_offset = self._assign_slots(found, now_ms)
        if slotted:
            await self._add_to_slots(slotted)
        self.queue_offset = next_offset
        return next_offset > before

    async def _add_to_slots(self, slotted: list[SlottedTimer]) -> None:
        entries = [each.entry for each in slotted]
        # The clock may pass the slot meanwhile: a restart must not resume behind it.
        self._due_queue.pinned_slot = self._files.number(min(each.due for each in entries))
        try:
            await uninterrupted(on_thread(TIMERS, self._files.add, entries))
            for each in slotted:
                self.reached_offset = each.entry.physical_offset
                self._announce(each)
        finally:
            self._due_queue.pinned_slot = None

    async def _read(self) -> ReadResult:
        queue = (TIMER_TOPIC, 0, self.queue_offset, _READ_LIMITS)
        try:
            return self._store.read(*queue, may_block=False)
        except NotInMemory:
            return await on_thread(TIMERS, self._store.read, *queue)

    def _assign_slots(self, found: ReadResult, now_ms: int) -> tuple[list[SlottedTimer], int]:
        """Return the messages that get a slot now, and the queue offset of the first that does
        not."""
        slotted: list[SlottedTimer] = []
        for data in found.records:
            record = _readable(data)
            each = self._assign_slot(record, now_ms) if record else None
            if each is not None:
                if self._is_beyond_wheel(each.entry) and record:
                    return slotted, record.queue_offset
                slotted.append(each)
        return slotted, found.next_offset

    def _assign_slot(self, record: Record, now_ms: int) -> SlottedTimer | None:
        properties = record.decode_properties()
        due = due_of(properties, self._files.precision_ms)
        topic = properties.get(PropertyName.REAL_TOPIC)
        if due is None or topic is None:
            log.error("the timer message at %s has no due time or topic", record.physical_offset)
            return None
        if is_done(record, due, self._window_ms, self._done_before_ms, self._done_below_offset):
            return None
        # By store time, even if that is long ago: `LogRollover` relies on it.
        slot_time, magic = choose_slot(due, min(record.store_timestamp, now_ms), self._window_ms)
        recalls = recalled_by(properties)
        entry = TimerEntry(
            due=max(slot_time, self._due_queue.cursor * self._files.precision_ms),
            physical_offset=record.physical_offset,
            size=record.size,
            magic=magic if recalls is None else magic | DELETE,
            written=now_ms,
            topic_hash=java_hash(topic),
        )
        return SlottedTimer(entry, slot_time, topic, recalls)

    def _is_beyond_wheel(self, entry: TimerEntry) -> bool:
        """Whether its slot on the wheel still belongs to an undelivered earlier time."""
        ahead = self._files.number(entry.due) - self._due_queue.cursor
        return ahead >= self._files.slots - _SPARE_SLOTS

    def _announce(self, slotted: SlottedTimer) -> None:
        entry = slotted.entry
        if entry.is_recall and slotted.recalls is not None:
            if self._files.number(entry.due) <= self._due_queue.loaded_to:
                self._due_queue.recall(slotted.recalls, self._files.number(entry.due))
            return
        self._counts.record_arrival(slotted.topic, entry.due)
        if slotted.due < entry.due:
            self._due_queue.note_late(entry.physical_offset, slotted.due)
        self._due_queue.add(entry, slotted.due)

    def _skip_gap(self, found: ReadResult) -> bool:
        """Skip a gap left by deleted or damaged log files, or by another store."""
        before = self.queue_offset
        if found.status in {ReadStatus.OFFSET_TOO_SMALL, ReadStatus.OFFSET_OVERFLOW_BADLY}:
            log.warning("timer messages continue at queue offset %s", found.next_offset)
            self.queue_offset = found.next_offset
        elif found.status in {ReadStatus.MESSAGE_WAS_REMOVING, ReadStatus.OFFSET_FOUND_NULL}:
            self.queue_offset += 1
        elif found.status is ReadStatus.NO_MATCHED_MESSAGE:
            self.queue_offset = found.next_offset
        return self.queue_offset != before


def choose_slot(due: int, stored_ms: int, window_ms: int) -> tuple[int, int]:
    """Return the time of the slot of a message and the action to take then, as RocketMQ does.

    A message due beyond the window is re-appended to the timer before its log file is deleted.
    """
    ahead = due - stored_ms
    if ahead < window_ms:
        return due, PLAIN
    # Avoid a short remainder for the next round.
    stay = window_ms // 2 if ahead - window_ms < window_ms // 3 else window_ms
    return stored_ms + stay, PLAIN | ROLL


def is_done(
    record: Record, due: int, window_ms: int, done_before_ms: int, done_below_offset: int
) -> bool:
    """Whether a message was delivered or re-appended before the timer files were lost, or by
    another member of the group."""
    if record.queue_offset >= done_below_offset:
        return False
    slot_time, magic = choose_slot(due, record.store_timestamp, max(window_ms, DEFAULT_WINDOW_MS))
    return slot_time + (MAX_ENQUEUE_DELAY_MS if magic & ROLL else 0) < done_before_ms


def _readable(data: memoryview) -> Record | None:
    try:
        record = read_record(data)
    except BadRecord as exc:
        log.warning("skipping a damaged timer message: %s", exc.reason)
        return None
    assert isinstance(record, Record)
    return record
