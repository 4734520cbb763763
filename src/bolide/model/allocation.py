"""RocketMQ's strategies to divide queues among the members of a group.

Each member computes its own share; all members arrive at the same result.
"""

from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


def average(items: Sequence[T], index: int, members: int) -> Sequence[T]:
    """A contiguous range for each member; the first members get one item more."""
    share, rest = divmod(len(items), members)
    start = index * share + min(index, rest)
    return items[start : start + share + (index < rest)]


def by_circle(items: Sequence[T], index: int, members: int) -> Sequence[T]:
    """Round-robin."""
    return items[index::members]
