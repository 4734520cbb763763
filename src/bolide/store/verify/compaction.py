"""Checks the logs of compaction topics: each record is sound, and its queue file points to it."""

from itertools import zip_longest
from pathlib import Path

from bolide.store.compaction.segments import UNIT_SIZE, SparseUnit, numbered
from bolide.store.log_walk import Damage, LogWalk, SoundRecords
from bolide.store.verify.report import Part, Report

_Place = tuple[int, int, int]
"""Physical offset, size and queue offset of a record."""


def check_compaction(root: Path, report: Report, *, unclean: bool) -> None:
    """Check all compaction logs. `unclean`: the next start cuts or copies what is missing."""
    top = root / "compaction" / "compactionLog"
    for directory in sorted(top.glob("*/*")) if top.is_dir() else ():
        if directory.is_dir() and directory.name.isdigit():
            queues = root / "compaction" / "compactionCq" / directory.parent.name / directory.name
            _check_queue(directory, queues, report, unclean=unclean)


def _check_queue(directory: Path, queues: Path, report: Report, *, unclean: bool) -> None:
    paths, last = numbered(directory), -1
    for path in sorted({*directory.iterdir(), *_listed(queues)} - {*paths, *numbered(queues)}):
        report.add_note(f"{path}: left from a compaction; the next start finishes or removes it")
    for path in paths:
        may_be_torn = unclean and path == paths[-1]
        records = _records(path, report, may_be_torn=may_be_torn)
        for _, _, queue_offset in records:
            if queue_offset <= last:
                reason = f"queue offset {queue_offset} follows {last}"
                report.damage(Part.COMPACTION, path, 0, reason)
                break
            last = queue_offset
        _compare(queues / path.name, records, report, may_be_torn=may_be_torn)
        report.compacted += len(records)


def _records(path: Path, report: Report, *, may_be_torn: bool) -> list[_Place]:
    found: list[_Place] = []
    for item in LogWalk(path, path.stat().st_size).run():
        if isinstance(item, SoundRecords):
            found += [
                (each.physical_offset, each.size, each.queue_offset) for each in item.records()
            ]
        elif isinstance(item, Damage) and (item.followed or not may_be_torn):
            at = item.at - int(path.name)
            report.damage(Part.COMPACTION, path, at, item.reason)
    return found


def _compare(path: Path, records: list[_Place], report: Report, *, may_be_torn: bool) -> None:
    if not path.exists():
        report.damage(Part.COMPACTION, path, 0, "is missing; the next start writes it")
        return
    data = path.read_bytes()
    units: list[_Place] = []
    while unit := SparseUnit.unpack(data, len(units) * UNIT_SIZE):
        units.append((unit.physical_offset, unit.size, unit.queue_offset))
    for number, (unit_place, record) in enumerate(zip_longest(units, records)):
        if unit_place != record:
            if not (may_be_torn and unit_place is None):
                reason = f"says {unit_place}, the log has {record}"
                report.damage(Part.COMPACTION, path, number * UNIT_SIZE, reason)
            return


def _listed(directory: Path) -> list[Path]:
    return list(directory.iterdir()) if directory.is_dir() else []
