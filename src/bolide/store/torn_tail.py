"""The end of a commit log after a crash: torn last records, and records behind the cut.

A torn record is one whose write was cut short although its lengths and its body's CRC are right.
No checksum covers the fields behind the body. After a crash the part that was not written is
zero, as the file was before. A length shows this in every field but the last one, which is the
properties or, without any, the topic. No topic ends in a zero byte, and neither do the properties
of a record that this store wrote (`appending.with_end`), so no acknowledged record looks torn.
RocketMQ stores properties unchanged; what it wrote counts as whole if it has a queue unit.

A slave that is stopped within a record leaves the same: a part of a record, then zeros.

Sound records behind the position where a log has to be cut are saved to files of their own and
never discarded.
"""

import filecmp
import itertools
import os
import shutil
import struct
from collections.abc import Iterator
from pathlib import Path

from bolide.kernel import Check, Scan, scan
from bolide.private_files import create_file, make_directory
from bolide.protocol.record import Record, read_record
from bolide.store.checkpoint import Checkpoint
from bolide.store.commit_log import CommitLog, LogFile
from bolide.store.disk import Disk, data_ranges

TORN = "the write of its last record was torn: the record ends in zeros"

_SIZE = struct.Struct(">I")
_EMPTY = bytes(8)
_MAGICS = (b"\xda\xa3\x20\xa7", b"\xda\xa3\x20\xab")
_MAGIC_AT = 4


# ---- torn records


def is_written_by_us(checkpoint: Checkpoint) -> bool:
    """Whether RocketMQ wrote none of the records; it stores properties unchanged."""
    return checkpoint.recovery_point is not None or checkpoint.log_timestamp == 0


def find_torn(view: memoryview, position: int, found: Scan) -> int | None:
    """Return where the last of the records scanned from `position` begins if it is torn."""
    end = found.end
    if not found.count or view[end - 1] or view[end : end + len(_EMPTY)] != _EMPTY:
        return None
    while (behind := position + int(_SIZE.unpack_from(view, position)[0])) < end:
        position = behind
    record = read_record(view, position)
    assert isinstance(record, Record)
    last = record.properties if record.properties else record.topic.encode()
    return position if last[-1:] == b"\0" else None


# ---- records behind the cut


def save_tail(log: CommitLog, position: int, directory: Path) -> tuple[list[Path], int]:
    """Copy the log behind a position to files named by that position, if sound records are there.

    Returns the files, already synced, and the number of records.
    """
    saved, count = [], 0
    for file in log.files:
        if file.end <= position:
            continue
        start = max(position - file.start, 0)
        found = list(find_records(file, start))
        if found:
            copy = _copy(file, start, found[-1][1], directory / "unfinished")
            saved.append(_rename_unique(copy, f"{file.start + start:020d}"))
            count += sum(records for _, _, records in found)
    return saved, count


def keep_files(log: CommitLog, directory: Path) -> list[Path]:
    """Give all log files a second name in a directory, under which they stay when the log is
    removed. A file on another file system is copied.

    Returns the names, already synced.
    """
    make_directory(directory)
    kept = []
    for file in log.files:
        if not file.path.exists():  # an earlier attempt to remove the log has removed it
            continue
        name = next(
            path
            for path in _candidates(directory, file.path.name)
            if not path.exists() or path.samefile(file.path)
        )
        make_directory(name.parent)
        if not name.exists():
            try:
                name.hardlink_to(file.path)
            except OSError:  # another file system, or one without links
                _copy(file, 0, file.size, directory / "unfinished").replace(name)
        kept.append(name)
    for changed in {*(name.parent for name in kept), directory, directory.parent}:
        Disk().sync_directory(changed)
    return kept


def find_records(file: LogFile, position: int) -> Iterator[tuple[int, int, int]]:
    """Find runs of sound records from a position on, which need not be a record boundary.

    Yields where a run begins and ends, and how many records it has.
    """
    for first, last in data_ranges(file.descriptor, position, file.size):
        at = max(first, position)
        while (at := _next_magic(file, at, last)) >= 0:
            result = scan(file.view, at, file.size, file.start, check=Check.BODY, keys=False)
            if result.count:
                yield at, result.end, result.count
                at = result.end
                position = result.end
            else:
                at += 1


def _next_magic(file: LogFile, start: int, end: int) -> int:
    """Return the next position where a record may begin, or -1."""
    found = [
        at - _MAGIC_AT
        for magic in _MAGICS
        if (at := file.find(magic, start + _MAGIC_AT, min(end + _MAGIC_AT, file.size))) >= 0
    ]
    return min(found, default=-1)


def _copy(file: LogFile, start: int, end: int, path: Path) -> Path:
    make_directory(path.parent)
    with create_file(path) as target, file.path.open("rb") as source:
        source.seek(start)
        left = end - start
        while left and (data := source.read(min(left, shutil.COPY_BUFSIZE))):  # type: ignore[attr-defined]
            target.write(data)
            left -= len(data)
        target.flush()
        os.fsync(target.fileno())
    return path


def _rename_unique(copy: Path, name: str) -> Path:
    """Rename a copy without overwriting a different one from an earlier cut at the same place."""
    directory = copy.parent
    path = next(
        path
        for path in _candidates(directory, name)
        if not path.exists() or filecmp.cmp(path, copy, shallow=False)
    )
    make_directory(path.parent)
    copy.replace(path)
    for changed in {path.parent, directory, directory.parent}:
        Disk().sync_directory(changed)
    return path


def _candidates(directory: Path, name: str) -> Iterator[Path]:
    """Where a file may be kept: in the directory, or else in `2`, `3`, … below it."""
    places = itertools.chain([directory], (directory / str(n) for n in itertools.count(2)))
    return (place / name for place in places)
