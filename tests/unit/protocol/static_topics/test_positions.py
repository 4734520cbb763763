"""Offsets of logical queues: where they are, and which lists of items are accepted."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bolide.protocol.bodies.queues import QueueMappingDetail, QueueMappingItem
from bolide.protocol.static_topics.positions import (
    BLOCK,
    BadMapping,
    check_items,
    check_numbers,
    check_successors,
    find_item,
    has_end,
    item_offset,
    known_end,
    led_queues,
    logical_offset,
    next_block,
    next_item,
    offset_delta,
    published,
    stored_offset,
)


def item(gen: int = 0, at: int = 0, *, broker: str = "a", end: int = -1) -> QueueMappingItem:
    return QueueMappingItem(gen=gen, queue_id=gen, bname=broker, logic_offset=at, end_offset=end)


lengths = st.lists(st.integers(0, 40_000), min_size=1, max_size=5)


def moved_queue(lengths: list[int]) -> list[QueueMappingItem]:
    """A queue that was moved each time that it had so many messages more."""
    items, at = [], 0
    for gen, length in enumerate(lengths):
        items.append(item(gen, at))
        at = next_block(at + length)
    return items


@given(st.integers(0, 10**9))
def test_a_new_item_begins_at_a_block_half_a_block_behind(offset: int) -> None:
    begin = next_block(offset)
    assert begin % BLOCK == 0
    assert BLOCK / 2 < begin - offset <= 3 * BLOCK / 2


@given(lengths)
def test_each_offset_is_found_in_the_item_that_has_it(lengths: list[int]) -> None:
    items = moved_queue(lengths)
    check_items(items)
    for each, length in zip(items, lengths, strict=True):
        for physical in {0, length // 2, length}:
            logical = logical_offset(each, physical)
            assert find_item(items, logical) is each
            assert item_offset(each, logical) == physical
            assert logical == physical + offset_delta(each)


@given(lengths)
def test_the_items_follow_each_other(lengths: list[int]) -> None:
    items = moved_queue(lengths)
    successors = [next_item(items, each) for each in items]
    assert successors == [*items[1:], None]
    assert known_end(items) == items[-1].logic_offset


def test_an_item_without_its_place_is_not_found() -> None:
    items = [item(0, 0), item(1, -1, broker="b")]
    assert find_item(items, 2**62) is items[0]
    assert next_item(items, items[0]) is None
    assert stored_offset(items[1], 7) == -1
    assert find_item(items[1:], 0) is None


def test_an_offset_before_all_items_belongs_to_the_first() -> None:
    items = [item(1, BLOCK), item(2, 2 * BLOCK)]
    assert find_item(items, 5) is items[0]
    assert find_item([], 5) is None


def test_an_item_with_an_end_has_no_offsets_behind_it() -> None:
    ended = item(0, 100, end=10)
    assert has_end(ended)
    assert stored_offset(ended, 50) == 110
    assert known_end([ended]) == 110
    assert not has_end(item())


@pytest.mark.parametrize(
    ("items", "reason"),
    [
        ([item(-1)], "negative"),
        ([QueueMappingItem(bname="a", end_offset=-2)], "ends before"),
        ([QueueMappingItem(bname="a", start_offset=2**62)], "not at 0"),
        ([item(0, 2**62 + 1)], "an offset over"),
        ([item(number, number) for number in range(1_001)], "1001 items"),
        ([item(0, -1), item(1, 5)], "no logical offset"),
        ([item(1, 0), item(1, 5)], "higher generation"),
        ([item(0, 10), item(1, 10)], "begins before"),
        ([item(0, 0, end=50), item(1, 50)], "begins before"),
    ],
)
def test_contradictory_items_are_refused(items: list[QueueMappingItem], reason: str) -> None:
    with pytest.raises(BadMapping, match=reason):
        check_items(items)


@pytest.mark.parametrize(
    ("total", "number"), [(-5, 0), (2_000_000, 0), (1, 1), (1, 2**70), (1, -1)]
)
def test_queues_that_a_topic_cannot_have_are_refused(total: int, number: int) -> None:
    mapping = QueueMappingDetail(
        topic="T", bname="a", total_queues=total, hosted_queues={number: [item()]}
    )
    with pytest.raises(BadMapping, match="topic T"):
        check_numbers(mapping)


def test_a_new_list_may_add_a_leader_and_place_it_once() -> None:
    old = [item(0, 0)]
    added = [item(0, 0), item(1, -1, broker="b")]
    placed = [item(0, 0), item(1, BLOCK, broker="b")]
    check_successors(old, added, same_epoch=False)
    check_successors(added, placed, same_epoch=True)
    check_successors(placed, placed[1:], same_epoch=True)
    with pytest.raises(BadMapping, match="logical offset"):
        check_successors(placed, [item(0, 0), item(1, 3 * BLOCK, broker="b")], same_epoch=True)
    with pytest.raises(BadMapping, match="was at"):
        check_successors(old, [item(0, 0, broker="b")], same_epoch=False)
    with pytest.raises(BadMapping, match="epoch"):
        check_successors(old, added, same_epoch=True)
    with pytest.raises(BadMapping, match="leaves out"):
        check_successors(old, [], same_epoch=False)


def test_name_servers_are_told_which_queues_a_broker_leads() -> None:
    mapping = QueueMappingDetail(
        topic="T",
        bname="a",
        total_queues=3,
        epoch=7,
        hosted_queues={0: [item(0)], 1: [item(0), item(3, BLOCK, broker="b")], 2: []},
    )
    assert led_queues(mapping) == {0: 0}
    told = published(mapping)
    assert (told.topic, told.bname, told.total_queues, told.epoch) == ("T", "a", 3, 7)
    assert told.curr_id_map == {0: 0}
