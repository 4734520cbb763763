"""The timer log: contiguous units in files of fixed length (`TimerLog`).

A file is named by the position of its first byte, 20 digits. It ends with a blank of 16 bytes: the
number of bytes left, a long 0 and 0xCBD43194. Files are written with `pwrite`, not through a
mapping, so a full disk raises an error instead of killing the process. A unit, one for each
pending message, has 52 bytes:

| Offset | Size | Field                                                                   |
| ------ | ---- | ----------------------------------------------------------------------- |
| 0      | 4    | 52                                                                      |
| 4      | 8    | position of the previous unit in the same slot, or -1                   |
| 12     | 4    | magic: 1; bit 2: enters the timer again when due; bit 4: a recall       |
| 16     | 8    | when it was written, in milliseconds                                    |
| 24     | 4    | how long after that it is due, in milliseconds                          |
| 28     | 8    | physical offset of the message                                          |
| 36     | 4    | size of the message                                                     |
| 40     | 4    | Java's hash of the name of the topic it belongs to                      |
| 44     | 8    | 0                                                                       |
"""

import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from bolide.protocol.record import MAGIC_BLANK
from bolide.store.descriptors import read_at
from bolide.store.disk import Disk
from bolide.store.errors import DamagedFile

UNIT: Final = struct.Struct(">iqiqiqiiq")
UNIT_SIZE: Final = UNIT.size
NOWHERE: Final = -1

PLAIN: Final = 1
ROLL: Final = 2
DELETE: Final = 4
_MAGIC_BITS: Final = 0xF
_FARTHEST: Final = 2**31 - 1

_BLANK = struct.Struct(">iqI")
_BLOCK = 16 * 1024

TimerKey = tuple[int, int]
"""Due time and physical offset of a message: the order of delivery."""


class TimerEntry(NamedTuple):
    """A pending message. Entries sort by due time, then by physical offset."""

    due: int
    """Milliseconds since 1970; determines the slot."""
    physical_offset: int
    size: int
    magic: int
    written: int
    topic_hash: int

    @property
    def key(self) -> TimerKey:
        return self.due, self.physical_offset

    @property
    def is_recall(self) -> bool:
        """Whether the entry cancels the delivery of another message."""
        return self.magic & (DELETE | ROLL) == DELETE

    def encode(self, previous: int) -> bytes:
        # The delay field has four bytes: for longer delays the time of writing is falsified.
        written = max(min(self.written, self.due + _FARTHEST), self.due - _FARTHEST)
        return UNIT.pack(
            UNIT_SIZE, previous, self.magic, written, self.due - written,
            self.physical_offset, self.size, self.topic_hash, 0,
        )  # fmt: skip


def decode_unit(data: bytes, at: int = 0) -> tuple[int, TimerEntry] | None:
    """Return the previous unit's position and the entry, or None if the bytes are no unit."""
    if len(data) - at < UNIT_SIZE:
        return None
    size, previous, magic, written, delay, place, length, topic, _ = UNIT.unpack_from(data, at)
    if size != UNIT_SIZE or magic & ~_MAGIC_BITS or magic == 0:
        return None
    return previous, TimerEntry(written + delay, place, length, magic, written, topic)


class TimerLog:
    """Not thread-safe."""

    def __init__(self, directory: Path, file_size: int, disk: Disk) -> None:
        self._directory = directory
        self._file_size = file_size
        self._disk = disk
        self._files: dict[int, int] = {}
        """Descriptors by start position, in order."""
        self.end = 0
        self._unwritten = bytearray()

    # ---- files

    @property
    def start(self) -> int:
        return next(iter(self._files), 0)

    @property
    def descriptors(self) -> list[int]:
        return list(self._files.values())

    @property
    def files_end(self) -> int:
        """End of the last file."""
        return max(self._files) + self._file_size if self._files else 0

    def open(self) -> None:
        """Raises DamagedFile if a file is missing or its length contradicts the settings."""
        directory = self._directory
        paths = sorted(directory.iterdir()) if directory.is_dir() else []
        for path in [path for path in paths if path.name.isdigit()]:
            size = path.stat().st_size
            if size != self._file_size:
                raise DamagedFile(
                    path,
                    f"is {size} bytes long, mappedFileSizeTimerLog is {self._file_size}: set it as"
                    " it was, or remove the directory, it is made again",
                )
            if self._files and int(path.name) != self.files_end:
                raise DamagedFile(
                    path,
                    f"the file before it ends at {self.files_end}: one is missing. Bring it back,"
                    " or remove the directory, it is made again",
                )
            self._files[int(path.name)] = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        self.end = self.start

    def close(self) -> None:
        for descriptor in self._files.values():
            os.close(descriptor)
        self._files.clear()

    def remove_first(self) -> None:
        start = self.start
        os.close(self._files.pop(start))
        self._disk.remove(self._path(start))

    # ---- writing

    def append(self, unit: bytes) -> int:
        """Buffer a unit until `write`; returns its position."""
        if self.end % self._file_size + UNIT_SIZE + _BLANK.size > self._file_size:
            self._close_file()
        position = self.end
        self._unwritten += unit
        self.end += UNIT_SIZE
        return position

    def write(self) -> None:
        """Write buffered units to the files. Raises OSError; then `rewind` and try again."""
        if not self._unwritten:
            return
        begin = self.end - len(self._unwritten)
        start = begin - begin % self._file_size
        self._disk.write(self._file(start), self._unwritten, begin - start)
        self._unwritten.clear()

    def rewind(self, position: int) -> None:
        """Drop the units appended behind a position."""
        self._unwritten.clear()
        self.end = position

    def cut(self, position: int) -> None:
        """Truncate the log at a position and zero the bytes behind it."""
        for start in [each for each in self._files if each > position]:
            os.close(self._files.pop(start))
            self._disk.remove(self._path(start))
        start = position - position % self._file_size
        if start in self._files:
            self._disk.zero(self._files[start], position - start, self._file_size)
        self.end = position

    def _close_file(self) -> None:
        self.write()
        start = self.end - self.end % self._file_size
        rest = self._file_size - (self.end - start)
        blank = _BLANK.pack(rest, 0, MAGIC_BLANK)
        self._disk.write(self._file(start), blank, self.end - start)
        self.end = start + self._file_size

    def _file(self, start: int) -> int:
        if start not in self._files:
            self._files[start] = self._disk.create_sparse(self._path(start), self._file_size)
        return self._files[start]

    def _path(self, start: int) -> Path:
        return self._directory / f"{start:020d}"

    # ---- reading

    def walk(self, position: int) -> Iterator[tuple[int, int, TimerEntry]]:
        """Yield position, end and entry of each unit from a position on."""
        reader, end = TimerLogReader(self), self.files_end
        while position < end:
            if self._is_rest(position):
                position += self._file_size - position % self._file_size
                continue
            found = reader.read(position)
            if found is None:
                return
            yield position, position + UNIT_SIZE, found[1]
            position += UNIT_SIZE

    def units(self, position: int, end: int) -> Iterator[tuple[int, TimerEntry]]:
        """Yield position and entry of each unit from a position up to an end."""
        for at, _, unit in self.walk(position):
            if at >= end:
                return
            yield at, unit

    def file_start_before(self, position: int) -> int:
        """Start of the file before the one that holds a position, or of that one if it is first."""
        start = position - position % self._file_size
        return max(start - self._file_size, self.start)

    def first_unit(self, start: int) -> TimerEntry | None:
        found = TimerLogReader(self).read(start)
        return found[1] if found else None

    def second_start(self) -> int | None:
        """Start of the second file, if there are two."""
        return list(self._files)[1] if len(self._files) > 1 else None

    def read_block(self, position: int) -> tuple[int, bytes]:
        """Return bytes of one file around a position, and their start."""
        start = position - position % self._file_size
        if start not in self._files:
            return position, b""
        at = (position - start) - (position - start) % _BLOCK
        # A unit may cross the end of a block.
        return start + at, bytes(read_at(self._files[start], _BLOCK + UNIT_SIZE, at))

    def _is_rest(self, position: int) -> bool:
        return position % self._file_size + UNIT_SIZE + _BLANK.size > self._file_size


class TimerLogReader:
    """Random reads of units, with a block cache: nearby units cost one system call."""

    def __init__(self, log: TimerLog) -> None:
        self._log = log
        self._start = 0
        self._block = b""

    def read(self, position: int) -> tuple[int, TimerEntry] | None:
        """Return the position of the previous unit in the slot and the entry, or None."""
        at = position - self._start
        if not 0 <= at <= len(self._block) - UNIT_SIZE:
            self._start, self._block = self._log.read_block(position)
            at = position - self._start
        return decode_unit(self._block, at)
