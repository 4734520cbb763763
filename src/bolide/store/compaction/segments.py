"""Segments: the files of a compaction log, and the writer that appends to them.

A segment is a pair of files with the same name, the position of its first byte (20 digits):

- `compactionLog/<topic>/<queue id>/<name>`: records as in the commit log, whose physical offset is
  their position in this log. A blank record closes a full file; zeros may follow the last record.
- `compactionCq/<topic>/<queue id>/<name>`: one unit of 46 bytes for each record (RocketMQ's
  `SparseConsumeQueue`), in the order of their queue offsets:

| Offset | Size | Field                                              |
| ------ | ---- | -------------------------------------------------- |
| 0      | 8    | physical offset of the record in this log          |
| 8      | 4    | its size                                           |
| 12     | 8    | tags code                                          |
| 20     | 8    | store time, ms                                     |
| 28     | 8    | queue offset                                       |
| 36     | 2    | number of messages, always 1                       |
| 38     | 4    | -1                                                 |
| 42     | 4    | 0                                                  |

A unit with physical offset -1 closes a queue file, whose last slot is never used for a message.
All files have their full length from the start. Segments are in the order of their names; a rewrite
leaves gaps between names. The size of a log file is a multiple of that of a queue file, which
RocketMQ's recovery relies on.

A record is written before its unit, and a segment is on the disk before the next one is made. So
after a crash only the last segment can be torn: it ends where its sound units end.
"""

import os
import struct
from bisect import bisect_left
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from bolide.protocol.record import MIN_BLANK_SIZE, encode_blank
from bolide.store.descriptors import read_at
from bolide.store.disk import Disk

UNIT = struct.Struct(">qiqqqhii")
UNIT_SIZE = UNIT.size
_END_UNIT = UNIT.pack(-1, 0, 0, 0, 0, 0, -1, 0)
_PHYSICAL = struct.Struct(">q")
_PHYSICAL_AT = 28
"""Where a record holds its physical offset."""
_NAME_SIZE = 20
_READ = 1024 * 1024


class FileSizes(NamedTuple):
    log: int
    queue: int

    @classmethod
    def of(cls, log: int, queue: int) -> "FileSizes":
        """Round configured sizes as RocketMQ does (`CompactionLog.getCompactionLogSize`)."""
        queue = queue // UNIT_SIZE * UNIT_SIZE
        times, rest = divmod(log, queue)
        if times < 5:
            return cls(queue * 5, queue)
        return cls((times if 0 < rest < queue >> 1 else times + 1) * queue, queue)

    @property
    def max_record(self) -> int:
        """Size of the largest record that fits into a file."""
        return self.log - MIN_BLANK_SIZE


class SparseUnit(NamedTuple):
    """A unit of a queue file."""

    physical_offset: int
    size: int
    tags_code: int
    store_timestamp: int
    queue_offset: int

    @classmethod
    def unpack(cls, data: bytes | bytearray, at: int = 0) -> "SparseUnit | None":
        """Return the unit at a position, or None if the units end there."""
        if len(data) - at < UNIT_SIZE:
            return None
        place, size, code, time, queue_offset, count, _, _ = UNIT.unpack_from(data, at)
        if place < 0 or size <= 0 or queue_offset < 0 or count <= 0:
            return None
        return cls(place, size, code, time, queue_offset)

    def pack(self) -> bytes:
        return UNIT.pack(*self, 1, -1, 0)


class Entry(NamedTuple):
    """A record on its way into a compaction log."""

    record: bytes | memoryview
    queue_offset: int
    tags_code: int
    store_timestamp: int


@dataclass(slots=True)
class Segment:
    """One pair of files. `count`, `written` and the offsets describe what is readable in them."""

    log: Path
    queue: Path
    count: int = 0
    written: int = 0
    """Bytes of the log file with records."""
    first: int = -1
    """Queue offset of the first record."""
    last: int = -1
    """Queue offset of the last record."""
    is_full: bool = False

    @property
    def start(self) -> int:
        return int(self.log.name)

    def units(self, number: int, count: int) -> Iterator[SparseUnit]:
        """Yield up to `count` units from one on. Blocks."""
        count = min(count, self.count - number)
        with opened(self.queue) as descriptor:
            data = read_at(descriptor, max(count, 0) * UNIT_SIZE, number * UNIT_SIZE)
        for at in range(0, len(data), UNIT_SIZE):
            unit = SparseUnit.unpack(data, at)
            if unit is None:
                return
            yield unit

    def find(self, queue_offset: int) -> int:
        """Return the number of the first unit at or behind a queue offset. Blocks."""
        if queue_offset <= self.first:
            return 0
        with opened(self.queue) as descriptor:

            def offset_of(number: int) -> int:
                unit = SparseUnit.unpack(read_at(descriptor, UNIT_SIZE, number * UNIT_SIZE))
                return unit.queue_offset if unit else queue_offset

            return bisect_left(range(self.count), queue_offset, key=offset_of)

    def read(self, physical_offset: int, size: int) -> bytearray:
        """Read bytes of the log file. Blocks."""
        size = min(size, self.start + self.written - physical_offset)
        with opened(self.log) as descriptor:
            return read_at(descriptor, max(size, 0), physical_offset - self.start)

    def records(self) -> Iterator[tuple[SparseUnit, memoryview]]:
        """Yield all records with their units, in order. Blocks."""
        block, start = memoryview(b""), self.start
        for number in range(0, self.count, 1024):
            for unit in self.units(number, 1024):
                at = unit.physical_offset - start
                if not 0 <= at <= len(block) - unit.size:
                    start, at = unit.physical_offset, 0
                    block = memoryview(self.read(start, max(_READ, unit.size)))
                yield unit, block[at : at + unit.size]


class SegmentWriter:
    """Appends entries to the segments of a pair of directories, and makes new segments."""

    def __init__(
        self, log: Path, queue: Path, sizes: FileSizes, disk: Disk, segments: list[Segment]
    ) -> None:
        self.log = log
        self.queue = queue
        self.sizes = sizes
        self.segments = segments
        self._disk = disk
        self._unsynced: dict[str, Segment] = {}
        self.expect_unsynced()

    def append(self, entries: list[Entry]) -> None:
        """Append entries in the order of their queue offsets. Blocks.

        Raises:
            OSError: the disk is full or fails; entries that were written stay readable.
            ValueError: a record is larger than a file.
        """
        while entries:
            segment = self._writable()
            count = self._fitting(segment, entries)
            if count:
                self._write(segment, entries[:count])
                entries = entries[count:]
            else:
                self._close(segment)

    def close_last(self) -> None:
        """Close the last segment: the next entry begins a new one."""
        if self.segments and not self.segments[-1].is_full:
            self._close(self.segments[-1])

    def expect_unsynced(self) -> None:
        """Let the next `sync` include the last segment, which another process may have written."""
        self._unsynced = {each.log.name: each for each in self.segments[-1:]}

    def sync(self) -> None:
        """Wait until everything is on the disk. Blocks.

        Raises:
            OSError: the disk fails; the next call tries again.
        """
        if not self._unsynced:
            return
        for segment in list(self._unsynced.values()):
            self._sync_files(segment)
        self._sync_names()
        self._unsynced = {}

    def _writable(self) -> Segment:
        if self.segments and not self.segments[-1].is_full:
            return self.segments[-1]
        start = self.segments[-1].start + self.sizes.log if self.segments else 0
        name = f"{start:0{_NAME_SIZE}d}"
        segment = Segment(self.log / name, self.queue / name)
        new_directories = [path for path in (self.log, self.queue) if not path.exists()]
        try:
            os.close(self._disk.create_sparse(segment.log, self.sizes.log))
            os.close(self._disk.create_sparse(segment.queue, self.sizes.queue))
        except OSError:
            self._disk.remove(segment.log)
            raise
        for path in new_directories:
            sync_above(path, self._disk)
        self._disk.step("segment-made")
        self.segments.append(segment)
        return segment

    def _fitting(self, segment: Segment, entries: list[Entry]) -> int:
        """Return how many of the entries fit into a segment."""
        room = self.sizes.log - MIN_BLANK_SIZE - segment.written
        slots = self.sizes.queue // UNIT_SIZE - 1 - segment.count
        count = 0
        for entry in entries[: max(slots, 0)]:
            room -= len(entry.record)
            if room < 0:
                break
            count += 1
        if not count and not segment.count:
            raise ValueError(
                f"a record of {len(entries[0].record)} bytes does not fit into a file of"
                f" {self.sizes.log} bytes"
            )
        return count

    def _write(self, segment: Segment, entries: list[Entry]) -> None:
        records, units, start = bytearray(), bytearray(), segment.start + segment.written
        for entry in entries:
            at, size = len(records), len(entry.record)
            records += entry.record
            _PHYSICAL.pack_into(records, at + _PHYSICAL_AT, start + at)
            units += SparseUnit(
                start + at, size, entry.tags_code, entry.store_timestamp, entry.queue_offset
            ).pack()
        self._unsynced[segment.log.name] = segment
        with opened(segment.log, os.O_RDWR) as descriptor:
            self._disk.write(descriptor, records, segment.written)
        self._disk.step("records-written")
        with opened(segment.queue, os.O_RDWR) as descriptor:
            self._disk.write(descriptor, units, segment.count * UNIT_SIZE)
        if not segment.count:
            segment.first = entries[0].queue_offset
        # In this order: a reader looks at `count` first.
        segment.written += len(records)
        segment.last = entries[-1].queue_offset
        segment.count += len(entries)

    def _close(self, segment: Segment) -> None:
        self._unsynced[segment.log.name] = segment
        with opened(segment.queue, os.O_RDWR) as descriptor:
            self._disk.write(descriptor, _END_UNIT, segment.count * UNIT_SIZE)
        blank = encode_blank(self.sizes.log - segment.written)
        with opened(segment.log, os.O_RDWR) as descriptor:
            self._disk.write(descriptor, blank, segment.written)
        self._sync_files(segment)  # recovery checks the records of the last segment only
        self._sync_names()
        segment.is_full = True
        self._disk.step("segment-closed")

    def _sync_names(self) -> None:
        self._disk.sync_directory(self.log)
        self._disk.sync_directory(self.queue)

    def _sync_files(self, segment: Segment) -> None:
        for path in (segment.log, segment.queue):
            with opened(path, os.O_RDWR) as descriptor:
                self._disk.sync(descriptor)


@contextmanager
def opened(path: Path, flags: int = os.O_RDONLY) -> Iterator[int]:
    descriptor = os.open(path, flags | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def numbered(directory: Path) -> list[Path]:
    """Return the files of a directory that have names of segments, in order."""
    if not directory.is_dir():
        return []
    return sorted(
        path
        for path in directory.iterdir()
        if len(path.name) == _NAME_SIZE and path.name.isdigit() and path.is_file()
    )


def sync_above(directory: Path, disk: Disk) -> None:
    """Sync the names of a new directory and of those above it that may be new too."""
    for path in list(directory.parents)[:4]:
        disk.sync_directory(path)
