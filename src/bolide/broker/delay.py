"""Delivers messages whose delay is over to the topics they belong to.

The queue of a level in SCHEDULE_TOPIC_XXXX is in order of delivery, and its units hold the
delivery time in place of a tags code. So one task goes from level to level, delivers a batch of
what is due at the head of each, and sleeps when a round found nothing: until the next one is due,
or until a message arrives that may be due earlier.
"""

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from bolide.broker.produce.durability import Durability
from bolide.broker.produce.intake import Intake
from bolide.errors import BolideError
from bolide.kernel import read_record
from bolide.model.names import HALF_TOPIC, SCHEDULE_TOPIC
from bolide.model.properties import PropertyName
from bolide.protocol.codes import ResponseCode
from bolide.protocol.record import RECORD_HEAD, Record, RecordDraft
from bolide.protocol.record_errors import BadRecord, RecordTooLarge
from bolide.store.appending import Appended
from bolide.store.contract import Store
from bolide.store.errors import NotInMemory, StoreUnwritable
from bolide.store.reading import MessageFilter, ReadLimits, ReadResult, ReadStatus
from bolide.store.tables import DelayOffsets, Table

log = logging.getLogger(__name__)

_BATCH = ReadLimits(max_count=64, max_size=1024 * 1024, max_scanned=64)
_AFTER_FAILURE = 0.1
_SHORTEST_SLEEP = 0.001
_LONGEST_SLEEP = 60.0


class NotYet(Exception):
    """It cannot be told yet whether a message was delivered."""


class DelayScheduler:
    """The deliverer of one broker; `run` is its task.

    Args:
        delays: milliseconds of each level, the first one unused.
        is_delivered: whether a message, given with its physical offset in the delay topic, was
            delivered before a crash; may raise NotYet.
    """

    def __init__(  # noqa: PLR0913  where from, where to, how far, and how late
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
        """Levels whose messages wait for the store; that is told once."""
        intake.watch(SCHEDULE_TOPIC, self._arrived.set)

    @property
    def max_level(self) -> int:
        return len(self._delays) - 1

    def progress(self) -> dict[int, tuple[int, int]]:
        """By level: how many messages were delivered, and how many there have been."""
        return {
            level: (self._offset(level), self._store.max_offset(SCHEDULE_TOPIC, level - 1))
            for level in range(1, self.max_level + 1)
        }

    def table(self) -> DelayOffsets:
        """How far deliveries are, as replicas get it."""
        version = self._table.value.data_version
        return DelayOffsets(offset_table=dict(self._offsets), data_version=version)

    async def run(self) -> None:
        while True:
            self._arrived.clear()
            waits = [await self._deliver_batch(level) for level in range(1, self.max_level + 1)]
            if seconds := min(waits):
                with suppress(TimeoutError):
                    async with asyncio.timeout(seconds):
                        await self._arrived.wait()

    async def _deliver_batch(self, level: int) -> float:
        """Deliver some of what is due of a level; returns the seconds until more may be."""
        try:
            found, due = await self._look(level)
            self._deliver_all(level, found.records)
        except NotYet:
            return _AFTER_FAILURE
        except Exception as exc:  # noqa: BLE001  whatever it is, it is tried again
            self._stick(level, exc)
            return _AFTER_FAILURE
        if found.records:
            self._stuck.discard(level)
        elif not self._passed_over(level, found, due):
            return self._seconds_until(due)
        await asyncio.sleep(0)  # others want to be served too
        return 0.0

    def _stick(self, level: int, exc: Exception) -> None:
        if level not in self._stuck:
            self._stuck.add(level)
            advice = "; raise maxMessageSize again" if isinstance(exc, RecordTooLarge) else ""
            known = isinstance(exc, BolideError | ValueError)
            log.error(
                "delayed messages of level %s wait from number %s on: %s%s",
                level, self._offset(level), exc, advice, exc_info=None if known else exc,
            )  # fmt: skip

    def _seconds_until(self, due: int) -> float:
        if not due:
            return _LONGEST_SLEEP
        return min(max(due / 1000 - self._now(), _SHORTEST_SLEEP), _LONGEST_SLEEP)

    async def _look(self, level: int) -> tuple[ReadResult, int]:
        """The messages at the head that are due, and when the first that is not will be."""
        head = _Head(int(self._now() * 1000), self._delays[level])
        queue = (
            SCHEDULE_TOPIC,
            level - 1,
            self._offset(level),
            _BATCH,
            MessageFilter(code=head.is_due),
        )
        try:
            found = self._store.read(*queue, may_block=False)
        except NotInMemory:
            head.forget()
            found = await asyncio.to_thread(self._store.read, *queue)
        return found, head.next_due

    def _deliver_all(self, level: int, records: list[memoryview]) -> None:
        for data in records:
            try:
                record = read_record(bytes(data))
            except BadRecord as exc:
                self._step_over(level, data, exc)
                return
            assert isinstance(record, Record)
            self._deliver(level, record)

    def _deliver(self, level: int, record: Record) -> None:
        draft = self._restored(record)
        if draft is not None and not self._is_delivered(draft, record.physical_offset):
            try:
                self._watch(level, record.queue_offset, self._intake.append(draft))
            except RecordTooLarge:  # it fitted once, and may again
                raise
            except ValueError as exc:
                log.warning(
                    "a delayed message at %s belongs nowhere: %s", record.physical_offset, exc
                )
        self._offsets[level] = record.queue_offset + 1

    def _step_over(self, level: int, data: memoryview, exc: BadRecord) -> None:
        """Go one further than what was delivered: all from there to the damaged one is lost, and
        its own number may be damaged too."""
        *_, place = RECORD_HEAD.unpack_from(data)
        log.error("the delayed message at %s is damaged and passed over: %s", place, exc.reason)
        self._offsets[level] = self._offset(level) + 1

    def _watch(self, level: int, queue_offset: int, appended: Appended) -> None:
        """Deliver again from here if the store takes back what was delivered, however late."""

        def tell(outcome: int | StoreUnwritable) -> None:
            if isinstance(outcome, StoreUnwritable):
                self._offsets[level] = min(self._offset(level), queue_offset)
                self._arrived.set()
            elif outcome != ResponseCode.SUCCESS:
                self._durability.when_safe(appended, tell)

        self._durability.when_safe(appended, tell)

    def _restored(self, record: Record) -> RecordDraft | None:
        """The message as it goes to its real topic; the properties stay as they are, as in Java."""
        properties = record.decode_properties()
        topic, queue_id = properties.get(PropertyName.REAL_TOPIC), _real_queue(properties)
        if topic is None or queue_id is None or topic == HALF_TOPIC:
            log.error("a delayed message at %s belongs nowhere", record.physical_offset)
            return None
        return RecordDraft(
            topic.encode(), record.body, record.properties, queue_id, record.born_timestamp,
            record.born_host, self._store_host, record.flag, record.sys_flag,
            record.reconsume_times,
        )  # fmt: skip

    def _passed_over(self, level: int, found: ReadResult, due: int) -> bool:
        """Go on behind what is gone: files were deleted, or damaged, or of another store."""
        if found.status in {ReadStatus.OFFSET_TOO_SMALL, ReadStatus.OFFSET_OVERFLOW_BADLY}:
            log.warning("delay level %s goes on at %s", level, found.next_offset)
            self._offsets[level] = found.next_offset
        elif found.status in {ReadStatus.MESSAGE_WAS_REMOVING, ReadStatus.OFFSET_FOUND_NULL}:
            self._offsets[level] = self._offset(level) + 1
        elif found.status is ReadStatus.NO_MATCHED_MESSAGE and not due:
            self._offsets[level] = found.next_offset  # all were due, and none could be read
        else:
            return False
        return True

    def _offset(self, level: int) -> int:
        return self._offsets.get(level, 0)

    def save(self) -> None:
        """Write down how far deliveries are, when what was delivered is on the disk. Blocks."""
        with self._saving:
            offsets = dict(self._offsets)
            if offsets != self._table.value.offset_table and self._store.flush():
                self._table.value.offset_table = offsets
                self._table.changed()
                self._table.save()


class _Head:
    """The filter that takes the due messages at the head of a queue, and nothing behind them."""

    def __init__(self, now: int, delay: int) -> None:
        self._now = now
        self._latest = now + delay
        self.next_due = 0

    def is_due(self, due: int) -> bool:
        if self.next_due:
            return False
        # Further ahead than its delay: the levels were changed, or the clock. Then it is due now.
        if due <= self._now or due > self._latest:
            return True
        self.next_due = due
        return False

    def forget(self) -> None:
        self.next_due = 0


def _real_queue(properties: dict[str, str]) -> int | None:
    text = properties.get(PropertyName.REAL_QUEUE_ID, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None
