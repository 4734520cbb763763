"""The files of a commit log in a store directory, and random access to their records."""

import contextlib
import os
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from bolide.arrow.errors import NoCommitLog
from bolide.kernel import Check, Stop, scan
from bolide.protocol.record import RECORD_HEAD, is_record_magic, store_time
from bolide.store.descriptors import read_at
from bolide.store.disk import data_ranges
from bolide.store.log_walk import MIN_RECORD_SIZE

_LOG_NAME = re.compile(r"[0-9]{20}")
_SCHEME = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]+:")  # at least two letters: drive names have one
_HEAD_SIZE = 128  # bytes that include the store time of a record
_SEARCH_SIZE = 1024 * 1024
_MAGICS = (b"\xda\xa3\x20\xa7", b"\xda\xa3\x20\xab")
_MAGIC_POSITION = 4  # byte offset of the magic within a record
_FOLLOWERS = 2
"""Valid records that must follow a candidate found by search."""


class LogFile(NamedTuple):
    path: Path
    base: int
    """Physical offset of the first byte."""
    end: int
    """Physical offset where the next file begins, or where the last file ends."""
    first_time: int | None
    """Store time of the first record; None if the file does not begin with a record."""
    is_used: bool
    """False for a preallocated file without data."""

    @property
    def size(self) -> int:
        return self.end - self.base


class CommitLogFiles(NamedTuple):
    files: list[LogFile]
    """In log order, without preallocated empty files at the end."""
    root: Path | None
    """The store directory, if it contains consume queues."""


def find_log(path: str) -> CommitLogFiles:
    """Find the log of a store directory, a commitlog directory, or a single file.

    Raises:
        NoCommitLog: the path contains no log.
    """
    location = _local_path(path)
    if location.is_file():
        return CommitLogFiles(_drop_unused_tail([_single_file(path, location)]), None)
    if not location.is_dir():
        raise NoCommitLog(path, "there is no such file or directory")
    directory = location / "commitlog" if (location / "commitlog").is_dir() else location
    paths = sorted(each for each in directory.iterdir() if _LOG_NAME.fullmatch(each.name))
    if not paths:
        raise NoCommitLog(path, "no file there has the name of a log file, 20 digits")
    files = [file for each in paths for file in _if_present(each)]
    root = directory.parent
    return CommitLogFiles(
        _drop_unused_tail(_with_ends(files)), root if (root / "consumequeue").is_dir() else None
    )


def _local_path(path: str) -> Path:
    if path.startswith("file:"):
        return Path(unquote(urlsplit(path).path))
    if _SCHEME.match(path):
        raise NoCommitLog(path, "only files that the system itself can open are read")
    return Path(path)


def _single_file(path: str, location: Path) -> LogFile:
    """A copy may have any name: its base offset is then taken from its first record."""
    if _LOG_NAME.fullmatch(location.name):
        return _file(location, int(location.name))
    head = _head(location)
    if len(head) < RECORD_HEAD.size or not is_record_magic(RECORD_HEAD.unpack_from(head)[1]):
        raise NoCommitLog(path, "the file does not begin with a record")
    return _file(location, RECORD_HEAD.unpack_from(head)[2])


def _if_present(path: Path) -> Iterator[LogFile]:
    with contextlib.suppress(FileNotFoundError):  # deleted by retention
        yield _file(path, int(path.name))


def _file(path: Path, base: int) -> LogFile:
    head = _head(path)
    size, magic, physical_offset = RECORD_HEAD.unpack_from(head.ljust(_HEAD_SIZE, b"\0"))
    is_record = is_record_magic(magic) and physical_offset == base
    return LogFile(
        path,
        base,
        base + path.stat().st_size,
        store_time(head.ljust(_HEAD_SIZE, b"\0")) if is_record else None,
        bool(size or magic),
    )


def _with_ends(files: list[LogFile]) -> list[LogFile]:
    """Set the end of each file but the last to the next file's base, unless files are missing."""
    step = min((after.base - before.base for before, after in pairwise(files)), default=0)
    return [
        *(
            before._replace(end=min(before.base + step, after.base))
            for before, after in pairwise(files)
        ),
        *files[-1:],
    ]


def _drop_unused_tail(files: list[LogFile]) -> list[LogFile]:
    last = max((number for number, file in enumerate(files) if file.is_used), default=-1)
    return files[: last + 1]


def _head(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(_HEAD_SIZE)


class OpenLog:
    """An open log file, addressed by physical offsets; must be closed."""

    def __init__(self, path: Path | str, base: int) -> None:
        """Raises FileNotFoundError."""
        self.path = path
        self.base = base
        self.descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self.end = base + os.fstat(self.descriptor).st_size

    def close(self) -> None:
        os.close(self.descriptor)

    def __enter__(self) -> "OpenLog":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def read(self, at: int, size: int) -> bytearray:
        """Read up to `size` bytes; fewer at the end of the file."""
        return read_at(self.descriptor, max(min(size, self.end - at), 0), at - self.base)

    def valid_record_size(self, at: int) -> int:
        """The size of the valid record at an offset; 0 if no valid record begins there."""
        head = self.read(at, RECORD_HEAD.size)
        if len(head) < RECORD_HEAD.size:
            return 0
        size, magic, physical_offset = RECORD_HEAD.unpack(head)
        if not is_record_magic(magic) or physical_offset != at or not self._fits(at, size):
            return 0
        found = scan(self.read(at, size), 0, 1, at, check=Check.BODY, keys=False)
        return int(found.end)

    def _fits(self, at: int, size: int) -> bool:
        return MIN_RECORD_SIZE <= size <= self.end - at

    def search(self, at: int, end: int, followers: int = _FOLLOWERS) -> int | None:
        """The offset of the first record in a range of physical offsets.

        A candidate must have a record magic, its own physical offset and a correct body checksum,
        and so must the records that follow. Only a message body crafted for a known offset of the
        log could be mistaken for a record.
        """
        end = min(end, self.end)
        while at < end:
            block = self.read(at, _SEARCH_SIZE)
            for candidate in _candidates(block):
                if at + candidate >= end:
                    return None
                if self._starts_records(at + candidate, followers):
                    return at + candidate
            at += max(len(block) - _MAGIC_POSITION - len(_MAGICS[0]) + 1, 1)
        return None

    def _starts_records(self, at: int, followers: int) -> bool:
        for _ in range(1 + followers):
            size = self.valid_record_size(at)
            if not size:
                return False
            at += size
            if self._may_end(at):
                return True
        return True

    def _may_end(self, at: int) -> bool:
        """Whether the records may end here: blank filler, unwritten space or end of file."""
        block = self.read(at, 8)
        stop = scan(block, 0, len(block), at, check=Check.NONE, keys=False).stop
        return stop in (Stop.BLANK, Stop.EMPTY, Stop.END)


def _candidates(block: bytearray) -> Iterator[int]:
    """Positions in a block where a record may begin, found by its magic."""
    positions = [block.find(magic, _MAGIC_POSITION) for magic in _MAGICS]
    while found := [position for position in positions if position >= 0]:
        nearest = min(found)
        yield nearest - _MAGIC_POSITION
        which = positions.index(nearest)
        positions[which] = block.find(_MAGICS[which], nearest + 1)


def data_end(log: OpenLog) -> int:
    """The physical offset after the last non-zero byte of a file."""
    for first, last in reversed(data_ranges(log.descriptor, 0, log.end - log.base)):
        for at in range(last - 1 - (last - 1 - first) % _SEARCH_SIZE, first - 1, -_SEARCH_SIZE):
            block = log.read(log.base + at, min(_SEARCH_SIZE, last - at)).rstrip(b"\0")
            if block:
                return log.base + at + len(block)
    return log.base
