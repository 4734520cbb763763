"""Recovery when a store is opened: finds the end of the log and rebuilds derived files.

Recovery starts at a position up to which log, consume queues and index are known to be on the
disk. It drops the queue units of records behind that position, then walks the log from there:
every record is checked, and its queue unit and index entries are written again. The log ends
before the first position without a sound record, or before a torn last record (see `torn_tail`);
the bytes behind the end are zeroed, so that they are never taken for records.

The start position is the first of these that applies: the recovery point in the checkpoint, if it
is still valid; after a clean stop of RocketMQ, the newest file that the queues reach; after a
crash of RocketMQ, the newest file whose first record is older than the checkpoint's times; the
beginning of the log.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from bolide.kernel import Check, Scan, Stop, scan
from bolide.store.checkpoint import Checkpoint, RecoveryPoint, boot_id
from bolide.store.commit_log import CommitLog, LogFile
from bolide.store.key_index import KeyIndex
from bolide.store.queue_dispatch import QueueDispatch, UnitsMissing, mapped_record_at
from bolide.store.queue_table import QueueTable
from bolide.store.torn_tail import TORN, find_records, find_torn, is_written_by_us, save_tail

log = logging.getLogger(__name__)

Progress = Callable[[int, int], None]
"""Called with the bytes of the log done and the total."""

_STRIDE = 16 * 1024 * 1024


@dataclass(slots=True)
class RecoveryReport:
    """Result of a recovery; positions are physical offsets."""

    clean: bool
    start: int = 0
    end: int = 0
    records: int = 0
    rebuilt: str = ""
    """Why the consume queues were rebuilt from the beginning of the log, if they were."""
    cut: str = ""
    """Why the log was cut at its end; empty if only zeros follow."""
    torn: int = 0
    """Bytes of a torn last record; they are erased too."""
    kept_aside: list[Path] = field(default_factory=list)
    kept_records: int = 0
    seconds: float = 0.0


@dataclass(slots=True, kw_only=True)
class LoadedStore:
    """The components that recovery works on, loaded from disk."""

    log: CommitLog
    queues: QueueTable
    index: KeyIndex | None
    checkpoint: Checkpoint
    check: Check
    delays: tuple[int, ...]
    index_safe: bool
    aside: Path
    """Directory for sound records that had to be cut off."""
    on_skipped: Callable[[bytes, int], None]
    """See `QueueDispatch`."""
    note_lost_tail: Callable[[str], None]
    """Called if the log has lost what it had at its end, with the reason. Blocks."""


def log_progress(every: float = 2.0) -> Progress:
    """Log the progress of a long recovery, every `every` seconds."""
    due = time.monotonic() + every

    def report(done: int, total: int) -> None:
        nonlocal due
        if time.monotonic() >= due:
            due = time.monotonic() + every
            log.info("recovering the store: %.0f %% of %.0f MB", 100 * done / total, total / 1e6)

    return report


def recover(loaded: LoadedStore, *, clean: bool, progress: Progress) -> RecoveryReport:
    """Make log, queues and index consistent; afterwards the log is open for appends."""
    began = time.monotonic()
    report = RecoveryReport(clean)
    recovery_point = _valid_recovery_point(loaded)
    report.start = (
        recovery_point.position if recovery_point else _start_by_files(loaded, clean=clean)
    )
    index_from = _recover_index(loaded, report.start, clean=clean)
    safe_position = recovery_point.position if recovery_point else report.start
    whole_below = _whole_below(loaded, safe_position, clean=clean)
    loaded.queues.truncate(report.start, thoroughly=not clean)
    if recovery_point and loaded.queues.units() != recovery_point.units:
        _restart_with_empty_queues(
            loaded, report, f"{loaded.queues.units()} units instead of {recovery_point.units}"
        )
    try:
        _Replay(loaded, report, index_from, safe_position, whole_below, progress).run()
    except UnitsMissing as gap:
        _restart_with_empty_queues(loaded, report, str(gap))
        _Replay(
            loaded, report, index_from, safe_position, whole_below, progress, gaps_allowed=True
        ).run()
    _finish(loaded, report, recovery_point, safe_position)
    report.seconds = time.monotonic() - began
    return report


def _restart_with_empty_queues(loaded: LoadedStore, report: RecoveryReport, reason: str) -> None:
    log.warning("consume queues are incomplete (%s): rebuilding them from the log", reason)
    report.rebuilt = reason
    report.start = loaded.log.min_offset
    report.records = 0
    loaded.queues.truncate(report.start, thoroughly=True)


def _valid_recovery_point(loaded: LoadedStore) -> RecoveryPoint | None:
    """Return the recovery point of the checkpoint, unless the log does not reach it."""
    recovery_point = loaded.checkpoint.recovery_point
    if recovery_point is None or recovery_point.position < loaded.log.min_offset:
        return None
    if recovery_point.position == 0 or not loaded.log.files:
        return recovery_point if recovery_point.position == 0 else None
    if recovery_point.last_record < 0:
        return recovery_point if recovery_point.position <= loaded.log.files[-1].end else None
    last = mapped_record_at(loaded.log, recovery_point.last_record)
    return (
        recovery_point
        if last and recovery_point.last_record + last.size == recovery_point.position
        else None
    )


def _start_by_files(loaded: LoadedStore, *, clean: bool) -> int:
    """Choose the start position by RocketMQ's rule."""
    reached = loaded.queues.max_physical_offset()
    limit = loaded.checkpoint.safe_timestamp
    if loaded.index_safe:
        limit = min(limit, loaded.checkpoint.index_timestamp)
    for file in reversed(loaded.log.files):
        first = mapped_record_at(loaded.log, file.start)
        if first is None or file.start > reached:
            continue
        if clean or 0 < first.store_timestamp <= limit:
            return file.start
    return loaded.log.min_offset


def _whole_below(loaded: LoadedStore, safe_position: int, *, clean: bool) -> int:
    """Position below which no record counts as torn, even if it ends in zeros.

    After a crash of ours that is the safe position. Otherwise it is what the queues reach, as a
    record gets its unit when it is whole. Behind them may be the record within which a slave
    stopped, RocketMQ's cleanly or not.
    """
    if not clean and is_written_by_us(loaded.checkpoint):
        return safe_position
    return max(safe_position, loaded.queues.max_physical_offset() + 1)


def _recover_index(loaded: LoadedStore, start: int, *, clean: bool) -> int:
    """Make the index sound; returns the position from which entries are missing."""
    index, begin = loaded.index, loaded.log.min_offset
    if index is None:
        return -1
    # For the index even a recovery point before the beginning of the log is valid.
    recovery_point = loaded.checkpoint.recovery_point
    if recovery_point is None:
        if clean:
            return start
        index.drop_after(loaded.checkpoint.index_timestamp)
        index.mend()
        return max(index.end_offset, begin)
    lost = bool(recovery_point.index.name) and not index.has(recovery_point.index.name)
    if lost:
        log.warning(
            "index file %s is gone: its entries are written again", recovery_point.index.name
        )
    if not clean:
        if recovery_point.boot_id and recovery_point.boot_id == boot_id():
            index.mend()  # only the process died: the page cache has everything
        elif lost:
            index.clear()
        else:
            index.restore(recovery_point.index)
    return max(index.end_offset if lost else recovery_point.position, begin)


class _Replay:
    """Walks the log and writes queue units and index entries again."""

    def __init__(  # noqa: PLR0913  what the parts of recovery have found
        self,
        loaded: LoadedStore,
        report: RecoveryReport,
        index_from: int,
        safe_position: int,
        whole_below: int,
        progress: Progress,
        *,
        gaps_allowed: bool = False,
    ) -> None:
        self._loaded = loaded
        self._report = report
        self._index_from = index_from if index_from >= 0 else report.start
        self._safe_position = safe_position
        self._dispatch = QueueDispatch(
            loaded.log, loaded.queues, gaps_allowed=gaps_allowed, on_skipped=loaded.on_skipped
        )
        self._progress = progress
        self._whole_below = whole_below

    def run(self) -> None:
        loaded, report = self._loaded, self._report
        first = position = min(report.start, self._index_from)
        files = [file for file in loaded.log.files if file.end > position]
        total = max(sum(file.size for file in files) - _STRIDE, _STRIDE)
        stop, report.end, report.cut, report.torn = Stop.BLANK, position, "", 0
        for file in files:
            position = max(position, file.start)
            while True:
                result = self._scan(file, position)
                self._apply(result, position, file.start + result.end)
                position = file.start + result.end
                self._progress(min(position - first, total), total)
                stop = result.stop
                if stop in (Stop.DAMAGED, Stop.EMPTY) and position < self._safe_position:
                    position = self._pass_over(file, position, result.reason)
                    stop = Stop.BLANK if position >= file.end else Stop.END
                if stop is not Stop.END or position >= file.end:
                    break
            if stop is not Stop.BLANK:
                report.end = position
                report.cut = result.reason
                break
            report.end = position = file.end

    def _pass_over(self, file: LogFile, position: int, reason: str) -> int:
        """Skip damage before the safe position, where the log cannot end."""
        log.error("%s at %s: %s", file.path, position, reason or "nothing where a record was")
        found = next(find_records(file, position - file.start), None)
        return min(file.start + found[0] if found else file.end, self._safe_position)

    def _scan(self, file: LogFile, position: int) -> Scan:
        """Scan one stride, ending at the positions where queues or index start to be rebuilt."""
        end = min(position + _STRIDE, file.end)
        for seam in (self._report.start, self._index_from):
            if position < seam < end:
                end = seam
        result = self._scan_until(file, position, end)
        torn = find_torn(file.view, position - file.start, result)
        if torn is None or file.start + torn < self._whole_below:
            return result
        self._report.torn = result.end - torn
        before = self._scan_until(file, position, file.start + torn)
        return replace(before, stop=Stop.DAMAGED, reason=TORN)

    def _scan_until(self, file: LogFile, position: int, end: int) -> Scan:
        loaded = self._loaded
        return scan(
            file.view,
            position - file.start,
            end - file.start,
            file.start,
            check=loaded.check,
            delays=loaded.delays,
            # Entries already in the index are skipped by `KeyIndex.put`.
            keys=loaded.index is not None and end > self._index_from,
        )

    def _apply(self, result: Scan, start: int, end: int) -> None:
        loaded = self._loaded
        if loaded.index and result.keys:
            loaded.index.put(result.keys)
        if start < self._report.start or not result.count:
            return
        self._report.records += result.count
        self._dispatch.add(result, end)
        loaded.queues.write(loaded.queues.take_changed(), end)


def _finish(
    loaded: LoadedStore,
    report: RecoveryReport,
    recovery_point: RecoveryPoint | None,
    safe_position: int,
) -> None:
    if report.cut:
        log.warning("the log ends at %s: %s", report.end, report.cut)
    if report.cut or not report.clean:
        behind = report.end + report.torn
        report.kept_aside, report.kept_records = save_tail(loaded.log, behind, loaded.aside)
        if report.kept_aside:
            log.error(
                "%s sound records behind the end of the log at %s are kept aside in %s",
                report.kept_records, report.end, ", ".join(map(str, report.kept_aside)),
            )  # fmt: skip
    known = loaded.checkpoint.synced_end
    # Before anything is erased, or another checkpoint is written: a crash may follow.
    if report.end < known:
        loaded.note_lost_tail(f"it ends at {report.end}, and up to {known} it was on the disk")
    elif report.kept_records:
        loaded.note_lost_tail(f"it is damaged at {report.end}, and sound records follow")
    loaded.log.open_at(report.end)
    if report.cut or not report.clean:
        # Synced: after a power cut the discarded bytes must not follow new records.
        loaded.log.erase_behind(report.end)
        # Later records may be in the page cache only: the next flush syncs them.
        loaded.log.flushed = min(safe_position, report.end)
    if not report.records:
        loaded.log.last_timestamp = loaded.checkpoint.log_timestamp
        loaded.log.last_record = (
            recovery_point.last_record
            if recovery_point and recovery_point.position == report.end
            else -1
        )
    loaded.queues.truncate(report.end)
    loaded.queues.raise_minimum(loaded.log.min_offset)
    if loaded.index:
        loaded.index.truncate(report.end)
        loaded.index.trim(loaded.log.min_offset)
