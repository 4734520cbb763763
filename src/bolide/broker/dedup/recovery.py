"""Reads the windows of a topic back from the store: after a start, and when it begins to have one.

Only what is in the log counts. A message that waits in a delay queue, or for a time of its own, has
taken its key too, though its own queue does not show it yet.
"""

from collections.abc import Callable, Iterator, Mapping
from itertools import chain

from bolide.broker.dedup.window import Span, Window, find_key
from bolide.kernel import read_record
from bolide.model.names import SCHEDULE_TOPIC, TIMER_TOPIC
from bolide.model.properties import PropertyName
from bolide.protocol.headers.offsets import Boundary
from bolide.protocol.record import Record
from bolide.protocol.record_errors import BadRecord
from bolide.store.appending import Appended
from bolide.store.contract import Store
from bolide.store.reading import ReadLimits

Waiting = Mapping[int, tuple[int, int]]
"""By delay level: the offset of the next to be delivered, and the end (`DelayScheduler`)."""

_DELAYED = f"{PropertyName.REAL_TOPIC}\x01".encode()
DROPPED_AT_ONCE = 1000  # a thousandth of all keys: to look for the largest window takes long
_CHUNK = ReadLimits(max_count=1024, max_size=4 * 1024 * 1024, max_scanned=1024)


class Stopped(Exception):
    """The broker ends; nobody wants the windows any more."""


class WindowReader:
    """Reads the windows of one topic. Belongs to one thread: everything here blocks.

    Args:
        most: how many keys they may have together.
        is_stopped: whether `read` shall raise Stopped.
    """

    def __init__(
        self, store: Store, *, now: float, most: int, is_stopped: Callable[[], bool]
    ) -> None:
        self._store = store
        self._now = now
        self._most = most
        self._is_stopped = is_stopped
        self._windows: dict[int, Window] = {}
        self._kept = 0

    def read(self, topic: str, queues: int, span: Span, waiting: Waiting) -> dict[int, Window]:
        """The windows by queue."""
        self._store.flush()  # with SYNC_FLUSH what is on its way to the disk cannot be read yet
        self._windows = {queue_id: Window(span) for queue_id in range(queues)}
        for queue_id, window in self._windows.items():
            self._fill(window, topic, queue_id)
        for record in chain(self._delayed(topic, waiting), self._timed(topic, span)):
            real = record.decode_properties().get(PropertyName.REAL_QUEUE_ID, "")
            if real.isdecimal() and int(real) in self._windows:
                self._add_delayed(self._windows[int(real)], topic, int(real), record)
        return self._windows

    def _fill(self, window: Window, topic: str, queue_id: int) -> None:
        span, end = window.span, self._store.max_offset(topic, queue_id)
        first = oldest = span.oldest(self._now, end)
        if span.seconds:
            first = self._store.offset_at(topic, queue_id, oldest)
        first = max(first, self._store.min_offset(topic, queue_id))
        for record in self._records(topic, queue_id, first, end):
            mark = span.mark(record.store_timestamp, record.queue_offset)
            if mark < oldest:
                continue  # the clock was set back: the order of times is not that of offsets
            key = self._add(window, record, mark)
            if key is not None and _DELAYED in bytes(record.properties):
                window.delivered[key] = record.born_timestamp

    def _add_delayed(self, window: Window, topic: str, queue_id: int, record: Record) -> None:
        # About where the queue ended when it came, rather later than earlier.
        stored = record.store_timestamp
        position = self._store.offset_at(topic, queue_id, stored, Boundary.UPPER) + 1
        mark = window.span.mark(stored, position)
        if mark >= window.span.oldest(self._now, self._store.max_offset(topic, queue_id)):
            self._add(window, record, mark)

    def _add(self, window: Window, record: Record, mark: int) -> bytes | None:
        """The key, if it was added; of messages with one key, sent before it mattered, the first
        is."""
        key = find_key(record.properties)
        if key is None or key in window:
            return None
        place = Appended(
            record.physical_offset, record.size, record.queue_offset, record.store_timestamp, 0
        )
        window.add(key, place, mark)
        self._kept += 1
        if self._kept > self._most:
            self._make_room()
        return key

    def _make_room(self) -> None:
        """Forget the oldest of the largest window, as a broker does that runs."""
        largest = max(self._windows.values(), key=len)
        before = len(largest)
        largest.drop(max(self._kept - self._most, self._most // DROPPED_AT_ONCE))
        self._kept -= before - len(largest)

    def _delayed(self, topic: str, waiting: Waiting) -> Iterator[Record]:
        named = f"{PropertyName.REAL_TOPIC}\x01{topic}\x02".encode()
        for level, (first, end) in waiting.items():
            for record in self._records(SCHEDULE_TOPIC, level - 1, first, end):
                if named in bytes(record.properties) + b"\x02":
                    yield record

    def _timed(self, topic: str, span: Span) -> Iterator[Record]:
        """What waits, or waited, for a time of its own."""
        first = self._store.min_offset(TIMER_TOPIC, 0)
        end = self._store.max_offset(TIMER_TOPIC, 0)
        if span.seconds:
            since = span.oldest(self._now, end)
            first = max(first, self._store.offset_at(TIMER_TOPIC, 0, since))
        named = f"{PropertyName.REAL_TOPIC}\x01{topic}\x02".encode()
        for record in self._records(TIMER_TOPIC, 0, first, end):
            if named in bytes(record.properties) + b"\x02":
                yield record

    def _records(self, topic: str, queue_id: int, first: int, end: int) -> Iterator[Record]:
        while first < end:
            if self._is_stopped():
                raise Stopped
            found = self._store.read(topic, queue_id, first, _CHUNK)
            for data in found.records:
                record = _readable(data)
                if record is not None and record.queue_offset < end:
                    yield record
            first = max(found.next_offset, first + 1)


def _readable(data: memoryview) -> Record | None:
    try:
        record = read_record(data)
    except BadRecord:
        return None  # who pulls it hears of it
    return record if isinstance(record, Record) else None
