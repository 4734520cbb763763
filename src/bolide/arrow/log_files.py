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
_SCHEME = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]+:")  # two letters at least: a drive has one
_HEAD_SIZE = 128  # more than lies before the store time
_STRIDE = 1024 * 1024
_MAGICS = (b"\xda\xa3\x20\xa7", b"\xda\xa3\x20\xab")
_MAGIC_AT = 4
_FOLLOWERS = 2


class LogFile(NamedTuple):
    path: Path
    base: int
    """Physical offset of its first byte."""
    end: int
    """Where the next file begins, or this one ends."""
    first_time: int | None
    """Store time of its first record; None if there is no record where it begins."""
    is_used: bool
    """False: nothing was ever written there."""

    @property
    def size(self) -> int:
        return self.end - self.base


class Log(NamedTuple):
    files: list[LogFile]
    """In their order; those without a record at the end, made ahead of their use, are left out."""
    root: Path | None
    """The store directory, if consume queues are there too."""


def find_log(path: str) -> Log:
    """Find a log in a store directory, in its commitlog directory, or in one file.

    Raises:
        NoCommitLog: there is none.
    """
    place = _local(path)
    if place.is_file():
        return Log(_used([_only_file(path, place)]), None)
    if not place.is_dir():
        raise NoCommitLog(path, "there is no such file or directory")
    directory = place / "commitlog" if (place / "commitlog").is_dir() else place
    paths = sorted(each for each in directory.iterdir() if _LOG_NAME.fullmatch(each.name))
    if not paths:
        raise NoCommitLog(path, "no file there has the name of a log file, 20 digits")
    files = [file for each in paths for file in _still_there(each)]
    root = directory.parent
    return Log(_used(_joined(files)), root if (root / "consumequeue").is_dir() else None)


def _local(path: str) -> Path:
    if path.startswith("file:"):
        return Path(unquote(urlsplit(path).path))
    if _SCHEME.match(path):
        raise NoCommitLog(path, "only files that the system itself can open are read")
    return Path(path)


def _only_file(path: str, place: Path) -> LogFile:
    """A copy may have any name: then its first record says where it belongs."""
    if _LOG_NAME.fullmatch(place.name):
        return _file(place, int(place.name))
    head = _head(place)
    if len(head) < RECORD_HEAD.size or not is_record_magic(RECORD_HEAD.unpack_from(head)[1]):
        raise NoCommitLog(path, "the file does not begin with a record")
    return _file(place, RECORD_HEAD.unpack_from(head)[2])


def _still_there(path: Path) -> Iterator[LogFile]:
    with contextlib.suppress(FileNotFoundError):  # retention was here
        yield _file(path, int(path.name))


def _file(path: Path, base: int) -> LogFile:
    head = _head(path)
    size, magic, place = RECORD_HEAD.unpack_from(head.ljust(_HEAD_SIZE, b"\0"))
    is_record = is_record_magic(magic) and place == base
    return LogFile(
        path,
        base,
        base + path.stat().st_size,
        store_time(head.ljust(_HEAD_SIZE, b"\0")) if is_record else None,
        bool(size or magic),
    )


def _joined(files: list[LogFile]) -> list[LogFile]:
    """Each file but the last ends where the next begins, unless one is missing between."""
    step = min((after.base - before.base for before, after in pairwise(files)), default=0)
    return [
        *(
            before._replace(end=min(before.base + step, after.base))
            for before, after in pairwise(files)
        ),
        *files[-1:],
    ]


def _used(files: list[LogFile]) -> list[LogFile]:
    last = max((number for number, file in enumerate(files) if file.is_used), default=-1)
    return files[: last + 1]


def _head(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(_HEAD_SIZE)


class OpenLog:
    """Offsets are physical ones; close it."""

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
        """Fewer bytes where the file ends."""
        return read_at(self.descriptor, max(min(size, self.end - at), 0), at - self.base)

    def is_record(self, at: int) -> int:
        """The size of the sound record that begins there, 0 if there is none."""
        head = self.read(at, RECORD_HEAD.size)
        if len(head) < RECORD_HEAD.size:
            return 0
        size, magic, place = RECORD_HEAD.unpack(head)
        if not is_record_magic(magic) or place != at or not self._fits(at, size):
            return 0
        found = scan(self.read(at, size), 0, 1, at, check=Check.BODY, keys=False)
        return int(found.end)

    def _fits(self, at: int, size: int) -> bool:
        return MIN_RECORD_SIZE <= size <= self.end - at

    def search(self, at: int, end: int, followers: int = _FOLLOWERS) -> int | None:
        """Where the first record between two offsets begins.

        It must look like one, say that it lies there, have the body it was written with, and so
        must its followers. Only a body made for a known place of the log could pass for one.
        """
        end = min(end, self.end)
        while at < end:
            block = self.read(at, _STRIDE)
            for candidate in _candidates(block):
                if at + candidate >= end:
                    return None
                if self._begins(at + candidate, followers):
                    return at + candidate
            at += max(len(block) - _MAGIC_AT - len(_MAGICS[0]) + 1, 1)
        return None

    def _begins(self, at: int, followers: int) -> bool:
        for _ in range(1 + followers):
            size = self.is_record(at)
            if not size:
                return False
            at += size
            if self._ends(at):
                return True
        return True

    def _ends(self, at: int) -> bool:
        """Whether no record follows, and need not."""
        block = self.read(at, 8)
        stop = scan(block, 0, len(block), at, check=Check.NONE, keys=False).stop
        return stop in (Stop.BLANK, Stop.EMPTY, Stop.END)


def _candidates(block: bytearray) -> Iterator[int]:
    """Where records may begin: before a magic."""
    places = [block.find(magic, _MAGIC_AT) for magic in _MAGICS]
    while found := [place for place in places if place >= 0]:
        nearest = min(found)
        yield nearest - _MAGIC_AT
        which = places.index(nearest)
        places[which] = block.find(_MAGICS[which], nearest + 1)


def data_end(log: OpenLog) -> int:
    """Behind the last byte of a file that is not zero."""
    for first, last in reversed(data_ranges(log.descriptor, 0, log.end - log.base)):
        for at in range(last - 1 - (last - 1 - first) % _STRIDE, first - 1, -_STRIDE):
            block = log.read(log.base + at, min(_STRIDE, last - at)).rstrip(b"\0")
            if block:
                return log.base + at + len(block)
    return log.base
