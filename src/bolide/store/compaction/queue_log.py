"""The compaction log of one queue: appends, reads, and the replacement of its segments.

One thread appends and replaces; any thread reads. A lock keeps readers out while files are
replaced by others of the same names.

The replacement is a transaction over several files:

1. The compactor writes the new segments below `compacting/` of both directories and syncs them.
2. `compacting/` of the log directory is renamed to `replacing-<end>-<count>`: the commit point.
   `end` is the first segment that stays, `count` the number of new segments, named 0, 1, 2 ...
   times the file size.
3. The new files are renamed over the old ones of the same name, the other old ones below `end` are
   removed, and so are the two directories.

After a crash before step 2 recovery removes `compacting/`; after step 2 it repeats step 3, and
writes the queue files anew from the log files (`recovery`). RocketMQ ignores both directories.
"""

import os
import re
import shutil
import threading
from bisect import bisect_left
from pathlib import Path
from typing import NamedTuple

from bolide.private_files import DIRECTORY_MODE
from bolide.protocol.record import RECORD_HEAD, is_record_magic
from bolide.store.compaction.segments import (
    UNIT_SIZE,
    Entry,
    FileSizes,
    Segment,
    SegmentWriter,
    SparseUnit,
    numbered,
    opened,
)
from bolide.store.disk import Disk
from bolide.store.reading import MessageFilter, ReadLimits, ReadResult, ReadStatus

COMPACTING = "compacting"
_BLOCK = 64 * 1024
"""Bytes read at once: the next record usually follows."""
_REPLACING = re.compile(r"replacing-([0-9]{20})-([0-9]+)")


class Replacement(NamedTuple):
    """A committed replacement: `new` segments replace all below `end`."""

    directory: Path
    end: int
    new: int

    @classmethod
    def find(cls, log_directory: Path) -> "Replacement | None":
        for path in log_directory.iterdir() if log_directory.is_dir() else ():
            if match := _REPLACING.fullmatch(path.name):
                return cls(path, int(match[1]), int(match[2]))
        return None

    def apply(
        self, log_directory: Path, queue_directory: Path, sizes: FileSizes, disk: Disk
    ) -> None:
        """Move the new files to their places and remove the old ones. Can be repeated."""
        new = {number * sizes.log for number in range(self.new)}
        compacted_queue = queue_directory / COMPACTING
        for source, target in (
            (self.directory, log_directory),
            (compacted_queue, queue_directory),
        ):
            for path in numbered(source):
                disk.step("replace-segment")
                path.replace(target / path.name)
            for path in numbered(target):
                if int(path.name) < self.end and int(path.name) not in new:
                    disk.step("remove-segment")
                    disk.remove(path)
            disk.sync_directory(target)
        disk.step("replaced")
        shutil.rmtree(compacted_queue, ignore_errors=True)
        shutil.rmtree(self.directory)
        disk.sync_directory(log_directory)


class QueueLog:
    """The compaction log of one queue."""

    def __init__(self, topic: str, queue_id: int, writer: SegmentWriter, disk: Disk) -> None:
        self.topic = topic
        self.queue_id = queue_id
        self.copied = max((each.last + 1 for each in writer.segments), default=0)
        """Messages of the consume queue below this offset have been copied, or are not to be."""
        self.synced = 0
        """As `copied`, but the copies are on the disk."""
        self._writer = writer
        self._disk = disk
        self._lock = threading.Lock()  # files must not be replaced while they are read
        self._is_stale = False

    @property
    def is_stale(self) -> bool:
        """Whether a replacement failed half-way: recovery has to open the queue again."""
        return self._is_stale

    @property
    def sizes(self) -> FileSizes:
        return self._writer.sizes

    @property
    def segments(self) -> list[Segment]:
        return self._writer.segments

    @property
    def min_offset(self) -> int | None:
        """Queue offset of the first message, or None if there is none."""
        return next((each.first for each in self.segments if each.count), None)

    @property
    def max_offset(self) -> int:
        """Queue offset behind the last message."""
        return max((each.last + 1 for each in self.segments), default=0)

    # ---- writing

    def append(self, entries: list[Entry], copied: int) -> None:
        """Append messages; those of the consume queue below `copied` are then copied. Blocks.

        Raises:
            OSError: the disk is full or fails.
        """
        self._writer.append(entries)
        self.copied = copied

    def sync(self) -> None:
        """Raises OSError. Blocks."""
        copied = self.copied
        self._writer.sync()
        self.synced = copied

    def truncate(self, queue_offset: int) -> None:
        """Drop the messages at and behind a queue offset. Blocks.

        They are not in the commit log: it lost them, or the topic was deleted and made again.
        """
        with self._lock:
            segments = self.segments
            while segments and (not segments[-1].count or segments[-1].first >= queue_offset):
                segment = segments.pop()
                self._disk.remove(segment.queue)
                self._disk.remove(segment.log)
            if segments and segments[-1].last >= queue_offset:
                cut_segment(segments[-1], segments[-1].find(queue_offset), self.sizes, self._disk)
            self.copied = min(self.copied, queue_offset)
            self.synced = 0
            self._writer.expect_unsynced()

    def new_writer(self) -> SegmentWriter:
        """Return a writer below `compacting/`, whose directories are empty."""
        self.discard()
        log, queue = self._writer.log / COMPACTING, self._writer.queue / COMPACTING
        for path in (log, queue):
            path.mkdir(DIRECTORY_MODE)
        return SegmentWriter(log, queue, self.sizes, self._disk, [])

    def discard(self) -> None:
        """Remove what a compaction wrote that was not committed."""
        for path in (self._writer.log / COMPACTING, self._writer.queue / COMPACTING):
            shutil.rmtree(path, ignore_errors=True)

    def replace(self, compacted: SegmentWriter, end: int) -> None:
        """Replace the segments below `end` by those of a writer below `compacting/`. Blocks.

        Raises:
            OSError: a file operation failed; if the log `is_stale` then, it must not be used.
        """
        log, queue = self._writer.log, self._writer.queue
        compacted.close_last()
        compacted.sync()
        self._disk.step("compacted")
        new = compacted.segments
        with self._lock:
            directory = log / f"replacing-{end:020d}-{len(new)}"
            compacted.log.rename(directory)
            try:
                self._disk.sync_directory(log)
                self._disk.step("committed")
                Replacement(directory, end, len(new)).apply(log, queue, self.sizes, self._disk)
            except BaseException:
                self._is_stale = True
                raise
            for segment in new:
                segment.log = log / segment.log.name
                segment.queue = queue / segment.queue.name
            kept = [each for each in self.segments if each.start >= end]
            self._writer.segments[:] = [*new, *kept]

    # ---- reading

    def read(
        self, queue_offset: int, limits: ReadLimits, wanted: MessageFilter
    ) -> ReadResult | None:
        """Read from an offset, or in a gap from the next message on; None behind the end. Blocks.

        A read ends with its segment.

        Raises:
            OSError: the disk fails, or a replacement failed half-way.
        """
        with self._lock:
            if self._is_stale:
                raise OSError(f"{self._writer.log}: its files are being replaced")
            segments = [each for each in self.segments if each.count]
            at = bisect_left(segments, queue_offset, key=lambda each: each.last)
            if at == len(segments):
                return None
            segment = segments[at]
            first = segment.find(queue_offset)
            count = max(limits.max_scanned // wanted.weight, limits.max_count)
            return _select(segment, list(segment.units(first, count)), limits, wanted)

    def record_at(self, physical_offset: int) -> bytes | None:
        """Return the record that begins at a position of this log, or None. Blocks."""
        with self._lock:
            for segment in self.segments:
                if segment.start <= physical_offset < segment.start + segment.written:
                    head = segment.read(physical_offset, RECORD_HEAD.size)
                    if len(head) < RECORD_HEAD.size:
                        return None
                    size, magic, place = RECORD_HEAD.unpack(head)
                    if place != physical_offset or not is_record_magic(magic):
                        return None
                    return bytes(segment.read(physical_offset, size))
        return None


def _select(
    segment: Segment, units: list[SparseUnit], limits: ReadLimits, wanted: MessageFilter
) -> ReadResult | None:
    if not units:
        return None
    found = ReadResult(ReadStatus.NO_MATCHED_MESSAGE, units[0].queue_offset)
    block, start = memoryview(b""), 0
    for unit in units:
        if found.records and (
            len(found.records) >= limits.max_count or found.size + unit.size > limits.max_size
        ):
            break
        found.next_offset = unit.queue_offset + 1
        if wanted.code and not wanted.code(unit.tags_code):
            continue
        at = unit.physical_offset - start
        if not 0 <= at <= len(block) - unit.size:
            start, at = unit.physical_offset, 0
            block = memoryview(segment.read(start, max(unit.size, _BLOCK)))
        record = block[at : at + unit.size]
        if wanted.record is None or wanted.record(record):
            found.records.append(record)
            found.size += unit.size
            found.status = ReadStatus.FOUND
    return found


def cut_segment(segment: Segment, count: int, sizes: FileSizes, disk: Disk) -> None:
    """Drop the units from number `count` on, and the records behind them."""
    last = next(segment.units(count - 1, 1), None) if count else None
    end = last.physical_offset + last.size - segment.start if last else 0
    with opened(segment.queue, os.O_RDWR) as descriptor:
        disk.zero(descriptor, count * UNIT_SIZE, sizes.queue)
    with opened(segment.log, os.O_RDWR) as descriptor:
        disk.zero(descriptor, end, sizes.log)
    segment.count = count
    segment.written = end
    segment.last = last.queue_offset if last else -1
    segment.first = segment.first if last else -1
    segment.is_full = False
