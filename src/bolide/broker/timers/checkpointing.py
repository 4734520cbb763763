"""The timer's checkpoint: writing it, and resuming from it without repeating deliveries."""

import logging
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from bolide.kernel import read_record
from bolide.model.names import TIMER_TOPIC
from bolide.model.properties import PropertyName
from bolide.protocol.property_string import decode_properties
from bolide.protocol.record import RECORD_HEAD, Record, is_record_magic
from bolide.protocol.record_errors import BadRecord
from bolide.store.contract import Store
from bolide.store.message_store import MessageStore
from bolide.store.reading import ReadableLog
from bolide.store.timers import OpenedTimers, TimerCheckpoint, TimerFiles, TimerRecoveryPoint

_IDLE = 10.0
"""Seconds between two notes while nothing but time goes on."""


class Progress(NamedTuple):
    """How far a timer is; all of one moment."""

    read_time: int
    queue_offset: int
    log_position: int
    delivered_from: int
    carried_to: int
    delivered: int
    """How many, since the start."""


class Checkpointer:
    """`progress` is set on the event loop; `save` may run on any thread."""

    def __init__(self, store: Store, files: TimerFiles, now: Callable[[], float]) -> None:
        self.progress: Progress | None = None
        self.checkpoint = TimerCheckpoint()
        """As it was last written down."""
        self._store = store
        self._files = files
        self._now = now
        self._saved: Progress | None = None
        self._saved_at = 0.0
        self._saving = threading.Lock()  # one file, one writer

    def save(self, *, at_once: bool = False) -> None:
        """Write it down, when what was delivered is on the disk. Blocks."""
        with self._saving:
            progress = self.progress
            if progress is None or not self._files.is_open or not self._is_due(progress, at_once):
                return
            if self._store.flush():
                self.checkpoint = self._written_down(progress)
                self._files.save(self.checkpoint)
                self._saved, self._saved_at = progress, time.monotonic()

    def _is_due(self, progress: Progress, at_once: bool) -> bool:
        saved = self._saved
        if saved is None or progress == saved:
            return saved is None
        # What else is appended to the log moves `delivered_from` on, and is of no interest.
        now = progress._replace(read_time=saved.read_time, delivered_from=saved.delivered_from)
        return at_once or now != saved or time.monotonic() - self._saved_at >= _IDLE

    def _written_down(self, progress: Progress) -> TimerCheckpoint:
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


_MARKED = f"{PropertyName.TIMER_OUT_MS}\x01".encode()
_STRIDE = 4 * 1024 * 1024
_BLANK_MAGIC = 0xCBD43194


class Identity(NamedTuple):
    """What tells a delivery from all others."""

    topic: str
    unique_id: str
    due: str
    rolled: str

    @classmethod
    def of(cls, topic: str, properties: dict[str, str]) -> "Identity | None":
        unique_id = properties.get(PropertyName.UNIQUE_ID)
        due = properties.get(PropertyName.TIMER_OUT_MS)
        if unique_id is None or due is None:
            return None
        return cls(topic, unique_id, due, properties.get(PropertyName.TIMER_ROLL_TIMES, ""))


def delivered_since(log: ReadableLog, position: int) -> set[Identity]:
    """All that timers appended to a log from a position on, which is that of a record. Blocks."""
    found = set()
    for record in _records(log, max(position, log.min_offset)):
        properties = decode_properties(str(record.properties, "utf-8", "replace"))
        if identity := Identity.of(record.topic, properties):
            found.add(identity)
    return found


def _records(log: ReadableLog, position: int) -> Iterator[Record]:
    """The records that may be of a timer."""
    while position < log.written:
        block = log.read_block(position, RECORD_HEAD.size, _STRIDE, may_block=True)
        if block is None:
            return
        data, at = bytes(block), 0
        while at + RECORD_HEAD.size <= len(data):
            size, magic, _ = RECORD_HEAD.unpack_from(data, at)
            if magic == _BLANK_MAGIC:
                at += size
                break
            if not is_record_magic(magic):
                return
            if at + size > len(data):
                break
            if data.find(_MARKED, at, at + size) >= 0:
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


log = logging.getLogger(__name__)

_TOO_FAR_BACK_MS = 24 * 3600 * 1000
"""If the clock was set back further, slots of now and of then might be the same ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    checkpoint: TimerCheckpoint
    cursor: int
    """The first slot to look at."""
    queue_offset: int
    """The first message to put into a slot."""
    settled_ms: int = 0
    settled_to: int = 0
    """See `TimerEnqueue`."""
    delivered: set[Identity] = field(default_factory=set)
    """What went out of the slots to look at."""

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


def open_files(files: TimerFiles, store: MessageStore, now_ms: int) -> Start:
    """Open the files and see how far deliveries were. Blocks.

    Raises:
        DamagedFile: one of them is not what the settings say.
    """
    found = files.open()
    check, now = found.checkpoint, files.number(now_ms)
    if found.is_whole and check.read_time > now_ms + _TOO_FAR_BACK_MS:
        log.warning("the clock went back by more than a day: timers are put into their slots anew")
        files.begin_anew()
        found = found._replace(is_whole=False)
    if not found.is_whole:
        return Start(
            checkpoint=check,
            cursor=now,
            queue_offset=store.min_offset(TIMER_TOPIC, 0),
            settled_ms=check.read_time,
            settled_to=check.queue_offset,
        )
    cursor = files.number(check.read_time)
    if cursor > now:
        files.clear(now, cursor)  # all delivered: they are to be used again
        cursor = now
    elif files.first_slot is None or files.first_slot > cursor:
        cursor = min(files.first_slot or now, now)
    return Start(
        checkpoint=check,
        cursor=cursor,
        queue_offset=_queue_offset(found, store),
        delivered=delivered_since(store.log, check.recovery_point.delivered_from)
        if check.recovery_point
        else set(),
    )


def _queue_offset(found: OpenedTimers, store: MessageStore) -> int:
    """RocketMQ's checkpoint may be ahead of its log, if it did not stop by itself."""
    check = found.checkpoint
    if check.recovery_point or store.recovery.clean or found.last is None:
        return check.queue_offset
    record = _record_at(store, found.last.physical_offset)
    return min(check.queue_offset, record.queue_offset + 1) if record else check.queue_offset


def _record_at(store: MessageStore, place: int) -> Record | None:
    data = store.record_at(place)
    try:
        record = read_record(data) if data is not None else None
    except BadRecord:
        return None
    return record if isinstance(record, Record) and record.topic == TIMER_TOPIC else None
