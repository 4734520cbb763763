"""How the members of a group share a list out, in RocketMQ's ways: everybody counts the same."""

from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


def average(items: Sequence[T], index: int, members: int) -> Sequence[T]:
    """A run of neighbours for each member; the first members get one more."""
    share, rest = divmod(len(items), members)
    start = index * share + min(index, rest)
    return items[start : start + share + (index < rest)]


def by_circle(items: Sequence[T], index: int, members: int) -> Sequence[T]:
    """One after the other, as cards are dealt."""
    return items[index::members]
