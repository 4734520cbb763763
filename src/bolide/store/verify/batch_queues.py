"""Compares batch queues with the log.

The walk over the log collects the units that the queues should have. Afterwards the files are read:
behind the units of records that retention has removed, they must have exactly these units.
"""

import os
from pathlib import Path

from bolide.store.batch_queue import (
    BATCH_DIRECTORY,
    BATCH_UNIT,
    BATCH_UNIT_SIZE,
    BatchUnit,
    QueuedBatch,
)
from bolide.store.disk import Disk
from bolide.store.errors import DamagedFile
from bolide.store.layout import Layout, queue_directories
from bolide.store.queue_files import QueueFiles
from bolide.store.queue_table import QueueKey, check_queue
from bolide.store.tables import read_batch_topics
from bolide.store.verify.queues import LogFacts
from bolide.store.verify.report import Part, Report


class BatchQueueCheck:
    def __init__(self, layout: Layout, report: Report) -> None:
        self._layout = layout
        self._report = report
        self._files = {
            (os.fsencode(topic), queue_id): self._files_in(directory)
            for topic, queue_id, directory in queue_directories(layout.root, BATCH_DIRECTORY)
        }
        self.topics = {topic for topic, _ in self._files} | _configured(layout.root)
        """Topics with batch queues."""
        self.reach = 0
        """Highest end of a record that a unit points to although the record is missing."""
        self._wanted: dict[QueueKey, bytearray] = {}
        self._right: dict[QueueKey, bytes] = {}
        """Content of the queues that a repair writes."""

    def add(self, batches: list[QueuedBatch]) -> None:
        """Record which units the log implies, in its order."""
        for batch in batches:
            key = batch.topic, batch.queue_id
            wanted = self._wanted.setdefault(key, bytearray())
            if batch.unit.base == 0:  # the topic was deleted and created again
                wanted.clear()
            wanted += batch.unit.encode()

    def finish(self, log: LogFacts) -> None:
        for key in sorted({*self._files, *self._wanted}):
            self._check(key, log)

    def rewrite(self, disk: Disk) -> list[str]:
        """Write the damaged queues again; returns one sentence for each."""
        done = []
        for key, units in self._right.items():
            files = self._files[key]
            for path, _ in files.malformed():
                os.truncate(path, self._layout.batch_queue_file_size)
            size = max(files.end - files.first, 0) * BATCH_UNIT_SIZE
            files.write(files.first, units.ljust(size, b"\0"), disk)
            files.sync(disk)
            count = len(units) // BATCH_UNIT_SIZE
            done.append(f"{files.directory}: {count} units of batches written anew from the log")
        return done

    # ---- one queue

    def _check(self, key: QueueKey, log: LogFacts) -> None:
        topic, queue_id = os.fsdecode(key[0]), key[1]
        files = self._files.get(key)
        wanted = bytes(self._wanted.get(key, b""))
        if files is None:
            if log.topics is not None and topic not in log.topics:
                count = len(wanted) // BATCH_UNIT_SIZE
                text = f"{count} records without units, of before it was removed"
                self._report.add_note(f"{topic}/{queue_id}: {text}")
                return
            files = self._new_files(key)
            if files is None:
                return
        for path, size in files.malformed():
            self._report.damage(Part.QUEUES, path, size, f"is {size} bytes long")
            self._right[key] = wanted
        found = self._found(files)
        gone = [unit for unit in found if unit.physical_offset < log.start]
        present = found[len(gone) :]
        self._report.queues += bool(files)
        self._report.units += len(found)
        kept = self._compare(key, files, len(gone), present, wanted, log)
        if kept is not None:
            self._right[key] = b"".join(unit.encode() for unit in gone) + kept

    def _compare(
        self,
        key: QueueKey,
        files: QueueFiles,
        skipped: int,
        present: list[BatchUnit],
        wanted: bytes,
        log: LogFacts,
    ) -> bytes | None:
        """Report the first difference; returns what the files should have, or None if they do."""
        expected = list(map(BatchUnit._make, BATCH_UNIT.iter_unpack(wanted)))
        lost = [unit for unit in present if log.is_damaged(unit.physical_offset)]
        kept = [unit for unit in present if unit not in lost] if lost else present
        for unit in lost:
            place = files.place(files.first + skipped + present.index(unit))
            text = f"unit at {unit.base} of {_name(key)}: its record is damaged"
            self._report.damage(Part.QUEUES, *place, text, unit.physical_offset)
        at = next(
            (number for number, pair in enumerate(zip(kept, expected, strict=False))
             if pair[0] != pair[1]),
            min(len(kept), len(expected)),
        )  # fmt: skip
        if at == len(kept) == len(expected):
            return None
        self._report_difference(key, files.place(files.first + skipped + at), kept[at:],
                                expected[at:], log)  # fmt: skip
        right = sorted({*expected, *lost}, key=lambda unit: unit.physical_offset)
        return b"".join(unit.encode() for unit in right)

    def _report_difference(
        self,
        key: QueueKey,
        place: tuple[Path, int],
        found: list[BatchUnit],
        expected: list[BatchUnit],
        log: LogFacts,
    ) -> None:
        if not found:
            first, last = expected[0], expected[-1]
            text = f"units for {first.base} to {last.end - 1} of {_name(key)}: not there, but"
            text += " the log has records"
            if log.unclean:
                self._report.add_note(f"{text}; the next start writes them")
            else:
                self._report.damage(Part.QUEUES, *place, text, first.physical_offset)
            return
        unit = found[0]
        behind = unit.physical_offset >= log.end
        if behind:
            self.reach = max(self.reach, unit.physical_offset + unit.size)
        reason = "behind the end of the log" if behind else "not as the log wants it"
        text = f"unit at {unit.base} of {_name(key)}: it points to {unit.physical_offset}, {reason}"
        if behind and log.unclean:
            self._report.add_note(f"{text}; the next start takes it away")
        else:
            self._report.damage(Part.QUEUES, *place, text, unit.physical_offset)

    # ---- files

    def _found(self, files: QueueFiles) -> list[BatchUnit]:
        """The units in the files up to the first that is empty."""
        units: list[BatchUnit] = []
        for number, data in files.blocks(files.first, files.end):
            if number != files.first + len(units):
                break
            for unit in map(BatchUnit._make, BATCH_UNIT.iter_unpack(data)):
                if unit.size <= 0:
                    return units
                units.append(unit)
        return units

    def _new_files(self, key: QueueKey) -> QueueFiles | None:
        try:
            check_queue(*key)
        except ValueError as exc:
            self._report.add_note(f"records without a queue: {exc}")
            return None
        path = Path(os.fsdecode(key[0]), str(key[1]))
        found = self._files[key] = self._files_in(self._layout.root / BATCH_DIRECTORY / path)
        return found

    def _files_in(self, directory: Path) -> QueueFiles:
        return QueueFiles(directory, self._layout.batch_queue_file_size, BATCH_UNIT_SIZE)


def _configured(root: Path) -> set[bytes]:
    try:
        return set(map(os.fsencode, read_batch_topics(root)))
    except DamagedFile:  # reported with the tables
        return set()


def _name(key: QueueKey) -> str:
    return f"{os.fsdecode(key[0])}/{key[1]}"
