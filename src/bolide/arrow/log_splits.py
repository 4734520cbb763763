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
from bolide.kernel.units import BLANK_SIZE, UNIT, UNIT_SIZE
from bolide.protocol.record import store_time
from bolide.store.layout import queue_directories
from bolide.store.log_walk import LogWalk, SoundRecords

log = logging.getLogger(__name__)

T = TypeVar("T")

ReportLoss = Callable[[LogLost], None]
"""Called for missing records; raises the error unless data loss is allowed."""

SPLIT_SIZE = 128 * 1024 * 1024
_CLOCK_SLACK = 600_000
"""Milliseconds by which store times may decrease along the log, after clock adjustments."""
_HEAD_SIZE = 128  # bytes that include the store time of a record
_TAIL_SIZES = (1 << 20, 1 << 24)
"""Distances before the end of the data where a search for the last records starts."""
_MAX_QUEUES = 64
_BEFORE_ALL, _AFTER_ALL = -1, 1 << 63  # sort keys of filler units and of missing ones


class Split(NamedTuple):
    """A section of one log file between record boundaries; can be sent to worker processes."""

    path: str
    base: int
    """Physical offset of the file's first byte."""
    start: int
    end: int


class TimeRange(NamedTuple):
    """Half-open range of store times, in ms."""

    since: int
    until: int


class _TimedSplit(NamedTuple):
    split: Split
    first_time: int | None


def plan(path: str, times: TimeRange, split_size: int, report_loss: ReportLoss) -> list[Split]:
    """The splits that may contain records of a time range, in log order.

    Args:
        path: a store directory, its commitlog directory or one file.
        times: excludes whole files and splits; single records are not filtered here.
        split_size: bytes; 0 makes each file one split, without a search for record boundaries.
        report_loss: called for each missing file.

    Raises:
        NoCommitLog: the path contains no log.
    """
    found = find_log(path)
    for before, after in pairwise(found.files):
        if before.end < after.base:
            report_loss(LogFileGone(before.path.parent, before.end, "the next file is missing"))
    queues = QueueIndex(found.root)
    parts: list[_TimedSplit] = []
    for file in _within(found.files, times, lambda file: file.first_time):
        try:
            with OpenLog(file.path, file.base) as opened:
                is_last = file is found.files[-1]
                parts += _split_file(file, opened, queues, split_size, is_last=is_last)
        except FileNotFoundError:
            report_loss(
                LogFileGone(file.path, file.base, "the file was deleted while it was planned")
            )
    return [part.split for part in _within(parts, times, lambda part: part.first_time)]


def _within(items: Sequence[T], times: TimeRange, first_time: Callable[[T], int | None]) -> list[T]:
    """Drop items outside the time range; an item ends where the next one begins."""
    firsts = [*map(first_time, items), None]
    return [
        item
        for item, (first, following) in zip(items, pairwise(firsts), strict=True)
        if (following is None or following + _CLOCK_SLACK >= times.since)
        and (first is None or first - _CLOCK_SLACK < times.until)
    ]


def _split_file(
    file: LogFile, opened: OpenLog, queues: "QueueIndex", split_size: int, *, is_last: bool
) -> Iterator[_TimedSplit]:
    end = _valid_end(opened, queues, search=split_size > 0) if is_last else file.end
    starts = [file.base, *_boundaries(opened, queues, end, split_size)]
    for start, stop in pairwise([*starts, end]):
        if start < stop:
            time = file.first_time if start == file.base else _time_at(opened, start)
            yield _TimedSplit(Split(str(file.path), file.base, start, stop), time)


def _boundaries(opened: OpenLog, queues: "QueueIndex", end: int, split_size: int) -> Iterator[int]:
    for target in range(opened.base + split_size, end, split_size) if split_size else ():
        limit = min(target + split_size, end)
        physical_offset = queues.find(opened, target, limit)
        if physical_offset is None:
            physical_offset = opened.search(target, limit)
        if physical_offset is not None:
            yield physical_offset


def _valid_end(opened: OpenLog, queues: "QueueIndex", *, search: bool) -> int:
    """The end of the last valid record in the last file, which may still grow."""
    begin, written_end = opened.base, data_end(opened)
    for size in _TAIL_SIZES if search else ():
        target = max(written_end - size, opened.base)
        physical_offset = queues.find(opened, target, written_end) or opened.search(
            target, written_end
        )
        if physical_offset is not None:
            begin = physical_offset
            break
    walk = LogWalk(Path(opened.path), opened.end - opened.base, start=opened.base)
    return max(
        (each.end for each in walk.run(begin) if isinstance(each, SoundRecords)), default=begin
    )


def _time_at(opened: OpenLog, physical_offset: int) -> int:
    return store_time(opened.read(physical_offset, _HEAD_SIZE).ljust(_HEAD_SIZE, b"\0"))


class QueueIndex:
    """Record boundaries known from consume queues; the largest queues of a store suffice."""

    def __init__(self, root: Path | None) -> None:
        self._queues = [*_largest_queues(root)] if root else []

    def find(self, log: OpenLog, at: int, end: int) -> int | None:
        """The first known record boundary in a range of physical offsets."""
        physical_offsets = sorted({queue.first_record_offset(at) for queue in self._queues})
        return next(
            (p for p in physical_offsets if at <= p < end and log.valid_record_size(p)), None
        )


def _largest_queues(root: Path) -> Iterator["_QueueFiles"]:
    """The queues with the most files: they are likely to have records everywhere in the log."""
    found = []
    for _, _, directory in queue_directories(root):
        files = sorted(path for path in directory.iterdir() if path.name.isdigit())
        if files:
            found.append((len(files), _QueueFiles(files)))
    found.sort(key=lambda each: -each[0])
    return (queue for _, queue in found[:_MAX_QUEUES])


class _QueueFiles:
    def __init__(self, files: list[Path]) -> None:
        self._files = files

    def first_record_offset(self, at: int) -> int:
        """The first physical offset in the queue that is at least `at`, else `_AFTER_ALL`."""
        number = bisect_left(self._files, at, key=lambda path: _unit_offset(path, 0))
        if number:  # the previous file begins earlier but may contain the offset
            physical_offset = _first_offset_in(self._files[number - 1], at)
            if physical_offset < _AFTER_ALL:
                return physical_offset
        return _unit_offset(self._files[number], 0) if number < len(self._files) else _AFTER_ALL


def _first_offset_in(path: Path, at: int) -> int:
    try:
        units = range(path.stat().st_size // UNIT_SIZE)
        number = bisect_left(units, at, key=lambda unit: _unit_offset(path, unit))
    except FileNotFoundError:  # deleted by retention
        return _AFTER_ALL
    return _unit_offset(path, number) if number < len(units) else _AFTER_ALL


def _unit_offset(path: Path, unit: int) -> int:
    try:
        with path.open("rb", buffering=0) as file:
            file.seek(unit * UNIT_SIZE)
            physical_offset, size, _ = UNIT.unpack(file.read(UNIT_SIZE))
    except (FileNotFoundError, struct.error):
        return _AFTER_ALL
    if size == BLANK_SIZE:
        return _BEFORE_ALL
    return int(physical_offset) if size > 0 else _AFTER_ALL
