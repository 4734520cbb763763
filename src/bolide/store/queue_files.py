"""Reads and writes the files of one consume queue, for tools that do not open the store."""

import os
from collections.abc import Iterator
from pathlib import Path

from bolide.kernel.units import UNIT_SIZE
from bolide.store.descriptors import read_at
from bolide.store.disk import Disk, data_ranges
from bolide.store.layout import queue_file_starts

_BLOCK = 50_000


class QueueFiles:
    """The files of one queue. Units without a file read as zeros."""

    def __init__(self, directory: Path, file_size: int, unit_size: int = UNIT_SIZE) -> None:
        """With another unit size, queue offsets are unit numbers."""
        self.directory = directory
        self._file_size = file_size
        self._unit_size = unit_size
        self._starts = queue_file_starts(directory)

    def __bool__(self) -> bool:
        return bool(self._starts)

    @property
    def first(self) -> int:
        """Queue offset of the first unit of the first file."""
        return self._starts[0] // self._unit_size if self._starts else 0

    def first_in_file(self, queue_offset: int) -> int:
        """Queue offset of the first unit in the file of a unit."""
        return queue_offset - queue_offset % (self._file_size // self._unit_size)

    def place(self, queue_offset: int) -> tuple[Path, int]:
        """Return the file of a unit, and the unit's position in it."""
        position = queue_offset * self._unit_size
        start = position - position % self._file_size
        return self._path(start), position - start

    def read(self, queue_offset: int, count: int) -> bytes:
        found = bytearray()
        for start, at, size in self._parts(queue_offset, count * self._unit_size):
            part = self._read(start, at, size) if start in self._starts else b""
            found += part + bytes(size - len(part))
        return bytes(found)

    def blocks(self, first: int, end: int) -> Iterator[tuple[int, bytes]]:
        """Yield the units between two offsets in blocks, with their first offset; skips holes."""
        for start in self._starts:
            low = max(first * self._unit_size, start) - start
            high = min(end * self._unit_size - start, self._file_size)
            for at, stop in self._data(start, low, high):
                for place in range(at, stop, _BLOCK * self._unit_size):
                    size = min(_BLOCK * self._unit_size, stop - place)
                    data = self._read(start, place, size)
                    whole = len(data) // self._unit_size * self._unit_size
                    yield (start + place) // self._unit_size, bytes(data[:whole])

    @property
    def end(self) -> int:
        """Queue offset behind the last file."""
        return (self._starts[-1] + self._file_size) // self._unit_size if self._starts else 0

    def write(self, queue_offset: int, units: bytes, disk: Disk) -> None:
        for start, at, size in self._parts(queue_offset, len(units)):
            if start not in self._starts:
                os.close(disk.create_sparse(self._path(start), self._file_size))
                self._starts = sorted((*self._starts, start))
            descriptor = os.open(self._path(start), os.O_RDWR | os.O_CLOEXEC)
            try:
                disk.write(descriptor, units[:size], at)
            finally:
                os.close(descriptor)
            units = units[size:]

    def sync(self, disk: Disk) -> None:
        for start in self._starts:
            descriptor = os.open(self._path(start), os.O_RDWR | os.O_CLOEXEC)
            try:
                disk.sync(descriptor)
            finally:
                os.close(descriptor)

    def malformed(self) -> Iterator[tuple[Path, int]]:
        """Yield the files whose length or name is wrong, and their length."""
        for path in sorted(self.directory.iterdir()) if self.directory.is_dir() else ():
            size = path.stat().st_size
            if path.name.isdigit() and (
                size != self._file_size or int(path.name) % self._file_size
            ):
                yield path, size

    def _path(self, start: int) -> Path:
        return self.directory / f"{start:020d}"

    def _parts(self, queue_offset: int, size: int) -> Iterator[tuple[int, int, int]]:
        """Split a range of bytes at file boundaries: file start, position in the file, size."""
        position, end = queue_offset * self._unit_size, queue_offset * self._unit_size + size
        while position < end:
            start = position - position % self._file_size
            part = min(end, start + self._file_size) - position
            yield start, position - start, part
            position += part

    def _data(self, start: int, low: int, high: int) -> list[tuple[int, int]]:
        """Return the parts of a file that are not holes, widened to whole units."""
        if low >= high:
            return []
        descriptor = os.open(self._path(start), os.O_RDONLY | os.O_CLOEXEC)
        try:
            found = data_ranges(descriptor, low, high)
        finally:
            os.close(descriptor)
        return [
            (max(at - at % self._unit_size, low), min(end + -end % self._unit_size, high))
            for at, end in found
        ]

    def _read(self, start: int, at: int, size: int) -> bytearray:
        """Bytes that the disk cannot read count as missing units."""
        descriptor = os.open(self._path(start), os.O_RDONLY | os.O_CLOEXEC)
        try:
            return read_at(descriptor, size, at)
        except OSError:
            return bytearray()
        finally:
            os.close(descriptor)
