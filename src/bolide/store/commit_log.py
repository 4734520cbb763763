"""The commit log: all messages of a broker, one behind the other, in files of fixed length.

A file is named by the offset of its first byte, 20 digits, and has its full length from the start;
behind the last record it is zero. Where the next record does not fit a blank record closes the
file. After a crash everything up to the last sound record is kept (see `recovery`).

Three positions, never out of this order: `flushed`, on the disk; `written`, in the files and
readable; `end`, given away to appends. In ASYNC_FLUSH mode records are stored into the mapping at
once and `written` is `end`. In SYNC_FLUSH mode they wait in memory for the flusher's thread, which
writes and syncs a group of them, so `written` is `flushed`.

Appends come one at a time (the store's lock); any thread reads.
"""

import logging
import os
import threading
from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path
from typing import NamedTuple

from bolide.kernel import write_record
from bolide.protocol.record import BLANK_SIZE, RecordDraft, encode_blank
from bolide.protocol.record_errors import RecordTooLarge
from bolide.protocol.record_seal import seal_record
from bolide.store.appending import AppendRoom
from bolide.store.descriptors import read_at
from bolide.store.disk import Disk
from bolide.store.errors import DamagedFile
from bolide.store.mapped_file import MappedFile

log = logging.getLogger(__name__)

_HOT_WINDOW = 64 * 1024 * 1024
"""Bytes behind the end that are read from the mapping: they were just written."""

_POPULATED_AHEAD = 16 * 1024 * 1024

_SCRATCH = 512 * 1024
"""Bytes of records that one reservation may take in SYNC_FLUSH mode."""


class LogFile(MappedFile):
    """A file of the log; `start` is the physical offset of its first byte."""

    def __init__(self, path: Path, descriptor: int, size: int) -> None:
        super().__init__(path, descriptor, size)
        self.start = int(path.name)
        self.end = self.start + size


class Pending(NamedTuple):
    """Bytes that the flusher is to write."""

    file: LogFile
    at: int
    data: bytes | bytearray


class CommitLog:
    def __init__(
        self,
        directories: Sequence[Path],
        file_size: int,
        *,
        disk: Disk,
        staged: bool = False,
        new: Sequence[Path] = (),
    ) -> None:
        """`staged`: records wait in memory for `take_pending` (SYNC_FLUSH).

        `new`: directories for new files, if not all of them.
        """
        self._directories = directories
        self._new_directories = new or directories
        self._file_size = file_size
        self._disk = disk
        self._staged = staged
        self._scratch = bytearray(_SCRATCH if staged else 0)
        self.files: tuple[LogFile, ...] = ()
        self._files_lock = threading.Lock()  # one at a time replaces `files`
        self._spare: LogFile | None = None
        self._spare_lock = threading.Lock()  # one at a time makes a file
        self.retired: tuple[LogFile, ...] = ()
        self._pending: list[Pending] = []
        self._tail: LogFile
        self._room_end = 0  # a record must end here at the latest
        self._hot_from = 0
        self._populated = 0
        self.prepare_at = 0
        """Position at which `prepare` has something to do again."""
        self.end = 0
        self.written = 0
        self.flushed = 0
        self.last_record = -1
        """Physical offset of the newest record, -1 before the first."""
        self.last_timestamp = 0

    # ---- files

    @property
    def min_offset(self) -> int:
        files = self.files
        return files[0].start if files else 0

    def load(self) -> None:
        """Open all files.

        Raises:
            DamagedFile: one has another length than the settings say, or one is missing.
        """
        paths = sorted(
            (
                path
                for directory in self._directories
                if directory.exists()
                for path in directory.iterdir()
                if path.name.isdigit()
            ),
            key=lambda path: path.name,
        )
        while paths and paths[-1].stat().st_size == 0:  # named, but no byte before a crash
            self._disk.remove(paths.pop())
        for path in paths:
            if self.files and int(path.name) != self.files[-1].end:
                reason = f"the file before it ends at {self.files[-1].end}: one is missing"
                raise DamagedFile(path, reason)
            self._add(open_log_file(path, self._file_size))

    def open_at(self, end: int) -> None:
        """Let appends go on at `end`; files behind it are removed."""
        self._drop_behind(end)
        self.end = self.written = self.flushed = self._hot_from = self._populated = end

    def find_file(self, physical_offset: int) -> LogFile | None:
        files = self.files
        if not files:
            return None
        index = (physical_offset - files[0].start) // self._file_size
        return files[index] if 0 <= index < len(files) else None

    # ---- writing

    def reserve(self, size: int) -> None:
        """See that the next `size` bytes go into one file: it may close one and begin the next.

        Raises:
            OSError: there is no room for a new file; nothing has changed.
            RecordTooLarge: no file is large enough.
        """
        if self.end + size <= self._room_end:
            return
        if size + BLANK_SIZE > self._file_size:
            raise RecordTooLarge("record", size, self._file_size - BLANK_SIZE)
        if not self.files or self.end == self.files[-1].end:
            self._begin_file(self.end - self.end % self._file_size)
            if self.end + size <= self._room_end:
                return
        full = self.files[-1]
        self._begin_file(full.end)
        self._disk.step("before-blank")
        at = self.end - full.start
        self._put_bytes(full, at, encode_blank(full.size - at))
        self._disk.step("rolled")
        self.end = full.end
        if not self._staged:
            self.written = self.end

    def put(
        self, draft: RecordDraft, size: int, queue_offset: int, timestamp: int, *, seal: bool
    ) -> int:
        """Write a record of that size; returns its physical offset. Raises as `reserve`."""
        if self.end + size > self._room_end:
            self.reserve(size)
        position, file = self.end, self._tail
        at = position - file.start
        if self._staged:
            data = bytearray(size)
            write_record(data, 0, draft, queue_offset, position, timestamp)
            if seal:
                seal_record(data, 0)
            self._pending.append(Pending(file, at, data))
            self.end = position + size
        else:
            write_record(file.view, at, draft, queue_offset, position, timestamp)
            if seal:
                seal_record(file.view, at)
            self.end = self.written = position + size
        self.last_record, self.last_timestamp = position, timestamp
        return position

    def reserve_rest(self, room: AppendRoom) -> None:
        """Describe the room behind the last record: the rest of the file, or a staging buffer."""
        end, left = self.end, self._room_end - self.end
        room.physical_offset = end
        if self._staged or left <= 0:
            room.target, room.at = self._scratch, 0
            room.size = max(min(left, len(self._scratch)), 0)
            room.readable_from = end  # the buffer holds no older record
        else:
            hot = end - _HOT_WINDOW
            room.target, room.at, room.size = self._tail.view, end - self._tail.start, left
            room.readable_from = hot if hot > self._hot_from else self._hot_from

    def publish(self, room: AppendRoom, size: int, last_record: int) -> None:
        """Count `size` bytes of whole records, written into the room, as part of the log.

        Args:
            last_record: physical offset of the last of them.
        """
        end = room.physical_offset
        self.end = end + size
        if self._staged:
            data = bytes(self._scratch[:size])
            self._pending.append(Pending(self._tail, end - self._tail.start, data))
        else:
            self.written = self.end
        self.last_record, self.last_timestamp = last_record, room.timestamp

    def take_pending(self) -> tuple[list[Pending], int]:
        """Hand what waits in memory to the flusher, and the position reached with it."""
        pending, self._pending = self._pending, []
        return pending, self.end

    def rewind(self) -> None:
        """Forget what was given away but never reached the disk (SYNC_FLUSH)."""
        self._pending.clear()
        self.end = self.written
        self.last_record = -1
        self._drop_behind(self.end)

    def erase_behind(self, position: int) -> None:
        """Zero what a failed group may have left in the files. Blocks."""
        self._zero_behind(position)
        file = self.find_file(position)
        if file:
            self._disk.sync(file.descriptor)

    # ---- reading

    def is_hot(self, physical_offset: int) -> bool:
        """Whether bytes were written so lately that they are in memory."""
        return physical_offset >= max(self._hot_from, self.written - _HOT_WINDOW)

    def read(self, physical_offset: int, size: int, *, may_block: bool = True) -> memoryview | None:
        """Bytes of the log that lie in one file, or None if they are not (any more) in it.

        Near the end they are a view of the mapping, else a copy.

        Raises:
            NotInMemory: they would have to be read from the disk, and the call may not block.
        """
        return self.read_block(physical_offset, size, size, may_block=may_block)

    def read_block(
        self, physical_offset: int, least: int, most: int, *, may_block: bool
    ) -> memoryview | None:
        """Like `read`, for as many bytes as there are between two numbers."""
        file = self.find_file(physical_offset)
        if file is None or least < 0:
            return None
        end = min(self.written, file.end, physical_offset + most)
        if end < physical_offset + least:
            return None
        at, size = physical_offset - file.start, end - physical_offset
        try:
            if self.is_hot(physical_offset):
                return file.view[at : at + size].toreadonly()
            with file.in_use():
                data = read_at(file.descriptor, size, at, may_block=may_block, path=file.path)
        except ValueError:
            return None  # it was closed in between
        return memoryview(data).toreadonly()

    # ---- upkeep, on threads of the store

    def prepare(self) -> None:
        """Make the next file, populate pages ahead of the end and release those behind. Blocks.

        Raises:
            OSError: there is no room for the next file.
        """
        if not self.files:
            return
        file = self.files[-1]
        half = file.start + file.size // 2
        wants_spare, is_late = self._spare is None, self.end >= half
        # Told again only after some way, even if something fails below.
        again = self.end + _POPULATED_AHEAD // 2
        self.prepare_at = min(again, half) if wants_spare and not is_late else again
        if not self._staged:
            self._populate(file)
        if wants_spare and is_late:
            self.make_spare()

    def make_spare(self) -> None:
        """Make the next file now. Blocks.

        Raises:
            OSError: there is no room for it.
        """
        with self._spare_lock:
            if self._spare is None:
                start = self.files[-1].end if self.files else self.end - self.end % self._file_size
                self._spare = self._allocate(start)

    def _populate(self, file: LogFile) -> None:
        start, ahead = max(self._populated, self.end), min(self.end + _POPULATED_AHEAD, file.end)
        if start < ahead:
            file.populate(start - file.start, ahead - file.start)
            self._populated = ahead
        file.release(0, max(self.end - file.start - _HOT_WINDOW, 0))

    def retire(self, file: LogFile) -> None:
        """Take the first file out: nobody finds it any more; who reads from it goes on."""
        with self._files_lock:
            if self.files[0] is not file or len(self.files) == 1:
                raise ValueError(f"{file.path} is not the first of several")
            self.files = self.files[1:]
        self.retired += (file,)

    def remove_retired(self, *, forcibly: bool = False) -> list[Path]:
        """Remove the retired files that nobody reads from; forcibly, those in use too.

        The space of a file that is still read comes back when its last reader is done.
        """
        # In order: a log with a file missing in the middle cannot be opened.
        gone = list(
            takewhile(lambda file: file.close() or (forcibly and file.abandon()), self.retired)
        )
        self.retired = self.retired[len(gone) :]
        for file in gone:
            self._disk.remove(file.path)
        return [file.path for file in gone]

    def close(self) -> None:
        if self._spare:
            _discard(self._spare, self._disk)
            self._spare = None
        self.remove_retired(forcibly=True)
        for file in (*self.files, *self.retired):
            if not file.close():
                file.abandon()

    # ---- inside

    def _begin_file(self, start: int) -> None:
        with self._spare_lock:
            spare, self._spare = self._spare, None
            self._add(spare if spare and spare.start == start else self._allocate(start))
        self._populated = self.prepare_at = start

    def _allocate(self, start: int) -> LogFile:
        # Several directories take turns, as in Java's MultiPathMappedFileQueue.
        turn = start // self._file_size % len(self._new_directories)
        path = self._new_directories[turn] / f"{start:020d}"
        return LogFile(path, self._disk.allocate(path, self._file_size), self._file_size)

    def _add(self, file: LogFile) -> None:
        with self._files_lock:
            self.files += (file,)
        self._point_at_tail()

    def _point_at_tail(self) -> None:
        if self.files:
            self._tail = self.files[-1]
            self._room_end = self._tail.end - BLANK_SIZE
        else:
            self._room_end = 0

    def _drop_behind(self, position: int) -> None:
        """Remove the files that begin behind a position."""
        with self._files_lock:
            dropped = [file for file in self.files if file.start > position]
            self.files = self.files[: len(self.files) - len(dropped)]
        self._point_at_tail()
        with self._spare_lock:  # while it is held nobody makes a file of the same name
            spare, self._spare = self._spare, None
            for file in (*dropped, *([spare] if spare else ())):
                try:
                    _discard(file, self._disk)
                except OSError as exc:  # a file made there later takes its name
                    log.warning("%s cannot be removed: %s", file.path, exc)

    def _put_bytes(self, file: LogFile, at: int, data: bytes) -> None:
        if self._staged:
            self._pending.append(Pending(file, at, data))
        else:
            file.view[at : at + len(data)] = data

    def _zero_behind(self, position: int) -> None:
        file = self.find_file(position)
        if file:
            self._disk.zero(file.descriptor, position - file.start, file.size)


def _discard(file: LogFile, disk: Disk) -> None:
    file.close()
    disk.remove(file.path)


def open_log_file(path: Path, size: int) -> LogFile:
    """Raises DamagedFile if the file has another length; says what can be done."""
    found = path.stat().st_size
    if found != size:
        raise DamagedFile(
            path,
            f"is {found} bytes long, mappedFileSizeCommitLog is {size}: change the setting, or if"
            " the file was cut run `bolide store verify --repair`",
        )
    return LogFile(path, os.open(path, os.O_RDWR | os.O_CLOEXEC), size)
