"""Adds the consume queue units of records that are in the log already (RocketMQ: dispatch).

An append writes its queue unit itself. Records that were not appended message by message, those
that recovery walks over and those that a replica receives from its master, are scanned and their
units are added here.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import islice

from bolide.kernel import QueueRun, Scan
from bolide.kernel.units import UNIT, UNIT_SIZE
from bolide.protocol.record import Record, read_record
from bolide.protocol.record_errors import BadRecord
from bolide.store.batch_queue import BatchQueue, QueuedBatch, SplitScan, split_batches
from bolide.store.commit_log import CommitLog
from bolide.store.log_walk import MIN_RECORD_SIZE
from bolide.store.queue_table import QueueKey, QueueTable

log = logging.getLogger(__name__)


class UnitsMissing(Exception):
    """Units of a queue are missing between its end and the next record."""


class QueueDispatch:
    """Adds units of scanned records to their queues; the caller holds the store's lock.

    Args:
        gaps_allowed: whether the queue offset of a record may lie behind the end of its queue;
            if not, `add` raises UnitsMissing for such a record.
        on_skipped: called with the topic and the physical offset of each inner batch that gets no
            unit.
        left_out: topics that `add` leaves out.
    """

    def __init__(
        self,
        commit_log: CommitLog,
        queues: QueueTable,
        *,
        gaps_allowed: bool,
        on_skipped: Callable[[bytes, int], None],
        left_out: Collection[bytes] = (),
    ) -> None:
        self._log = commit_log
        self._queues = queues
        self._gaps_allowed = gaps_allowed
        self._on_skipped = on_skipped
        self._left_out = left_out

    def add(self, scanned: Scan, end: int) -> dict[QueueKey, int]:
        """Add the units of scanned records, of which the last ends at physical offset `end`.

        Returns:
            The queues of the records, with the change of each queue's end.
        """
        base = end - scanned.end
        split = split_batches(scanned, self._queues.batch_topics, self._read, base)
        self._log.last_timestamp = scanned.last_timestamp
        self._log.last_record = _last_record(scanned, split.batches, end)
        if self._left_out:
            split = _select(split, lambda topic: topic not in self._left_out)
        changes = self._add(split.runs, split.batches)
        for topic, queue_id, physical_offset in split.skipped:
            self._on_skipped(topic, physical_offset)
            changes.setdefault((topic, queue_id), 0)
        return changes

    def add_again(
        self, scanned: Scan, base: int, topics: Collection[bytes], read: Callable[[int], Record]
    ) -> int:
        """Add the units of some topics from records that `add` had before.

        Args:
            base: physical offset of the scanned buffer's position 0.
            read: returns the record at a physical offset.

        Returns:
            The number of queue offsets that were added.
        """
        split = split_batches(scanned, self._queues.batch_topics, read, base)
        split = _select(split, lambda topic: topic in topics)
        for topic, _, physical_offset in split.skipped:
            self._on_skipped(topic, physical_offset)
        return sum(self._add(split.runs, split.batches).values())

    def _add(self, runs: Sequence[QueueRun], batches: Iterable[QueuedBatch]) -> dict[QueueKey, int]:
        keys = {(run.topic, run.queue_id) for run in runs}
        keys |= {(batch.topic, batch.queue_id) for batch in batches}
        before = {key: self._end_of(key) for key in keys}
        for number, run in enumerate(runs):
            self._append(run, islice(runs, number + 1, None))
        for batch in batches:
            self._append_batch(batch)
        return {key: self._end_of(key) - was for key, was in before.items()}

    def _end_of(self, key: QueueKey) -> int:
        queue = self._queues.find(*key)
        return queue.max_offset if queue else 0

    def _read(self, physical_offset: int) -> Record:
        record = mapped_record_at(self._log, physical_offset)
        assert record is not None  # the scan has just found it sound
        return record

    def _append_batch(self, batch: QueuedBatch) -> None:
        queues, unit = self._queues, batch.unit
        try:
            queue = queues.require(batch.topic, batch.queue_id)
        except ValueError as exc:
            log.warning("skipping records without a queue: %s", exc)
            return
        end = queue.max_offset
        if not isinstance(queue, BatchQueue) or unit.base > unit.physical_offset:
            log.error(
                "skipping the batch at %s: it cannot be at %s of queue %r %s",
                unit.physical_offset, unit.base, batch.topic, batch.queue_id,
            )  # fmt: skip
            return
        if unit.base > end > 0:
            self._report_gap(
                f"queue {batch.topic!r} {batch.queue_id} lacks batches before {unit.base}"
            )
        if unit.base == 0 < end:
            queue.restart()  # the topic was deleted and created again
        queue.replay(unit)
        queues.changed(queue)

    def _append(self, run: QueueRun, later: Iterable[QueueRun]) -> None:
        queues = self._queues
        try:
            queue = queues.require(run.topic, run.queue_id)
        except ValueError as exc:
            log.warning("skipping records without a queue: %s", exc)
            return
        end = queue.max_offset
        if not _is_possible(run) or (run.queue_offset != end > 0 and _continues(run, end, later)):
            log.error(
                "skipping the record at %s: its offset %s of queue %r %s is impossible",
                _place(run), run.queue_offset, run.topic, run.queue_id,
            )  # fmt: skip
            return
        if run.queue_offset > end > 0:
            self._report_gap(
                f"queue {run.topic!r} {run.queue_id} lacks units before {run.queue_offset}"
            )
            queue.fill(run.queue_offset)
        if run.queue_offset == 0 < end:
            queue.restart()  # the topic was deleted and created again
        queue.append_run(run.queue_offset, run.entries)
        queues.changed(queue)

    def _report_gap(self, gap: str) -> None:
        if not self._gaps_allowed:
            raise UnitsMissing(gap)
        log.warning("%s, and the log has no records for them", gap)


def mapped_record_at(commit_log: CommitLog, physical_offset: int) -> Record | None:
    """The record that begins at a physical offset, read from the mapping; None if there is none."""
    file = commit_log.find_file(physical_offset)
    if file is None:
        return None
    try:
        found = read_record(file.view, physical_offset - file.start)
    except BadRecord:
        return None
    return found if isinstance(found, Record) and found.physical_offset == physical_offset else None


def _select(split: SplitScan, wanted: Callable[[bytes], bool]) -> SplitScan:
    return SplitScan(
        [run for run in split.runs if wanted(run.topic)],
        [batch for batch in split.batches if wanted(batch.topic)],
        [batch for batch in split.skipped if wanted(batch.topic)],
    )


def _place(run: QueueRun) -> int:
    """Physical offset of a run's first record."""
    physical_offset: int = UNIT.unpack_from(run.entries)[0]
    return physical_offset


def _is_possible(run: QueueRun) -> bool:
    """Whether enough log lies before a record for its queue offset, which no checksum covers."""
    return 0 <= run.queue_offset <= _place(run) // MIN_RECORD_SIZE


def _continues(run: QueueRun, end: int, later: Iterable[QueueRun]) -> bool:
    """Whether the queue continues at `end + 1` behind a single record with another offset."""
    return len(run.entries) == UNIT_SIZE and any(
        (each.topic, each.queue_id, each.queue_offset) == (run.topic, run.queue_id, end + 1)
        for each in later
    )


def _last_record(scanned: Scan, batches: list[QueuedBatch], end: int) -> int:
    """Return the record that ends at `end` if it has a queue unit, else -1."""
    last = [UNIT.unpack(run.entries[-UNIT_SIZE:]) for run in scanned.runs]
    last += [batch.unit[:3] for batch in batches[-1:]]
    physical_offset, size, _ = max(last, default=(-1, 0, 0))
    return physical_offset if physical_offset + size == end else -1
