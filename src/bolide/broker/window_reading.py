"""Reads the windows of a topic back from the store: after a start, and when it begins to have one.

Only what is in the log counts. A message that waits in a delay queue has taken its key too, though
its own queue does not show it yet.
"""

from collections.abc import Callable, Iterator, Mapping

from bolide.broker.dedup_window import MOST_MESSAGES, Span, Window, find_key
from bolide.kernel import read_record
from bolide.model.names import SCHEDULE_TOPIC
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
_CHUNK = ReadLimits(max_count=1024, max_size=4 * 1024 * 1024, max_scanned=1024)


class Stopped(Exception):
    """The broker ends; nobody wants the windows any more."""


class WindowReader:
    """Belongs to one thread: everything here blocks. `read` raises Stopped as `is_stopped` says."""

    def __init__(self, store: Store, now: float, is_stopped: Callable[[], bool]) -> None:
        self._store = store
        self._now = now
        self._is_stopped = is_stopped

    def read(
        self, topic: str, queues: int, span: Span, waiting: Waiting, most: int
    ) -> dict[int, Window]:
        """The windows by queue, of at most so many keys each."""
        self._store.flush()  # with SYNC_FLUSH what is on its way to the disk cannot be read yet
        windows = {
            queue_id: self._window(topic, queue_id, span, most) for queue_id in range(queues)
        }
        for record in self._delayed(topic, waiting):
            queue_id = record.decode_properties().get(PropertyName.REAL_QUEUE_ID, "")
            if queue_id.isdecimal() and int(queue_id) in windows:
                self._add_delayed(windows[int(queue_id)], topic, int(queue_id), record)
        return windows

    def _window(self, topic: str, queue_id: int, span: Span, most: int) -> Window:
        window = Window(span)
        for record in self._records(topic, queue_id, *self._bounds(topic, queue_id, span)):
            key = _add(window, record, span.mark(record.store_timestamp, record.queue_offset))
            if key is not None and _DELAYED in bytes(record.properties):
                window.delivered.add(key)
            if len(window) > most:
                window.drop(1)
        return window

    def _bounds(self, topic: str, queue_id: int, span: Span) -> tuple[int, int]:
        end = self._store.max_offset(topic, queue_id)
        first = span.oldest(self._now, end)
        if span.seconds:
            first = self._store.offset_at(topic, queue_id, first)
        low = self._store.min_offset(topic, queue_id)
        return max(first, end - MOST_MESSAGES, low), end

    def _add_delayed(self, window: Window, topic: str, queue_id: int, record: Record) -> None:
        # About where the queue ended when it came, rather later than earlier.
        stored = record.store_timestamp
        position = self._store.offset_at(topic, queue_id, stored, Boundary.UPPER) + 1
        mark = window.span.mark(stored, position)
        if mark >= window.span.oldest(self._now, self._store.max_offset(topic, queue_id)):
            _add(window, record, mark)

    def _delayed(self, topic: str, waiting: Waiting) -> Iterator[Record]:
        named = f"{PropertyName.REAL_TOPIC}\x01{topic}\x02".encode()
        for level, (first, end) in waiting.items():
            for record in self._records(SCHEDULE_TOPIC, level - 1, first, end):
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


def _add(window: Window, record: Record, mark: int) -> bytes | None:
    """The key that was added; of two messages with one, sent before it mattered, the first is."""
    key = find_key(record.properties)
    if key is None or key in window:
        return None
    place = Appended(
        record.physical_offset, record.size, record.queue_offset, record.store_timestamp, 0
    )
    window.add(key, place, mark)
    return key


def _readable(data: memoryview) -> Record | None:
    try:
        record = read_record(data)
    except BadRecord:
        return None  # who pulls it hears of it
    return record if isinstance(record, Record) else None
