"""Lookup of records by consume queue units; `_gathering` is the compiled version."""

from bolide.kernel.sieves import Sieve
from bolide.kernel.units import UNIT
from bolide.protocol.record import RECORD_HEAD, is_record_magic


def gather(  # noqa: PLR0913, PLR0917  one call per run of units
    units: bytes | bytearray,
    first: int,
    block: memoryview,
    start: int,
    count: int,
    size: int,
    sieve: Sieve | None = None,
) -> tuple[list[memoryview], int, int]:
    """Return the records of a run of units that a sieve accepts, as views of `block`.

    Stops before the first unit that the caller must handle: its record is outside of the block or
    does not match the unit, or `count` or `size` would be exceeded. The compiled version also stops
    before a record that the sieve's plan cannot decide.

    Args:
        units: consume queue units of 20 bytes.
        first: index of the first unit.
        block: bytes of the log.
        start: physical offset of the block.
        count: maximum number of records.
        size: maximum total size of the records.
        sieve: filter; None accepts all records.

    Returns:
        The records, their total size, and the number of units examined.
    """
    found: list[memoryview] = []
    total_size, examined, length = 0, 0, len(block)
    for at in range(first * UNIT.size, len(units) - UNIT.size + 1, UNIT.size):
        physical_offset, unit_size, _ = UNIT.unpack_from(units, at)
        begin = physical_offset - start
        if len(found) >= count or total_size + unit_size > size or unit_size < RECORD_HEAD.size:
            break
        if not 0 <= begin <= length - unit_size:
            break
        record_size, magic, record_offset = RECORD_HEAD.unpack_from(block, begin)
        if (
            record_size != unit_size
            or record_offset != physical_offset
            or not is_record_magic(magic)
        ):
            break
        record = block[begin : begin + unit_size]
        if sieve is None or sieve(record):
            found.append(record)
            total_size += unit_size
        examined += 1
    return found, total_size, examined


def is_resident(view: memoryview, at: int, size: int) -> bool:
    """Whether bytes of a mapping are in the page cache, so that reading them does not block.

    Only the compiled version can determine this; False is always safe.
    """
    return False
