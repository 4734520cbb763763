"""Opens the compaction log of a queue, and finishes or undoes what a crash interrupted.

- `compacting/` was not committed and is removed; `replacing-*/` was, and is applied.
- Files named `*.delete` are from a RocketMQ broker that was killed while it replaced files. It
  renames all old files, then moves the new ones from `compacting/`, then deletes the old ones, and
  then does the same with the queue files. If new log files are still in `compacting/`, the old ones
  are restored; otherwise they are removed.
- A queue file that is missing or does not fit its log file is written anew from the records.
- The last segment ends behind its last sound record; after a crash each of its records is checked.

What is cut off here is copied again from the commit log.
"""

import logging
import os
import shutil
from pathlib import Path

from bolide.kernel import read_record
from bolide.model.properties import PropertyName
from bolide.protocol.record import Record
from bolide.protocol.record_errors import BadRecord
from bolide.protocol.tags import tags_code
from bolide.store.compaction.queue_log import COMPACTING, QueueLog, Replacement, cut_segment
from bolide.store.compaction.segments import (
    UNIT_SIZE,
    FileSizes,
    Segment,
    SegmentWriter,
    SparseUnit,
    numbered,
    opened,
)
from bolide.store.descriptors import read_at
from bolide.store.disk import Disk
from bolide.store.errors import DamagedFile

log = logging.getLogger(__name__)

_DELETED = ".delete"
_READ = 1024 * 1024


def open_queue(
    root: Path, topic: str, queue_id: int, sizes: FileSizes, disk: Disk, *, clean: bool
) -> QueueLog:
    """Open the log of a queue below `compaction/`, which may not exist yet. Blocks.

    Args:
        clean: the store was closed cleanly, so the records of the last segment need no check.

    Raises:
        DamagedFile: the files contradict each other.
        OSError: a file operation failed.
    """
    directory, queue_directory = (
        root / name / topic / str(queue_id) for name in ("compactionLog", "compactionCq")
    )
    sizes = _sizes_of(directory, queue_directory, sizes)
    is_sound = _finish(directory, queue_directory, sizes, disk)
    _remove_strays(directory, queue_directory, disk)
    segments = []
    for path in numbered(directory):
        segment = Segment(path, queue_directory / path.name)
        _load(segment, sizes, disk, is_sound=is_sound)
        segments.append(segment)
    if segments:
        _load_last(segments[-1], sizes, disk, clean=clean)
    _check_order(segments)
    writer = SegmentWriter(directory, queue_directory, sizes, disk, segments)
    return QueueLog(topic, queue_id, writer, disk)


def _sizes_of(directory: Path, queue_directory: Path, configured: FileSizes) -> FileSizes:
    """Return the sizes that existing files have, or the configured ones.

    Raises:
        DamagedFile: the files have different sizes.
    """
    logs = {path.stat().st_size: path for path in numbered(directory)}
    logs.pop(0, None)
    if len(logs) > 1:
        raise DamagedFile(directory, f"the files have different lengths: {sorted(logs)}")
    queues = {path.stat().st_size for path in numbered(queue_directory)} - {0}
    log_size = next(iter(logs), configured.log)
    fitting = [size for size in queues if not size % UNIT_SIZE and not log_size % size]
    queue_size = fitting[0] if len(fitting) == 1 else configured.queue
    if logs and log_size % queue_size:
        raise DamagedFile(
            directory, f"files of {log_size} bytes do not fit queue files of {queue_size} bytes"
        )
    if (log_size, queue_size) != configured:
        log.info("%s: keeping the file sizes %s and %s", directory, log_size, queue_size)
    return FileSizes(log_size, queue_size)


def _finish(directory: Path, queue_directory: Path, sizes: FileSizes, disk: Disk) -> bool:
    """Finish or undo a replacement; returns whether the queue files fit the log files."""
    is_sound = True
    if replacement := Replacement.find(directory):
        log.warning("%s: finishing the replacement of segments", directory)
        replacement.apply(directory, queue_directory, sizes, disk)
        is_sound = False
    old = [path for path in _listed(directory) if path.name.endswith(_DELETED)]
    if old:
        _finish_of_rocketmq(directory, old, disk)
    old_queues = [path for path in _listed(queue_directory) if path.name.endswith(_DELETED)]
    for path in old_queues:
        disk.remove(path)
    for each in (directory / COMPACTING, queue_directory / COMPACTING):
        if each.exists():
            is_sound = is_sound and not numbered(each)
            shutil.rmtree(each)
    return is_sound and not old and not old_queues


def _finish_of_rocketmq(directory: Path, old: list[Path], disk: Disk) -> None:
    if not numbered(directory / COMPACTING):
        for path in old:
            disk.remove(path)
        return
    log.warning("%s: restoring the files that RocketMQ was replacing", directory)
    names = {path.name.removesuffix(_DELETED) for path in old}
    for path in numbered(directory):
        if path.name <= max(names):
            disk.remove(path)
    for path in old:
        path.rename(directory / path.name.removesuffix(_DELETED))
    disk.sync_directory(directory)


def _remove_strays(directory: Path, queue_directory: Path, disk: Disk) -> None:
    """Remove files without bytes, and queue files without a log file."""
    for path in numbered(directory):
        if not path.stat().st_size:
            disk.remove(path)
    names = {path.name for path in numbered(directory)}
    for path in numbered(queue_directory):
        if path.name not in names:
            disk.remove(path)


def _load(segment: Segment, sizes: FileSizes, disk: Disk, *, is_sound: bool) -> None:
    is_there = segment.queue.exists() and segment.queue.stat().st_size == sizes.queue
    if not (is_there and is_sound and _read_bounds(segment, sizes)):
        log.warning("%s: writing it anew from the records", segment.queue)
        _write_units(segment, sizes, disk)
    segment.is_full = True


def _read_bounds(segment: Segment, sizes: FileSizes) -> bool:
    """Find the units of a segment by bisection; False if they do not fit the records."""
    low, high = 0, sizes.queue // UNIT_SIZE
    with opened(segment.queue) as descriptor:
        while low < high:
            middle = (low + high) // 2
            if SparseUnit.unpack(read_at(descriptor, UNIT_SIZE, middle * UNIT_SIZE)):
                low = middle + 1
            else:
                high = middle
        first = SparseUnit.unpack(read_at(descriptor, UNIT_SIZE, 0)) if low else None
        last = (
            SparseUnit.unpack(read_at(descriptor, UNIT_SIZE, (low - 1) * UNIT_SIZE))
            if low
            else None
        )
    segment.count = low
    if first is None or last is None:
        return _first_record(segment, sizes) is None
    segment.first, segment.last = first.queue_offset, last.queue_offset
    segment.written = last.physical_offset + last.size - segment.start
    return (
        0 < segment.written <= sizes.log
        and first.physical_offset == segment.start
        and _fits(segment, first)
        and _fits(segment, last)
    )


def _load_last(segment: Segment, sizes: FileSizes, disk: Disk, *, clean: bool) -> None:
    """Cut the last segment behind its last sound record, and let it be appended to."""
    count = segment.count if clean else _count_sound(segment)
    if count < segment.count:
        log.warning("%s: cutting %s records off", segment.log, segment.count - count)
    cut_segment(segment, count, sizes, disk)


def _count_sound(segment: Segment) -> int:
    count, end, offset = 0, segment.start, -1
    for unit, data in segment.records():
        if unit.physical_offset != end or unit.queue_offset <= offset or not _is_record(unit, data):
            break
        count, end, offset = count + 1, end + unit.size, unit.queue_offset
    return count


def _write_units(segment: Segment, sizes: FileSizes, disk: Disk) -> None:
    """Write the queue file of a segment from its log file."""
    units = bytearray()
    segment.count, segment.written, segment.first, segment.last = 0, 0, -1, -1
    while (found := _record_at(segment, segment.written, sizes)) is not None:
        if found.queue_offset <= segment.last:
            break
        code = tags_code(found.decode_properties().get(PropertyName.TAGS))
        units += SparseUnit(
            segment.start + segment.written, found.size, code, found.store_timestamp,
            found.queue_offset,
        ).pack()  # fmt: skip
        segment.first = found.queue_offset if segment.first < 0 else segment.first
        segment.last = found.queue_offset
        segment.written += found.size
        segment.count += 1
    disk.remove(segment.queue)
    descriptor = disk.create_sparse(segment.queue, sizes.queue)
    try:
        disk.write(descriptor, units, 0)
        disk.sync(descriptor)
    finally:
        os.close(descriptor)
    disk.sync_directory(segment.queue.parent)


def _first_record(segment: Segment, sizes: FileSizes) -> Record | None:
    return _record_at(segment, 0, sizes)


def _record_at(segment: Segment, at: int, sizes: FileSizes) -> Record | None:
    """Return the sound record at a position of the log file, or None."""
    with opened(segment.log) as descriptor:
        size = int.from_bytes(read_at(descriptor, 4, at))
        if not 0 < size <= sizes.log - at:
            return None
        data = read_at(descriptor, size, at)
    try:
        record = read_record(data, check_crc=True)
    except BadRecord:
        return None
    is_here = isinstance(record, Record) and record.physical_offset == segment.start + at
    return record if is_here and isinstance(record, Record) else None


def _fits(segment: Segment, unit: SparseUnit) -> bool:
    return _is_record(unit, segment.read(unit.physical_offset, unit.size))


def _is_record(unit: SparseUnit, data: bytearray | memoryview) -> bool:
    try:
        record = read_record(data, check_crc=True)
    except BadRecord:
        return False
    return isinstance(record, Record) and (record.physical_offset, record.queue_offset) == (
        unit.physical_offset,
        unit.queue_offset,
    )


def _check_order(segments: list[Segment]) -> None:
    last = -1
    for segment in segments:
        if segment.count:
            if segment.first <= last:
                raise DamagedFile(
                    segment.log,
                    f"begins with queue offset {segment.first}, but the file before it ends with"
                    f" {last}: move the directory away, and what the commit log still has is"
                    " copied again",
                )
            last = segment.last


def _listed(directory: Path) -> list[Path]:
    return list(directory.iterdir()) if directory.is_dir() else []
