"""What a member writes down as it happens, so that it is known even if the member is killed."""

import os
import struct
import time
from collections.abc import Iterator
from enum import IntEnum
from pathlib import Path
from typing import NamedTuple

_NOTE = struct.Struct("<BBHIqd")


class Kind(IntEnum):
    DELIVERED = 1
    GAINED = 2
    LOST = 3
    ENDED = 4


class Note(NamedTuple):
    kind: int
    group: int
    queue: int
    number: int
    offset: int
    at: float
    """By the clock that all processes of the machine share."""


class Checkpointer:
    """Appends to a file, one system call a note: what is written survives SIGKILL."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def write(
        self, kind: Kind, group: int, *, queue: int = 0, number: int = 0, offset: int = 0
    ) -> None:
        note = _NOTE.pack(kind, group, queue, number, offset, time.monotonic())
        os.write(self._file, note)


class NoteReader:
    """Reads what another process has written since the last time."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._at = 0

    def news(self) -> Iterator[Note]:
        if not self._path.exists():
            return
        with self._path.open("rb") as file:
            file.seek(self._at)
            data = file.read()
        whole = len(data) - len(data) % _NOTE.size
        self._at += whole
        yield from map(Note._make, _NOTE.iter_unpack(data[:whole]))
