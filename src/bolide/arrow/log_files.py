"""The files of a commit log, as they lie in a store directory or in a copy of it."""

import contextlib
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from bolide.arrow.log_errors import NoCommitLog
from bolide.protocol.record import RECORD_HEAD, is_record_magic, store_time

_LOG_NAME = re.compile(r"[0-9]{20}")
_SCHEME = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]+:")  # two letters at least: a drive has one
_HEAD_SIZE = 128  # more than lies before the store time


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
