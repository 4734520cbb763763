"""The newest units of a queue: both kernels behave the same."""

import random
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bolide.kernel import Units, units

KINDS = pytest.mark.parametrize("kind", [Units, units.Units], ids=["compiled", "reference"])
UNIT = struct.Struct(">qiq")


def packed(*places: int) -> bytes:
    return b"".join(UNIT.pack(place, 10, 7) for place in places)


OFFSETS = st.integers(-3, 40)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.lists(st.integers(0, 400), max_size=9).map(sorted)),
        st.tuples(st.just("add"), st.integers(0, 400)),
        st.tuples(st.just("drop_below"), OFFSETS),
        st.tuples(st.just("cut"), OFFSETS),
        st.tuples(st.just("reset"), st.integers(0, 20)),
        st.tuples(st.just("take_fresh"), st.none()),
    ),
    max_size=30,
)


def perform(held: Any, name: str, given: Any) -> Any:
    if name == "append":
        return held.append(packed(*given))
    if name == "add":
        return held.add(given, 10, -5)
    if name == "reset":
        return held.reset(given, packed(1, 2))
    return getattr(held, name)(*(() if given is None else (given,)))


def facts(held: Any) -> list[Any]:
    return [
        held.base,
        held.end,
        held.size,
        held.fresh,
        held.fresh_bytes,
        *[held.take(offset, count) for offset in range(-1, 45, 5) for count in (-1, 0, 1, 50)],
        *[held.end_below(place) for place in (-1, 0, 10, 15, 200, 1000)],
    ]


@given(steps=STEPS)
def test_both_kinds_hold_the_same_whatever_is_done(steps: list[tuple[str, Any]]) -> None:
    one, other = Units("me"), units.Units("me")
    assert one.owner == other.owner == "me"
    for name, argument in steps:
        assert perform(one, name, argument) == perform(other, name, argument)
        assert facts(one) == facts(other)


@KINDS
def test_units_are_taken_from_an_offset_on(kind: Any) -> None:
    held = kind()
    held.reset(5, packed(100, 200, 300))
    assert (held.base, held.end, held.size) == (5, 8, 60)
    assert held.take(6, 1) == packed(200)
    assert held.take(6, 100) == packed(200, 300)
    assert held.take(8, 1) == b""
    assert held.take(4, 10) == b"", "what is not there is not made up from what follows"


@KINDS
def test_what_sends_add_is_counted_until_somebody_asks(kind: Any) -> None:
    held = kind()
    assert [held.add(place, 100, 0) for place in (0, 100)] == [0, 1]
    assert held.take_fresh() == (2, 200)
    held.append(packed(200))
    assert held.take_fresh() == (0, 0)


@KINDS
def test_a_blank_unit_ends_the_search_for_the_end(kind: Any) -> None:
    held = kind()
    held.reset(0, packed(0, 10) + UNIT.pack(0, units.BLANK_SIZE, 0) + packed(1000))
    assert held.end_below(500) == 3


@KINDS
def test_many_units_come_and_go(kind: Any) -> None:
    held, choice = kind(), random.Random(1)
    for place in range(10_000):
        held.add(place, 1, 0)
        if choice.random() < 0.01:
            held.drop_below(held.end - choice.randrange(50))
    assert held.end == 10_000
    assert held.take(held.base, 10_000)[:8] == struct.pack(">q", held.base)
