"""Compares consume queues with the log: each unit belongs to a record, each record has a unit.

While the log is walked, units that match their records are recorded as spans. The remaining units
and records are checked one by one afterwards. A topic that was deleted and created again starts at
offset 0 a second time: its earlier records are still in the log, without units.
"""

import os
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from bolide.kernel import SCHEDULE_TOPIC, QueueRun, describe
from bolide.kernel.units import BLANK_SIZE, UNIT, UNIT_SIZE
from bolide.protocol.record import Record
from bolide.store.consume_queue import Unit
from bolide.store.layout import Layout, queue_directories
from bolide.store.log_walk import MIN_RECORD_SIZE
from bolide.store.queue_ext import QueueExtensions, is_address
from bolide.store.queue_files import QueueFiles
from bolide.store.queue_table import QueueKey, check_queue
from bolide.store.verify.report import Part, Report

_LIGHT_PREFIX = "%LMQ%"
_EMPTY = bytes(UNIT_SIZE)
_PLACE_SIZE = 12  # physical offset and size


class Span(NamedTuple):
    """Queue offsets from `first` up to `end`; the physical offsets of its first and last record."""

    first: int
    end: int
    low: int = 0
    high: int = 0


class Spans:
    """Spans in insertion order; a span that continues the last one is merged with it."""

    def __init__(self) -> None:
        self._spans: list[Span] = []

    def __iter__(self) -> Iterator[Span]:
        return iter(self._spans)

    def __bool__(self) -> bool:
        return bool(self._spans)

    def add(self, span: Span) -> None:
        last = self._spans[-1] if self._spans else None
        if last and last.end == span.first and last.high < span.low:
            self._spans[-1] = Span(last.first, span.end, last.low, span.high)
        else:
            self._spans.append(span)


@dataclass(frozen=True, slots=True)
class LogFacts:
    """Result of the walk over the log; the queues are checked against it."""

    start: int
    end: int
    damaged: list[tuple[int, int]]
    unclean: bool
    topics: frozenset[str] | None
    """Names in the topic table, or None without one."""
    read: Callable[[int], Record | str]

    def is_damaged(self, physical_offset: int) -> bool:
        at = bisect_right(self.damaged, (physical_offset, 2**63)) - 1
        return at >= 0 and physical_offset < self.damaged[at][1]


@dataclass(slots=True)
class CheckedQueue:
    topic: str
    queue_id: int
    files: QueueFiles
    matched: Spans = field(default_factory=Spans)
    deviant: Spans = field(default_factory=Spans)
    """Offsets that records claim but whose units differ."""
    rewrite: list[Span] = field(default_factory=list)
    """Units that a repair rewrites from the log."""
    void: list[tuple[int, int]] = field(default_factory=list)
    """Units that a repair removes: they have no records."""

    @property
    def name(self) -> str:
        return f"{self.topic}/{self.queue_id}"


class QueueCheck:
    def __init__(self, layout: Layout, report: Report) -> None:
        self._layout = layout
        self._report = report
        self._extensions = QueueExtensions(
            layout.root, (layout.config.queue_ext_file_size if layout.config else 48 * 1024**2)
        )
        self.queues: dict[QueueKey, CheckedQueue] = {}
        self.reach = 0
        """Highest end of a record that a unit points to although the record is missing."""
        self.contested: set[int] = set()
        """Records whose only unit contradicts them; either may be damaged."""
        self._light = 0
        for topic, queue_id, directory in queue_directories(layout.root):
            if topic.startswith(_LIGHT_PREFIX):
                self._light += 1
            else:
                self._queue(os.fsencode(topic), queue_id, directory)

    def compare(self, run: QueueRun) -> None:
        """Compare a run of expected units with the queue's files."""
        queue = self.queues.get((run.topic, run.queue_id)) or self._new_queue(run)
        if queue is None:
            return
        count = len(run.entries) // UNIT_SIZE
        found = queue.files.read(run.queue_offset, count)
        if found == run.entries:
            queue.matched.add(_span(run.queue_offset, run.entries))
            return
        for number in range(count):
            wanted = run.entries[number * UNIT_SIZE : (number + 1) * UNIT_SIZE]
            unit = found[number * UNIT_SIZE : (number + 1) * UNIT_SIZE]
            spans = queue.matched if self._agree(queue, unit, wanted) else queue.deviant
            spans.add(_span(run.queue_offset + number, wanted))

    def finish(self, log: LogFacts) -> None:
        comparisons = [
            _Comparison(queue, log, self._report, self) for queue in self.queues.values()
        ]
        for comparison in comparisons:
            comparison.check_units()
        for comparison in comparisons:
            comparison.check_records()
        self._report.queues = sum(1 for queue in self.queues.values() if queue.files)
        if self._light:
            self._report.add_note(
                f"{self._light} light queues ({_LIGHT_PREFIX}…) are not looked at"
            )

    def is_queued(self, record: Record) -> bool:
        """Whether the unit of a record exists and points to it."""
        queue = self.queues.get((record.topic.encode(), record.queue_id))
        if queue is None or record.queue_offset < 0:
            return False
        place, _, _ = UNIT.unpack(queue.files.read(record.queue_offset, 1))
        return bool(place == record.physical_offset)

    def agrees(self, queue: CheckedQueue, unit: bytes, record: Record) -> bool:
        """Whether a unit has the tags code of a record."""
        code, _ = describe(record.topic.encode(), record.properties)
        return self._agree(queue, unit, UNIT.pack(record.physical_offset, record.size, code))

    def _agree(self, queue: CheckedQueue, unit: bytes, wanted: bytes) -> bool:
        if unit == wanted:
            return True
        if unit[:_PLACE_SIZE] != wanted[:_PLACE_SIZE]:
            return False
        if queue.topic.encode() == SCHEDULE_TOPIC and self._layout.config is None:
            return True  # a delivery time: without settings the delay levels are unknown
        code, wanted_code = UNIT.unpack(unit)[2], UNIT.unpack(wanted)[2]
        if not is_address(code):
            return False
        beside = self._extensions.find(queue.topic, queue.queue_id, code)
        return beside is not None and beside.tags_code == wanted_code

    def _new_queue(self, run: QueueRun) -> CheckedQueue | None:
        try:
            check_queue(run.topic, run.queue_id)
        except ValueError as exc:
            self._report.add_note(f"records without a queue: {exc}")
            return None
        topic = os.fsdecode(run.topic)
        directory = self._layout.root / "consumequeue" / topic / str(run.queue_id)
        return self._queue(run.topic, run.queue_id, directory)

    def _queue(self, topic: bytes, queue_id: int, directory: Path) -> CheckedQueue:
        files = QueueFiles(directory, self._layout.queue_file_size)
        found = CheckedQueue(os.fsdecode(topic), queue_id, files)
        self.queues[topic, queue_id] = found
        return found


class _Comparison:
    """Finds the differences between one queue and the log."""

    def __init__(self, queue: CheckedQueue, log: LogFacts, report: Report, of: QueueCheck) -> None:
        self._queue = queue
        self._log = log
        self._report = report
        self._of = of
        self._covered = merged((span.first, span.end) for span in queue.matched)
        self._claims = sorted(queue.deviant)
        self._present = list(self._covered)

    def check_units(self) -> None:
        queue = self._queue
        for path, size in queue.files.malformed():
            self._report.damage(Part.QUEUES, path, size, f"is {size} bytes long")
        for first, end in without(queue.files.first, queue.files.end, self._covered):
            for offset, units in queue.files.blocks(first, end):
                self._check_unmatched(offset, units)
        self._present = merged(self._present)
        self._report.units += sum(end - first for first, end in self._present)

    def check_records(self) -> None:
        self._check_claims()
        self._check_gaps()

    # ---- units without a matching record

    def _check_unmatched(self, offset: int, units: bytes) -> None:
        for number in range(len(units) // UNIT_SIZE):
            data = units[number * UNIT_SIZE : (number + 1) * UNIT_SIZE]
            if data == _EMPTY:
                continue
            at = offset + number
            self._add_present(at)
            claim = self._claim_of(at)
            reason = self._fault(at, data, claim)
            if reason:
                self._damage(at, reason, claim.low if claim and claim.first == at else None, data)

    def _add_present(self, at: int) -> None:
        if self._present and self._present[-1][1] == at:
            self._present[-1] = self._present[-1][0], at + 1
        else:
            self._present.append((at, at + 1))

    def _fault(self, at: int, data: bytes, claim: Span | None) -> str:
        unit, log = Unit._make(UNIT.unpack(data)), self._log
        if claim is None and (unit.size == BLANK_SIZE or unit.physical_offset < log.start):
            return "" if unit.size > 0 else f"its size is {unit.size}"
        if log.is_damaged(unit.physical_offset):
            return f"its record at {unit.physical_offset} is damaged"
        if unit.size == BLANK_SIZE:
            return "it is blank, but the log has a record for it"
        if unit.size > 0:
            self._of.reach = max(self._of.reach, unit.physical_offset + unit.size)
        return self._record_fault(at, data, unit)

    def _record_fault(self, at: int, data: bytes, unit: Unit) -> str:
        place = unit.physical_offset
        if place < self._log.start:
            return f"it points to {place}, below the begin of the log"
        if place >= self._log.end:
            return f"it points to {place}, behind the end of the log"
        record = self._log.read(place)
        if isinstance(record, str):
            return f"it points to {place}: {record}"
        return self._difference(at, data, unit, record)

    def _difference(self, at: int, data: bytes, unit: Unit, record: Record) -> str:
        place = f"the record at {record.physical_offset}"
        if record.size != unit.size:
            return f"{place} has {record.size} bytes, the unit says {unit.size}"
        queue = self._queue
        said = record.topic, record.queue_id, record.queue_offset
        if said != (queue.topic, queue.queue_id, at):
            if not self._of.is_queued(record):
                self._of.contested.add(record.physical_offset)
            return f"{place} says it is {said[2]} of {said[0]}/{said[1]}"
        if not self._of.agrees(queue, data, record):
            return f"{place} has another tags code than {unit.tags_code}"
        return "" if self._claim_of(at) is None else "it is not as the record wants it"

    def _damage(self, at: int, reason: str, physical_offset: int | None, data: bytes) -> None:
        queue = self._queue
        unit = Unit._make(UNIT.unpack(data))
        path, position = queue.files.place(at)
        text = f"unit {at} of {queue.name}: {reason}"
        if physical_offset is None and unit.size > 0 and unit.size != BLANK_SIZE:
            physical_offset = unit.physical_offset
        if self._log.unclean and unit.physical_offset >= self._log.end and unit.size > 0:
            self._report.add_note(f"{text}; the next start takes it away")
        else:
            self._report.damage(Part.QUEUES, path, position, text, physical_offset)
        if not self._must_stay(unit.physical_offset):
            queue.void.append((at, at + 1))

    def _must_stay(self, physical_offset: int) -> bool:
        """Whether a repair keeps the unit: it is the only one of a damaged or contested record."""
        return self._log.is_damaged(physical_offset) or physical_offset in self._of.contested

    # ---- records without their unit

    def _claim_of(self, at: int) -> Span | None:
        number = bisect_right(self._claims, at, key=lambda span: span.first) - 1
        found = self._claims[number] if number >= 0 else None
        return found if found and at < found.end else None

    def _check_claims(self) -> None:
        removed = 0
        end = self._present[-1][1] if self._present else None
        for span in self._claims:
            if span.low in self._of.contested:
                continue  # reported with the unit
            if self._is_superseded(span):
                removed += span.end - span.first
            elif end is not None and not self._may_follow(span, end):
                self._record_damage(span, f"the queue ends at {end}")
            else:
                self._check_claim(span)
                end = max(end or 0, span.end)
        if self._is_removed_topic() or removed:
            count = removed or sum(span.end - span.first for span in self._claims)
            self._report.add_note(
                f"{self._queue.name}: {count} records without units, of before it was removed"
            )

    def _is_superseded(self, span: Span) -> bool:
        """Whether a later record uses the same offset, or the topic was deleted."""
        return self._is_removed_topic() or any(
            after.low > span.low and after.first <= span.first for after in self._queue.matched
        )

    def _is_removed_topic(self) -> bool:
        topics = self._log.topics
        return not self._queue.files and topics is not None and self._queue.topic not in topics

    def _may_follow(self, span: Span, end: int) -> bool:
        """Whether the gap before a span can be explained by damaged records."""
        lost = sum(high - low for low, high in self._log.damaged)
        return (span.first - end) * MIN_RECORD_SIZE <= lost

    def _check_claim(self, span: Span) -> None:
        queue = self._queue
        taken = list(_overlaps(span, self._covered))
        if taken:
            self._record_damage(span, f"that is another record's, up to {taken[-1][1]}")
            return
        queue.rewrite.append(span)
        tail = not self._present or span.first >= self._present[-1][1]
        for first, end in without(span.first, span.end, self._present):
            path, position = queue.files.place(first)
            many = f"units {first} to {end - 1}" if end - first > 1 else f"unit {first}"
            text = f"{many} of {queue.name}: not there, but the log has records"
            if tail and self._log.unclean:
                self._report.add_note(f"{text}; the next start writes them")
            else:
                low = span.low if first == span.first else None
                self._report.damage(Part.QUEUES, path, position, text, low)

    def _record_damage(self, span: Span, why: str) -> None:
        path, position = self._queue.files.place(span.first)
        self._report.damage(
            Part.QUEUES,
            path,
            position,
            f"the record at {span.low} says it is {span.first} of {self._queue.name}: {why}",
            span.low,
        )

    def _check_gaps(self) -> None:
        queue = self._queue
        occupied = merged([*self._present, *((s.first, s.end) for s in queue.rewrite)])
        if not occupied:
            return
        begin = queue.files.first if queue.files else occupied[0][0]
        if queue.files.first_in_file(begin) < begin:
            queue.void.append((queue.files.first_in_file(begin), begin))
        for first, end in without(begin, occupied[-1][1], occupied):
            path, position = queue.files.place(first)
            text = f"units {first} to {end - 1} of {queue.name}: empty, but the queue goes on"
            self._report.damage(Part.QUEUES, path, position, text)
            queue.void.append((first, end))


def _span(queue_offset: int, entries: bytes) -> Span:
    low, _, _ = UNIT.unpack_from(entries)
    high, _, _ = UNIT.unpack_from(entries, len(entries) - UNIT_SIZE)
    return Span(queue_offset, queue_offset + len(entries) // UNIT_SIZE, low, high)


def _overlaps(span: Span, ranges: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    for first, end in ranges:
        if first < span.end and span.first < end:
            yield max(first, span.first), min(end, span.end)


def merged(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the union of ranges as sorted, disjoint ranges."""
    found: list[tuple[int, int]] = []
    for first, end in sorted(ranges):
        if found and first <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], end)
        elif first < end:
            found.append((first, end))
    return found


def without(first: int, end: int, ranges: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yield the parts of a range that are not in `ranges`, which are merged."""
    at = max(bisect_right(ranges, (first, first)) - 1, 0)
    for low, high in ranges[at:]:
        if low >= end:
            break
        if first < low:
            yield first, low
        first = max(first, high)
    if first < end:
        yield first, end
