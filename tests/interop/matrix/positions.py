"""Cells of where groups begin, are set back to, and go on when members leave."""

from collections import Counter

import msgspec

from tests.interop.matrix.brokers import KEPT
from tests.interop.matrix.cell import Seen, bodies, cell
from tests.interop.matrix.facts import Deliveries, Message


def around(*words: str) -> list[str]:
    return [f"{word} {n}" for word in words for n in range(3)]


@cell(queues=1, aged=True)
def from_first(seen: Seen) -> None:
    """Consume from the first offset."""
    deliveries = sorted(seen.told(Deliveries).deliveries, key=lambda message: message.offset)
    kept = [f"kept {n}" for n in range(KEPT)]
    assert bodies(deliveries) == kept + around("before", "after")


@cell(queues=1, aged=True)
def from_last(seen: Seen) -> None:
    """Consume from the last offset."""
    assert sorted(bodies(seen.told(Deliveries).deliveries)) == around("after")


@cell(queues=1, aged=True)
def from_timestamp(seen: Seen) -> None:
    """Consume from a timestamp."""
    assert sorted(bodies(seen.told(Deliveries).deliveries)) == around("after")


class Reset(msgspec.Struct):
    first: list[Message]
    told: dict[int, int]
    again: list[Message]


@cell(queues=2)
def offset_reset(seen: Seen) -> None:
    """Reset of the offsets of a running group."""
    told = seen.told(Reset)
    before, after = ([f"{word} {n}" for n in range(4)] for word in ("before", "after"))
    assert sorted(bodies(told.first)) == after + before
    assert told.told == {0: 2, 1: 2}
    again = Counter(bodies(told.again))
    # What was sent after the reset may be there before it takes effect, and once more after.
    assert again.keys() == {*after, "wake 0", "wake 1"}
    assert [again[body] for body in after] == [1] * 4


class Shared(msgspec.Struct):
    held_when_shared: int
    held_alone: int
    here: list[Message]
    there: list[str]


@cell()
def sharing(seen: Seen) -> None:
    """Two consumers share the queues, then one is killed."""
    told = seen.told(Shared)
    here = Counter(bodies(told.here))
    shared, alone = ({f"{word} {n}" for n in range(16)} for word in ("shared", "alone"))
    assert (told.held_when_shared, told.held_alone) == (2, 4)
    assert len(told.there) == len(set(told.there)) == 8
    assert set(told.there) | (here.keys() & shared) == shared
    assert here.keys() >= (shared - set(told.there)) | alone
    assert {here[body] for body in alone} == {1}
