from hypothesis import given
from hypothesis import strategies as st

from bolide.broker.transactions.open_halves import OpenHalves, OpPositions

OFFSETS = st.integers(0, 200)


@given(
    first=OFFSETS,
    steps=st.lists(st.tuples(st.sampled_from(("close", "reopen", "trim")), OFFSETS), max_size=80),
    begin=OFFSETS,
    end=OFFSETS,
)
def test_it_tells_what_a_set_of_the_closed_ones_would_tell(
    first: int, steps: list[tuple[str, int]], begin: int, end: int
) -> None:
    halves, closed = OpenHalves(first), set(range(first))
    for step, offset in steps:
        if step == "close":
            halves.close(offset)
            closed.add(offset)
        elif step == "reopen":
            halves.reopen(offset)
            closed.discard(offset)
        else:
            halves.trim()
    left = [offset for offset in range(300) if offset not in closed]
    assert halves.first == left[0]
    assert halves.next_open(begin) == next(offset for offset in left if offset >= begin)
    assert [halves.is_open(offset) for offset in range(300)] == [
        offset not in closed for offset in range(300)
    ]
    assert list(halves.between(begin, end)) == [each for each in left if begin <= each < end]
    assert halves.count(end) == sum(each < end for each in left)


def test_a_long_run_of_closed_ones_is_forgotten() -> None:
    halves = OpenHalves()
    for offset in range(100_000):
        halves.close(offset)
    halves.trim()
    halves.reopen(99_990)
    halves.reopen(3)
    assert list(halves.between(0, 100_000)) == [3, 99_990]
    assert halves.count(100_010) == 12


def test_a_million_open_ones_and_as_many_closed_are_counted() -> None:
    halves = OpenHalves(7)
    for offset in range(7, 2_000_007, 2):
        halves.close(offset)
    assert halves.count(2_000_007) == 1_000_000


def test_ops_are_needed_until_all_halves_they_name_lie_before_the_first_open_one() -> None:
    ops = OpPositions(10)
    for position, last_named in ((10, 5), (11, 9), (12, 2)):
        ops.record(position, last_named)
    assert ops.first_needed(6) == 11
    assert ops.first_needed(9) == 11
    assert ops.first_needed(10) == 13


def test_an_op_that_was_taken_back_is_forgotten_with_those_behind_it() -> None:
    ops = OpPositions()
    for position, last_named in ((0, 100), (1, 100), (0, 1)):
        ops.record(position, last_named)
    assert ops.first_needed(2) == 1


def test_of_very_many_ops_those_that_are_needed_are_found_all_the_same() -> None:
    ops = OpPositions()
    for position in range(5000):
        ops.record(position, 9000 if position == 3000 else position)
    assert ops.first_needed(2500) == 2500
    assert ops.first_needed(5000) == 3000
    assert ops.first_needed(9001) == 5000
