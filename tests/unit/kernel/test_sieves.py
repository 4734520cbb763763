"""Sieves: plans equal the filter functions, and both kernels agree."""

import operator
import struct
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bolide.kernel import gathering, sieves
from bolide.kernel.sieves import (
    Asked,
    IsListed,
    IsThere,
    Joined,
    Negated,
    NumberIs,
    Plan,
    TextIs,
)
from bolide.protocol.property_string import decode_properties
from tests.unit.kernel.drafts import DRAFT, record
from tests.unit.kernel.kernels import MISSING

UNIT = struct.Struct(">qiq")
START = 4096
KEYS = {name: b"\x02" + name.encode() + b"\x01" for name in ("n", "m", "nn")}
SYMBOLS: dict[str, Callable[[int, int], bool]] = {
    "=": operator.eq, ">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le,
}  # fmt: skip


class Kernel(NamedTuple):
    """Either implementation."""

    Sieve: type[sieves.Sieve]
    gather: Callable[..., tuple[list[memoryview], int, int]]


REFERENCE = Kernel(sieves.Sieve, gathering.gather)


def compiled() -> Kernel:
    if MISSING:
        pytest.skip(MISSING)
    from bolide.kernel import _gathering, _sieves

    return Kernel(_sieves.Sieve, _gathering.gather)


@pytest.fixture(params=["reference", "compiled"])
def kernel(request: pytest.FixtureRequest) -> Kernel:
    return REFERENCE if request.param == "reference" else compiled()


# ---- plans in the plainest way


class Fails(Exception):
    """The filter fails on the record."""


def judge(plan: Plan, properties: dict[str, str]) -> bool | None:
    """True, False, or None for unknown; raises Fails."""
    match plan:
        case Negated(inner):
            value = judge(inner, properties)
            return None if value is None else not value
        case Joined(is_all, plans):
            return _joined(is_all, plans, properties)
        case Asked(function):
            return function(b"")  # type: ignore[return-value]
        case IsThere(key):
            return key[1:-1].decode() in properties
    text = properties.get(plan.key[1:-1].decode())
    return None if text is None else _compared(plan, text)


def _joined(is_all: bool, plans: tuple[Plan, ...], properties: dict[str, str]) -> bool | None:
    verdicts = []
    for plan in plans:
        verdicts.append(judge(plan, properties))
        if verdicts[-1] is (not is_all):
            return not is_all
    return None if None in verdicts else is_all


def _compared(plan: TextIs | IsListed | NumberIs, value: str) -> bool:
    if isinstance(plan, NumberIs):
        digits = value[1:] if value[0] in "+-" else value
        if not digits.isdecimal() or not -plan.most - 1 <= int(value) <= plan.most:
            raise Fails(value)
        return SYMBOLS[plan.symbol](int(value), plan.number)
    texts = [plan.text] if isinstance(plan, TextIs) else plan.texts
    return value.encode("utf-8", "surrogatepass") in texts


def acceptor(plan: Plan) -> Callable[[bytes], bool]:
    def accepts(properties: bytes) -> bool:
        try:
            return judge(plan, decode_properties(str(properties, "utf-8", "replace"))) is True
        except Fails:
            return False

    return accepts


# ---- logs


class Log:
    """Encode records with the given properties; returns them and their queue units."""

    def __init__(self, *properties: bytes) -> None:
        self.records: list[bytes] = []
        units, place = [], START
        for number, each in enumerate(properties):
            self.records.append(record(DRAFT._replace(properties=each), number, place))
            units.append(UNIT.pack(place, len(self.records[-1]), 7))
            place += len(self.records[-1])
        self.units = b"".join(units)
        self.block = memoryview(b"".join(self.records))

    def sifted(self, kernel: Kernel, sieve: Any) -> list[bytes]:
        """All accepted records, by repeated calls."""
        found: list[bytes] = []
        at = 0
        while at < len(self.records):
            records, size, looked = kernel.gather(
                self.units, at, self.block, START, 99, 10**6, sieve
            )
            assert size == sum(map(len, records))
            found += map(bytes, records)
            at += looked
            if not looked:
                found += [self.records[at]] if sieve(memoryview(self.records[at])) else []
                at += 1
        return found


NUMBERED = Log(*(b"n\x01%d\x02" % number for number in range(10)))
EVEN = IsListed(KEYS["n"], frozenset(b"%d" % number for number in range(0, 10, 2)))


def test_what_passes_is_taken_as_views_of_the_block(kernel: Kernel) -> None:
    log, sieve = NUMBERED, kernel.Sieve(EVEN, acceptor(EVEN))
    records, size, looked = kernel.gather(log.units, 1, log.block, START, 99, 10**6, sieve)
    assert [bytes(each) for each in records] == log.records[2::2]
    assert (size, looked) == (sum(map(len, records)), 9)
    assert records[0].obj is log.block.obj


def test_it_ends_at_the_limits(kernel: Kernel) -> None:
    log, sieve = NUMBERED, kernel.Sieve(EVEN, acceptor(EVEN))
    size = len(log.records[0])
    for count, most, taken, looked in [(2, 10**6, 2, 3), (9, 3 * size, 3, 5), (0, 10**6, 0, 0)]:
        found = kernel.gather(log.units, 0, log.block, START, count, most, sieve)
        assert (len(found[0]), found[1:]) == (taken, (taken * size, looked))


@pytest.mark.parametrize("odd", [(START, 0, 0), (START - 1, 99, 0), (START, 99, 0), (2**62, 99, 0)])
def test_it_ends_before_a_unit_that_is_not_plain(kernel: Kernel, odd: tuple[int, ...]) -> None:
    log, sieve = NUMBERED, kernel.Sieve(EVEN, acceptor(EVEN))
    units = log.units[: 2 * UNIT.size] + UNIT.pack(*odd) + log.units[3 * UNIT.size :]
    assert kernel.gather(units, 0, log.block, START, 99, 10**6, sieve)[2] == 2


@pytest.mark.parametrize(
    "plan",
    [
        TextIs(KEYS["n"], b"3"),
        NumberIs(KEYS["n"], ">=", 7, 2**31 - 1),
        Joined(True, (Negated(IsThere(KEYS["m"])), EVEN)),
        Asked(lambda properties: b"n\x01" in properties),
    ],
)
def test_plain_values_are_judged_in_one_go(kernel: Kernel, plan: Plan) -> None:
    sieve = kernel.Sieve(plan, acceptor(plan))
    log = NUMBERED
    assert kernel.gather(log.units, 0, log.block, START, 99, 10**6, sieve)[2] == 10


def test_what_a_function_raises_is_left_to_the_test(kernel: Kernel) -> None:
    def fails(_: bytes) -> bool:
        raise ValueError

    sieve = kernel.Sieve(Asked(fails), lambda properties: b"4" in properties)
    assert NUMBERED.sifted(kernel, sieve) == [NUMBERED.records[4]]


names = st.sampled_from(list(KEYS))
texts = st.sampled_from(["3", "-7", "+7", "x", "ä", "2147483648"]).map(str.encode)
plans = st.recursive(
    st.one_of(
        st.builds(TextIs, names.map(KEYS.__getitem__), texts),
        st.builds(
            NumberIs,
            names.map(KEYS.__getitem__),
            st.sampled_from(list(SYMBOLS)),
            st.one_of(st.integers(-8, 8), st.integers(-(2**63), 2**63 - 1)),
            st.sampled_from([2**31 - 1, 2**63 - 1]),
        ),
        st.builds(IsThere, names.map(KEYS.__getitem__)),
        st.builds(IsListed, names.map(KEYS.__getitem__), st.frozensets(texts, max_size=3)),
        st.sampled_from([True, False, None]).map(lambda said: Asked(lambda _: said)),
    ),
    lambda inner: st.one_of(
        st.builds(Negated, inner),
        st.builds(Joined, st.booleans(), st.lists(inner, min_size=1, max_size=3).map(tuple)),
    ),
    max_leaves=6,
)
values = st.one_of(
    texts,
    st.integers(-10, 10).map(lambda number: b"%d" % number),
    st.integers(-(2**66), 2**66).map(lambda number: b"%d" % number),
    st.sampled_from(["٣".encode(), b"0" * 30 + b"3", b"-", b"+", b"3\xff", b"\xff", b"1.0", b" 3"]),
    st.binary(max_size=4),
)
pairs = st.tuples(names.map(str.encode), st.sampled_from([b"\x01", b"\x01", b""]), values)
properties = st.one_of(
    st.lists(pairs, max_size=4).map(lambda found: b"\x02".join(map(b"".join, found))),
    st.lists(pairs, max_size=4).map(lambda found: b"".join(map(b"".join, found)) + b"\x02"),
    st.binary(max_size=12),
)


@pytest.mark.skipif(bool(MISSING), reason=MISSING)
@given(plans, st.lists(properties, max_size=5))
def test_a_plan_says_what_its_test_says(plan: Plan, messages: list[bytes]) -> None:
    log, accepts = Log(*messages), acceptor(plan)
    expected = [
        found for found, each in zip(log.records, messages, strict=True) if accepts(b"\x02" + each)
    ]
    for kernel in (REFERENCE, compiled()):
        assert log.sifted(kernel, kernel.Sieve(plan, accepts)) == expected


@pytest.mark.skipif(bool(MISSING), reason=MISSING)
@given(
    units=st.lists(
        st.tuples(
            st.sampled_from([START - 1, START, START + len(NUMBERED.records[0]), 2**63 - 1, -1]),
            st.sampled_from([len(NUMBERED.records[0])] * 3 + [0, 35, 36, -1, 2**31 - 1]),
        ),
        max_size=8,
    ),
    spoiled=st.dictionaries(
        st.integers(0, 2 * len(NUMBERED.records[0])), st.integers(0, 255), max_size=3
    ),
    tail=st.binary(max_size=19),
    first=st.integers(-1, 4),
    start=st.sampled_from([START, START, 0, -5]),
    limits=st.tuples(st.integers(-1, 9), st.integers(-1, 400)),
)
def test_spoiled_records_and_units_end_it_or_are_judged_alike(
    units: list[tuple[int, int]],
    spoiled: dict[int, int],
    tail: bytes,
    first: int,
    start: int,
    limits: tuple[int, int],
) -> None:
    packed = b"".join(UNIT.pack(place, told, 0) for place, told in units) + tail
    data = bytearray(NUMBERED.block)
    for at, value in spoiled.items():
        data[at] = value
    plan = NumberIs(KEYS["n"], "<=", 0, 2**31 - 1)
    arguments = (packed, max(first, 0), memoryview(data), start, *limits)
    records, _, looked = compiled().gather(*arguments, compiled().Sieve(plan, acceptor(plan)))
    reference = sieves.Sieve(plan, acceptor(plan))
    # Compare up to the point where the compiled version stopped, before an UNSURE record.
    expected, _, further = gathering.gather(
        packed[: (max(first, 0) + looked) * UNIT.size], *arguments[1:], reference
    )
    assert (records, looked) == (expected, further)
