"""The consume queue: where the messages of one topic and queue lie in the commit log.

Unit n stands at byte n * 20 of the files laid end to end; every file has its full length from the
start and is zero where nothing was written (`ConsumeQueue`):

| Offset | Size | Field                                                    |
| ------ | ---- | -------------------------------------------------------- |
| 0      | 8    | physical offset of the record                            |
| 8      | 4    | its size; 0 or less: the queue ends here                 |
| 12     | 8    | tags code, a signed long                                 |

A queue whose first unit is not the first of its file has blank units before it.

New units stay in memory, in the tail, until `write` puts them into the file. A queue is derived
from the commit log: units missing after a crash are written again by recovery. A unit is written
to the file only when its record is in the log, and only in order, so a file is sound up to some
unit.

One thread at a time appends, one thread (possibly another) writes and syncs, any thread reads.
"""

import logging
import os
from bisect import bisect_left
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from bolide.kernel import Units
from bolide.kernel.units import BLANK_SIZE, UNIT, UNIT_SIZE
from bolide.store.descriptors import DescriptorCache, read_at
from bolide.store.disk import Disk
from bolide.store.errors import DamagedFile

log = logging.getLogger(__name__)

_BLANK_UNIT = UNIT.pack(0, BLANK_SIZE, 0)
_PAGE = 4096
_NAME_SIZE = 20

_KEPT_UNITS = 200
"""Newest units that stay in memory after they are written, for consumers at the tail."""

_LAST_UNITS = _KEPT_UNITS + _PAGE // UNIT_SIZE
"""Units before the first hole of a file that are searched first for the last sound unit."""

_MAX_TAIL = 4 * _KEPT_UNITS * UNIT_SIZE


class Unit(NamedTuple):
    physical_offset: int
    size: int
    tags_code: int


class ConsumeQueue:
    """The units of one queue. `min_offset` is set by retention, `max_offset` by appends."""

    __slots__ = (
        "_descriptors", "_disk", "_doubtful", "_file_size", "_shrink_at", "_starts", "directory",
        "has_new_files", "min_offset", "synced", "tail", "written",
    )  # fmt: skip

    unit_size = UNIT_SIZE
    is_batched = False
    """Whether a unit stands for a batch of messages (`BatchQueue`)."""

    def __init__(
        self, directory: Path, file_size: int, *, disk: Disk, descriptors: DescriptorCache
    ) -> None:
        self.directory = str(directory)  # a Path takes more memory, which counts with 10,000 queues
        self.has_new_files = False
        """Whether names of new files may not be on the disk yet."""
        self._file_size = file_size
        self._disk = disk
        self._descriptors = descriptors
        self._starts: list[int] = []  # of the files, in bytes
        self.tail = self._new_tail()
        """The newest units; the fast path appends to them directly."""
        self._shrink_at = _MAX_TAIL
        self._doubtful = False
        self.min_offset = 0
        self.written = 0
        """Units below are in the files."""
        self.synced = 0
        """Units below are on the disk."""

    def _new_tail(self) -> Units:
        return Units(self)

    @property
    def max_offset(self) -> int:
        """The next queue offset."""
        return self.tail.end

    @property
    def first_offset(self) -> int:
        """Queue offset of the first unit of the first file."""
        return self._starts[0] // self.unit_size if self._starts else self.tail.base

    @property
    def files(self) -> int:
        return len(self._starts)

    def append(self, unit: bytes) -> None:
        self.tail.append(unit)
        self.shrink()

    def shrink(self) -> None:
        """Drop the oldest units from memory if there are many and they are in the files."""
        tail = self.tail
        if tail.size <= self._shrink_at:
            return
        tail.drop_below(min(self.written, tail.end - _KEPT_UNITS))
        self._shrink_at = max(2 * tail.size, _MAX_TAIL)

    def append_run(self, queue_offset: int, units: bytes) -> None:
        """Append units whose first has this queue offset, skipping those already present.

        Raises:
            ValueError: units between the end and `queue_offset` are missing.
        """
        end = self.max_offset
        if end == 0 and queue_offset > 0:
            self.start_at(queue_offset)
            end = queue_offset
        if queue_offset > end:
            raise ValueError(f"units {end} to {queue_offset} are missing")
        self.append(units[(end - queue_offset) * self.unit_size :])

    def fill(self, queue_offset: int) -> None:
        """Append blank units up to an offset, in place of units that are lost."""
        self.append(_BLANK_UNIT * (queue_offset - self.max_offset))

    def start_at(self, queue_offset: int) -> None:
        """Start an empty queue at an offset."""
        file_units = self._file_size // self.unit_size
        base = queue_offset - queue_offset % file_units
        self.tail.reset(base, _BLANK_UNIT * (queue_offset - base))
        self.written = self.synced = base
        self.min_offset = queue_offset

    def restart(self) -> None:
        """Drop all units; the next unit appended has offset 0."""
        while self._starts:
            self._remove(Path(self._path(self._starts.pop())))
        self.tail.reset(0)
        self.written = self.synced = self.min_offset = 0

    def read(self, queue_offset: int, count: int, *, may_block: bool = True) -> Iterator[Unit]:
        """Return up to `count` units from an offset on.

        Raises:
            NotInMemory: the units are not cached, and the call may not block.
        """
        return map(Unit._make, UNIT.iter_unpack(self.units(queue_offset, count, may_block)))

    def units(self, queue_offset: int, count: int, may_block: bool = True) -> bytearray:
        """As `read`, but return the encoded units."""
        return self._numbered(queue_offset, count, may_block)

    def unit(self, queue_offset: int) -> Unit | None:
        return next(self.read(queue_offset, 1), None)

    def _unit_at(self, number: int) -> Unit | None:
        data = self._numbered(number, 1)
        return _unit(data) if data else None

    def _numbered(self, number: int, count: int, may_block: bool = True) -> bytearray:
        """Encoded units by their number, which is the queue offset unless units are batches."""
        tail = self.tail
        found = tail.take(number, count)
        below = tail.base - number
        if found or below <= 0:
            return found
        found = self._read_files(number, min(count, below), may_block)
        if len(found) == below * self.unit_size:
            found += tail.take(number + below, count - below)
        return found

    def end_below(self, physical_offset: int, *, may_block: bool = True) -> int:
        """Return the offset behind the last unit whose record ends at or before a log position.

        Raises:
            NotInMemory: the units are not cached, and the call may not block.
        """
        return self._number_below(physical_offset, may_block=may_block)

    def _number_below(self, physical_offset: int, *, may_block: bool) -> int:
        """As `end_below`, but return the number behind that unit."""
        tail = self.tail
        end = tail.end_below(physical_offset)
        # No unit in memory ends there. What replicas have confirmed may lie far behind that.
        if end <= tail.base and end > self.first_offset:
            return self._end_in_files(end, physical_offset, may_block=may_block)
        return end

    def _end_in_files(self, end: int, physical_offset: int, *, may_block: bool) -> int:
        """Look for the end among the units below `end`: it is more likely to be near."""

        def is_behind(number: int) -> bool:
            data = self._numbered(number, 1, may_block)
            if not data:  # retention removed the unit meanwhile
                return False
            unit = _unit(data)
            return unit.size != BLANK_SIZE and unit.physical_offset + unit.size > physical_offset

        if not is_behind(end - 1):
            return end
        first, high, step = self.first_offset, end - 1, _KEPT_UNITS
        while (low := high - step) > first and is_behind(low):
            high, step = low, 2 * step
        low = max(low, first)
        return low + bisect_left(range(low, high), True, key=is_behind)

    # ---- files

    def load(self) -> None:
        """Open the files and find the last sound unit in them."""
        found = os.listdir(self.directory)  # noqa: PTH208
        names = sorted(name for name in found if len(name) == _NAME_SIZE and name.isdigit())
        self._starts = [int(name) for name in names if self._has_length(name)]
        self._drop_behind_gap()
        self.has_new_files = True  # the last process may have been killed before a directory sync
        self._reset(lambda unit: unit.size > 0 and unit.physical_offset >= 0)

    def _drop_behind_gap(self) -> None:
        """Remove the files behind a missing one; recovery writes their units again."""
        for number, start in enumerate(self._starts):
            if start != self._starts[0] + number * self._file_size:
                log.warning(
                    "a file before %s is missing: removing the files behind the gap",
                    self._path(start),
                )
                while len(self._starts) > number:
                    self._remove(Path(self._path(self._starts.pop())))
                return

    def truncate(self, physical_offset: int, *, thoroughly: bool) -> None:
        """Drop the units of records at or behind a log position, and zero them on disk.

        With `thoroughly` the file is zeroed even if the queue ends before that position, for
        units that may lie behind a hole.
        """
        tail = self.tail
        end = tail.end_below(physical_offset)
        if end == tail.end and not thoroughly:
            return
        if end > tail.base or not self._starts:
            tail.cut(end)
            self.written = min(self.written, end)
            self.synced = min(self.synced, end)
        else:
            self._reset(lambda unit: unit.size > 0 and unit.physical_offset < physical_offset)
            end = tail.end
        self._zero_from(end)
        self.min_offset = min(self.min_offset, self.max_offset)

    def rewind(self, physical_offset: int) -> None:
        """Drop units that exist only in memory and whose records end behind a log position."""
        self.tail.cut(self.tail.end_below(physical_offset))

    def write(self, end: int) -> bool:
        """Write units below `end` to the files; returns whether there were any. Blocks.

        Raises:
            OSError: the disk is full or fails; units not written stay in memory.
        """
        start, end = self.written, min(end, self.tail.end)
        if start >= end:
            return False
        data = self.tail.take(start, end - start)
        position = start * self.unit_size
        while data:
            file_start = position - position % self._file_size
            part = data[: file_start + self._file_size - position]
            self._write_part(file_start, part, position - file_start)
            data, position = data[len(part) :], position + len(part)
            self.written = position // self.unit_size
        return True

    def write_below(self, physical_offset: int) -> bool:
        """Write the units of records below a log position; returns whether all units are written.

        Raises: as `write`.
        """
        self.write(self.tail.end_below(physical_offset))
        return self.written == self.tail.end

    @property
    def dirty_pages(self) -> int:
        return (self.written - self.synced) * self.unit_size // _PAGE

    def sync(self) -> None:
        """Wait until the units written are on the disk. Blocks."""
        written = self.written
        if self.synced >= written:
            return
        if self._doubtful:
            self._write_again()
        first = self.synced * self.unit_size
        self._doubtful = True  # after a failed sync the system may treat dirty pages as clean
        for start in self._starts:
            if start + self._file_size > first and start < written * self.unit_size:
                with self._descriptors.use(self._path(start)) as descriptor:
                    self._disk.sync(descriptor)
        self._doubtful = False
        self.synced = written

    def raise_minimum(self, physical_offset: int) -> None:
        """Move `min_offset` to the first unit whose record lies at or behind a log position."""
        low, high = max(self.min_offset, self.first_offset), self.max_offset
        middle = low  # usually the minimum has not changed
        while low < high:
            unit = self.unit(middle)
            if unit is None or unit.size == BLANK_SIZE or unit.physical_offset < physical_offset:
                low = middle + 1
            else:
                high = middle
            middle = (low + high) // 2
        self.min_offset = low

    def remove_below(self, physical_offset: int) -> list[Path]:
        """Remove the files whose last record lies below a log position, but never the last file."""
        removed = []
        while len(self._starts) > 1:
            last = self._unit_at(self._starts[1] // self.unit_size - 1)
            if last is not None and last.physical_offset >= physical_offset:
                break
            removed.append(Path(self._path(self._starts.pop(0))))
            self._remove(removed[-1])
        return removed

    def detach(self) -> None:
        """Close all files, which the caller moves away; nothing is written from now on."""
        self.tail.is_closed = True  # first: holders of the queue check this before they read
        while self._starts:
            self._descriptors.remove(self._path(self._starts.pop()), lambda: None)
        self.tail.reset(self.tail.end)
        self.written = self.synced = self.tail.end

    # ---- inside

    def _path(self, start: int) -> str:
        return f"{self.directory}/{start:020d}"

    def _remove(self, path: Path) -> None:
        self._descriptors.remove(str(path), lambda: self._disk.remove(path))

    def _has_length(self, name: str) -> bool:
        """Restore the length of a truncated file; recovery writes the missing units."""
        path = Path(self.directory, name)
        size = os.stat(self._path(int(name))).st_size  # noqa: PTH116
        if size == self._file_size and int(name) % size == 0:
            return True
        if size == 0:
            self._disk.remove(path)
            return False
        if size > self._file_size or int(name) % self._file_size:
            raise DamagedFile(path, f"is {size} bytes long, the settings say {self._file_size}")
        log.warning("%s was truncated to %s bytes: restoring its length", path, size)
        os.truncate(path, self._file_size)
        return True

    def _reset(self, sound: "_Sound") -> None:
        """Set the end of the queue from its files, whose units may not be synced."""
        end, data = self.first_offset if self._starts else 0, bytearray()
        for start in reversed(self._starts):
            count, data = self._sound_units(start, sound)
            if count:
                end = start // self.unit_size + count
                break
        self.tail.reset(end - len(data) // self.unit_size, data)
        self.written = end
        self.synced = self.first_offset if self._starts else end

    def _sound_units(self, start: int, sound: "_Sound") -> tuple[int, bytearray]:
        """Count the sound units at the start of a file; returns the count and the last units.

        Usually the units end at the file's first hole.
        """
        with _opened(self._path(start)) as descriptor:
            hole = min(os.lseek(descriptor, 0, os.SEEK_HOLE), self._file_size)
            high = -(-hole // self.unit_size)
            low = max(high - _LAST_UNITS, 0)
            data = read_at(descriptor, (high - low) * self.unit_size, low * self.unit_size)
            count = _count_sound(data, sound, self.unit_size)
            if count == 0 and low:
                high = bisect_left(
                    range(low),
                    True,
                    key=lambda at: (
                        not sound(_unit(read_at(descriptor, self.unit_size, at * self.unit_size)))
                    ),
                )
                low = max(high - _KEPT_UNITS, 0)
                data = read_at(descriptor, (high - low) * self.unit_size, low * self.unit_size)
                count = high - low
        return low + count, data[
            max(count - _KEPT_UNITS, 0) * self.unit_size : count * self.unit_size
        ]

    def _read_files(self, queue_offset: int, count: int, may_block: bool) -> bytearray:
        """Read units, across file boundaries if necessary."""
        found = bytearray()
        position, end = queue_offset * self.unit_size, (queue_offset + count) * self.unit_size
        while position < end:
            start = position - position % self._file_size
            if start not in self._starts:
                break
            path = self._path(start)
            size = min(end, start + self._file_size) - position
            try:
                with self._descriptors.use(path) as descriptor:
                    found += read_at(
                        descriptor, size, position - start, may_block=may_block, path=path
                    )
            except FileNotFoundError:  # removed meanwhile
                break
            position += size
        return found

    def _write_again(self) -> None:
        """Write the unsynced units again, so that the next sync covers them."""
        position, end = self.synced * self.unit_size, self.written * self.unit_size
        while position < end:
            start = position - position % self._file_size
            size = min(end, start + self._file_size) - position
            part = self._read_files(
                position // self.unit_size, size // self.unit_size, may_block=True
            )
            self._write_part(start, part, position - start)
            position += size

    def _write_part(self, file_start: int, part: bytes | bytearray, at: int) -> None:
        path = self._path(file_start)
        if file_start not in self._starts:
            descriptor = self._disk.create_sparse(Path(path), self._file_size)
            self._descriptors.add(path, descriptor)
            self._starts.append(file_start)
            self.has_new_files = True
        with self._descriptors.use(path) as descriptor:
            self._disk.write(descriptor, part, at)

    def _zero_from(self, end: int) -> None:
        """Zero the files behind the end: recovery must not find units there."""
        position = end * self.unit_size
        for start in list(self._starts):
            path = self._path(start)
            if start >= position and start > self._starts[0]:
                self._starts.remove(start)
                self._remove(Path(path))
            elif start + self._file_size > position:
                with self._descriptors.use(path) as descriptor:
                    self._disk.zero(descriptor, max(position - start, 0), self._file_size)


_Sound = Callable[[Unit], bool]


def _unit(data: bytes | bytearray) -> Unit:
    return Unit._make(UNIT.unpack_from(data))


def _count_sound(data: bytearray, sound: _Sound, unit_size: int) -> int:
    """Return the number of units before the first unsound one."""
    count = len(data) // unit_size
    return bisect_left(
        range(count),
        True,
        key=lambda at: not sound(Unit._make(UNIT.unpack_from(data, at * unit_size))),
    )


@contextmanager
def _opened(path: str) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
