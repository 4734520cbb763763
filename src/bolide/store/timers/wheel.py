"""The timer wheel: a slot per second that leads to the units due then (`TimerWheel`).

1,209,600 slots of 32 bytes, two weeks of seconds. The slot of a time is at its number (the time
divided by the precision) modulo the slot count. A slot left from an earlier round has another
number.

| Offset | Size | Field                                          |
| ------ | ---- | ---------------------------------------------- |
| 0      | 8    | number                                         |
| 8      | 8    | position of its first unit, -1 without one     |
| 16     | 8    | position of its last unit, -1 without one      |
| 24     | 4    | pending entries, without recalled ones         |
| 28     | 4    | 0                                              |
"""

import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from bolide.store.descriptors import read_at
from bolide.store.disk import Disk
from bolide.store.errors import DamagedFile
from bolide.store.timers.timer_log import NOWHERE

SLOTS: Final = 14 * 24 * 3600
_SLOT = struct.Struct(">qqqii")
_BLOCK = 2048
_ZEROS = bytes(_BLOCK * _SLOT.size)


class Slot(NamedTuple):
    number: int
    first: int = NOWHERE
    last: int = NOWHERE
    waiting: int = 0
    magic: int = 0


class TimerWheel:
    """Not thread-safe."""

    def __init__(self, path: Path, disk: Disk, slots: int = SLOTS) -> None:
        self.path = path
        self._disk = disk
        self._slots = slots
        self._size = slots * _SLOT.size
        self.descriptor = -1

    @property
    def exists(self) -> bool:
        return self.path.exists() and self.path.stat().st_size > 0

    @property
    def has_snapshots(self) -> bool:
        """Whether RocketMQ wrote snapshots (timerWheelSnapshotFlush), which outdate the file."""
        return any(self.path.parent.glob(f"{self.path.name}.*"))

    def open(self) -> None:
        """Raises DamagedFile if the file has another length."""
        if not self.exists:
            # Allocated in full: writing a slot must not fail after its units are written.
            self.descriptor = self._disk.allocate(self.path, self._size)
            return
        size = self.path.stat().st_size
        if size != self._size:
            raise DamagedFile(
                self.path,
                f"is {size} bytes long, a timer wheel has {self._size}: remove it, it is made"
                " again",
            )
        self.descriptor = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)

    def close(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1

    def read(self, number: int) -> Slot:
        data = read_at(self.descriptor, _SLOT.size, number % self._slots * _SLOT.size)
        slot = Slot._make(_SLOT.unpack(data))
        return slot if slot.number == number else Slot(number)

    def write(self, slot: Slot) -> None:
        at = slot.number % self._slots * _SLOT.size
        self._disk.write(self.descriptor, _SLOT.pack(*slot), at)

    def clear(self) -> None:
        self._disk.zero(self.descriptor, 0, self._size)

    def occupied(self, first: int, end: int) -> Iterator[Slot]:
        """Yield the occupied slots from `first` up to `end`, in order."""
        end = min(end, first + self._slots)
        while first < end:
            index = first % self._slots
            count = min(_BLOCK - index % _BLOCK, end - first, self._slots - index)
            for at, slot in enumerate(self._block(index, count)):
                if slot[0] == first + at and slot[2] >= 0:
                    yield Slot._make(slot)
            first += count

    def all_slots(self) -> Iterator[Slot]:
        """Yield all slots that have or had entries, unordered."""
        for index in range(0, self._slots, _BLOCK):
            for at, slot in enumerate(self._block(index, min(_BLOCK, self._slots - index))):
                if slot[2] >= 0 and slot[0] > 0 and slot[0] % self._slots == index + at:
                    yield Slot._make(slot)

    def _block(self, index: int, count: int) -> Iterator[tuple[int, int, int, int, int]]:
        data = read_at(self.descriptor, count * _SLOT.size, index * _SLOT.size)
        if data == _ZEROS[: len(data)]:
            return iter(())
        return _SLOT.iter_unpack(data)
