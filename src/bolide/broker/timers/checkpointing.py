"""Checkpoints of the timer: writing them, and resuming from one without repeating deliveries."""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from bolide.kernel import read_record
from bolide.model.names import TIMER_TOPIC
from bolide.model.properties import PropertyName, parse_number
from bolide.protocol.property_string import decode_properties
from bolide.protocol.record import MAGIC_BLANK, RECORD_HEAD, Record, is_record_magic
from bolide.protocol.record_errors import BadRecord
from bolide.store.contract import Store
from bolide.store.message_store import MessageStore
from bolide.store.reading import ReadableLog
from bolide.store.timers import OpenedTimers, TimerCheckpoint, TimerFiles, TimerRecoveryPoint

log = logging.getLogger(__name__)

_IDLE_INTERVAL = 10.0
"""Seconds between two checkpoints in which only the read time differs."""
_MAX_CLOCK_STEP_MS = 24 * 3600 * 1000
"""If the clock is set back further, wheel slots of the old and the new time may coincide."""
_TIMER_PROPERTY = f"{PropertyName.TIMER_OUT_MS}\x01".encode()
_BLOCK_SIZE = 4 * 1024 * 1024


class Progress(NamedTuple):
    """A consistent snapshot of the progress of the timer."""

    read_time: int
    queue_offset: int
    log_position: int
    delivered_from: int
    carried_to: int
    delivered: int
    """Number of deliveries since the start."""


class Checkpointer:
    """Writes checkpoints; `progress` is set on the event loop, `save` may run on any thread."""

    def __init__(self, store: Store, files: TimerFiles, now: Callable[[], float]) -> None:
        self.progress: Progress | None = None
        self.checkpoint = TimerCheckpoint()
        """The last checkpoint written."""
        self._store = store
        self._files = files
        self._now = now
        self._saved: Progress | None = None
        self._saved_at = 0.0
        self._save_lock = threading.Lock()  # serializes writers of the checkpoint file

    def save(self, *, at_once: bool = False) -> None:
        """Flush the log, then write the checkpoint if it is due or `at_once`. Blocks."""
        with self._save_lock:
            progress = self.progress
            if progress is None or not self._files.is_open or not self._is_due(progress, at_once):
                return
            if self._store.flush():
                self.checkpoint = self._next_checkpoint(progress)
                self._files.save(self.checkpoint)
                self._saved, self._saved_at = progress, time.monotonic()

    def _is_due(self, progress: Progress, at_once: bool) -> bool:
        saved = self._saved
        if saved is None or progress == saved:
            return saved is None
        # Appends of other topics advance `delivered_from`; that alone is no reason to write.
        now = progress._replace(read_time=saved.read_time, delivered_from=saved.delivered_from)
        return at_once or now != saved or time.monotonic() - self._saved_at >= _IDLE_INTERVAL

    def _next_checkpoint(self, progress: Progress) -> TimerCheckpoint:
        before = self.checkpoint
        return TimerCheckpoint(
            read_time=progress.read_time,
            log_position=progress.log_position,
            queue_offset=progress.queue_offset,
            master_queue_offset=progress.queue_offset,
            state_version=before.state_version,
            timestamp=int(self._now() * 1000),
            counter=before.counter + 1,
            recovery_point=TimerRecoveryPoint(
                delivered_from=progress.delivered_from, carried_to=progress.carried_to
            ),
        )


class DeliveryIdentity(NamedTuple):
    """Identifies one delivery of a timer message."""

    topic: str
    unique_id: str
    due: str
    rolled: str

    @classmethod
    def of(cls, topic: str, properties: dict[str, str]) -> "DeliveryIdentity | None":
        unique_id = properties.get(PropertyName.UNIQUE_ID)
        due = properties.get(PropertyName.TIMER_OUT_MS)
        if unique_id is None or due is None:
            return None
        return cls(topic, unique_id, due, properties.get(PropertyName.TIMER_ROLL_TIMES, ""))


def delivered_since(log: ReadableLog, position: int) -> set[DeliveryIdentity]:
    """Return the timer deliveries in the log from the record at `position` on. Blocks."""
    found = set()
    for record in _records(log, max(position, log.min_offset)):
        properties = decode_properties(str(record.properties, "utf-8", "replace"))
        if identity := DeliveryIdentity.of(record.topic, properties):
            found.add(identity)
    return found


def _records(log: ReadableLog, position: int) -> Iterator[Record]:
    """Yield the records that may be timer deliveries."""
    while position < log.written:
        block = log.read_block(position, RECORD_HEAD.size, _BLOCK_SIZE, may_block=True)
        if block is None:
            return
        data, at = bytes(block), 0
        while at + RECORD_HEAD.size <= len(data):
            size, magic, _ = RECORD_HEAD.unpack_from(data, at)
            if magic == MAGIC_BLANK:
                at += size
                break
            if not is_record_magic(magic):
                return
            if at + size > len(data):
                break
            if data.find(_TIMER_PROPERTY, at, at + size) >= 0:
                yield from _readable(data, at)
            at += size
        if at == 0:
            data = bytes(log.read(position, size) or b"")
            yield from _readable(data, 0)
            at = max(len(data), 1)
        position += at


def _readable(data: bytes, at: int) -> Iterator[Record]:
    try:
        record = read_record(data, at)
    except BadRecord:
        return
    if isinstance(record, Record):
        yield record


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumePoint:
    """Where the timer continues after a start."""

    checkpoint: TimerCheckpoint
    cursor: int
    """The first slot to read."""
    queue_offset: int
    """Queue offset of the first message to enqueue."""
    done_before_ms: int = 0
    done_below_offset: int = 0
    """See `TimerEnqueuer`."""
    delivered: set[DeliveryIdentity] = field(default_factory=set)
    """Deliveries already made from the slots to read."""

    @property
    def delivered_to_ms(self) -> int:
        """The latest time of the deliveries already made; ahead if the clock was set back."""
        times = (parse_number(each.due) or 0 for each in self.delivered)
        limit = self.checkpoint.timestamp + _MAX_CLOCK_STEP_MS
        return max((each for each in times if each < limit), default=0)

    @property
    def delivered_from(self) -> int | None:
        return (
            self.checkpoint.recovery_point.delivered_from
            if self.checkpoint.recovery_point
            else None
        )

    @property
    def carried_to(self) -> int:
        return self.checkpoint.recovery_point.carried_to if self.checkpoint.recovery_point else 0


def open_files(files: TimerFiles, store: MessageStore, now_ms: int) -> ResumePoint:
    """Open the timer files and determine where to resume. Blocks.

    Raises:
        DamagedFile: a file does not match the settings.
    """
    found = files.open()
    checkpoint, now = found.checkpoint, files.number(now_ms)
    if found.is_whole and checkpoint.read_time > now_ms + _MAX_CLOCK_STEP_MS:
        log.warning("the clock went back by more than a day: rebuilding the timer wheel")
        files.begin_anew()
        found = found._replace(is_whole=False)
    if not found.is_whole:
        # The recovery point is there if a slave took over the checkpoint of its master.
        return ResumePoint(
            checkpoint=checkpoint,
            cursor=now,
            queue_offset=store.min_offset(TIMER_TOPIC, 0),
            done_before_ms=checkpoint.read_time,
            done_below_offset=checkpoint.queue_offset,
            delivered=_delivered_since(store, checkpoint),
        )
    cursor = files.number(checkpoint.read_time)
    if cursor > now:
        files.clear(now, cursor)  # all delivered; the slots are reused
        cursor = now
    elif files.first_slot is None or files.first_slot > cursor:
        cursor = min(files.first_slot or now, now)
    return ResumePoint(
        checkpoint=checkpoint,
        cursor=cursor,
        queue_offset=_resume_offset(found, store),
        delivered=_delivered_since(store, checkpoint),
    )


def _delivered_since(store: MessageStore, checkpoint: TimerCheckpoint) -> set[DeliveryIdentity]:
    if checkpoint.recovery_point is None:
        return set()
    return delivered_since(store.log, checkpoint.recovery_point.delivered_from)


def _resume_offset(found: OpenedTimers, store: MessageStore) -> int:
    """Return where to resume enqueueing: the checkpoint of RocketMQ may be ahead of its log
    after a crash."""
    checkpoint = found.checkpoint
    if checkpoint.recovery_point or store.recovery.clean or found.last is None:
        return checkpoint.queue_offset
    record = _record_at(store, found.last.physical_offset)
    return (
        min(checkpoint.queue_offset, record.queue_offset + 1) if record else checkpoint.queue_offset
    )


def _record_at(store: MessageStore, physical_offset: int) -> Record | None:
    data = store.record_at(physical_offset)
    try:
        record = read_record(data) if data is not None else None
    except BadRecord:
        return None
    return record if isinstance(record, Record) and record.topic == TIMER_TOPIC else None
