"""What happens when a store is opened: find where the log ends, and make what is derived whole.

A start position is chosen up to which log, consume queues and index are known to be on the disk.
Queue units of records behind it are dropped, then the log is walked from there on: every record is
checked, and queue units and index entries are written again. The first place without a sound
record is the end, or a last record that is torn (see `torn_end`); what lies behind is zeroed, so
that it never comes back.

The start position is, in this order: that of our mark in the checkpoint, if it still holds; after
a clean stop of RocketMQ, the newest file that the queues reach; after a crash of RocketMQ, the
newest file whose first record is older than the checkpoint's times; the beginning of the log.
"""

import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path

from bolide.kernel import Check, QueueRun, Scan, Stop, scan
from bolide.kernel.units import UNIT_SIZE
from bolide.protocol.record import Record, read_record
from bolide.protocol.record_errors import BadRecord
from bolide.store.checkpoint import Checkpoint, RecoveryPoint, boot_id
from bolide.store.commit_log import CommitLog, LogFile
from bolide.store.consume_queue import UNIT
from bolide.store.key_index import KeyIndex
from bolide.store.log_tail import TORN, find_records, find_torn, is_written_by_us, save_tail
from bolide.store.log_walk import MIN_RECORD_SIZE
from bolide.store.queue_table import QueueTable

log = logging.getLogger(__name__)

Progress = Callable[[int, int], None]
"""Told bytes of the log done and to do."""

_STRIDE = 16 * 1024 * 1024


@dataclass(slots=True)
class RecoveryReport:
    """What was found and done; positions are physical offsets."""

    clean: bool
    start: int = 0
    end: int = 0
    records: int = 0
    rebuilt: str = ""
    """Why the consume queues were written anew from the beginning of the log, if so."""
    cut: str = ""
    """What was found instead of a record at the end, if it was not nothing."""
    torn: int = 0
    """Bytes of a last record whose write was not done; they are erased too."""
    kept_aside: list[Path] = field(default_factory=list)
    kept_records: int = 0
    seconds: float = 0.0


@dataclass(slots=True, kw_only=True)
class Parts:
    """What recovery works on, all loaded."""

    log: CommitLog
    queues: QueueTable
    index: KeyIndex | None
    checkpoint: Checkpoint
    check: Check
    delays: tuple[int, ...]
    index_safe: bool
    aside: Path
    """Directory for sound records that had to be cut off."""


def log_progress(every: float = 2.0) -> Progress:
    """Say in the log how far a recovery is, if it takes long."""
    due = time.monotonic() + every

    def tell(done: int, total: int) -> None:
        nonlocal due
        if time.monotonic() >= due:
            due = time.monotonic() + every
            log.info("recovering the store: %.0f %% of %.0f MB", 100 * done / total, total / 1e6)

    return tell


class _Gap(Exception):
    """Units of a queue are missing between its end and the next record."""


def recover(parts: Parts, *, clean: bool, progress: Progress) -> RecoveryReport:
    """Make the parts agree; afterwards the log is open for appends."""
    began = time.monotonic()
    report = RecoveryReport(clean)
    recovery_point = _valid_recovery_point(parts)
    report.start = (
        recovery_point.position if recovery_point else _start_by_files(parts, clean=clean)
    )
    index_from = _recover_index(parts, report.start, clean=clean)
    sure = recovery_point.position if recovery_point else report.start
    parts.queues.truncate(report.start, thoroughly=not clean)
    if recovery_point and parts.queues.units() != recovery_point.units:
        _begin_again(
            parts, report, f"{parts.queues.units()} units instead of {recovery_point.units}"
        )
    try:
        _Replay(parts, report, index_from, sure, progress).run()
    except _Gap as gap:
        _begin_again(parts, report, str(gap))
        _Replay(parts, report, index_from, sure, progress, gaps_allowed=True).run()
    _finish(parts, report, recovery_point, sure)
    report.seconds = time.monotonic() - began
    return report


def _begin_again(parts: Parts, report: RecoveryReport, reason: str) -> None:
    log.warning("consume queues are not whole (%s): they are written anew from the log", reason)
    report.rebuilt = reason
    report.start = parts.log.min_offset
    report.records = 0
    parts.queues.truncate(report.start, thoroughly=True)


def _valid_recovery_point(parts: Parts) -> RecoveryPoint | None:
    """Our mark, unless the log does not reach it any more."""
    recovery_point = parts.checkpoint.recovery_point
    if recovery_point is None or recovery_point.position < parts.log.min_offset:
        return None
    if recovery_point.position == 0 or not parts.log.files:
        return recovery_point if recovery_point.position == 0 else None
    if recovery_point.last_record < 0:
        return recovery_point if recovery_point.position <= parts.log.files[-1].end else None
    last = _record_at(parts.log, recovery_point.last_record)
    return (
        recovery_point
        if last and recovery_point.last_record + last.size == recovery_point.position
        else None
    )


def _start_by_files(parts: Parts, *, clean: bool) -> int:
    """RocketMQ's rule."""
    reached = parts.queues.max_physical_offset()
    limit = parts.checkpoint.safe_timestamp
    if parts.index_safe:
        limit = min(limit, parts.checkpoint.index_timestamp)
    for file in reversed(parts.log.files):
        first = _record_at(parts.log, file.start)
        if first is None or file.start > reached:
            continue
        if clean or 0 < first.store_timestamp <= limit:
            return file.start
    return parts.log.min_offset


def _record_at(commit_log: CommitLog, physical_offset: int) -> Record | None:
    file = commit_log.find_file(physical_offset)
    if file is None:
        return None
    try:
        found = read_record(file.view, physical_offset - file.start)
    except BadRecord:
        return None
    return found if isinstance(found, Record) and found.physical_offset == physical_offset else None


def _recover_index(parts: Parts, start: int, *, clean: bool) -> int:
    """Bring the index into a sound state; returns the position from which entries are missing."""
    index, begin = parts.index, parts.log.min_offset
    if index is None:
        return -1
    recovery_point = (
        parts.checkpoint.recovery_point
    )  # even one that the log has left behind tells of the index
    if recovery_point is None:
        if clean:
            return start
        index.drop_after(parts.checkpoint.index_timestamp)
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
    """Walks the log and writes again what is derived from it."""

    def __init__(
        self,
        parts: Parts,
        report: RecoveryReport,
        index_from: int,
        sure: int,
        progress: Progress,
        *,
        gaps_allowed: bool = False,
    ) -> None:
        self._parts = parts
        self._report = report
        self._index_from = index_from if index_from >= 0 else report.start
        self._sure = sure
        self._gaps_allowed = gaps_allowed
        self._progress = progress
        self._may_be_torn = not report.clean and is_written_by_us(parts.checkpoint)

    def run(self) -> None:
        parts, report = self._parts, self._report
        first = position = min(report.start, self._index_from)
        files = [file for file in parts.log.files if file.end > position]
        total = max(sum(file.size for file in files) - _STRIDE, _STRIDE)
        stop, report.end, report.cut, report.torn = Stop.BLANK, position, "", 0
        for file in files:
            position = max(position, file.start)
            while True:
                result = self._scan(file, position)
                self._take(result, position, file.start + result.end)
                position = file.start + result.end
                self._progress(min(position - first, total), total)
                stop = result.stop
                if stop in (Stop.DAMAGED, Stop.EMPTY) and position < self._sure:
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
        """Go on behind damage where the log is known not to end."""
        log.error("%s at %s: %s", file.path, position, reason or "nothing where a record was")
        found = next(find_records(file, position - file.start), None)
        return min(file.start + found[0] if found else file.end, self._sure)

    def _scan(self, file: LogFile, position: int) -> Scan:
        """Scan a stride; seams where queues or the index begin to lack something are kept."""
        end = min(position + _STRIDE, file.end)
        for seam in (self._report.start, self._index_from):
            if position < seam < end:
                end = seam
        result = self._scan_until(file, position, end)
        torn = find_torn(file.view, position - file.start, result) if self._may_be_torn else None
        if torn is None or file.start + torn < self._sure:
            return result
        self._report.torn = result.end - torn
        before = self._scan_until(file, position, file.start + torn)
        return replace(before, stop=Stop.DAMAGED, reason=TORN)

    def _scan_until(self, file: LogFile, position: int, end: int) -> Scan:
        parts = self._parts
        return scan(
            file.view,
            position - file.start,
            end - file.start,
            file.start,
            check=parts.check,
            delays=parts.delays,
            # The index passes over what it has already.
            keys=parts.index is not None and end > self._index_from,
        )

    def _take(self, result: Scan, start: int, end: int) -> None:
        parts = self._parts
        if parts.index and result.keys:
            parts.index.put(result.keys)
        if start < self._report.start or not result.count:
            return
        self._report.records += result.count
        for number, run in enumerate(result.runs):
            self._append(run, islice(result.runs, number + 1, None))
        parts.queues.write(parts.queues.take_changed(), end)
        parts.log.last_timestamp = result.last_timestamp
        parts.log.last_record = _last_record(result, end)

    def _append(self, run: QueueRun, later: Iterable[QueueRun]) -> None:
        queues = self._parts.queues
        try:
            queue = queues.require(run.topic, run.queue_id)
        except ValueError as exc:
            log.warning("records without a queue are passed over: %s", exc)
            return
        end = queue.max_offset
        if not _is_possible(run) or (run.queue_offset != end > 0 and _goes_on(run, end, later)):
            log.error(
                "a record at %s says it has offset %s of queue %r %s: passed over",
                _place(run), run.queue_offset, run.topic, run.queue_id,
            )  # fmt: skip
            return
        if run.queue_offset > end > 0:
            gap = f"queue {run.topic!r} {run.queue_id} lacks units before {run.queue_offset}"
            if not self._gaps_allowed:
                raise _Gap(gap)
            log.warning("%s, and the log has no records for them", gap)
            queue.fill(run.queue_offset)
        if run.queue_offset == 0 < end:
            queue.restart()  # the topic was removed and made again
        queue.append_run(run.queue_offset, run.entries)
        queues.changed(queue)


def _place(run: QueueRun) -> int:
    """Physical offset of a run's first record."""
    physical_offset: int = UNIT.unpack_from(run.entries)[0]
    return physical_offset


def _is_possible(run: QueueRun) -> bool:
    """No checksum covers a record's queue offset, but so many records must lie before it."""
    return 0 <= run.queue_offset <= _place(run) // MIN_RECORD_SIZE


def _goes_on(run: QueueRun, end: int, later: Iterable[QueueRun]) -> bool:
    """Whether a queue goes on behind one record that claims to be in another place of it."""
    return len(run.entries) == UNIT_SIZE and any(
        (each.topic, each.queue_id, each.queue_offset) == (run.topic, run.queue_id, end + 1)
        for each in later
    )


def _last_record(result: Scan, end: int) -> int:
    """The record that ends at `end` if it has a queue unit, else -1."""
    last = [UNIT.unpack(run.entries[-UNIT_SIZE:]) for run in result.runs]
    physical_offset, size, _ = max(last, default=(-1, 0, 0))
    return physical_offset if physical_offset + size == end else -1


def _finish(
    parts: Parts, report: RecoveryReport, recovery_point: RecoveryPoint | None, sure: int
) -> None:
    if report.cut:
        log.warning("the log ends at %s: %s", report.end, report.cut)
    if report.cut or not report.clean:
        behind = report.end + report.torn
        report.kept_aside, report.kept_records = save_tail(parts.log, behind, parts.aside)
        if report.kept_aside:
            log.error(
                "%s sound records behind the end of the log at %s are kept aside in %s",
                report.kept_records, report.end, ", ".join(map(str, report.kept_aside)),
            )  # fmt: skip
    parts.log.open_at(report.end)
    if report.cut or not report.clean:
        # On the disk too: after a power cut what was cut off must not follow what comes next.
        parts.log.erase_behind(report.end)
        # Records behind may be in the page cache only: the next flush is to sync them.
        parts.log.flushed = min(sure, report.end)
    if not report.records:
        parts.log.last_timestamp = parts.checkpoint.log_timestamp
        parts.log.last_record = (
            recovery_point.last_record
            if recovery_point and recovery_point.position == report.end
            else -1
        )
    parts.queues.truncate(report.end)
    parts.queues.raise_minimum(parts.log.min_offset)
    if parts.index:
        parts.index.truncate(report.end)
        parts.index.trim(parts.log.min_offset)
