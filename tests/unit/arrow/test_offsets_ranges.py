"""Queue ranges between positions: split into pieces, and limited in size."""

from hypothesis import given
from hypothesis import strategies as st

from bolide.arrow.offsets import QueueRange, between, limit_ends, split
from bolide.model.message_queue import MessageQueue

ONE, TWO, THREE = (MessageQueue("T", "broker-a", number) for number in range(3))

backlogs = st.dictionaries(
    st.builds(MessageQueue, st.just("T"), st.sampled_from("ab"), st.integers(0, 9)),
    st.tuples(st.integers(0, 1000), st.integers(-5, 500)),
    min_size=1,
)


def test_what_lies_between_positions_is_in_order_and_without_empty_queues() -> None:
    start, end = {TWO: 0, ONE: 5, THREE: 9}, {THREE: 9, TWO: 3, ONE: 7}
    assert between(start, end) == [QueueRange(ONE, 5, 7), QueueRange(TWO, 0, 3)]


def test_an_end_before_the_start_is_empty() -> None:
    assert between({ONE: 5}, {ONE: 3}) == []


def test_one_long_queue_is_cut_evenly() -> None:
    assert split([QueueRange(ONE, 10, 20)], 3) == [
        QueueRange(ONE, 10, 13),
        QueueRange(ONE, 13, 16),
        QueueRange(ONE, 16, 20),
    ]


def test_enough_queues_are_left_whole() -> None:
    whole = [QueueRange(ONE, 0, 10**9), QueueRange(TWO, 0, 1)]
    assert split(whole, 2) == whole


def test_long_queues_get_more_pieces_than_short_ones() -> None:
    cut = split([QueueRange(ONE, 0, 900), QueueRange(TWO, 0, 100)], 10)
    assert [each.queue for each in cut].count(ONE) == 9
    assert cut[-1] == QueueRange(TWO, 0, 100)


def test_no_piece_is_longer_than_allowed() -> None:
    assert split([QueueRange(ONE, 0, 10)], max_rows=4) == [
        QueueRange(ONE, 0, 3),
        QueueRange(ONE, 3, 6),
        QueueRange(ONE, 6, 10),
    ]


@given(backlogs, st.integers(1, 50), st.none() | st.integers(1, 100))
def test_pieces_cover_every_row_once(
    backlog: dict[MessageQueue, tuple[int, int]], pieces: int, most: int | None
) -> None:
    whole = [QueueRange(queue, at, at + size) for queue, (at, size) in backlog.items()]
    cut = split(whole, pieces, most)
    assert all(piece.size > 0 for piece in cut)
    assert most is None or all(piece.size <= most for piece in cut)
    rows = sum(each.size for each in whole)
    assert len(cut) >= min(pieces, rows)
    for each in whole:
        own = [piece for piece in cut if piece.queue == each.queue]
        assert [piece.end for piece in own[:-1]] == [piece.start for piece in own[1:]]
        assert not each.size or (own[0].start, own[-1].end) == each[1:]


def test_a_limit_is_shared_by_backlog() -> None:
    start = {ONE: 100, TWO: 0, THREE: 7}
    assert limit_ends(start, {ONE: 1000, TWO: 100, THREE: 7}, 100) == {ONE: 190, TWO: 10, THREE: 7}


def test_every_queue_with_a_backlog_gets_one_row_at_least() -> None:
    assert limit_ends({ONE: 0, TWO: 0}, {ONE: 10**6, TWO: 1}, 10) == {ONE: 9, TWO: 1}


def test_a_backlog_within_the_limit_is_taken_whole() -> None:
    assert limit_ends({ONE: 0, TWO: 5}, {ONE: 3, TWO: 7}, 5) == {ONE: 3, TWO: 7}


@given(backlogs, st.integers(1, 5000))
def test_a_share_stays_within_the_limit_but_for_one_row_a_queue(
    backlog: dict[MessageQueue, tuple[int, int]], most: int
) -> None:
    start = {queue: at for queue, (at, _) in backlog.items()}
    end = {queue: at + size for queue, (at, size) in backlog.items()}
    shared = limit_ends(start, end, most)
    assert shared.keys() == end.keys()
    taken = {queue: shared[queue] - start[queue] for queue in shared if end[queue] > start[queue]}
    assert sum(taken.values()) <= most + len(taken)
    assert all(0 < rows <= end[queue] - start[queue] for queue, rows in taken.items())
    assert all(shared[queue] == end[queue] for queue in shared.keys() - taken.keys())
