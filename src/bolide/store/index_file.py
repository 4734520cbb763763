"""One file of the key index: maps key hashes to physical offsets (`IndexFile`).

| Offset | Size | Header field                                                        |
| ------ | ---- | ------------------------------------------------------------------- |
| 0      | 8    | store time of the first entry                                       |
| 8      | 8    | store time of the last entry                                        |
| 16     | 8    | physical offset of the first entry                                  |
| 24     | 8    | physical offset of the last entry                                   |
| 32     | 4    | slots in use                                                        |
| 36     | 4    | number of the next entry; starts at 1, and 0 reads as 1             |

Slots and entries follow, see `kernel.index_entries`; entries are append-only. The header is
written after the entries it counts, and its last offset after its count. So a killed process may
leave uncounted entries, or counted entries behind the last offset: `mend` removes the former and
moves the offset over the latter. The offset never covers entries that are missing.
"""

import struct
from bisect import bisect_left
from pathlib import Path

from bolide.kernel import find_keys, put_keys, rebuild_slots
from bolide.kernel.index_entries import ENTRY_SIZE, HEADER_SIZE, ITEM_SIZE, SLOT_SIZE
from bolide.protocol.record import Buffer
from bolide.store.disk import Disk
from bolide.store.mapped_file import MappedFile

_HEADER = struct.Struct(">qqqqii")
_LONG = struct.Struct(">q")
_COUNTS = struct.Struct(">ii")
_ENTRY = struct.Struct(">IqiI")
_ITEM = struct.Struct(">Iqq")

_BEGIN_TIMESTAMP_AT = 0
_END_TIMESTAMP_AT = 8
_BEGIN_OFFSET_AT = 16
_END_OFFSET_AT = 24
_COUNTS_AT = 32


def index_file_size(slots: int, capacity: int) -> int:
    return HEADER_SIZE + slots * SLOT_SIZE + capacity * ENTRY_SIZE


class IndexFile:
    """Not thread-safe: `KeyIndex` holds its lock around every call."""

    def __init__(self, mapped: MappedFile, slots: int, capacity: int) -> None:
        self.path = mapped.path
        self.size = mapped.size
        self.slots = slots
        self.capacity = capacity
        self.dirty = False
        self.doubtful = False
        """A sync failed: the system may treat pages as clean that are not on the disk."""
        self._mapped = mapped
        self._view = mapped.view
        self._entries_at = HEADER_SIZE + slots * SLOT_SIZE
        header: tuple[int, ...] = _HEADER.unpack_from(self._view)
        self.begin_timestamp, self.end_timestamp, self.begin_offset, self.end_offset = header[:4]
        self.slots_in_use = header[4]
        self.count = min(max(header[5], 1), capacity)

    @classmethod
    def create(cls, path: Path, slots: int, capacity: int, disk: Disk) -> "IndexFile":
        """Raises OSError, leaving no file behind, if the disk has no room."""
        size = index_file_size(slots, capacity)
        return cls(MappedFile.create(path, size, disk, random=True), slots, capacity)

    @classmethod
    def open(cls, path: Path, slots: int, capacity: int) -> "IndexFile":
        """Raises DamagedFile if the file has another length."""
        size = index_file_size(slots, capacity)
        return cls(MappedFile.open(path, size, random=True), slots, capacity)

    @property
    def descriptor(self) -> int:
        return self._mapped.descriptor

    @property
    def full(self) -> bool:
        return self.count >= self.capacity

    @property
    def empty(self) -> bool:
        return self.count <= 1

    def follow(self, before: "IndexFile") -> None:
        """Start with the end of the previous file; the first `put` overwrites it."""
        self._set_begin(before.end_timestamp, before.end_offset)
        self._set_end(before.end_timestamp, before.end_offset)

    def put(self, keys: Buffer) -> int:
        """Add items in the format of `Scan.keys`; returns how many fit."""
        if self.full or not keys:
            return 0
        if self.empty:
            _, offset, timestamp = _ITEM.unpack_from(keys)
            self._set_begin(timestamp, offset)
        added, fresh = put_keys(
            self._view, self.slots, self.capacity, self.count, self.begin_timestamp, keys
        )
        _, offset, timestamp = _ITEM.unpack_from(keys, (added - 1) * ITEM_SIZE)
        self._set_counts(self.slots_in_use + fresh, self.count + added)
        self._set_end(timestamp, offset)
        return added

    def overlaps(self, begin: int, end: int) -> bool:
        return not self.empty and begin <= self.end_timestamp and end >= self.begin_timestamp

    def find(self, key_hash: int, limit: int, begin: int, end: int) -> list[int]:
        """Return physical offsets, newest first. Times are stored as whole seconds after the first
        entry, rounded down, so an entry may count as up to a second older (as in Java).
        """
        seconds = (
            -((self.begin_timestamp - begin) // 1000),  # rounded up
            (end - self.begin_timestamp) // 1000,
        )
        return find_keys(self._view, self.slots, self.count, key_hash, seconds, limit)

    def keys_of_last(self) -> set[int]:
        """Hashes of the newest record's keys."""
        hashes = set()
        for number in range(self.count - 1, 0, -1):
            key_hash, offset, _, _ = self._entry(number)
            if offset != self.end_offset:
                break
            hashes.add(key_hash)
        return hashes

    def write_again(self, disk: Disk) -> None:
        """Write the used part onto itself, so that the next sync covers it. Blocks."""
        disk.write(self.descriptor, self._view[: self._entries_at + self.count * ENTRY_SIZE], 0)

    def mend(self) -> int:
        """Remove entries that a killed process had not counted yet; returns their number.

        Their slots are reset to the previous entries of their chains. Only the last entries are
        touched: behind them the file is zero.
        """
        last = self.count
        while last < self.capacity and self._was_put(last):
            last += 1
        self._remove(self.count, last)
        if not self.empty and self._entry(self.count - 1)[1] > self.end_offset:
            self._end_at_last_entry()  # counted, but the header's end was not written
        return last - self.count

    def truncate(self, end: int) -> None:
        """Drop the entries of records at or behind physical offset `end`."""
        numbers = range(1, self.count)
        kept = bisect_left(numbers, end, key=lambda number: self._entry(number)[1]) + 1
        in_use = self.slots_in_use - self._remove(kept, self.count)
        self._set_counts(in_use, kept)
        if not self.empty:
            self._end_at_last_entry()

    def restore(self, count: int, end_timestamp: int, end_offset: int, disk: Disk) -> None:
        """Return to `count` entries, whatever part of slots and later entries reached the disk."""
        count = min(max(count, 1), self.capacity)
        disk.zero(self.descriptor, self._entries_at + count * ENTRY_SIZE, self.size)
        self._set_counts(rebuild_slots(self._view, self.slots, count), count)
        if self.empty:
            self._set_begin(end_timestamp, end_offset)
        self._set_end(end_timestamp, end_offset)

    def close(self) -> None:
        self._mapped.close()

    def _end_at_last_entry(self) -> None:
        _, offset, seconds, _ = self._entry(self.count - 1)
        self._set_end(self.begin_timestamp + seconds * 1000, offset)

    def _entry(self, number: int) -> tuple[int, int, int, int]:
        """Key hash, physical offset, seconds, number of the previous entry in the chain."""
        return _ENTRY.unpack_from(self._view, self._entries_at + number * ENTRY_SIZE)

    def _was_put(self, number: int) -> bool:
        # An entry of zeros is valid for hash 0 at offset 0: then its slot points to it.
        return any(self._entry(number)) or self._slot(0) == number

    def _slot(self, key_hash: int) -> int:
        at = HEADER_SIZE + key_hash % self.slots * SLOT_SIZE
        return int.from_bytes(self._view[at : at + SLOT_SIZE])

    def _remove(self, first: int, last: int) -> int:
        """Remove the entries from `first` up to `last`, newest first; returns the slots freed."""
        freed = 0
        for number in reversed(range(first, last)):
            key_hash, _, _, before = self._entry(number)
            if self._slot(key_hash) == number:
                at = HEADER_SIZE + key_hash % self.slots * SLOT_SIZE
                self._view[at : at + SLOT_SIZE] = before.to_bytes(SLOT_SIZE)
                freed += before == 0
        start, end = (self._entries_at + number * ENTRY_SIZE for number in (first, last))
        self._view[start:end] = bytes(end - start)
        self.dirty = self.dirty or last > first
        return freed

    def _set_begin(self, timestamp: int, offset: int) -> None:
        self.begin_timestamp, self.begin_offset = timestamp, offset
        self._store(_BEGIN_TIMESTAMP_AT, _LONG.pack(timestamp))
        self._store(_BEGIN_OFFSET_AT, _LONG.pack(offset))

    def _set_counts(self, slots_in_use: int, count: int) -> None:
        self.slots_in_use, self.count = slots_in_use, count
        self._store(_COUNTS_AT, _COUNTS.pack(slots_in_use, count))

    def _set_end(self, timestamp: int, offset: int) -> None:
        self.end_timestamp, self.end_offset = timestamp, offset
        self._store(_END_TIMESTAMP_AT, _LONG.pack(timestamp))
        self._store(_END_OFFSET_AT, _LONG.pack(offset))

    def _store(self, at: int, data: bytes) -> None:
        self._view[at : at + len(data)] = data  # a single store: a kill cannot tear it
        self.dirty = True
