"""Consume queues asked for places of the log: each unit says for certain where a record begins."""

import struct
from bisect import bisect_left
from collections.abc import Iterator
from pathlib import Path

from bolide.arrow.open_log import OpenLog
from bolide.kernel.units import BLANK_SIZE, UNIT_SIZE
from bolide.store.consume_queue import UNIT
from bolide.store.layout import queue_directories

_MAX_QUEUES = 64
_FIRST, _LAST = -1, 1 << 63


class Queues:
    """The queues of a store, as its directory has them; some are enough."""

    def __init__(self, root: Path | None) -> None:
        self._queues = [*_queues(root)] if root else []

    def find(self, log: OpenLog, at: int, end: int) -> int | None:
        """The first record between two offsets that a queue knows."""
        places = sorted({queue.first_place(at) for queue in self._queues})
        return next((p for p in places if at <= p < end and log.is_record(p)), None)


def _queues(root: Path) -> Iterator["_Queue"]:
    """The largest ones: they are likely to have a record anywhere."""
    found = []
    for _, _, directory in queue_directories(root):
        files = sorted(path for path in directory.iterdir() if path.name.isdigit())
        if files:
            found.append((len(files), _Queue(files)))
    found.sort(key=lambda each: -each[0])
    return (queue for _, queue in found[:_MAX_QUEUES])


class _Queue:
    def __init__(self, files: list[Path]) -> None:
        self._files = files

    def first_place(self, at: int) -> int:
        """The place of its first record at or behind an offset; one past all if there is none."""
        number = bisect_left(self._files, at, key=lambda path: _place(path, 0))
        if number:  # the file before begins earlier, but may hold it
            place = _first_place(self._files[number - 1], at)
            if place < _LAST:
                return place
        return _place(self._files[number], 0) if number < len(self._files) else _LAST


def _first_place(path: Path, at: int) -> int:
    try:
        units = range(path.stat().st_size // UNIT_SIZE)
        number = bisect_left(units, at, key=lambda unit: _place(path, unit))
    except FileNotFoundError:  # retention was here
        return _LAST
    return _place(path, number) if number < len(units) else _LAST


def _place(path: Path, unit: int) -> int:
    try:
        with path.open("rb", buffering=0) as file:
            file.seek(unit * UNIT_SIZE)
            place, size, _ = UNIT.unpack(file.read(UNIT_SIZE))
    except (FileNotFoundError, struct.error):
        return _LAST
    if size == BLANK_SIZE:
        return _FIRST
    return int(place) if size > 0 else _LAST
