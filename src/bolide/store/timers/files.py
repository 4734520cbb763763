"""Timer log and timer wheel together: entries are added, and loaded slot by slot.

The wheel holds the position of a slot's last unit, each unit that of the unit before it. Both
files are derived: lost entries are added again from the timer topic's queue. Units are written
before the slots that point to them, and both are synced before a checkpoint covers them. So the
part that the checkpoint covers is sound after any crash, and the rest is cut off.
"""

import os
import shutil
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from itertools import islice, pairwise
from pathlib import Path
from typing import NamedTuple

from bolide.store.disk import Disk
from bolide.store.timers.checkpoint import TimerCheckpoint, TimerCheckpointFile
from bolide.store.timers.recovery import mend, revise
from bolide.store.timers.timer_log import (
    DELETE,
    NOWHERE,
    TimerEntry,
    TimerKey,
    TimerLog,
    TimerLogReader,
)
from bolide.store.timers.wheel import SLOTS, Slot, TimerWheel

_SLOTS_AT_ONCE = 64
_BEYOND_LOG = 2**62
"""A position that no timer log reaches."""


class LoadedSlots(NamedTuple):
    """The entries of a range of slots."""

    last_slot: int
    """The last slot loaded."""
    waiting: list[TimerEntry]
    """In the order of delivery."""
    recalls: list[TimerEntry]
    boundary: TimerKey | None = None
    """Set if the last slot holds more entries than the limit: those behind this key."""


class OpenedTimers(NamedTuple):
    """The state found when the files are opened."""

    checkpoint: TimerCheckpoint
    is_whole: bool
    """Whether log and wheel hold everything that the checkpoint covers."""
    last: TimerEntry | None = None
    """The newest entry, if RocketMQ wrote the checkpoint, which may be older."""


class TimerFiles:
    """Thread-safe: a lock serializes access to the files.

    Args:
        root: directory of the store.
        file_size: bytes of a file of the log.
        precision_ms: duration of a slot in milliseconds.
    """

    def __init__(
        self,
        root: Path,
        *,
        disk: Disk,
        file_size: int,
        precision_ms: int = 1000,
        slots: int = SLOTS,
    ) -> None:
        self.precision_ms = precision_ms
        self.slots = slots
        self._disk = disk
        self._lock = threading.Lock()  # serializes access to the files
        self._log = TimerLog(root / "timerlog", file_size, disk)
        self._wheel = TimerWheel(root / "timerwheel", disk, slots)
        self._check_file = TimerCheckpointFile(root / "config" / "timercheck", disk)
        self.is_open = False
        self.first_slot: int | None = None
        """The lowest occupied slot when the files were opened."""
        self.last_slot = -1
        """The highest slot number that received an entry."""

    def read_checkpoint(self) -> TimerCheckpoint | None:
        """The checkpoint on the disk; the files need not be open. Blocks."""
        return self._check_file.load()

    @property
    def exist(self) -> bool:
        """Whether the files exist on disk."""
        return self._check_file.exists

    @property
    def log_end(self) -> int:
        return self._log.end

    # ---- life

    def open(self) -> OpenedTimers:
        """Open or create the files, and recover them after a crash. Blocks.

        Raises:
            DamagedFile: the length of a file contradicts the settings.
        """
        with self._lock:
            try:
                found = self._open()
            except BaseException:
                self._close()
                raise
            self.is_open = True
            return found

    def _open(self) -> OpenedTimers:
        check = self._check_file.load() or TimerCheckpoint()
        self._log.open()
        is_new = not self._wheel.exists or (not check.recovery_point and self._wheel.has_snapshots)
        if is_new and check.read_time:
            self.mark_incomplete(check)
        self._wheel.open()
        if not is_new and self._is_of_other_slots(check):
            self.mark_incomplete(check)
            is_new = True
        if is_new or check.log_position > self._log.files_end:
            self._begin_anew()
            return OpenedTimers(check, is_whole=not check.read_time)
        return OpenedTimers(check, True, self._recover(check))

    def _is_of_other_slots(self, check: TimerCheckpoint) -> bool:
        """Whether the wheel was written with another timerPrecisionMs, so slots do not match."""
        reader = TimerLogReader(self._log)
        for slot in self._wheel.all_slots():
            found = reader.read(slot.last) if slot.last < check.log_position else None
            if found is not None:
                return self.number(found[1].due) != slot.number
        return False

    def mark_incomplete(self, check: TimerCheckpoint) -> None:
        """Save a checkpoint with which the files count as lost until another one is saved. Blocks.

        So a newly made wheel is not taken for the one that the checkpoint covers.
        """
        self._check_file.save(replace(check, log_position=_BEYOND_LOG))

    def close(self) -> None:
        with self._lock:
            self._close()

    def _close(self) -> None:
        self.is_open = False
        self._log.close()
        self._wheel.close()

    def begin_anew(self) -> None:
        """Clear the wheel and continue the log in a new file; no slot points to the old units."""
        with self._lock:
            self._begin_anew()

    def _begin_anew(self) -> None:
        self._log.rewind(self._log.files_end)
        self._wheel.clear()
        self.first_slot, self.last_slot = None, -1

    def _recover(self, check: TimerCheckpoint) -> TimerEntry | None:
        first = check.read_time // self.precision_ms
        last = None
        if check.recovery_point:
            end = check.log_position
        else:
            end, last = revise(self._log, self._wheel, check.log_position, self.number, first)
        in_use = mend(self._log, self._wheel, end, self.number, first)
        self.first_slot = min(in_use, default=None)
        self.last_slot = max(in_use, default=-1)
        self._log.cut(end)
        return last

    # ---- adding

    def number(self, time_ms: int) -> int:
        """Return the slot number of a time."""
        return time_ms // self.precision_ms

    def add(self, waiting: Sequence[TimerEntry]) -> None:
        """Add entries to the slots of their due times. Blocks.

        Raises:
            OSError: none of the entries was added.
        """
        with self._lock:
            before = self._log.end
            try:
                changed = self._append(waiting)
                self._log.write()
            except BaseException:
                self._log.rewind(before)
                raise
            for slot in changed:
                self._wheel.write(slot)
            self.last_slot = max([self.last_slot, *(slot.number for slot in changed)])

    def _append(self, waiting: Sequence[TimerEntry]) -> list[Slot]:
        changed: dict[int, Slot] = {}
        for each in waiting:
            number = self.number(each.due)
            slot = changed.get(number) or self._wheel.read(number)
            position = self._log.append(each.encode(slot.last))
            changed[number] = slot._replace(
                first=position if slot.first == NOWHERE else slot.first,
                last=position,
                waiting=slot.waiting + (-1 if each.magic & DELETE else 1),
            )
        return list(changed.values())

    def count_between(self, numbers: Sequence[int]) -> list[int]:
        """How many timers there are from each slot on up to the next of these; none if the files
        are closed. Blocks."""
        with self._lock:
            if not self.is_open:
                return [0] * (len(numbers) - 1)
            return [
                sum(slot.waiting for slot in self._wheel.occupied(first, end))
                for first, end in pairwise(numbers)
            ]

    def clear(self, first: int, end: int) -> None:
        """Empty the slots from `first` up to `end`. Blocks."""
        with self._lock:
            for slot in list(self._wheel.occupied(first, end)):
                self._wheel.write(Slot(slot.number))

    # ---- loading

    def load(
        self, first: int, last: int, limit: int, behind: TimerKey | None = None
    ) -> LoadedSlots:
        """Load the entries of slots `first` to `last`, up to about `limit` entries. Blocks.

        With `behind`, entries of the first slot up to that key are skipped.
        """
        last = min(last, first + self.slots - 1)
        waiting: list[TimerEntry] = []
        recalls: list[TimerEntry] = []
        with self._lock:
            for slot in self._wheel.occupied(first, last + 1):
                found = self._of_slot(slot, limit, behind if slot.number == first else None)
                if waiting and len(waiting) + len(found.waiting) > limit:
                    last = slot.number - 1
                    break
                waiting += found.waiting
                recalls += found.recalls
                if found.boundary:
                    return LoadedSlots(slot.number, waiting, recalls, found.boundary)
        return LoadedSlots(last, waiting, recalls)

    def pages(self, first: int) -> Iterator[tuple[int, list[TimerEntry]]]:
        """Yield all slots from `first` on: the slot number and its entries in order of addition."""
        end = self.last_slot + 1
        while first < end and (slots := self._some_occupied(first, end)):
            for slot in slots:
                with self._lock:
                    found = list(self._chain(slot)) if self.is_open else []
                yield slot.number, found[::-1]
            first = slots[-1].number + 1

    def _some_occupied(self, first: int, end: int) -> list[Slot]:
        with self._lock:
            found = self._wheel.occupied(first, end) if self.is_open else ()
            return list(islice(found, _SLOTS_AT_ONCE))

    def _of_slot(self, slot: Slot, limit: int, behind: TimerKey | None) -> LoadedSlots:
        """Load the first entries of a slot, without holding a very large slot in memory."""
        waiting: list[TimerEntry] = []
        recalls: list[TimerEntry] = []
        is_cut = False
        for each in self._chain(slot):
            if each.is_recall:
                recalls.append(each)
            elif behind is None or each.key > behind:
                waiting.append(each)
            if len(waiting) >= 2 * limit:
                is_cut, waiting = True, _in_order(waiting)[:limit]
        waiting = _in_order(waiting)
        if is_cut or len(waiting) > limit:
            waiting = waiting[:limit]
            return LoadedSlots(slot.number, waiting, recalls, waiting[-1].key)
        return LoadedSlots(slot.number, waiting, recalls)

    def _chain(self, slot: Slot) -> Iterator[TimerEntry]:
        """Yield the entries of a slot from the newest to the oldest."""
        reader, position, known = TimerLogReader(self._log), slot.last, slot.last
        while position >= self._log.start and position != NOWHERE:
            found = reader.read(position)
            if found is None or self.number(found[1].due) != slot.number or found[0] >= position:
                yield from self._search(slot, known)
                return
            known = position
            yield found[1]
            position = found[0]

    def _search(self, slot: Slot, end: int) -> Iterator[TimerEntry]:
        """Find the entries of a slot before a position by a scan, where the chain is broken."""
        for _, each in self._log.units(max(slot.first, self._log.start), end):
            if self.number(each.due) == slot.number:
                yield each

    def next_occupied(self, first: int) -> int | None:
        """Return the number of the first occupied slot from `first` on. Blocks."""
        with self._lock:
            slot = next(self._wheel.occupied(first, self.last_slot + 1), None)
            return slot.number if slot else None

    # ---- maintenance

    def save(self, value: TimerCheckpoint) -> None:
        """Sync log and wheel, then save the checkpoint. Blocks."""
        with ExitStack() as cleanup:
            with self._lock:
                used = [os.dup(each) for each in (*self._log.descriptors, self._wheel.descriptor)]
            for descriptor in used:
                cleanup.callback(os.close, descriptor)
            for descriptor in used:
                self._disk.sync(descriptor)
        self._check_file.save(value)

    def trim(self, physical_offset: int) -> None:
        """Remove the timer log files whose messages all lie below a commit log position."""
        with self._lock:
            while (second := self._log.second_start()) is not None:
                unit = self._log.first_unit(second)
                if unit is None or unit.physical_offset >= physical_offset:
                    return
                self._log.remove_first()


def _in_order(waiting: list[TimerEntry]) -> list[TimerEntry]:
    """Sort by due time and physical offset, without the duplicates that a crash may leave."""
    waiting.sort()
    return [
        each
        for at, each in enumerate(waiting)
        if at == 0 or waiting[at - 1].physical_offset != each.physical_offset
    ]


def adopt_checkpoint(root: Path, checkpoint: TimerCheckpoint, disk: Disk | None = None) -> None:
    """Take over the checkpoint of a master, for a slave that does not run timers itself. Blocks.

    Wheel and timer log of an earlier life as master are removed: they are derived from the timer
    topic, and are made again from it when this broker becomes master.
    """
    remove_derived(root)
    TimerCheckpointFile(root / "config" / "timercheck", disk or Disk()).save(checkpoint)


def remove_derived(root: Path) -> None:
    """Remove wheel and timer log, which a later start makes again from the timer topic. Blocks."""
    for path in root.glob("timerwheel*"):
        path.unlink(missing_ok=True)
    shutil.rmtree(root / "timerlog", ignore_errors=True)
