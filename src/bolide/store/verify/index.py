"""Compares the key index with the log: each entry is a key of a record, each key has an entry.

Entries are in log order, so both are walked side by side. The files themselves are checked on the
way: header, slot chains, order of the entries, zeros behind them.
"""

import os
import struct
from array import array
from collections.abc import Callable, Iterator
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from bolide.kernel.index_entries import ENTRY_SIZE, HEADER_SIZE, SLOT_SIZE
from bolide.model.properties import PropertyName
from bolide.protocol.record import Record
from bolide.protocol.tags import index_hash, tags_key
from bolide.store.descriptors import read_at
from bolide.store.disk import data_ranges
from bolide.store.index_file import index_file_size
from bolide.store.layout import IndexShape, Layout
from bolide.store.verify.report import Part, Report

_HEADER = struct.Struct(">qqqqii")
_ENTRY = struct.Struct(">IqiI")
_ITEM = struct.Struct(">Iqq")
_BLOCK = 50_000
_MAX_SECONDS = 0x7FFF_FFFF


ReadRecord = Callable[[int], Record | str]
"""Returns the record at a physical offset, or why there is none."""


class Entry(NamedTuple):
    path: Path
    number: int
    at: int
    key_hash: int
    physical_offset: int
    seconds: int
    previous: int
    begin_timestamp: int
    end_timestamp: int | None
    """End timestamp of the file if this is its last entry."""


class IndexCheck:
    def __init__(
        self, layout: Layout, report: Report, read: ReadRecord, *, start: int, unclean: bool
    ) -> None:
        """`start` is the beginning of the log: entries below it are ignored."""
        self._read = read
        self._report = report
        self._start = start
        self._unclean = unclean
        self._files = layout.index_files
        report.index_files = len(self._files)
        self._shape = layout.index
        self._directory = layout.root / "index"
        self._missing: list[int] = []
        self._missing_count = 0
        self.enabled = self._is_enabled(layout)
        self._entries = in_order(self._walk(), self._damage)
        self._next = next(self._entries, None) if self.enabled else None
        self.reach = 0
        """Highest position that an entry points to behind the end of the log."""

    def compare(self, keys: bytes, is_damaged: Callable[[int], bool]) -> None:
        """Compare entries with the keys of the next records, in the format of `Scan.keys`."""
        if not self.enabled:
            return
        items = _ITEM.iter_unpack(keys)
        for (physical_offset, timestamp), group in groupby(items, key=lambda item: item[1:]):
            self._match(physical_offset, timestamp, [item[0] for item in group], is_damaged)

    def finish(self, is_damaged: Callable[[int], bool]) -> None:
        if not self.enabled:
            return
        self._report_missing(at_end=True)
        while entry := self._advance():
            self.reach = max(self.reach, entry.physical_offset + 1)
            self._extra(entry, is_damaged)

    def _is_enabled(self, layout: Layout) -> bool:
        if layout.index is not None:
            return bool(self._files) or layout.config is not None
        if self._files and layout.config is None:
            self._report.add_note(
                "the key index is not looked at: its files do not tell their shape"
            )
        return False

    # ---- side by side

    def _match(
        self, physical_offset: int, timestamp: int, hashes: list[int],
        is_damaged: Callable[[int], bool],
    ) -> None:  # fmt: skip
        found = []
        while self._next and self._next.physical_offset <= physical_offset:
            entry = self._advance()
            assert entry is not None
            if entry.physical_offset < physical_offset:
                self._extra(entry, is_damaged)
            elif entry.key_hash not in hashes:
                self._damage(entry, f"the record at {physical_offset} has no key of this hash")
            else:
                found.append(entry.key_hash)
                self._check_time(entry, timestamp)
        if self._has_all(physical_offset, set(hashes) - set(found)):
            self._report_missing(at_end=False)
        else:
            self._missing = self._missing or [physical_offset]
            self._missing_count += 1

    def _advance(self) -> Entry | None:
        entry, self._next = self._next, next(self._entries, None)
        return entry

    def _check_time(self, entry: Entry, timestamp: int) -> None:
        if entry.number == 1:
            if entry.begin_timestamp != timestamp:
                self._damage(entry, f"the file says {entry.begin_timestamp} ms, not {timestamp}")
        else:
            seconds = min(max(timestamp - entry.begin_timestamp, 0) // 1000, _MAX_SECONDS)
            if entry.begin_timestamp > 0 and entry.seconds != seconds:
                self._damage(entry, f"its time is {entry.seconds} s instead of {seconds}")
        end = entry.end_timestamp
        if end is not None and not timestamp - 1000 < end <= timestamp:
            self._damage(entry, f"the file says it ends at {end} ms, not {timestamp}")

    def _extra(self, entry: Entry, is_damaged: Callable[[int], bool]) -> None:
        place = entry.physical_offset
        if place < self._start:
            return
        if is_damaged(place):
            self._damage(entry, f"its record at {place} is damaged")
        elif place >= self._report.log_end and self._unclean:
            self._report.add_note(f"an index entry points to {place}, behind the end of the log")
        else:
            self._damage(entry, f"no record with such a key lies at {place}")

    def _has_all(self, physical_offset: int, missing: set[int]) -> bool:
        """Whether nothing is missing but the entry of the tags, which RocketMQ 4.9 lacks."""
        if len(missing) != 1:
            return not missing
        record = self._read(physical_offset)
        if isinstance(record, str):
            return False
        tags = record.decode_properties().get(PropertyName.TAGS, "")
        return bool(tags) and missing == {index_hash(record.topic, tags_key(tags))}

    def _report_missing(self, *, at_end: bool) -> None:
        if not self._missing_count:
            return
        text = f"keys of {self._missing_count} records are missing"
        if at_end and self._unclean:
            self._report.add_note(f"{text} from the index; the next start writes them")
        else:
            path = self._next.path if self._next else (self._files or [self._directory])[-1]
            at = self._next.at if self._next else 0
            place = self._missing[0]
            self._report.damage(Part.INDEX, path, at, f"{text}, the first at {place}", place)
        self._missing, self._missing_count = [], 0

    def _damage(self, entry: Entry, reason: str) -> None:
        self._report.damage(
            Part.INDEX,
            entry.path,
            entry.at,
            f"entry {entry.number}: {reason}",
            entry.physical_offset,
        )

    # ---- the files

    def _walk(self) -> Iterator[Entry]:
        assert self._shape is not None
        size = index_file_size(*self._shape)
        for path in self._files:
            length = path.stat().st_size
            if length != size:
                reason = f"is {length} bytes long instead of {size}"
                self._report.damage(Part.INDEX, path, length, reason)
                continue
            yield from _IndexWalk(path, self._shape, self._report, unclean=self._unclean).run()


class _IndexWalk:
    """Yields the entries of one file and reports damage of the file itself."""

    def __init__(self, path: Path, shape: IndexShape, report: Report, *, unclean: bool) -> None:
        self._path = path
        self._slots, self._capacity = shape
        self._report = report
        self._unclean = unclean
        self._entries_at = HEADER_SIZE + self._slots * SLOT_SIZE
        self._newest = array("I", bytes(self._slots * SLOT_SIZE))

    def run(self) -> Iterator[Entry]:
        descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            yield from self._run(descriptor)
        except OSError as exc:
            self._damage(0, f"cannot be read: {exc.strerror}")
        finally:
            os.close(descriptor)

    def _run(self, descriptor: int) -> Iterator[Entry]:
        header = _HEADER.unpack(read_at(descriptor, HEADER_SIZE, 0))
        begin_timestamp, end_timestamp, begin, end, in_use, count = header
        if not 0 <= count <= self._capacity:
            self._damage(36, f"the header counts {count} entries")
        count = min(max(count, 1), self._capacity)
        first = last = None
        for entry in self._entries(descriptor, count, begin_timestamp, end_timestamp):
            self._report.index_entries += 1
            self._check_chain(entry)
            first, last = first or entry, entry
            yield entry
        if first and last and (begin, end) != (first.physical_offset, last.physical_offset):
            self._damage(16, f"the header says it reaches from {begin} to {end}")
        self._check_slots(descriptor, in_use, count)
        self._check_rest(descriptor, count)

    def _entries(
        self, descriptor: int, count: int, begin_timestamp: int, end_timestamp: int
    ) -> Iterator[Entry]:
        for start in range(1, count, _BLOCK):
            stop = min(start + _BLOCK, count)
            at = self._entries_at + start * ENTRY_SIZE
            data = read_at(descriptor, (stop - start) * ENTRY_SIZE, at)
            for number, fields in enumerate(_ENTRY.iter_unpack(data), start):
                key_hash, physical_offset, seconds, previous = fields
                yield Entry(
                    self._path,
                    number,
                    self._entries_at + number * ENTRY_SIZE,
                    key_hash,
                    physical_offset,
                    seconds,
                    previous,
                    begin_timestamp,
                    end_timestamp if number == count - 1 else None,
                )

    def _check_chain(self, entry: Entry) -> None:
        slot = entry.key_hash % self._slots
        before = self._newest[slot]
        if entry.previous != before:
            reason = f"entry {entry.number}: its chain goes on at {entry.previous}, not {before}"
            self._damage(entry.at, reason)
        self._newest[slot] = entry.number

    def _check_slots(self, descriptor: int, in_use: int, count: int) -> None:
        found = array("I")
        found.frombytes(read_at(descriptor, self._slots * SLOT_SIZE, HEADER_SIZE))
        found.byteswap()
        used = self._slots - self._newest.count(0)
        if in_use != used:
            self._damage(32, f"the header counts {in_use} slots in use instead of {used}")
        if found == self._newest:
            return
        for slot, (is_now, wanted) in enumerate(zip(found, self._newest, strict=True)):
            # An entry that a killed process had not counted reads as an empty slot.
            if is_now != wanted and not (self._unclean and is_now >= count):
                at = HEADER_SIZE + slot * SLOT_SIZE
                self._damage(at, f"slot {slot} names entry {is_now} instead of {wanted}")

    def _check_rest(self, descriptor: int, count: int) -> None:
        """Check that entry 0 and the space behind the last entry are zero."""
        end = self._entries_at + self._capacity * ENTRY_SIZE
        behind = self._entries_at + count * ENTRY_SIZE
        for low, high in ((self._entries_at, self._entries_at + ENTRY_SIZE), (behind, end)):
            for first, last in data_ranges(descriptor, low, high):
                data = read_at(descriptor, last - first, first)
                if data == bytes(len(data)):
                    continue
                at = first + len(data) - len(data.lstrip(b"\0"))
                if self._unclean:
                    self._report.add_note(f"{self._path}: entries that are not counted at {at}")
                else:
                    self._damage(at, "bytes where there are no entries")
                return

    def _damage(self, at: int, reason: str) -> None:
        self._report.damage(Part.INDEX, self._path, at, reason)


def in_order(entries: Iterator[Entry], damaged: Callable[[Entry, str], None]) -> Iterator[Entry]:
    """Drop entries that are out of order; each would hide the entries that follow."""
    low = -1
    pending = next(entries, None)
    for entry in entries:
        assert pending is not None
        if pending.physical_offset > entry.physical_offset >= low:
            damaged(pending, f"it points to {pending.physical_offset}, the next to less")
        else:
            if entry.physical_offset < pending.physical_offset:
                damaged(entry, f"it points to {entry.physical_offset}, the one before to more")
                continue
            yield pending
            low = pending.physical_offset
        pending = entry
    if pending is not None:
        yield pending
