"""Filters of records by their properties; `_sieves` is the compiled version.

A plan describes a filter as a tree of simple predicates, which the compiled version evaluates; this
module calls the filter function instead. A predicate is true, false or unknown, as in SQL; one that
has no simple form is an `Asked` with a function. In all of them `key` is the beginning of a
property: 0x02, its name, 0x01.
"""

from collections.abc import Callable
from typing import NamedTuple

from bolide.protocol.record import property_bytes

Properties = bytes
"""A property string preceded by 0x02."""


class TextIs(NamedTuple):
    """Equality; unknown without the property. `text` is UTF-8 without U+FFFD."""

    key: bytes
    text: bytes


class NumberIs(NamedTuple):
    """Integer comparison; unknown without the property.

    If the text is not an integer from -`most` - 1 to `most`, the whole filter rejects the record.
    """

    key: bytes
    symbol: str
    """One of = > >= < <=."""
    number: int
    most: int


class IsThere(NamedTuple):
    """Whether the property exists."""

    key: bytes


class IsListed(NamedTuple):
    """As `TextIs`, for any of several texts."""

    key: bytes
    texts: frozenset[bytes]


class Negated(NamedTuple):
    plan: "Plan"


class Joined(NamedTuple):
    """Conjunction or disjunction, evaluated in order until one part decides."""

    is_all: bool
    plans: tuple["Plan", ...]


class Asked(NamedTuple):
    """The result of a function: true, false or None; an exception is left to the whole filter."""

    function: Callable[[Properties], object]


Plan = TextIs | NumberIs | IsThere | IsListed | Negated | Joined | Asked


class Sieve:
    """A filter of records by their properties, for `gather`; calling it tests one record.

    Args:
        plan: the same filter as `accepts`, for the compiled version.
        accepts: the filter function.
    """

    __slots__ = ("_accepts",)

    def __init__(self, plan: Plan, accepts: Callable[[Properties], bool]) -> None:
        self._accepts = accepts

    def __call__(self, record: memoryview) -> bool:
        return self._accepts(b"\x02" + property_bytes(record))
