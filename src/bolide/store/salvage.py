"""Sound records behind the place where a log had to be cut are kept aside, never thrown away."""

import filecmp
import itertools
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from bolide.kernel import Check, scan
from bolide.store.commit_log import CommitLog, LogFile
from bolide.store.disk import Disk, data_ranges

_MAGICS = (b"\xda\xa3\x20\xa7", b"\xda\xa3\x20\xab")
_MAGIC_AT = 4


def save_tail(log: CommitLog, position: int, directory: Path) -> tuple[list[Path], int]:
    """Copy what follows a position into files named by it, if sound records are there.

    Returns the files, which are on the disk by then, and the number of records.
    """
    saved, count = [], 0
    for file in log.files:
        if file.end <= position:
            continue
        start = max(position - file.start, 0)
        found = list(find_records(file, start))
        if found:
            copy = _copy(file, start, found[-1][1], directory / "unfinished")
            saved.append(_keep(copy, f"{file.start + start:020d}"))
            count += sum(records for _, _, records in found)
    return saved, count


def find_records(file: LogFile, position: int) -> Iterator[tuple[int, int, int]]:
    """Runs of sound records at or behind a position, which need not be a boundary.

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
    """Where a record may begin."""
    found = [
        at - _MAGIC_AT
        for magic in _MAGICS
        if (at := file.find(magic, start + _MAGIC_AT, min(end + _MAGIC_AT, file.size))) >= 0
    ]
    return min(found, default=-1)


def _copy(file: LogFile, start: int, end: int, path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as target, file.path.open("rb") as source:
        source.seek(start)
        left = end - start
        while left and (data := source.read(min(left, shutil.COPY_BUFSIZE))):  # type: ignore[attr-defined]
            target.write(data)
            left -= len(data)
        target.flush()
        os.fsync(target.fileno())
    return path


def _keep(copy: Path, name: str) -> Path:
    """Give a copy its name; one from an earlier cut at the same place is not overwritten."""
    directory = copy.parent
    places = itertools.chain([directory], (directory / str(n) for n in itertools.count(2)))
    path = next(
        path
        for path in (place / name for place in places)
        if not path.exists() or filecmp.cmp(path, copy, shallow=False)
    )
    path.parent.mkdir(exist_ok=True)
    copy.replace(path)
    for changed in {path.parent, directory, directory.parent}:
        Disk().sync_directory(changed)
    return path
