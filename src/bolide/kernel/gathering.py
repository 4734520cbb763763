"""Finding records by the units of a queue; `_gathering` is the compiled twin."""

import struct

from bolide.kernel.sieves import Sieve
from bolide.protocol.record import RECORD_HEAD, is_record_magic

_UNIT = struct.Struct(">qiq")


def gather(  # noqa: PLR0913, PLR0917  one call for a run
    units: bytes | bytearray,
    first: int,
    block: memoryview,
    start: int,
    count: int,
    size: int,
    sieve: Sieve | None = None,
) -> tuple[list[memoryview], int, int]:
    """The records of a run of units, or those that a sieve lets pass, as views of `block`.

    It ends before the first unit that is not plain, for its caller to look at: one whose record
    does not lie in the block or is not what the unit says, or that `count` and `size` forbid; the
    compiled twin also before one of which the sieve's plan cannot tell.

    Args:
        units: of 20 bytes, as a consume queue holds them.
        first: the number of the unit to begin with.
        block: bytes of the log.
        start: where in the log the block begins.
        count: how many records at most.
        size: how many bytes at most.

    Returns:
        The records, their bytes, and how many units were looked at.
    """
    found: list[memoryview] = []
    taken, looked, length = 0, 0, len(block)
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
        record = block[begin : begin + length_told]
        if sieve is None or sieve(record):
            found.append(record)
            taken += length_told
        looked += 1
    return found, taken, looked


def is_resident(view: memoryview, at: int, size: int) -> bool:
    """Whether bytes of a mapping are in memory, so that reading them does not wait for the disk.

    Only the compiled twin can tell; False is always safe.
    """
    return False
