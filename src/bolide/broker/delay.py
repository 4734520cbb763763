"""Delivery of messages with one of the 18 delay levels (`ScheduleMessageService`).

Each level has a queue in SCHEDULE_TOPIC_XXXX, ordered by delivery time; its consume queue units
hold the delivery time in place of a tags code. One task visits the levels in turn and delivers a
batch of the due messages at the head of each. After a round without deliveries it sleeps until the
next message is due or a new message arrives.
"""

import asyncio
import logging
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress

from bolide.broker.background import DELAYS, on_thread
from bolide.broker.produce.durability import Durability
from bolide.broker.produce.intake import Intake
from bolide.errors import BolideError
from bolide.events import Listeners
from bolide.kernel import read_record
from bolide.model.names import HALF_TOPIC, SCHEDULE_TOPIC
from bolide.model.properties import INT_DIGITS, PropertyName, parse_number
from bolide.protocol.codes import ResponseCode
from bolide.protocol.record import RECORD_HEAD, Record, RecordDraft
from bolide.protocol.record_errors import BadRecord, RecordTooLarge
from bolide.remoting.tasks import uninterrupted
from bolide.store.appending import Appended
from bolide.store.contract import Store
from bolide.store.errors import NotInMemory, StoreUnwritable
from bolide.store.reading import MessageFilter, ReadLimits, ReadResult, ReadStatus
from bolide.store.tables import DelayOffsets, Table

log = logging.getLogger(__name__)

_BATCH = ReadLimits(max_count=64, max_size=1024 * 1024, max_scanned=64)
_AFTER_FAILURE = 0.1
_AFTER_REFUSAL = 1.0
"""Seconds after which a message is offered to other brokers again."""
_SHORTEST_SLEEP = 0.001
_LONGEST_SLEEP = 60.0


class NotYet(Exception):
    """Whether a message was delivered before the restart is not known yet."""


Elsewhere = Callable[[RecordDraft], Awaitable[None]]
"""Has another broker store a message; raises BolideError if none does."""


class DelayScheduler:
    """Delivers the delayed messages of one broker; `run` is its task.

    Args:
        delays: milliseconds by level; index 0 is unused.
        is_delivered: whether a message, given with its physical offset in the delay topic, was
            delivered before a crash; may raise NotYet.
    """

    def __init__(  # noqa: PLR0913  source, target, progress and delays
        self,
        store: Store,
        intake: Intake,
        durability: Durability,
        table: Table[DelayOffsets],
        *,
        delays: tuple[int, ...],
        store_host: bytes,
        is_delivered: Callable[[RecordDraft, int], bool] = lambda *_: False,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._store = store
        self._intake = intake
        self._durability = durability
        self._table = table
        self._offsets = dict(table.value.offset_table)
        self._delays = delays
        self._store_host = store_host
        self._now = now
        self._is_delivered = is_delivered
        self._arrived = asyncio.Event()
        self._saving = threading.Lock()  # one file, one writer
        self._stuck: set[int] = set()
        """Levels with a delivery failure that is logged already."""
        self._taken: set[tuple[int, int]] = set()
        """Level and queue offset of messages that other brokers took before an earlier one."""
        self._acted: dict[int, int] = {}
        """Offsets that this slave has reached while its group had no master, until a master has
        reached them too."""
        self.on_delivered: Listeners[int, str, int, int] = Listeners()
        """A message was stored in its topic: the queue of its level, the topic and its queue, and
        the size of its record."""
        intake.watch(SCHEDULE_TOPIC, self._arrived.set)

    @property
    def max_level(self) -> int:
        return len(self._delays) - 1

    def progress(self) -> dict[int, tuple[int, int]]:
        """Delivered and total number of messages by level."""
        return {
            level: (self._offset(level), self._store.max_offset(SCHEDULE_TOPIC, level - 1))
            for level in range(1, self.max_level + 1)
        }

    def table(self) -> DelayOffsets:
        """Delivery offsets by level in their wire form, for replicas."""
        version = self._table.value.data_version
        return DelayOffsets(offset_table=dict(self._offsets), data_version=version)

    def adopt(self, table: DelayOffsets) -> None:
        """Replace the delivery offsets by those of the master.

        Those that were reached without a master are kept until the master has reached them.
        """
        self._acted = {
            level: offset
            for level, offset in self._acted.items()
            if table.offset_table.get(level, 0) < offset
        }
        with self._saving:
            self._offsets = table.offset_table | self._acted
            self._table.value = table
            self._table.changed()

    def take_ahead(self, table: DelayOffsets) -> int:
        """Adopt the offsets of a slave that are ahead of these; returns for how many levels.

        Its messages were delivered while this master was away.
        """
        taken = 0
        for level, (offset, end) in self.progress().items():
            ahead = min(table.offset_table.get(level, 0), end)
            if ahead > offset:
                self._offsets[level] = ahead
                taken += 1
        return taken

    def save_adopted(self) -> None:
        """Save the offsets of a slave. Blocks."""
        with self._saving:
            offsets, value = dict(self._offsets), self._table.value
            if offsets != value.offset_table:
                value.offset_table = offsets
                value.data_version = value.data_version.bumped(int(self._now() * 1000))
                self._table.changed()
            self._table.save()

    async def run(self, elsewhere: Elsewhere | None = None) -> None:
        """Deliver messages when they are due, until cancelled.

        Args:
            elsewhere: delivers them through other brokers, for a slave that may not append.
        """
        while True:
            self._arrived.clear()
            waits = [
                await self._deliver_batch(level, elsewhere)
                for level in range(1, self.max_level + 1)
            ]
            if seconds := min(waits):
                with suppress(TimeoutError):
                    async with asyncio.timeout(seconds):
                        await self._arrived.wait()

    async def _deliver_batch(self, level: int, elsewhere: Elsewhere | None) -> float:
        """Deliver due messages of a level; returns the seconds until the next may be due."""
        try:
            found, due = await self._read_due(level)
            if elsewhere is None:
                self._deliver_all(level, found.records)
            else:  # what is under way is counted before the task ends
                await uninterrupted(self._send_all(level, found.records, elsewhere))
        except NotYet:
            return _AFTER_FAILURE
        except Exception as exc:  # noqa: BLE001  task boundary: logged, then retried
            if elsewhere is not None and isinstance(exc, BolideError):
                return _AFTER_REFUSAL  # it was logged where it was refused
            self._report_stuck(level, exc)
            return _AFTER_FAILURE
        if found.records:
            self._stuck.discard(level)
        elif not self._skip_unreadable(level, found, due):
            return self._seconds_until(due)
        await asyncio.sleep(0)  # let other tasks run between batches
        return 0.0

    def _report_stuck(self, level: int, exc: Exception) -> None:
        if level not in self._stuck:
            self._stuck.add(level)
            advice = "; raise maxMessageSize again" if isinstance(exc, RecordTooLarge) else ""
            is_expected = isinstance(exc, BolideError | ValueError)
            log.error(
                "delivery of delay level %s is stuck at queue offset %s: %s%s",
                level, self._offset(level), exc, advice, exc_info=None if is_expected else exc,
            )  # fmt: skip

    def _seconds_until(self, due: int) -> float:
        if not due:
            return _LONGEST_SLEEP
        return min(max(due / 1000 - self._now(), _SHORTEST_SLEEP), _LONGEST_SLEEP)

    async def _read_due(self, level: int) -> tuple[ReadResult, int]:
        """Read the due messages at the head, and the delivery time of the first one not due."""
        due_filter = _DueFilter(int(self._now() * 1000), self._delays[level])
        query = (
            SCHEDULE_TOPIC,
            level - 1,
            self._offset(level),
            _BATCH,
            MessageFilter(code=due_filter.is_due),
        )
        try:
            found = self._store.read(*query, may_block=False)
        except NotInMemory:
            due_filter.restart()
            found = await on_thread(DELAYS, self._store.read, *query)
        return found, due_filter.next_due

    def _deliver_all(self, level: int, records: list[memoryview]) -> None:
        for data in records:
            try:
                record = read_record(bytes(data))
            except BadRecord as exc:
                self._skip_damaged(level, data, exc)
                return
            assert isinstance(record, Record)
            self._deliver(level, record)

    def _deliver(self, level: int, record: Record) -> None:
        draft = self._restored(record)
        if draft is not None and not self._is_delivered(draft, record.physical_offset):
            try:
                appended = self._intake.append(draft)
                self._redeliver_if_lost(level, record.queue_offset, appended)
                topic = draft.topic.decode(errors="replace")
                self.on_delivered(level - 1, topic, draft.queue_id, appended.size)
            except RecordTooLarge:  # maxMessageSize was reduced and may be raised again
                raise
            except ValueError as exc:
                log.warning(
                    "dropping the delayed message at %s, its topic is invalid: %s",
                    record.physical_offset,
                    exc,
                )
        self._offsets[level] = record.queue_offset + 1

    async def _send_all(self, level: int, records: list[memoryview], elsewhere: Elsewhere) -> None:
        """Deliver through other brokers; raises what stopped it, after those that were taken."""
        drafts: list[tuple[int, RecordDraft | None]] = []
        for data in records:
            try:
                record = read_record(bytes(data))
            except BadRecord as exc:
                if not drafts:
                    self._skip_damaged(level, data, exc)
                    self._acted[level] = self._offset(level)
                break
            assert isinstance(record, Record)
            draft = self._restored(record)
            if draft is not None and self._is_delivered(draft, record.physical_offset):
                draft = None
            drafts.append((record.queue_offset, draft))
        offered = {
            queue_offset: draft
            for queue_offset, draft in drafts
            if draft is not None and (level, queue_offset) not in self._taken
        }
        outcomes = await asyncio.gather(
            *(elsewhere(draft) for draft in offered.values()), return_exceptions=True
        )
        refused = {
            queue_offset: outcome
            for queue_offset, outcome in zip(offered, outcomes, strict=True)
            if isinstance(outcome, BaseException)
        }
        self._taken |= {(level, each) for each in offered if each not in refused}
        for queue_offset, _ in drafts:
            if queue_offset in refused:
                raise refused[queue_offset]
            self._offsets[level] = self._acted[level] = queue_offset + 1
            self._taken.discard((level, queue_offset))

    def _skip_damaged(self, level: int, data: memoryview, exc: BadRecord) -> None:
        """Advance by one queue offset; the record's own queue offset may be damaged too."""
        *_, physical_offset = RECORD_HEAD.unpack_from(data)
        log.error("skipping the damaged delayed message at %s: %s", physical_offset, exc.reason)
        self._offsets[level] = self._offset(level) + 1

    def _redeliver_if_lost(self, level: int, queue_offset: int, appended: Appended) -> None:
        """Deliver again from `queue_offset` if the store discards the delivered message."""

        def on_outcome(outcome: int | StoreUnwritable) -> None:
            if isinstance(outcome, StoreUnwritable):
                self._offsets[level] = min(self._offset(level), queue_offset)
                self._arrived.set()
            elif outcome != ResponseCode.SUCCESS:
                self._durability.when_durable(appended, on_outcome)

        self._durability.when_durable(appended, on_outcome)

    def _restored(self, record: Record) -> RecordDraft | None:
        """Build the message for its real topic; properties are unchanged, as in RocketMQ."""
        properties = record.decode_properties()
        topic = properties.get(PropertyName.REAL_TOPIC)
        queue_id = parse_number(properties.get(PropertyName.REAL_QUEUE_ID), INT_DIGITS)
        if topic is None or queue_id is None or topic == HALF_TOPIC:
            log.error(
                "dropping the delayed message at %s, it names no topic", record.physical_offset
            )
            return None
        return RecordDraft(
            topic.encode(), record.body, record.properties, queue_id, record.born_timestamp,
            record.born_host, self._store_host, record.flag, record.sys_flag,
            record.reconsume_times,
        )  # fmt: skip

    def _skip_unreadable(self, level: int, found: ReadResult, due: int) -> bool:
        """Advance past messages that were deleted or cannot be read; False if there are none."""
        if found.status in {ReadStatus.OFFSET_TOO_SMALL, ReadStatus.OFFSET_OVERFLOW_BADLY}:
            log.warning("delay level %s continues at %s", level, found.next_offset)
            self._offsets[level] = found.next_offset
        elif found.status in {ReadStatus.MESSAGE_WAS_REMOVING, ReadStatus.OFFSET_FOUND_NULL}:
            self._offsets[level] = self._offset(level) + 1
        elif found.status is ReadStatus.NO_MATCHED_MESSAGE and not due:
            self._offsets[level] = found.next_offset  # all are due and none is readable
        else:
            return False
        return True

    def _offset(self, level: int) -> int:
        return self._offsets.get(level, 0)

    def save(self) -> None:
        """Flush the delivered messages, then save the delivery offsets. Blocks."""
        with self._saving:
            offsets = dict(self._offsets)
            if offsets != self._table.value.offset_table and self._store.flush():
                self._table.value.offset_table = offsets
                self._table.changed()
                self._table.save()


class _DueFilter:
    """Filter that accepts due messages up to the first message that is not due."""

    def __init__(self, now: int, delay: int) -> None:
        self._now = now
        self._latest = now + delay
        self.next_due = 0

    def is_due(self, due: int) -> bool:
        if self.next_due:
            return False
        # A time further ahead than the delay means that the levels or the clock were changed.
        # The message is due then.
        if due <= self._now or due > self._latest:
            return True
        self.next_due = due
        return False

    def restart(self) -> None:
        self.next_due = 0
