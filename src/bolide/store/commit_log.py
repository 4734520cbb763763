"""The commit log: all messages of a broker in sequence, in files of fixed length.

A file is named by the physical offset of its first byte in 20 digits and is allocated at its full
length; the bytes behind the last record are zero. If the next record does not fit, a blank record
closes the file. After a crash the log is kept up to the last valid record (see `recovery`).

Three positions are ordered `flushed` <= `written` <= `end`: bytes before `flushed` are on the disk,
bytes before `written` are in the files and readable, bytes before `end` are assigned to appends.
A fourth position, `confirmed`, limits what consumers may read in a broker group whose replicas
confirm messages (controller mode): `readable` is the lower of it and `written`.
In ASYNC_FLUSH mode records are written to the mapping directly, so `written` equals `end`. In
SYNC_FLUSH mode records are staged in memory until the flusher's thread writes and syncs a group of
them, so `written` equals `flushed`.

A replica appends the bytes that its master sent (`put_raw`), so its end may lie within a record.

Appends are serialized by the store's lock; any thread may read.
"""

import logging
import os
import threading
from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path
from typing import Final, NamedTuple

from bolide.kernel import write_record
from bolide.protocol.record import MIN_BLANK_SIZE, RecordDraft, encode_blank
from bolide.protocol.record_errors import RecordTooLarge
from bolide.protocol.record_seal import seal_record
from bolide.store.appending import AppendRoom
from bolide.store.descriptors import read_at
from bolide.store.disk import Disk
from bolide.store.errors import DamagedFile
from bolide.store.mapped_file import MappedFile

log = logging.getLogger(__name__)

_HOT_WINDOW = 64 * 1024 * 1024
"""Bytes before the end that are read from the mapping, as they are still in the page cache."""

_POPULATED_AHEAD = 16 * 1024 * 1024
"""Bytes behind the end whose pages are populated before they are written."""

UNLIMITED: Final = 2**63 - 1
"""Value of `CommitLog.confirmed` outside of controller mode."""

_STAGING_SIZE = 512 * 1024
"""Size of the staging buffer: bytes of records per reservation in SYNC_FLUSH mode."""


class LogFile(MappedFile):
    """A log file; `start` is the physical offset of its first byte."""

    def __init__(self, path: Path, descriptor: int, size: int) -> None:
        super().__init__(path, descriptor, size)
        self.start = int(path.name)
        self.end = self.start + size


class PendingWrite(NamedTuple):
    """Staged bytes for the flusher to write at position `at` of a file."""

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
        """Create the log; `load` opens its files.

        Args:
            staged: records stay in memory until `take_pending` (SYNC_FLUSH).
            new: directories for new files; by default all directories.
        """
        self._directories = directories
        self._new_directories = new or directories
        self._file_size = file_size
        self._disk = disk
        self._staged = staged
        self._reads_ahead = True
        self._staging = bytearray(_STAGING_SIZE if staged else 0)
        self.files: tuple[LogFile, ...] = ()
        self._files_lock = threading.Lock()  # guards replacing `files`
        self._spare: LogFile | None = None
        self._spare_lock = threading.Lock()  # guards `_spare` and creating files
        self.retired: tuple[LogFile, ...] = ()
        self._pending: list[PendingWrite] = []
        self._tail: LogFile
        self._room_end = 0  # limit for the end of a record in the tail file
        self._hot_from = 0
        self._populated = 0
        self.prepare_at = 0
        """Log position from which `prepare` has work to do again."""
        self.end = 0
        self.written = 0
        self.flushed = 0
        self.confirmed = UNLIMITED
        """Position up to which all replicas that count have the log."""
        self.last_record = -1
        """Physical offset of the newest record, -1 before the first."""
        self.last_timestamp = 0

    # ---- files

    @property
    def min_offset(self) -> int:
        files = self.files
        return files[0].start if files else 0

    @property
    def readable(self) -> int:
        """Position up to which consumers may read."""
        return min(self.written, self.confirmed)

    def load(self) -> None:
        """Open all files.

        Raises:
            DamagedFile: a file is missing, or its length differs from the configured one.
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
        while paths and paths[-1].stat().st_size == 0:  # created, but not allocated before a crash
            self._disk.remove(paths.pop())
        for path in paths:
            if self.files and int(path.name) != self.files[-1].end:
                reason = f"the file before it ends at {self.files[-1].end}: one is missing"
                raise DamagedFile(path, reason)
            self._add(open_log_file(path, self._file_size))

    def open_at(self, end: int) -> None:
        """Open the log for appends at `end`; files behind it are removed.

        Raises:
            OSError: a file cannot be removed: what it holds might follow new records one day.
        """
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
        """Ensure that the next `size` bytes fit into one file, rolling over to a new one if needed.

        Raises:
            OSError: the new file cannot be allocated; the log is unchanged.
            RecordTooLarge: `size` exceeds the file size.
        """
        if self.end + size <= self._room_end:
            return
        if size + MIN_BLANK_SIZE > self._file_size:
            raise RecordTooLarge("record", size, self._file_size - MIN_BLANK_SIZE)
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
        """Append a record of `size` bytes; returns its physical offset. Raises as `reserve`."""
        if self.end + size > self._room_end:
            self.reserve(size)
        position, file = self.end, self._tail
        at = position - file.start
        if self._staged:
            data = bytearray(size)
            write_record(data, 0, draft, queue_offset, position, timestamp)
            if seal:
                seal_record(data, 0)
            self._pending.append(PendingWrite(file, at, data))
            self.end = position + size
        else:
            write_record(file.view, at, draft, queue_offset, position, timestamp)
            if seal:
                seal_record(file.view, at)
            self.end = self.written = position + size
        self.last_record, self.last_timestamp = position, timestamp
        return position

    def reserve_rest(self, room: AppendRoom) -> None:
        """Fill `room` with the free space of the tail file or, if staged, the staging buffer."""
        end, left = self.end, self._room_end - self.end
        room.physical_offset = end
        if self._staged or left <= 0:
            room.target, room.at = self._staging, 0
            room.size = max(min(left, len(self._staging)), 0)
            room.readable_from = end  # the staging buffer holds no older record
        else:
            hot = end - _HOT_WINDOW
            room.target, room.at, room.size = self._tail.view, end - self._tail.start, left
            room.readable_from = hot if hot > self._hot_from else self._hot_from

    def publish(self, room: AppendRoom, size: int, last_record: int) -> None:
        """Append `size` bytes of whole records that were written into the room.

        Args:
            last_record: physical offset of the last record.
        """
        end = room.physical_offset
        self.end = end + size
        if self._staged:
            data = bytes(self._staging[:size])
            self._pending.append(PendingWrite(self._tail, end - self._tail.start, data))
        else:
            self.written = self.end
        self.last_record, self.last_timestamp = last_record, room.timestamp

    def put_raw(self, data: memoryview) -> None:
        """Append bytes as a master sent them; they may begin and end within a record.

        Raises:
            OSError: a new file cannot be allocated; the bytes before it are appended.
        """
        while data:
            if not self.files or self.end == self.files[-1].end:
                self._begin_file(self.end - self.end % self._file_size)
            file, at = self._tail, self.end - self._tail.start
            part = data[: file.size - at]
            self._put_bytes(file, at, part)
            self.end += len(part)
            if not self._staged:
                self.written = self.end
            data = data[len(part) :]

    def cut(self, position: int) -> None:
        """Drop what lies behind a position, staged bytes too. Blocks.

        No flush may be under way: it would set the positions back to the old end.

        Raises:
            OSError: the disk fails. The log still ends behind the position, so that a caller that
                compares them cuts again: bytes that are not erased would come back when the store
                is opened.
        """
        position = min(self.end, position)
        self._drop_behind(position)
        self.erase_behind(position)
        self._pending.clear()
        self._shorten(position)

    def clear(self, position: int) -> None:
        """Remove all files; the log goes on at a position, a multiple of the file size. Blocks.

        Raises:
            OSError: a file cannot be removed; the log stays as it is.
        """
        with self._spare_lock:
            self._drop_spare()
            for file in reversed(self.files):  # newest first: a log with a gap cannot be opened
                self._disk.remove(file.path)
        self._drop_behind(-1)
        self.open_at(position)

    def take_pending(self) -> tuple[list[PendingWrite], int]:
        """Return and clear the staged writes, with the log position they extend to."""
        pending, self._pending = self._pending, []
        return pending, self.end

    def rewind(self) -> None:
        """Roll back all appends that are not written (SYNC_FLUSH)."""
        self._pending.clear()
        self.end = self.written
        self.last_record = -1
        try:
            self._drop_behind(self.end)
        except OSError as exc:  # a later allocation replaces the file
            log.warning("a file behind the end of the log cannot be removed: %s", exc)
            while self.files and self.files[-1].start > self.end:
                self._forget_last()

    def erase_behind(self, position: int) -> None:
        """Zero the bytes that a failed group commit may have left behind a position. Blocks."""
        self._zero_behind(position)
        file = self.find_file(position)
        if file:
            self._disk.sync(file.descriptor)

    # ---- reading

    def is_hot(self, physical_offset: int) -> bool:
        """Whether bytes were written so recently that they are in memory."""
        return physical_offset >= max(self._hot_from, self.written - _HOT_WINDOW)

    def read(self, physical_offset: int, size: int, *, may_block: bool = True) -> memoryview | None:
        """Read bytes of one file; None if the log does not, or no longer, contain them.

        Recent bytes are returned as a view of the mapping, older ones as a copy.

        Raises:
            NotInMemory: a disk read is needed and `may_block` is false.
        """
        return self.read_block(physical_offset, size, size, may_block=may_block)

    def read_block(
        self, physical_offset: int, least: int, most: int, *, may_block: bool
    ) -> memoryview | None:
        """As `read`, for as many bytes as available: at least `least`, at most `most`."""
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
            return None  # the file was closed concurrently
        return memoryview(data).toreadonly()

    # ---- maintenance, on threads of the store

    def prepare(self) -> None:
        """Allocate the next file, populate pages ahead of the end and release cold ones. Blocks.

        Raises:
            OSError: the next file cannot be allocated.
        """
        if not self.files:
            return
        file = self.files[-1]
        half = file.start + file.size // 2
        wants_spare, is_late = self._spare is None, self.end >= half
        # Set first: if an allocation fails, retry only after more has been written.
        again = self.end + _POPULATED_AHEAD // 2
        self.prepare_at = min(again, half) if wants_spare and not is_late else again
        if not self._staged:
            self._populate(file)
        if wants_spare and is_late:
            self.make_spare()

    def make_spare(self) -> None:
        """Allocate the next file now. Blocks.

        Raises:
            OSError: the file cannot be allocated.
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
        """Remove the first file from the log; readers that already use it may finish."""
        with self._files_lock:
            if self.files[0] is not file or len(self.files) == 1:
                raise ValueError(f"{file.path} is not the first of several")
            self.files = self.files[1:]
        self.retired += (file,)

    def remove_retired(self, *, forcibly: bool = False) -> list[Path]:
        """Delete retired files without readers, or with `forcibly` all of them.

        The disk space of a file in use is freed when its last reader closes it.
        """
        # In order: a log with a gap cannot be opened.
        gone = list(
            takewhile(lambda file: file.close() or (forcibly and file.abandon()), self.retired)
        )
        self.retired = self.retired[len(gone) :]
        for file in gone:
            self._disk.remove(file.path)
        return [file.path for file in gone]

    def close(self) -> None:
        self._drop_spare()
        self.remove_retired(forcibly=True)
        for file in (*self.files, *self.retired):
            if not file.close():
                file.abandon()

    # ---- files

    def _begin_file(self, start: int) -> None:
        with self._spare_lock:
            spare, self._spare = self._spare, None
            self._add(spare if spare and spare.start == start else self._allocate(start))
        self._populated = self.prepare_at = start

    def _allocate(self, start: int) -> LogFile:
        # Round-robin over the directories, as in RocketMQ's MultiPathMappedFileQueue.
        turn = start // self._file_size % len(self._new_directories)
        path = self._new_directories[turn] / f"{start:020d}"
        return LogFile(path, self._disk.allocate(path, self._file_size), self._file_size)

    def read_ahead(self, *, enabled: bool) -> None:
        """Set whether the system reads ahead in these files and in those to come."""
        if enabled is not self._reads_ahead:
            self._reads_ahead = enabled
            for file in self.files:
                file.read_ahead(enabled=enabled)

    def _add(self, file: LogFile) -> None:
        if not self._reads_ahead:
            file.read_ahead(enabled=False)
        with self._files_lock:
            self.files += (file,)
        self._point_at_tail()

    def _point_at_tail(self) -> None:
        if self.files:
            self._tail = self.files[-1]
            self._room_end = self._tail.end - MIN_BLANK_SIZE
        else:
            self._room_end = 0

    def _drop_behind(self, position: int) -> None:
        """Delete the files that begin behind a position, the newest first.

        A log with a gap cannot be opened, so no crash and no failure may leave one.

        Raises:
            OSError: a file cannot be removed; the log ends there.
        """
        directories = set()
        with self._spare_lock:  # keeps others from creating a file of the same name
            self._drop_spare()
            while self.files and self.files[-1].start > position:
                path = self.files[-1].path
                self._disk.remove(path)
                self._forget_last()
                directories.add(path.parent)
        for directory in directories:  # after a power cut no file may follow new records
            self._disk.sync_directory(directory)

    def _drop_spare(self) -> None:
        """Delete the file that was made ahead."""
        if self._spare:
            self._disk.remove(self._spare.path)
            self._spare.close()
            self._spare = None

    def _forget_last(self) -> None:
        """Shorten the log to the beginning of its last file, and close that."""
        with self._files_lock:
            self.files, file = self.files[:-1], self.files[-1]
        self._point_at_tail()
        self._pending = [each for each in self._pending if each.file is not file]
        self._shorten(file.start)
        file.close()

    def _shorten(self, end: int) -> None:
        self.end = min(self.end, end)
        self.written, self.flushed = min(self.written, end), min(self.flushed, end)

    def _put_bytes(self, file: LogFile, at: int, data: bytes | memoryview) -> None:
        if self._staged:
            self._pending.append(PendingWrite(file, at, bytes(data)))
        else:
            file.view[at : at + len(data)] = data

    def _zero_behind(self, position: int) -> None:
        file = self.find_file(position)
        if file:
            self._disk.zero(file.descriptor, position - file.start, file.size)


def open_log_file(path: Path, size: int) -> LogFile:
    """Open a log file. Raises DamagedFile, with advice, if its length is not `size`."""
    found = path.stat().st_size
    if found != size:
        raise DamagedFile(
            path,
            f"is {found} bytes long, mappedFileSizeCommitLog is {size}: change the setting, or if"
            " the file was cut run `bolide store verify --repair`",
        )
    return LogFile(path, os.open(path, os.O_RDWR | os.O_CLOEXEC), size)
