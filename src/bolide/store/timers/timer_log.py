"""The timer log: units one behind the other, in files of fixed length (`TimerLog`).

A file is named by the position of its first byte, 20 digits. It ends with 16 bytes that are no
unit: the number of bytes left, a long 0 and 0xCBD43194. Files are written by calls, not through a
mapping, so a full disk is an error and not the end of the process.
"""

import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

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
_BLANK_MAGIC = 0xCBD43194
_BLOCK = 16 * 1024

TimerKey = tuple[int, int]
"""When a message is due, and where it lies: the order of delivery."""


class TimerEntry(NamedTuple):
    """A message that waits; they sort by when they are due, then as they came."""

    due: int
    """Milliseconds since 1970: what says in which slot it stands."""
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
        """Whether it names another message that is not to be delivered."""
        return self.magic & (DELETE | ROLL) == DELETE

    def encode(self, previous: int) -> bytes:
        # The distance has four bytes; of what is so late the time of writing is told wrong.
        written = max(min(self.written, self.due + _FARTHEST), self.due - _FARTHEST)
        return UNIT.pack(
            UNIT_SIZE, previous, self.magic, written, self.due - written,
            self.physical_offset, self.size, self.topic_hash, 0,
        )  # fmt: skip


def decode_unit(data: bytes, at: int = 0) -> tuple[int, TimerEntry] | None:
    """The position of the unit before it and what waits; None if that is no unit."""
    if len(data) - at < UNIT_SIZE:
        return None
    size, previous, magic, written, delay, place, length, topic, _ = UNIT.unpack_from(data, at)
    if size != UNIT_SIZE or magic & ~_MAGIC_BITS or magic == 0:
        return None
    return previous, TimerEntry(written + delay, place, length, magic, written, topic)


class TimerLog:
    """Used by one thread at a time."""

    def __init__(self, directory: Path, file_size: int, disk: Disk) -> None:
        self._directory = directory
        self._file_size = file_size
        self._disk = disk
        self._files: dict[int, int] = {}
        """Descriptors by the position of the first byte, in order."""
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
        """Where the last file ends."""
        return max(self._files) + self._file_size if self._files else 0

    def open(self) -> None:
        """Raises DamagedFile if a file has another length than is set, or one is missing."""
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
        """Take a unit; `write` brings what was taken into the files. Returns its position."""
        if self.end % self._file_size + UNIT_SIZE + _BLANK.size > self._file_size:
            self._close_file()
        position = self.end
        self._unwritten += unit
        self.end += UNIT_SIZE
        return position

    def write(self) -> None:
        """Raises OSError; then `rewind` and try again."""
        if not self._unwritten:
            return
        begin = self.end - len(self._unwritten)
        start = begin - begin % self._file_size
        self._disk.write(self._file(start), self._unwritten, begin - start)
        self._unwritten.clear()

    def rewind(self, position: int) -> None:
        """Forget what was taken behind a position."""
        self._unwritten.clear()
        self.end = position

    def cut(self, position: int) -> None:
        """End here: behind it there is nothing but zeros."""
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
        blank = _BLANK.pack(rest, 0, _BLANK_MAGIC)
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
        """Position, end and contents of units from one on, up to the first that is none."""
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
        """Positions and contents of units from a place in a file up to an end."""
        for at, _, unit in self.walk(position):
            if at >= end:
                return
            yield at, unit

    def file_start_before(self, position: int) -> int:
        """Where the file begins that lies before that of a position, or else this one."""
        start = position - position % self._file_size
        return max(start - self._file_size, self.start)

    def first_unit(self, start: int) -> TimerEntry | None:
        found = TimerLogReader(self).read(start)
        return found[1] if found else None

    def second_start(self) -> int | None:
        """Where the second file begins, if there are two."""
        return list(self._files)[1] if len(self._files) > 1 else None

    def read_block(self, position: int) -> tuple[int, bytes]:
        """Bytes of one file around a position, and where they begin."""
        start = position - position % self._file_size
        if start not in self._files:
            return position, b""
        at = (position - start) - (position - start) % _BLOCK
        # A unit may reach over the end of a block.
        return start + at, bytes(read_at(self._files[start], _BLOCK + UNIT_SIZE, at))

    def _is_rest(self, position: int) -> bool:
        return position % self._file_size + UNIT_SIZE + _BLANK.size > self._file_size


class TimerLogReader:
    """Reads units here and there; those close together cost one call."""

    def __init__(self, log: TimerLog) -> None:
        self._log = log
        self._start = 0
        self._block = b""

    def read(self, position: int) -> tuple[int, TimerEntry] | None:
        """The position of the unit before it in its slot, and what waits; None if none is there."""
        at = position - self._start
        if not 0 <= at <= len(self._block) - UNIT_SIZE:
            self._start, self._block = self._log.read_block(position)
            at = position - self._start
        return decode_unit(self._block, at)
