"""A log file to look into: what lies at a physical offset, and where records begin."""

import os
from collections.abc import Iterator
from pathlib import Path

from bolide.kernel import Check, Stop, scan
from bolide.protocol.record import RECORD_HEAD, is_record_magic
from bolide.store.descriptors import read_at
from bolide.store.disk import data_ranges
from bolide.store.log_walk import MIN_RECORD_SIZE

_STRIDE = 1024 * 1024
_MAGICS = (b"\xda\xa3\x20\xa7", b"\xda\xa3\x20\xab")
_MAGIC_AT = 4
_FOLLOWERS = 2


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
