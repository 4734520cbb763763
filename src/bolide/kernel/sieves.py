"""Records found by the units of a queue and by their properties; `_sieves` has the compiled twin.

A plan says in a few forms what a test of properties asks; the compiled twin judges by it, here the
test itself is called. A form is true, false or unknown, as in SQL, and what is not one of the forms
is `Asked`. In all of them `key` is how a property begins: 0x02, its name, 0x01.
"""

import struct
from collections.abc import Callable
from typing import NamedTuple

from bolide.protocol.record import RECORD_HEAD, is_record_magic, property_bytes

_UNIT = struct.Struct(">qiq")

Properties = bytes
"""A property string with 0x02 before it."""


class TextIs(NamedTuple):
    """Unknown where there is no such property; `text` is UTF-8 without U+FFFD."""

    key: bytes
    text: bytes


class NumberIs(NamedTuple):
    """Whether a whole number is above another and the like; unknown where there is none.

    The whole test is not true of a text that is no number from -`most` - 1 to `most`.
    """

    key: bytes
    symbol: str
    """One of = > >= < <=."""
    number: int
    most: int


class IsThere(NamedTuple):
    key: bytes


class IsListed(NamedTuple):
    """As `TextIs`, with several texts."""

    key: bytes
    texts: frozenset[bytes]


class Negated(NamedTuple):
    plan: "Plan"


class Joined(NamedTuple):
    """All or any of them, looked at in order until one decides."""

    is_all: bool
    plans: tuple["Plan", ...]


class Asked(NamedTuple):
    """Whatever a function says: true, false or None; by an exception, what the whole test does."""

    function: Callable[[Properties], object]


Plan = TextIs | NumberIs | IsThere | IsListed | Negated | Joined | Asked


class Sieve:
    """A test of records by their properties, for `sift`; called with one record it judges that.

    Args:
        plan: says the same as `accepts`.
        accepts: the test.
    """

    __slots__ = ("_accepts",)

    def __init__(self, plan: Plan, accepts: Callable[[Properties], bool]) -> None:
        self._accepts = accepts

    def __call__(self, record: memoryview) -> bool:
        return self._accepts(b"\x02" + property_bytes(record))


def sift(  # noqa: PLR0913, PLR0917  one call for a run
    units: bytes | bytearray,
    first: int,
    block: memoryview,
    start: int,
    count: int,
    size: int,
    sieve: Sieve,
) -> tuple[list[memoryview], int, int]:
    """Of the records of a run of units those that a test accepts, as views of `block`.

    It ends before the first unit that is not plain, for its caller to look at: one whose record
    does not lie in the block or is not what the unit says, or that `count` and `size` forbid; the
    compiled twin also before one of which its plan cannot tell.

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
        place, told, _ = _UNIT.unpack_from(units, at)
        begin = place - start
        if len(found) >= count or taken + told > size or told < RECORD_HEAD.size:
            break
        if not 0 <= begin <= length - told:
            break
        own_size, magic, own_place = RECORD_HEAD.unpack_from(block, begin)
        if own_size != told or own_place != place or not is_record_magic(magic):
            break
        record = block[begin : begin + told]
        if sieve(record):
            found.append(record)
            taken += told
        looked += 1
    return found, taken, looked
