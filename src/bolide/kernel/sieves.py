"""Tests of records by their properties; `_sieves` has the compiled twin.

A plan says in a few forms what a test of properties asks; the compiled twin judges by it, here the
test itself is called. A form is true, false or unknown, as in SQL, and what is not one of the forms
is `Asked`. In all of them `key` is how a property begins: 0x02, its name, 0x01.
"""

from collections.abc import Callable
from typing import NamedTuple

from bolide.protocol.record import property_bytes

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
    """A test of records by their properties, for `gather`; called with one record it judges that.

    Args:
        plan: says the same as `accepts`.
        accepts: the test.
    """

    __slots__ = ("_accepts",)

    def __init__(self, plan: Plan, accepts: Callable[[Properties], bool]) -> None:
        self._accepts = accepts

    def __call__(self, record: memoryview) -> bool:
        return self._accepts(b"\x02" + property_bytes(record))
