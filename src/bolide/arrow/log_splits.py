"""Plan the splits of a commit log: cut it at offsets where a record is known to begin.

Consume queue units point to records, so a lookup in the consume queues is tried first. Without a
match the log itself is searched for a valid record.
"""

import logging
import struct
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple, TypeVar

from bolide.arrow.errors import LogFileGone, LogLost
from bolide.arrow.log_files import LogFile, OpenLog, data_end, find_log
from bolide.kernel.units import BLANK_SIZE, UNIT_SIZE
from bolide.protocol.record import store_time
from bolide.store.consume_queue import UNIT
from bolide.store.layout import queue_directories
from bolide.store.log_walk import LogWalk, SoundRecords

log = logging.getLogger(__name__)

T = TypeVar("T")

SPLIT_SIZE = 128 * 1024 * 1024
_CLOCK_SLACK = 600_000  # ms that store times may go back, as clocks are set
_HEAD_SIZE = 128  # more than lies before the store time
_LAST_PARTS = (1 << 20, 1 << 24)
Lose = Callable[[LogLost], None]
"""What to do about records that are gone; raises unless that is allowed."""
_MAX_QUEUES = 64
_FIRST, _LAST = -1, 1 << 63


class Split(NamedTuple):
    """A part of one log file, from a record up to another one; plain values for workers."""

    path: str
    base: int
    """Physical offset of the file's first byte."""
    start: int
    end: int


class Times(NamedTuple):
    """Store times wanted, in ms; `until` itself is not."""

    since: int
    until: int


class _Timed(NamedTuple):
    split: Split
    first_time: int | None


def plan(path: str, times: Times, split_size: int, lose: Lose) -> list[Split]:
    """The splits of a log that may hold records of these times, in the order of the log.

    Args:
        path: a store directory, its commitlog directory or one file.
        times: by them files and splits are left out, not records.
        split_size: bytes; 0 makes each file one split, which needs no search for records.
        lose: is told what is missing.

    Raises:
        NoCommitLog: there is none at that path.
    """
    found = find_log(path)
    for before, after in pairwise(found.files):
        if before.end < after.base:
            lose(LogFileGone(before.path.parent, before.end, "the next file is missing"))
    queues = Queues(found.root)
    parts: list[_Timed] = []
    for file in _of_times(found.files, times, lambda file: file.first_time):
        try:
            with OpenLog(file.path, file.base) as opened:
                is_last = file is found.files[-1]
                parts += _cut(file, opened, queues, split_size, is_last=is_last)
        except FileNotFoundError:
            lose(LogFileGone(file.path, file.base, "the file was deleted while it was planned"))
    return [part.split for part in _of_times(parts, times, lambda part: part.first_time)]


def _of_times(items: Sequence[T], times: Times, first_time: Callable[[T], int | None]) -> list[T]:
    """Leave out what lies before or behind, as its neighbours tell."""
    firsts = [*map(first_time, items), None]
    return [
        item
        for item, (first, following) in zip(items, pairwise(firsts), strict=True)
        if (following is None or following + _CLOCK_SLACK >= times.since)
        and (first is None or first - _CLOCK_SLACK < times.until)
    ]


def _cut(
    file: LogFile, opened: OpenLog, queues: "Queues", split_size: int, *, is_last: bool
) -> Iterator[_Timed]:
    end = _sound_end(opened, queues, search=split_size > 0) if is_last else file.end
    starts = [file.base, *_boundaries(opened, queues, end, split_size)]
    for start, stop in pairwise([*starts, end]):
        if start < stop:
            time = file.first_time if start == file.base else _time_at(opened, start)
            yield _Timed(Split(str(file.path), file.base, start, stop), time)


def _boundaries(opened: OpenLog, queues: "Queues", end: int, split_size: int) -> Iterator[int]:
    for target in range(opened.base + split_size, end, split_size) if split_size else ():
        limit = min(target + split_size, end)
        place = queues.find(opened, target, limit)
        if place is None:
            place = opened.search(target, limit)
        if place is not None:
            yield place


def _sound_end(opened: OpenLog, queues: "Queues", *, search: bool) -> int:
    """Behind the last sound record of the last file, which may be growing."""
    begin, behind = opened.base, data_end(opened)
    for size in _LAST_PARTS if search else ():
        target = max(behind - size, opened.base)
        place = queues.find(opened, target, behind) or opened.search(target, behind)
        if place is not None:
            begin = place
            break
    walk = LogWalk(Path(opened.path), opened.end - opened.base, start=opened.base)
    return max(
        (each.end for each in walk.run(begin) if isinstance(each, SoundRecords)), default=begin
    )


def _time_at(opened: OpenLog, place: int) -> int:
    return store_time(opened.read(place, _HEAD_SIZE).ljust(_HEAD_SIZE, b"\0"))


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
