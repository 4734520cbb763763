"""Pending timers as administrators see them: counts, rates, pages, lookups by key."""

import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import NamedTuple

from bolide.broker.timers.due_queue import recall_key, recalled_by
from bolide.broker.timers.timetable import due_of
from bolide.distribution import Distribution
from bolide.kernel import read_record
from bolide.model.names import TIMER_TOPIC
from bolide.model.properties import KEY_SEPARATOR, PropertyName
from bolide.protocol.bodies.replication import TimerMetric, TimerMetrics
from bolide.protocol.bodies.timers import PendingTimer
from bolide.protocol.record import Record
from bolide.protocol.record_errors import BadRecord
from bolide.protocol.tags import java_hash
from bolide.store.contract import Store
from bolide.store.tables import Table
from bolide.store.timers import TimerEntry, TimerFiles

_RATE_SPAN = 10.0
"""Seconds over which rates are averaged."""
_MAX_EXAMINED = 10_000
_MAX_SKIPPED = 200_000
_MAX_PER_KEY = 1000


DELAY_BOUNDS = (60, 600, 3600, 12 * 3600, 24 * 3600, 3 * 24 * 3600)
"""RocketMQ's buckets of the delay that a timer message asks for, in seconds."""
_MAX_TOPICS = 100_000


class Rate:
    """Average rate per second over the last ten seconds."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._seconds: deque[tuple[int, int]] = deque(maxlen=int(_RATE_SPAN))
        self.total = 0

    def add(self) -> None:
        second = int(self._now())
        self.total += 1
        if self._seconds and self._seconds[-1][0] == second:
            self._seconds[-1] = second, self._seconds[-1][1] + 1
        else:
            self._seconds.append((second, 1))

    @property
    def per_second(self) -> float:
        oldest = int(self._now()) - _RATE_SPAN
        return sum(count for second, count in self._seconds if second > oldest) / _RATE_SPAN


class TimerCounts:
    """Numbers of pending timers per topic, and rates. Changed on the event loop; approximate
    after a crash."""

    def __init__(self, table: Table[TimerMetrics], now: Callable[[], float] = time.time) -> None:
        self._table = table
        self._now = now
        self.arrivals = Rate()
        self.deliveries = Rate()
        self.arrived: dict[str, int] = {}
        """Timers since the start by topic, and below those that were delivered."""
        self.delivered: dict[str, int] = {}
        self.delays: dict[str, Distribution] = {}
        """For how long they asked to be delayed, in seconds."""

    @property
    def table(self) -> TimerMetrics:
        return self._table.value

    @property
    def total(self) -> int:
        return sum(metric.count for metric in list(self.table.timing_count.values()))

    def record_arrival(self, topic: str, due_ms: int) -> None:
        self.arrivals.add()
        self._change(topic, 1)
        if topic in self.arrived or len(self.arrived) < _MAX_TOPICS:
            self.arrived[topic] = self.arrived.get(topic, 0) + 1
            delays = self.delays.get(topic)
            if delays is None:
                delays = self.delays[topic] = Distribution(DELAY_BOUNDS)
            delays.add(max(due_ms // 1000 - int(self._now()), 0))

    def record_delivery(self, topic: str | None) -> None:
        self.deliveries.add()
        self.record_departure(topic)
        if topic is not None and (topic in self.delivered or len(self.delivered) < _MAX_TOPICS):
            self.delivered[topic] = self.delivered.get(topic, 0) + 1

    def record_departure(self, topic: str | None) -> None:
        if topic is not None:
            self._change(topic, -1)

    def reset(self) -> None:
        """Reset all counts: no timer is pending."""
        for metric in self.table.timing_count.values():
            if metric.count:
                metric.count = 0
                self._table.changed()

    def save(self, *, at_once: bool = False) -> None:
        """Save the table if it changed and the save interval has passed, or `at_once`. Blocks."""
        if at_once:
            self._table.save()
        else:
            self._table.save_due(time.monotonic())

    def _change(self, topic: str, difference: int) -> None:
        metric = self.table.timing_count.get(topic)
        if metric is None:
            metric = self.table.timing_count[topic] = TimerMetric()
        metric.count = max(metric.count + difference, 0)
        metric.time_stamp = now = int(self._now() * 1000)
        self.table.data_version = self.table.data_version.bumped(now)
        self._table.changed()


class TimerPage(NamedTuple):
    timers: list[PendingTimer]
    next: str
    """Start of the next page; empty on the last page."""


class TimerListing:
    """Lists pending timers; methods block and run on a worker thread."""

    def __init__(self, store: Store, files: TimerFiles) -> None:
        self._store = store
        self._files = files

    def page(self, topic: str, begin: str, count: int, now_ms: int) -> TimerPage:
        """Return pending timers, of one topic or of all, by slots of the wheel. Blocks.

        A distant timer is listed in the slot in which it is re-appended.
        """
        slot, _, skip = begin.partition(".")
        first = int(slot) if slot.isdecimal() else self._files.number(now_ms)
        start = int(skip) if skip.isdecimal() else 0
        found: list[PendingTimer] = []
        examined = skipped = 0
        for number, entries in self._files.pages(first):
            for at, each in self._not_recalled(entries, start if number == first else 0, topic):
                if len(found) >= count or examined >= _MAX_EXAMINED:
                    return TimerPage(found, f"{number}.{at}")
                examined += 1
                found += self._pending(each.physical_offset, topic, now_ms)
            skipped += len(entries)
            if skipped >= _MAX_SKIPPED:
                return TimerPage(found, f"{number + 1}.0")
        return TimerPage(found, "")

    def by_key(self, topic: str, key: str, now_ms: int) -> list[PendingTimer]:
        """Return the pending timers of a topic with a key or a unique id. Blocks."""
        found: dict[str, PendingTimer] = {}
        for data in self._store.find(TIMER_TOPIC, key, limit=_MAX_PER_KEY):
            for each in _describe(bytes(data), self._files.precision_ms):
                if each.topic == topic and each.deliver_ms > now_ms and _has(each, key):
                    found.setdefault(each.message_id, each)
        return list(found.values())

    def _not_recalled(
        self, entries: list[TimerEntry], start: int, topic: str
    ) -> Iterator[tuple[int, TimerEntry]]:
        """Yield the entries of a slot that are not recalled, with their positions in it."""
        recalled = {self._recall_key(each) for each in entries if each.is_recall}
        wanted = java_hash(topic) if topic else None
        for at, each in enumerate(entries):
            if at < start or each.is_recall or wanted not in {None, each.topic_hash}:
                continue
            if not recalled or self._identity(each) not in recalled:
                yield at, each

    def _recall_key(self, entry: TimerEntry) -> str | None:
        record = _readable(self._store.record_at(entry.physical_offset))
        return recalled_by(record.decode_properties()) if record else None

    def _identity(self, entry: TimerEntry) -> str:
        record = _readable(self._store.record_at(entry.physical_offset))
        properties = record.decode_properties() if record else {}
        unique_id = properties.get(PropertyName.UNIQUE_ID, "")
        return recall_key(properties.get(PropertyName.REAL_TOPIC, ""), unique_id)

    def _pending(self, physical_offset: int, topic: str, now_ms: int) -> list[PendingTimer]:
        data = self._store.record_at(physical_offset)
        found = _describe(bytes(data), self._files.precision_ms) if data is not None else []
        return [each for each in found if each.deliver_ms > now_ms and topic in {"", each.topic}]


def _describe(data: bytes, precision_ms: int) -> list[PendingTimer]:
    record = _readable(data)
    if record is None:
        return []
    properties = record.decode_properties()
    due = due_of(properties, precision_ms)
    if due is None or recalled_by(properties) is not None:
        return []
    return [
        PendingTimer(
            topic=properties.get(PropertyName.REAL_TOPIC, ""),
            deliver_ms=due,
            message_id=properties.get(PropertyName.UNIQUE_ID, ""),
            keys=properties.get(PropertyName.KEYS, ""),
            tags=properties.get(PropertyName.TAGS, ""),
            store_timestamp=record.store_timestamp,
            size=len(record.body),
            out_ms=int(properties[PropertyName.TIMER_OUT_MS]),
        )
    ]


def _has(timer: PendingTimer, key: str) -> bool:
    return key == timer.message_id or key in timer.keys.split(KEY_SEPARATOR)


def _readable(data: bytes | memoryview | None) -> Record | None:
    try:
        record = read_record(data) if data is not None else None
    except BadRecord:
        return None
    return record if isinstance(record, Record) and record.topic == TIMER_TOPIC else None
