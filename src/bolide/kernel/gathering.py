"""Records found by the units of a queue, in plain Python; `_records` has the compiled twin."""

import struct

from bolide.protocol.record import RECORD_HEAD, is_record_magic

_UNIT = struct.Struct(">qiq")


def gather(
    units: bytes | bytearray, first: int, block: memoryview, start: int, count: int, size: int
) -> tuple[list[memoryview], int]:
    """The records of a run of units, as views of `block`, and their bytes.

    It ends before the first unit that is not plain, for its caller to look at: one whose record
    does not lie in the block or is not what the unit says, or that `count` and `size` forbid.

    Args:
        units: of 20 bytes, as a consume queue holds them.
        first: the number of the unit to begin with.
        block: bytes of the log.
        start: where in the log the block begins.
        count: how many records at most.
        size: how many bytes at most.
    """
    found: list[memoryview] = []
    taken, length = 0, len(block)
    for at in range(first * _UNIT.size, len(units) - _UNIT.size + 1, _UNIT.size):
        place, length_told, _ = _UNIT.unpack_from(units, at)
        begin = place - start
        if len(found) >= count or taken + length_told > size or length_told < RECORD_HEAD.size:
            break
        if not 0 <= begin <= length - length_told:
            break
        told, magic, own_place = RECORD_HEAD.unpack_from(block, begin)
        if told != length_told or own_place != place or not is_record_magic(magic):
            break
        found.append(block[begin : begin + length_told])
        taken += length_told
    return found, taken
