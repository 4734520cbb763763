"""Rebuilds the windows of a topic from the log, at a start and when a topic gets a window.

Only messages in the log count. A message in a delay queue or in the timer occupies its key as well,
although its own queue does not hold it yet.
"""

from collections.abc import Callable, Iterator, Mapping
from itertools import chain

from bolide.broker.dedup.window import Window, WindowLength, find_key
from bolide.kernel import read_record
from bolide.model.names import SCHEDULE_TOPIC, TIMER_TOPIC
from bolide.model.properties import PropertyName
from bolide.protocol.headers.offsets import Boundary
from bolide.protocol.record import Record
from bolide.protocol.record_errors import BadRecord
from bolide.store.appending import Appended
from bolide.store.contract import Store
from bolide.store.reading import ReadLimits

DelayedRanges = Mapping[int, tuple[int, int]]
"""By delay level: queue offset of the next message to deliver, and the end (`DelayScheduler`)."""

_WAS_DELAYED = f"{PropertyName.REAL_TOPIC}\x01".encode()
EVICTION_DIVISOR = 1000
"""A thousandth of all keys is evicted at a time: finding the largest window is slow."""
_READ_LIMITS = ReadLimits(max_count=1024, max_size=4 * 1024 * 1024, max_scanned=1024)


class RecoveryStopped(Exception):
    """The broker shuts down or the topic no longer needs the windows."""


class WindowReader:
    """Reads the windows of one topic; belongs to one worker thread, all methods block.

    Args:
        max_keys: limit of keys over all windows of the topic.
        is_stopped: returns whether `read` shall raise RecoveryStopped.
    """

    def __init__(
        self, store: Store, *, now: float, max_keys: int, is_stopped: Callable[[], bool]
    ) -> None:
        self._store = store
        self._now = now
        self._max_keys = max_keys
        self._is_stopped = is_stopped
        self._windows: dict[int, Window] = {}
        self._key_count = 0

    def read(
        self, topic: str, queues: int, length: WindowLength, delayed_ranges: DelayedRanges
    ) -> dict[int, Window]:
        """Return the windows by queue id."""
        self._store.flush()  # with SYNC_FLUSH, unflushed records are not readable
        self._windows = {queue_id: Window(length) for queue_id in range(queues)}
        for queue_id, window in self._windows.items():
            self._fill(window, topic, queue_id)
        for record in chain(self._delayed(topic, delayed_ranges), self._timed(topic, length)):
            real = record.decode_properties().get(PropertyName.REAL_QUEUE_ID, "")
            if real.isdecimal() and int(real) in self._windows:
                self._add_delayed(self._windows[int(real)], topic, int(real), record)
        return self._windows

    def _fill(self, window: Window, topic: str, queue_id: int) -> None:
        length, end = window.length, self._store.max_offset(topic, queue_id)
        first = oldest = length.oldest(self._now, end)
        if length.seconds:
            first = self._store.offset_at(topic, queue_id, oldest)
        first = max(first, self._store.min_offset(topic, queue_id))
        for record in self._records(topic, queue_id, first, end):
            stamp = length.stamp(record.store_timestamp, record.queue_offset)
            if stamp < oldest:
                continue  # the clock was set back: times do not follow offsets
            key = self._add(window, record, stamp)
            if key is not None and _WAS_DELAYED in bytes(record.properties):
                window.delivered[key] = record.born_timestamp

    def _add_delayed(self, window: Window, topic: str, queue_id: int, record: Record) -> None:
        # Estimate the end of the queue at that time, rather too high than too low.
        stored = record.store_timestamp
        position = self._store.offset_at(topic, queue_id, stored, Boundary.UPPER) + 1
        stamp = window.length.stamp(stored, position)
        if stamp >= window.length.oldest(self._now, self._store.max_offset(topic, queue_id)):
            self._add(window, record, stamp)

    def _add(self, window: Window, record: Record, stamp: int) -> bytes | None:
        """Add the key of a record and return it; the first of several messages with one key
        counts."""
        key = find_key(record.properties)
        if key is None or key in window:
            return None
        appended = Appended(
            record.physical_offset, record.size, record.queue_offset, record.store_timestamp, 0
        )
        window.add(key, appended, stamp)
        self._key_count += 1
        if self._key_count > self._max_keys:
            self._evict()
        return key

    def _evict(self) -> None:
        """Evict the oldest keys of the largest window, as `DedupWindows` does."""
        largest = max(self._windows.values(), key=len)
        before = len(largest)
        largest.evict_oldest(
            max(self._key_count - self._max_keys, self._max_keys // EVICTION_DIVISOR)
        )
        self._key_count -= before - len(largest)

    def _delayed(self, topic: str, delayed_ranges: DelayedRanges) -> Iterator[Record]:
        wanted = f"{PropertyName.REAL_TOPIC}\x01{topic}\x02".encode()
        for level, (first, end) in delayed_ranges.items():
            for record in self._records(SCHEDULE_TOPIC, level - 1, first, end):
                if wanted in bytes(record.properties) + b"\x02":
                    yield record

    def _timed(self, topic: str, length: WindowLength) -> Iterator[Record]:
        """Yield the timer messages of a topic, pending or delivered."""
        first = self._store.min_offset(TIMER_TOPIC, 0)
        end = self._store.max_offset(TIMER_TOPIC, 0)
        if length.seconds:
            since = length.oldest(self._now, end)
            first = max(first, self._store.offset_at(TIMER_TOPIC, 0, since))
        wanted = f"{PropertyName.REAL_TOPIC}\x01{topic}\x02".encode()
        for record in self._records(TIMER_TOPIC, 0, first, end):
            if wanted in bytes(record.properties) + b"\x02":
                yield record

    def _records(self, topic: str, queue_id: int, first: int, end: int) -> Iterator[Record]:
        while first < end:
            if self._is_stopped():
                raise RecoveryStopped
            found = self._store.read(topic, queue_id, first, _READ_LIMITS)
            for data in found.records:
                record = _readable(data)
                if record is not None and record.queue_offset < end:
                    yield record
            first = max(found.next_offset, first + 1)


def _readable(data: memoryview) -> Record | None:
    try:
        record = read_record(data)
    except BadRecord:
        return None  # consumers report the damage
    return record if isinstance(record, Record) else None
