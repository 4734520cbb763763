"""One pass over a whole store: walks the log and compares it with everything derived."""

import contextlib
import errno
import os
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator
from pathlib import Path

from bolide.protocol.record import Record
from bolide.store.batch_queue import split_batches
from bolide.store.disk import Disk
from bolide.store.layout import Layout
from bolide.store.locking import StoreLock
from bolide.store.log_walk import Damage, LogEnd, LogWalk, SoundRecords, is_unused, read_one
from bolide.store.verify.batch_queues import BatchQueueCheck
from bolide.store.verify.compaction import check_compaction
from bolide.store.verify.index import IndexCheck
from bolide.store.verify.other_files import (
    check_checkpoint,
    check_tables,
    read_checkpoint,
    report_leftovers,
)
from bolide.store.verify.queues import LogFacts, QueueCheck
from bolide.store.verify.repair import Repair
from bolide.store.verify.report import Part, Report

Progress = Callable[[int, int], None]
"""Called with the bytes of the log done and the total."""


def verify(
    layout: Layout,
    *,
    repair: bool = False,
    progress: Progress = lambda _done, _total: None,
    disk: Disk | None = None,
) -> Report:
    """Check the whole store. With `repair`, rewrite derived files and check again.

    Raises:
        StoreInUse: a broker has the store open.
        OSError: a directory or the lock file is not accessible.
    """
    with _locked(layout.root, needed=repair):
        verifier = Verifier(layout, progress)
        report = verifier.run()
        if repair and not report.sound:
            done = Repair(layout, verifier, disk or Disk()).run()
            report = Verifier(layout, progress).run()
            report.repairs = done
        return report


class Verifier:
    def __init__(self, layout: Layout, progress: Progress) -> None:
        self.layout = layout
        self.report = Report(layout.root)
        self._progress = progress
        self._files = self._used_files()
        self._starts = [int(path.name) for path in self._files]
        self._unclean = (layout.root / "abort").exists()
        self._damaged: list[tuple[int, int]] = []
        self._tail: Damage | None = None
        self._current: SoundRecords | None = (
            None  # the run being checked, to read its records from memory
        )
        self.last_record = -1
        self.last_timestamp = 0

    def run(self) -> Report:
        began, report, layout = time.monotonic(), self.report, self.layout
        report.log_start = report.log_end = self._starts[0] if self._starts else 0
        topics = check_tables(layout.root, report)
        checkpoint = read_checkpoint(layout.root, report)
        self.queues = QueueCheck(layout, report)
        self.batch_queues = BatchQueueCheck(layout, report)
        self.index = IndexCheck(
            layout, report, self._read, start=report.log_start, unclean=self._unclean
        )
        self._walk_log()
        facts = LogFacts(
            report.log_start, report.log_end, self._damaged, self._unclean, topics, self._read
        )
        self.queues.finish(facts)
        self.batch_queues.finish(facts)
        self.index.finish(facts.is_damaged)
        recovery_point = checkpoint.recovery_point.position if checkpoint.recovery_point else 0
        reach = max(self.queues.reach, self.batch_queues.reach, self.index.reach)
        self._check_tail(max(reach, recovery_point))
        check_checkpoint(layout.root, checkpoint, report)
        check_compaction(layout.root, report, unclean=self._unclean)
        report_leftovers(layout, report)
        if self._unclean:
            report.add_note("the store was not closed cleanly: the next start recovers it")
        report.sort()
        report.seconds = time.monotonic() - began
        return report

    # ---- the log

    def _used_files(self) -> list[Path]:
        """Return the log files without trailing ones that were allocated ahead of their use."""
        files = self.layout.log_files
        while len(files) > 1 and is_unused(files[-1]):
            self.report.add_note(f"{files.pop()}: made ahead of its use")
        return files

    def _walk_log(self) -> None:
        total = sum(path.stat().st_size for path in self._files)
        done, end = 0, self.report.log_start
        for path in self._files:
            self._check_bounds(path, end)
            for item in self.walk(path):
                self._handle(item, path)
                if isinstance(item, SoundRecords):
                    self._progress(done + item.end - int(path.name), total)
            done += path.stat().st_size
            end = int(path.name) + self.layout.log_file_size
            self._progress(done, total)
        self.report.log_files = len(self._files)

    def walk(self, path: Path) -> Iterator[SoundRecords | Damage | LogEnd]:
        layout = self.layout
        return LogWalk(
            path, layout.log_file_size, check=layout.check, delays=layout.delays,
            keys=self.index.enabled,
        ).run()  # fmt: skip

    def _check_bounds(self, path: Path, end: int) -> None:
        """Check that a file has its nominal length and begins where the previous one ends."""
        length, start = path.stat().st_size, int(path.name)
        size = self.layout.log_file_size
        if length != size:
            reason = f"is {length} bytes long instead of {size}"
            self.report.damage(Part.LOG, path, length, reason, start + length)
        if start != end:
            reason = f"begins at {start}, but the file before ends at {end}"
            self.report.damage(Part.LOG, path, 0, reason, min(start, end))
            if start > end:
                self._damaged.append((end, start))

    def _handle(self, item: SoundRecords | Damage | LogEnd, path: Path) -> None:
        if isinstance(item, SoundRecords):
            self._compare(item)
        elif isinstance(item, Damage):
            self._damaged.append((item.at, item.end))
            if not item.followed and path == self._files[-1]:
                self._tail = item
            else:
                at = item.at - int(path.name)
                self.report.damage(Part.LOG, path, at, item.reason, item.at)
        elif not item.closed and path != self._files[-1] and not self._damaged_at(item.at):
            at = item.at - int(path.name)
            self.report.damage(Part.LOG, path, at, "no blank record closes the file", item.at)
            self._damaged.append((item.at, int(path.name) + self.layout.log_file_size))

    def _compare(self, item: SoundRecords) -> None:
        result, report = item.scan, self.report
        self._current = item
        report.records += result.count
        report.log_end = item.end
        self.last_timestamp = result.last_timestamp
        split = split_batches(result, self.batch_queues.topics, self._read_sound, item.base)
        for run in split.runs:
            self.queues.compare(run)
        self.batch_queues.add(split.batches)
        self.index.compare(result.keys, self._damaged_at)

    def _damaged_at(self, physical_offset: int) -> bool:
        at = bisect_right(self._damaged, (physical_offset, 2**63)) - 1
        return at >= 0 and physical_offset < self._damaged[at][1]

    def _check_tail(self, reach: int) -> None:
        """Report bytes behind the last record: damage if queue, index or checkpoint cover them."""
        tail = self._tail
        if tail is None:
            return
        if tail.at < reach:
            at = tail.at - int(tail.path.name)
            self.report.damage(Part.LOG, tail.path, at, tail.reason, tail.at)
        else:
            self.report.add_note(
                f"the log ends at {tail.at}, and what follows is none: {tail.reason}"
            )

    def _read_sound(self, physical_offset: int) -> Record:
        record = self._read(physical_offset)
        assert isinstance(record, Record)  # the walk has just found it sound
        return record

    def _read(self, physical_offset: int) -> Record | str:
        run = self._current
        if run and run.base + run.first <= physical_offset < run.end:
            return run.record_at(physical_offset)
        at = bisect_right(self._starts, physical_offset) - 1
        if at < 0:
            return "there is no log file for it"
        return read_one(self._files[at], physical_offset, self.layout.check)


@contextlib.contextmanager
def _locked(root: Path, *, needed: bool) -> Iterator[None]:
    lock = StoreLock(root / "lock")
    try:
        lock.acquire()
    except OSError as exc:
        # On a read-only directory no broker can run.
        if needed or exc.errno not in {errno.EROFS, errno.EACCES} or os.access(root, os.W_OK):
            raise
    try:
        yield
    finally:
        lock.release()
