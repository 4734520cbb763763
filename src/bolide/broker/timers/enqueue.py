"""Puts what comes into the timer's topic into the slots of its time."""

import asyncio
import logging
from typing import NamedTuple

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

_BATCH = ReadLimits(max_count=96, max_size=512 * 1024, max_scanned=96)
_DOUBT_MS = 600_000
"""How much later than it was stored a message may have got its slot."""
_SPARE_SLOTS = 3600
USUAL_WINDOW_MS = 2 * 24 * 3600 * 1000
"""What was put in before may have been under another window than the one that is set now."""


class Placed(NamedTuple):
    """A message with its slot."""

    waiting: TimerEntry
    due: int
    topic: str
    recalls: str | None
    """The message that it takes back."""


class TimerEnqueue:
    """One reader of one queue.

    Args:
        offset: number of the next message to put into a slot.
        settled_ms: what was due before is delivered: of messages with numbers below
            `settled_to`, which are put into their slots once more, as the files were lost.
    """

    def __init__(  # noqa: PLR0913  where from, where to, and what was there before
        self,
        store: Store,
        files: TimerFiles,
        due_queue: DueQueue,
        counts: TimerCounts,
        *,
        offset: int,
        window_ms: int,
        settled_ms: int = 0,
        settled_to: int = 0,
    ) -> None:
        self.offset = offset
        self.reached = 0
        """Where in the log the newest one lies that has a slot."""
        self._store = store
        self._files = files
        self._due_queue = due_queue
        self._counts = counts
        self._window_ms = window_ms
        self._settled_ms = settled_ms
        self._settled_to = settled_to

    @property
    def behind(self) -> int:
        """How many messages have no slot yet."""
        return max(self._store.max_offset(TIMER_TOPIC, 0) - self.offset, 0)

    async def step(self, now_ms: int) -> bool:
        """Put some into their slots; says whether there may be more."""
        if not self.behind:
            return False
        found = await self._read()
        if not found.records:
            return self._passed_over(found)
        placed, next_offset = self._place_all(found, now_ms)
        if placed:
            await self._put_in(placed)
        self.offset = next_offset
        return bool(placed)

    async def _put_in(self, placed: list[Placed]) -> None:
        waiting = [each.waiting for each in placed]
        # A second may end meanwhile: a restart must not begin behind what came into its slot.
        self._due_queue.held_at = self._files.number(min(each.due for each in waiting))
        try:
            await uninterrupted(asyncio.to_thread(self._files.add, waiting))
            for each in placed:
                self.reached = each.waiting.physical_offset
                self._placed(each)
        finally:
            self._due_queue.held_at = None

    async def _read(self) -> ReadResult:
        queue = (TIMER_TOPIC, 0, self.offset, _BATCH)
        try:
            return self._store.read(*queue, may_block=False)
        except NotInMemory:
            return await asyncio.to_thread(self._store.read, *queue)

    def _place_all(self, found: ReadResult, now_ms: int) -> tuple[list[Placed], int]:
        """Those that have a slot now, and the number of the first message that has none."""
        placed: list[Placed] = []
        for data in found.records:
            record = _readable(data)
            each = self._place(record, now_ms) if record else None
            if each is not None:
                if self._is_out_of_reach(each.waiting) and record:
                    return placed, record.queue_offset
                placed.append(each)
        return placed, found.next_offset

    def _place(self, record: Record, now_ms: int) -> Placed | None:
        properties = record.decode_properties()
        due = due_of(properties, self._files.precision_ms)
        topic = properties.get(PropertyName.REAL_TOPIC)
        if due is None or topic is None:
            log.error("a timer message at %s says no time or topic", record.physical_offset)
            return None
        if self._is_settled(record, due):
            return None
        # By when it was stored, even if that is long ago: `LogRollover` counts on it.
        moment, magic = place(due, min(record.store_timestamp, now_ms), self._window_ms)
        recalls = recalled_by(properties)
        waiting = TimerEntry(
            due=max(moment, self._due_queue.cursor * self._files.precision_ms),
            physical_offset=record.physical_offset,
            size=record.size,
            magic=magic if recalls is None else magic | DELETE,
            written=now_ms,
            topic_hash=java_hash(topic),
        )
        return Placed(waiting, moment, topic, recalls)

    def _is_settled(self, record: Record, due: int) -> bool:
        """Whether it was delivered, or put into the timer again, before the files were lost."""
        if record.queue_offset >= self._settled_to:
            return False
        window = max(self._window_ms, USUAL_WINDOW_MS)
        moment, magic = place(due, record.store_timestamp, window)
        return moment + (_DOUBT_MS if magic & ROLL else 0) < self._settled_ms

    def _is_out_of_reach(self, waiting: TimerEntry) -> bool:
        """Whether its slot is that of a time which was not delivered yet, a round before."""
        ahead = self._files.number(waiting.due) - self._due_queue.cursor
        return ahead >= self._files.slots - _SPARE_SLOTS

    def _placed(self, placed: Placed) -> None:
        waiting = placed.waiting
        if waiting.is_recall and placed.recalls is not None:
            if self._files.number(waiting.due) <= self._due_queue.loaded_to:
                self._due_queue.recall(placed.recalls, self._files.number(waiting.due))
            return
        self._counts.enqueued(placed.topic)
        self._due_queue.arrived(waiting, placed.due)

    def _passed_over(self, found: ReadResult) -> bool:
        """Go on behind what is gone: files were deleted, or damaged, or of another store."""
        before = self.offset
        if found.status in {ReadStatus.OFFSET_TOO_SMALL, ReadStatus.OFFSET_OVERFLOW_BADLY}:
            log.warning("timer messages go on at number %s", found.next_offset)
            self.offset = found.next_offset
        elif found.status in {ReadStatus.MESSAGE_WAS_REMOVING, ReadStatus.OFFSET_FOUND_NULL}:
            self.offset += 1
        elif found.status is ReadStatus.NO_MATCHED_MESSAGE:
            self.offset = found.next_offset
        return self.offset != before


def place(due: int, stored_ms: int, window_ms: int) -> tuple[int, int]:
    """The moment of a message's slot and what is done with it then, as RocketMQ chooses them.

    What is further away than the window comes into the timer again, before its log file goes.
    """
    ahead = due - stored_ms
    if ahead < window_ms:
        return due, PLAIN
    # Not so that only a little is left for the next time.
    stay = window_ms // 2 if ahead - window_ms < window_ms // 3 else window_ms
    return stored_ms + stay, PLAIN | ROLL


def _readable(data: memoryview) -> Record | None:
    try:
        record = read_record(data)
    except BadRecord as exc:
        log.warning("a timer message is damaged and passed over: %s", exc.reason)
        return None
    assert isinstance(record, Record)
    return record
