import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.kernel.kernels import Kernel

SLOTS, CAPACITY = 5, 8
SIZE = 40 + SLOTS * 4 + CAPACITY * 20
BEGIN = 1_700_000_000_000
ALWAYS = (0, 2**31)


def items(*found: tuple[int, int, int]) -> bytes:
    return b"".join(struct.pack(">Iqq", *each) for each in found)


def slot(view: memoryview | bytearray, number: int) -> int:
    return int.from_bytes(view[40 + 4 * number : 44 + 4 * number])


def entry(view: memoryview | bytearray, number: int) -> tuple[int, ...]:
    return struct.unpack_from(">iqii", view, 40 + 4 * SLOTS + 20 * number)


def put(kernel: Kernel, view: memoryview, keys: bytes, count: int = 1) -> tuple[int, int]:
    return kernel.put_keys(view, SLOTS, CAPACITY, count, BEGIN, keys)


@pytest.fixture
def view() -> memoryview:
    return memoryview(bytearray(SIZE))


def test_entries_of_one_slot_are_a_chain(kernel: Kernel, view: memoryview) -> None:
    keys = items((7, 100, BEGIN), (12, 200, BEGIN + 1999), (3, 300, BEGIN + 5000))
    assert put(kernel, view, keys) == (3, 2)
    assert [entry(view, number) for number in (1, 2, 3)] == [
        (7, 100, 0, 0),
        (12, 200, 1, 1),
        (3, 300, 5, 0),
    ]
    assert [slot(view, number) for number in range(SLOTS)] == [0, 0, 2, 3, 0]
    assert not any(view[:40])


def test_what_has_no_room_is_left_out(kernel: Kernel, view: memoryview) -> None:
    keys = items(*((n, n, BEGIN) for n in range(10)))
    assert put(kernel, view, keys, count=6) == (2, 2)
    assert put(kernel, view, keys, count=8) == (0, 0)
    assert entry(view, 7) == (1, 1, 0, 0)


@pytest.mark.parametrize(
    ("begin", "timestamp", "seconds"),
    [
        (BEGIN, BEGIN - 5000, 0),
        (BEGIN, BEGIN + 2**31 * 1000, 2**31 - 1),
        (1, 2**63 - 1, 2**31 - 1),
        (2**63 - 1, -(2**63), 0),
        (0, BEGIN, 0),
        (-1, BEGIN, 0),
    ],
)
def test_seconds_stay_in_their_range(
    kernel: Kernel, view: memoryview, begin: int, timestamp: int, seconds: int
) -> None:
    kernel.put_keys(view, SLOTS, CAPACITY, 1, begin, items((7, 100, timestamp)))
    assert entry(view, 1)[2] == seconds


@pytest.mark.parametrize("left_over", [3, 4, 2**31, 2**32 - 1])
def test_a_slot_that_names_a_later_entry_counts_as_empty(
    kernel: Kernel, view: memoryview, left_over: int
) -> None:
    view[48:52] = left_over.to_bytes(4)
    assert put(kernel, view, items((7, 100, BEGIN)), count=3) == (1, 1)
    assert (slot(view, 2), entry(view, 3)) == (3, (7, 100, 0, 0))


def test_offsets_are_found_newest_first(kernel: Kernel, view: memoryview) -> None:
    put(kernel, view, items(*((7 + n % 2 * 5, n * 100, BEGIN + n * 1000) for n in range(6))))
    assert kernel.find_keys(view, SLOTS, 7, 7, ALWAYS, 64) == [400, 200, 0]
    assert kernel.find_keys(view, SLOTS, 7, 12, ALWAYS, 2) == [500, 300]
    assert kernel.find_keys(view, SLOTS, 7, 2, ALWAYS, 64) == []
    assert kernel.find_keys(view, SLOTS, 7, 7, ALWAYS, 0) == []


@pytest.mark.parametrize(
    ("seconds", "found"), [((2, 4), [4, 3, 2]), ((-9, 0), [0]), ((5, 9), [5]), ((6, 9), [])]
)
def test_only_times_asked_for_are_found(
    kernel: Kernel, view: memoryview, seconds: tuple[int, int], found: list[int]
) -> None:
    put(kernel, view, items(*((7, n, BEGIN + n * 1000) for n in range(6))))
    assert kernel.find_keys(view, SLOTS, 7, 7, seconds, 64) == found


def test_the_walk_ends_at_an_entry_that_is_too_old(kernel: Kernel, view: memoryview) -> None:
    put(kernel, view, items((7, 1, BEGIN + 9000), (12, 2, BEGIN), (7, 3, BEGIN + 9000)))
    assert kernel.find_keys(view, SLOTS, 4, 7, (5, 9), 64) == [3]


def test_a_record_filed_twice_under_one_key_is_found_once(kernel: Kernel, view: memoryview) -> None:
    put(kernel, view, items((7, 1, BEGIN), (7, 1, BEGIN), (7, 2, BEGIN), (7, 2, BEGIN)))
    assert kernel.find_keys(view, SLOTS, 5, 7, ALWAYS, 2) == [2, 1]


@pytest.mark.parametrize("previous", [3, 4, 7, 2**31, 2**32 - 1])
def test_a_chain_that_does_not_go_down_ends(
    kernel: Kernel, view: memoryview, previous: int
) -> None:
    put(kernel, view, items((7, 1, BEGIN), (7, 2, BEGIN), (7, 3, BEGIN)))
    struct.pack_into(">I", view, 40 + 4 * SLOTS + 20 * 3 + 16, previous)
    assert kernel.find_keys(view, SLOTS, 4, 7, ALWAYS, 64) == [3]


def test_an_entry_that_is_not_counted_is_not_found(kernel: Kernel, view: memoryview) -> None:
    put(kernel, view, items((7, 1, BEGIN), (7, 2, BEGIN)))
    assert kernel.find_keys(view, SLOTS, 2, 7, ALWAYS, 64) == []


def test_slots_are_made_anew_from_the_entries(kernel: Kernel, view: memoryview) -> None:
    put(kernel, view, items(*((n, n, BEGIN) for n in (7, 12, 3, 7, 8))))
    whole = bytes(view)
    view[40 : 40 + 4 * SLOTS] = b"\xff" * 4 * SLOTS
    view[40 + 4 * SLOTS + 56 : 40 + 4 * SLOTS + 60] = b"\xff" * 4
    assert kernel.rebuild_slots(view, SLOTS, 6) == 2
    assert bytes(view) == whole


@given(data=st.binary(min_size=SIZE, max_size=SIZE), count=st.integers(1, CAPACITY))
def test_slots_made_anew_reach_every_entry(kernel: Kernel, data: bytes, count: int) -> None:
    view = memoryview(bytearray(data))
    kernel.rebuild_slots(view, SLOTS, count)
    for number in range(1, count):
        (key_hash,) = struct.unpack_from(">I", view, 40 + 4 * SLOTS + 20 * number)
        reached = [slot(view, key_hash % SLOTS)]
        while reached[-1]:
            reached.append(entry(view, reached[-1])[3])
        assert number in reached


@pytest.mark.parametrize(("slots", "count"), [(0, 1), (SLOTS, 0), (2**40, 1), (SLOTS, 2**60)])
def test_a_file_too_small_for_its_numbers_is_refused(
    kernel: Kernel, view: memoryview, slots: int, count: int
) -> None:
    with pytest.raises(ValueError, match="slots and"):
        kernel.put_keys(view, slots, count, count, BEGIN, b"")
    with pytest.raises(ValueError, match="slots and"):
        kernel.find_keys(view, slots, count, 7, ALWAYS, 1)
    with pytest.raises(ValueError, match="slots and"):
        kernel.rebuild_slots(view, slots, count)


def test_a_cut_item_is_refused(kernel: Kernel, view: memoryview) -> None:
    with pytest.raises(ValueError, match="19 bytes"):
        put(kernel, view, bytes(19))
