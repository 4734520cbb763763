"""Rewrites damaged queues and index from the log. Records are never changed.

A unit that points to a damaged record is kept: the rest of the record may still be useful.
"""

import os
from typing import TYPE_CHECKING

from bolide.kernel import QueueRun
from bolide.kernel.units import BLANK_SIZE, UNIT, UNIT_SIZE
from bolide.store.checkpoint import Checkpoint, CheckpointFile, RecoveryPoint, boot_id
from bolide.store.disk import Disk
from bolide.store.errors import DamagedFile
from bolide.store.key_index import IndexRecoveryPoint, KeyIndex
from bolide.store.layout import Layout
from bolide.store.log_walk import SoundRecords
from bolide.store.queue_table import QueueTable
from bolide.store.verify.queues import CheckedQueue
from bolide.store.verify.report import Part

if TYPE_CHECKING:
    from bolide.store.verify.verifier import Verifier

_BLANK = UNIT.pack(0, BLANK_SIZE, 0)


class Repair:
    def __init__(self, layout: Layout, found: "Verifier", disk: Disk) -> None:
        self._layout = layout
        self._found = found
        self._disk = disk
        self._done: list[str] = []
        damages = found.report.damages
        self._queues = (
            [queue for queue in found.queues.queues.values() if _needs_repair(queue)]
            if Part.QUEUES in damages
            else []
        )
        self._batch_queues = found.batch_queues if Part.QUEUES in damages else None
        self._index = self._new_index() if Part.INDEX in damages and layout.index else None

    def run(self) -> list[str]:
        """Repair the store; returns one sentence for each change."""
        checkpoint = CheckpointFile(self._layout.root / "checkpoint", self._disk)
        before = checkpoint.load()
        checkpoint.void_recovery_point()  # until the repair is complete
        self._lengthen_log_files()
        if self._queues or self._index:
            self._rewrite()
        if self._batch_queues:
            self._done += self._batch_queues.rewrite(self._disk)
        if self._done or Part.CHECKPOINT in self._found.report.damages:
            self._save_checkpoint(checkpoint, before)
        elif before.recovery_point:
            checkpoint.save(before)
        return self._done

    def _lengthen_log_files(self) -> None:
        size = self._layout.log_file_size
        for path in self._layout.log_files:
            length = path.stat().st_size
            if length < size:
                descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
                try:
                    _extend(descriptor, length, size)
                    self._disk.sync(descriptor)
                finally:
                    os.close(descriptor)
                self._done.append(f"{path}: got back its length of {size} bytes")

    def _rewrite(self) -> None:
        written: dict[str, int] = {queue.name: 0 for queue in self._queues}
        if self._index:
            self._index.clear()
        for queue in self._queues:
            self._lengthen(queue)
            self._clear(queue)
        for path in self._layout.log_files:
            for item in self._found.walk(path):
                if isinstance(item, SoundRecords):
                    self._put(item, written)
        for queue in self._queues:
            queue.files.sync(self._disk)
            self._done.append(
                f"{queue.files.directory}: {written[queue.name]} units written,"
                f" {sum(end - first for first, end in queue.void)} taken away"
            )
        if self._index:
            self._index.flush()
            self._done.append(f"{self._layout.root / 'index'}: written anew from the log")

    def _put(self, item: SoundRecords, written: dict[str, int]) -> None:
        if self._index:
            self._index.put(item.scan.keys)
        for run in item.scan.runs:
            queue = self._found.queues.queues.get((run.topic, run.queue_id))
            if queue and queue.rewrite:
                written[queue.name] += self._put_run(queue, run)

    def _put_run(self, queue: CheckedQueue, run: QueueRun) -> int:
        """Write the units of a run that need it; returns their number."""
        count = 0
        for number, unit in enumerate(UNIT.iter_unpack(run.entries)):
            offset, place = run.queue_offset + number, unit[0]
            if any(
                span.first <= offset < span.end and span.low <= place <= span.high
                for span in queue.rewrite
            ):
                queue.files.write(offset, UNIT.pack(*unit), self._disk)
                count += 1
        return count

    def _lengthen(self, queue: CheckedQueue) -> None:
        size = self._layout.queue_file_size
        for path, length in queue.files.malformed():
            if 0 < length < size:
                os.truncate(path, size)

    def _clear(self, queue: CheckedQueue) -> None:
        """Overwrite void units: with blank units between good ones, with zeros behind the last."""
        end = max(
            [span.end for span in (*queue.matched, *queue.rewrite)] or [queue.files.end],
        )
        for first, stop in queue.void:
            for offset in range(first, stop):
                queue.files.write(offset, _BLANK if offset < end else bytes(UNIT_SIZE), self._disk)

    def _new_index(self) -> KeyIndex:
        assert self._layout.index is not None
        slots, capacity = self._layout.index
        directory = self._layout.root / "index"
        index = KeyIndex(directory, slots=slots, capacity=capacity, disk=self._disk)
        index.load()
        return index

    def _save_checkpoint(self, file: CheckpointFile, before: Checkpoint) -> None:
        """Save a recovery point, so that the next start does not walk over the damage."""
        timestamp, end = self._found.last_timestamp, self._found.report.log_end
        try:
            index, units = self._index_recovery_point(), self._units()
        except DamagedFile as exc:
            self._done.append(f"the checkpoint has no mark: {exc}")
            return
        file.save(
            Checkpoint(
                log_timestamp=timestamp,
                queue_timestamp=timestamp,
                index_timestamp=index.end_timestamp,
                master_flushed_offset=before.master_flushed_offset,
                # If the log was longer, the next start shall see that.
                confirm_offset=max(end, before.synced_end),
                recovery_point=RecoveryPoint(
                    position=end, last_record=-1, units=units, index=index, boot_id=boot_id()
                ),
            )
        )
        self._done.append(f"the checkpoint says that all is whole up to {end}")

    def _index_recovery_point(self) -> IndexRecoveryPoint:
        if not self._layout.index_files:
            return IndexRecoveryPoint()
        if self._layout.index is None:
            raise DamagedFile(self._layout.root / "index", "its files do not tell their shape")
        index = self._index or self._new_index()
        try:
            return index.flush()
        finally:
            index.close()

    def _units(self) -> int:
        root, size = self._layout.root, self._layout.queue_file_size
        table = QueueTable(
            root / "consumequeue",
            size,
            disk=self._disk,
            batch_file_size=self._layout.batch_queue_file_size,
        )
        try:
            table.load()
            return table.units()
        finally:
            table.close()


def _extend(descriptor: int, length: int, size: int) -> None:
    # Allocated, because the store maps its log files.
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(descriptor, length, size - length)
    else:
        os.ftruncate(descriptor, size)


def _needs_repair(queue: CheckedQueue) -> bool:
    return bool(queue.rewrite or queue.void or list(queue.files.malformed()))
