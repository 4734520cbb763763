"""The log of a Raft node on the disk: journal, term and vote, snapshot.

`SyncedJournal` replaces the journal of PySyncObj, which is neither synced nor checked. An entry is
on the disk when `add` returns, and the vote when `setCurrentTerm` returns.

    journal   8 bytes magic, then records
    record    crc32 u32, size u32, index u64, term u64, command[size]; little-endian;
              the checksum covers all that follows it
    .term     JSON with term and vote, behind a line with their checksum
    .snapshot the same form: state and the last two entries that it contains

A crash can leave one torn record at the end, which was never acknowledged and is cut: each record
is synced before the next is written. After a power cut the file may have its new size already, with
zeros in the place of some or all blocks of the record. Anything else is damage: the node has lost
entries that it acknowledged. It must not vote under its old name, so it does not start.
"""

import base64
import fcntl
import json
import logging
import os
import struct
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import FileIO
from pathlib import Path
from typing import Any

from bolide import snapshot
from bolide.controller.errors import ControllerStoreDamaged, ControllerStoreInUse
from bolide.private_files import FILE_MODE, SECRET_MODE, create_file, make_directory

log = logging.getLogger(__name__)

_MAGIC = b"BLDRAFT1"
_HEAD = struct.Struct("<IIQQ")
_AFTER_CRC = struct.Struct("<IQQ")
_MAX_RECORD = _HEAD.size + 64 * 1024
"""Bytes; `proposals` keeps entries below."""

LogEntry = tuple[bytes, int, int]
"""Command, index and term, as PySyncObj has them."""


class SyncedJournal:
    """The journal of one node; a `pysyncobj.journal.Journal`. Belongs to the Raft thread.

    Args:
        failed: called with the error when the files cannot be written; nothing is written then.
    """

    def __init__(
        self, path: Path, failed: Callable[[BaseException], None] = lambda _: None
    ) -> None:
        self._path = path
        self._failed = failed
        self._term_path = path.with_name(path.name + ".term")
        self._entries: list[LogEntry] = []
        self._ends: list[int] = []
        """File position behind each entry."""
        self._failure: BaseException | None = None
        make_directory(path.parent)
        is_new = not path.exists()
        if is_new:
            self._refuse_leftovers()
            self._write_whole([])
        self._file = self._open()
        try:
            if not is_new:
                self._recover()
            self._term, self._vote = self._read_term()
        except BaseException:
            self._file.close()
            raise

    # Entries

    def __getitem__(self, item: Any) -> Any:
        return self._entries[item]

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def size(self) -> int:
        """Bytes on the disk."""
        return self._end

    def add(self, command: bytes, idx: int, term: int) -> None:
        """Append an entry; it is on the disk when this returns."""
        record = _record(bytes(command), idx, term)
        end = self._end
        with self._writing():
            os.pwrite(self._file.fileno(), record, end)
            os.fdatasync(self._file.fileno())
        self._entries.append((bytes(command), idx, term))
        self._ends.append(end + len(record))

    def clear(self) -> None:
        self._replace([])

    def deleteEntriesFrom(self, entryFrom: int) -> None:  # noqa: N802, N803  names of the library
        """Cut the tail: another leader wrote other entries."""
        if entryFrom >= len(self._entries):
            return
        end = self._ends[entryFrom - 1] if entryFrom else len(_MAGIC)
        with self._writing():
            self._file.truncate(end)
            os.fsync(self._file.fileno())
        del self._entries[entryFrom:]
        del self._ends[entryFrom:]

    def deleteEntriesTo(self, entryTo: int) -> None:  # noqa: N802, N803
        """Drop the entries that a snapshot contains."""
        with self._writing():
            sync_directory(self._path.parent)  # the snapshot's new name first
        if entryTo > 0:
            self._replace(self._entries[entryTo:])

    def cut_to(self, first: LogEntry, second: LogEntry) -> None:
        """Let the journal begin with these entries, the last of a snapshot, if it has them.

        The library throws a journal away that does not begin exactly there. It does not after a
        crash between the writing of a snapshot and the shortening of the journal.
        """
        if not self._entries:
            return
        at = first[1] - self._entries[0][1]
        if at > 0 and self._entries[at : at + 2] == [first, second]:
            self._replace(self._entries[at:])

    # Term, vote and the rest of the library's interface

    def setCurrentTerm(self, term: int, votedForNodeId: str | None) -> None:  # noqa: N802, N803
        """Store term and vote; they are on the disk when this returns."""
        data = json.dumps({"term": term, "vote": votedForNodeId}).encode()
        with self._writing():
            snapshot.replace(self._term_path, with_checksum(data))
        self._term, self._vote = term, votedForNodeId

    def getCurrentTerm(self) -> int:  # noqa: N802
        return self._term

    def getVotedForNodeId(self) -> str | None:  # noqa: N802
        return self._vote

    def setRaftCommitIndex(self, raftCommitIndex: int) -> None:  # noqa: N802, N803
        """Not stored: a leader tells it again."""

    def getRaftCommitIndex(self) -> int:  # noqa: N802
        return 1

    def onOneSecondTimer(self) -> None:  # noqa: N802
        pass

    def _destroy(self) -> None:
        self._file.close()

    close = _destroy

    # Files

    @property
    def _end(self) -> int:
        return self._ends[-1] if self._ends else len(_MAGIC)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """After a failed write nobody knows what is on the disk: no other may follow."""
        if self._failure is not None:
            raise OSError(f"{self._path} failed before: {self._failure}")
        try:
            yield
        except OSError as exc:
            self._failure = exc
            self._failed(exc)
            raise

    def _open(self) -> FileIO:
        file = self._path.open("r+b", buffering=0)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as exc:
            file.close()
            raise ControllerStoreInUse(f"{self._path} is used by another process") from exc
        except BaseException:
            file.close()
            raise
        return file

    def _replace(self, entries: list[LogEntry]) -> None:
        """Write a new file and put it in place of the old one."""
        with self._writing():
            self._write_whole(entries)
            old, self._file = self._file, self._open()
        old.close()
        self._entries, self._ends = list(entries), []
        end = len(_MAGIC)
        for command, _, _ in entries:
            end += _HEAD.size + len(command)
            self._ends.append(end)

    def _write_whole(self, entries: list[LogEntry]) -> None:
        aside = self._path.with_name(self._path.name + ".tmp")
        aside.unlink(missing_ok=True)
        with create_file(aside, FILE_MODE) as file:
            file.write(_MAGIC + b"".join(_record(*each) for each in entries))
            file.flush()
            os.fsync(file.fileno())
        aside.replace(self._path)
        sync_directory(self._path.parent)

    def _recover(self) -> None:
        data = self._path.read_bytes()
        if data[: len(_MAGIC)] != _MAGIC:
            raise ControllerStoreDamaged(self._path, "not a journal of a controller")
        at = len(_MAGIC)
        while (found := _read_record(data, at)) is not None:
            entry, at = found
            if self._entries and entry[1] != self._entries[-1][1] + 1:
                raise ControllerStoreDamaged(self._path, f"entry {entry[1]} is out of order")
            self._entries.append(entry)
            self._ends.append(at)
        if at == len(data):
            return
        reason = _damage(data, at)
        if reason is not None:
            raise ControllerStoreDamaged(
                self._path, f"the record at byte {at} is damaged, {reason}"
            )
        log.warning(
            "%s: cut %d bytes behind entry %s, %s of a record that was not synced", self._path,
            len(data) - at, self._entries[-1][1] if self._entries else 0,
            "parts" if any(data[at:]) else "zeros in the place",
        )  # fmt: skip
        self._file.truncate(at)
        os.fsync(self._file.fileno())

    def _read_term(self) -> tuple[int, str | None]:
        if not self._term_path.exists():
            if any(term for _, _, term in self._entries):
                raise ControllerStoreDamaged(self._term_path, "the file is missing")
            return 0, None
        try:
            found = json.loads(checked(self._term_path.read_bytes()))
            return int(found["term"]), found["vote"]
        except (ValueError, KeyError, TypeError) as exc:
            raise ControllerStoreDamaged(self._term_path, f"it cannot be read: {exc}") from exc

    def _refuse_leftovers(self) -> None:
        for other in (self._term_path, snapshot_path(self._path)):
            if other.exists():
                raise ControllerStoreDamaged(self._path, f"it is missing, but {other.name} exists")


def snapshot_path(journal: Path) -> Path:
    """Where the snapshot of a node is."""
    return journal.with_name(journal.name + ".snapshot")


def write_snapshot(path: Path, state: bytes, last_two: list[LogEntry]) -> None:
    """Write a snapshot and sync it; the library renames it afterwards."""
    data = json.dumps(
        {
            "state": base64.b64encode(state).decode(),
            "entries": [[base64.b64encode(c).decode(), index, term] for c, index, term in last_two],
        }
    ).encode()
    path.unlink(missing_ok=True)
    with create_file(path, SECRET_MODE) as file:
        file.write(with_checksum(data))
        file.flush()
        os.fsync(file.fileno())


def read_snapshot(path: Path) -> tuple[bytes, list[LogEntry]]:
    """Read a snapshot: the state, and the last two entries that it contains.

    Raises:
        ControllerStoreDamaged: it cannot be read.
    """
    try:
        found = json.loads(checked(path.read_bytes()))
        entries = [(base64.b64decode(c), index, term) for c, index, term in found["entries"]]
        return base64.b64decode(found["state"]), entries
    except (ValueError, KeyError, TypeError) as exc:
        raise ControllerStoreDamaged(path, f"it cannot be read: {exc}") from exc


def sync_file(path: Path) -> None:
    """Sync a file that somebody else wrote, and its directory."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
    sync_directory(path.parent)


def sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def with_checksum(data: bytes) -> bytes:
    """Put a line with a checksum in front of some bytes."""
    return b"%08x\n%b" % (zlib.crc32(data), data)


def checked(data: bytes) -> bytes:
    """The bytes behind a line with their checksum.

    Raises:
        ValueError: they have another one.
    """
    line, _, rest = data.partition(b"\n")
    if len(line) != 8 or int(line, 16) != zlib.crc32(rest):
        raise ValueError("the checksum is wrong")
    return rest


def _record(command: bytes, index: int, term: int) -> bytes:
    body = _AFTER_CRC.pack(len(command), index, term) + command
    return zlib.crc32(body).to_bytes(4, "little") + body


def _read_record(data: bytes, at: int) -> tuple[LogEntry, int] | None:
    """The record at a position and the position behind it; None if no good one is there."""
    if at + _HEAD.size > len(data):
        return None
    crc, size, index, term = _HEAD.unpack_from(data, at)
    end = at + _HEAD.size + size
    if end > len(data) or zlib.crc32(memoryview(data)[at + 4 : end]) != crc:
        return None
    return (data[at + _HEAD.size : end], index, term), end


def _damage(data: bytes, at: int) -> str | None:
    """Why the bytes from a position on are more than one torn record; None if they need not be."""
    left = len(data) - at
    if left > _MAX_RECORD:
        return f"and {left} bytes are more than one record"
    # No command is empty: a size of 0 was never written.
    size = _HEAD.unpack_from(data, at)[1] if left >= _HEAD.size else 0
    if size and _HEAD.size + size < left:
        return "and others follow"
    if any(_read_record(data, later) for later in range(at + 1, len(data) - _HEAD.size + 1)):
        return "and good ones follow"
    return None
