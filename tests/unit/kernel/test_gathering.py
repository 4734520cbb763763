"""Lookup of records by queue units: both kernels return the same and stop at the same unit."""

import mmap
import struct
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bolide.kernel import gathering
from tests.unit.kernel.drafts import DRAFT, ENCODED, record
from tests.unit.kernel.kernels import MISSING

Gather = Callable[..., tuple[list[memoryview], int, int]]
UNIT = struct.Struct(">qiq")
START = 4096
SIZE = len(ENCODED)
RECORDS = [record(DRAFT, number, START + number * SIZE) for number in range(5)]
BLOCK = memoryview(b"".join(RECORDS))
UNITS = b"".join(UNIT.pack(START + number * SIZE, SIZE, 7) for number in range(len(RECORDS)))


def compiled() -> Gather:
    if MISSING:
        pytest.skip(MISSING)
    from bolide.kernel import _gathering

    return _gathering.gather


@pytest.fixture(params=["reference", "compiled"])
def gather(request: pytest.FixtureRequest) -> Gather:
    return gathering.gather if request.param == "reference" else compiled()


def test_a_run_is_taken_as_views_of_the_block(gather: Gather) -> None:
    found, size, looked = gather(UNITS, 1, BLOCK, START, 10, 10**6)
    assert [bytes(each) for each in found] == RECORDS[1:]
    assert (size, looked) == (4 * SIZE, 4)
    assert found[0].obj is BLOCK.obj


@pytest.mark.parametrize(("count", "size", "taken"), [(2, 10**6, 2), (9, 3 * SIZE, 3), (0, 9, 0)])
def test_it_ends_at_the_limits(gather: Gather, count: int, size: int, taken: int) -> None:
    found, total, looked = gather(UNITS, 0, BLOCK, START, count, size)
    assert (len(found), total, looked) == (taken, taken * SIZE, taken)


@pytest.mark.parametrize(
    "odd",
    [
        (START + 2 * SIZE, SIZE - 1, 7),
        (START + 2 * SIZE + 1, SIZE, 7),
        (START + 5 * SIZE, SIZE, 7),
        (START - 1, SIZE, 7),
        (START, 0x7FFF_FFFF, 0),
        (START, 0, 0),
        (START, -1, 0),
    ],
)
def test_it_ends_before_a_unit_that_is_not_plain(gather: Gather, odd: tuple[int, ...]) -> None:
    units = UNITS[: 2 * UNIT.size] + UNIT.pack(*odd) + UNITS[3 * UNIT.size :]
    found, size, looked = gather(units, 0, BLOCK, START, 10, 10**6)
    assert (len(found), size, looked) == (2, 2 * SIZE, 2)


@pytest.mark.skipif(bool(MISSING), reason=MISSING)
@given(
    units=st.lists(
        st.tuples(
            st.sampled_from([*range(START - 1, START + 5 * SIZE + 2, SIZE), START, 2**63 - 1, -1]),
            st.sampled_from([SIZE, SIZE, SIZE, 0, 35, 36, -1, 2**31 - 1]),
        ),
        max_size=8,
    ),
    spoiled=st.dictionaries(st.integers(0, 5 * SIZE - 1), st.integers(0, 255), max_size=3),
    tail=st.binary(max_size=19),
    first=st.integers(0, 4),
    start=st.sampled_from([START, START, 0, START + SIZE, -5]),
    limits=st.tuples(st.integers(-1, 9), st.integers(-1, 6 * SIZE)),
)
def test_the_twins_agree(
    units: list[tuple[int, int]],
    spoiled: dict[int, int],
    tail: bytes,
    first: int,
    start: int,
    limits: tuple[int, int],
) -> None:
    packed = b"".join(UNIT.pack(place, told, 0) for place, told in units) + tail
    data = bytearray(BLOCK)
    for at, value in spoiled.items():
        data[at] = value
    arguments = (packed, first, memoryview(data), start, *limits)
    assert compiled()(*arguments) == gathering.gather(*arguments)


# ---- what is in memory


@pytest.mark.parametrize("name", ["reference", "compiled"])
def test_only_bytes_that_are_there_can_be_in_memory(name: str) -> None:
    is_resident = gathering.is_resident
    if name == "compiled":
        if MISSING:
            pytest.skip(MISSING)
        from bolide.kernel import _gathering

        is_resident = _gathering.is_resident
    with mmap.mmap(-1, 4 * mmap.PAGESIZE) as mapping:
        mapping[:] = bytes(range(256)) * (len(mapping) // 256)
        with memoryview(mapping) as view:
            wrong = [(-1, 5), (0, 0), (0, -1), (len(view), 1), (1, len(view)), (2**62, 2**62)]
            assert not any(is_resident(view, *each) for each in wrong)
            assert is_resident(view, 1, len(view) - 1) == (name == "compiled")


def test_bytes_that_were_never_touched_are_not_in_memory() -> None:
    if MISSING:
        pytest.skip(MISSING)
    from bolide.kernel import _gathering

    with mmap.mmap(-1, 4 * mmap.PAGESIZE) as mapping, memoryview(mapping) as view:
        assert not _gathering.is_resident(view, 0, len(view))
