"""Slots and entries of a key index file (`IndexFile`), in plain Python.

| Offset         | Size | Field                                                                |
| -------------- | ---- | -------------------------------------------------------------------- |
| 0              | 40   | header, written by the caller                                        |
| 40             | 4    | slot 0: number of the newest entry whose hash mod slots is 0, or 0   |
| 40 + 4 * slots | 20   | entry 0, never used                                                  |

An entry consists of key hash (4 bytes), physical offset (8), seconds since the file's begin
timestamp (4), and the number of the previous newest entry of its slot (4), 0 for none. Numbers
increase, so a chain is strictly decreasing; a link that is not is damage and ends the chain.
"""

import struct

from bolide.protocol.record import Buffer

HEADER_SIZE = 40
SLOT_SIZE = 4
ENTRY_SIZE = 20
ITEM_SIZE = 20

_ITEM = struct.Struct(">Iqq")
_ENTRY = struct.Struct(">IqiI")
_MAX_SECONDS = 0x7FFF_FFFF


def put_keys(
    view: memoryview, slots: int, capacity: int, count: int, begin_timestamp: int, keys: Buffer
) -> tuple[int, int]:
    """Add items in the format of `Scan.keys` as entries from number `count` up to `capacity`.

    Each entry is complete before its slot refers to it. The caller writes the header afterwards.

    Returns:
        The number of items added, and the number of them whose slot was empty.

    Raises:
        ValueError: the file is too small for the slots and entries, or an item is truncated.
    """
    refuse_misfit(len(view), slots, capacity, count)
    if len(keys) % ITEM_SIZE:
        raise ValueError(f"{len(keys)} bytes are no whole number of items")
    number, fresh = count, 0
    for key_hash, physical_offset, timestamp in _ITEM.iter_unpack(keys):
        if number >= capacity:
            break
        slot_at = HEADER_SIZE + key_hash % slots * SLOT_SIZE
        previous = int.from_bytes(view[slot_at : slot_at + SLOT_SIZE])
        if previous >= number:
            previous = 0
        seconds = 0
        if begin_timestamp > 0:
            seconds = min(max(timestamp - begin_timestamp, 0) // 1000, _MAX_SECONDS)
        entry_at = HEADER_SIZE + slots * SLOT_SIZE + number * ENTRY_SIZE
        entry = _ENTRY.pack(key_hash, physical_offset, seconds, previous)
        view[entry_at : entry_at + ENTRY_SIZE] = entry
        view[slot_at : slot_at + SLOT_SIZE] = number.to_bytes(SLOT_SIZE)
        number += 1
        fresh += previous == 0
    return number - count, fresh


def find_keys(
    view: memoryview, slots: int, count: int, key_hash: int, seconds: tuple[int, int], limit: int
) -> list[int]:
    """Return up to `limit` physical offsets with a key hash, newest first.

    `seconds` is the inclusive range of an entry's seconds after the file's begin timestamp. The
    search ends at the first older entry, as in `IndexFile.selectPhyOffset`.

    Raises:
        ValueError: the file is too small for the slots and entries.
    """
    refuse_misfit(len(view), slots, count, count)
    least, most = seconds
    found: list[int] = []
    slot_at = HEADER_SIZE + key_hash % slots * SLOT_SIZE
    number, above = int.from_bytes(view[slot_at : slot_at + SLOT_SIZE]), count
    while 0 < number < above and len(found) < limit:
        entry_at = HEADER_SIZE + slots * SLOT_SIZE + number * ENTRY_SIZE
        entry_hash, physical_offset, after, previous = _ENTRY.unpack_from(view, entry_at)
        if after < 0:
            break
        # Duplicates of a key, within a message or re-indexed after a crash, are adjacent.
        if entry_hash == key_hash and least <= after <= most and found[-1:] != [physical_offset]:
            found.append(physical_offset)
        if after < least:
            break
        number, above = previous, number
    return found


def rebuild_slots(view: memoryview, slots: int, count: int) -> int:
    """Rebuild slots and chains from entries 1 to `count` - 1; returns the number of used slots.

    Raises:
        ValueError: the file is too small for the slots and entries.
    """
    refuse_misfit(len(view), slots, count, count)
    entries_at = HEADER_SIZE + slots * SLOT_SIZE
    view[HEADER_SIZE:entries_at] = bytes(slots * SLOT_SIZE)
    used = 0
    for number in range(1, count):
        end = entries_at + (number + 1) * ENTRY_SIZE
        slot_at = HEADER_SIZE + int.from_bytes(view[end - 20 : end - 16]) % slots * SLOT_SIZE
        previous = bytes(view[slot_at : slot_at + SLOT_SIZE])
        if view[end - 4 : end] != previous:  # do not dirty pages that are already correct
            view[end - 4 : end] = previous
        view[slot_at : slot_at + SLOT_SIZE] = number.to_bytes(SLOT_SIZE)
        used += previous == b"\0\0\0\0"
    return used


def refuse_misfit(size: int, slots: int, capacity: int, count: int) -> None:
    if slots < 1 or count < 1 or HEADER_SIZE + slots * SLOT_SIZE + capacity * ENTRY_SIZE > size:
        raise ValueError(f"{slots} slots and {capacity} entries, {count} used, in {size} bytes")
