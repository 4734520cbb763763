"""How queues are shared out; `tests/interop/test_consumers.py` compares all with Java's classes."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bolide.client.consumer.group.assignment import (
    Strategy,
    average,
    average_by_circle,
    by_config,
    by_machine_room,
    consistent_hash,
    consistent_hash_ring,
    machine_room_nearby,
)
from bolide.model.message_queue import MessageQueue

COMPLETE = [average, average_by_circle, consistent_hash]


def queues(count: int, *brokers: str) -> list[MessageQueue]:
    names = brokers or ("broker-a",)
    return sorted(MessageQueue("T", name, number) for name in names for number in range(count))


def ids(taken: Sequence[MessageQueue]) -> list[int]:
    return [queue.queue_id for queue in taken]


@pytest.mark.parametrize("strategy", COMPLETE)
@given(count=st.integers(1, 40), members=st.integers(1, 12))
def test_every_queue_belongs_to_exactly_one_member(
    strategy: Strategy, count: int, members: int
) -> None:
    everything = queues(count)
    names = sorted(f"10.0.0.{n}@1" for n in range(members))
    taken = [queue for name in names for queue in strategy("G", name, everything, names)]
    assert sorted(taken) == everything


@pytest.mark.parametrize("strategy", [average, average_by_circle])
@given(count=st.integers(0, 40), members=st.integers(1, 12))
def test_shares_differ_by_one_queue_at_most(strategy: Strategy, count: int, members: int) -> None:
    names = [f"c{n:02}" for n in range(members)]
    sizes = {len(strategy("G", name, queues(count), names)) for name in names}
    assert max(sizes) - min(sizes) <= 1


def test_average_gives_neighbours_and_one_more_to_the_first() -> None:
    names = ["a", "b", "c"]
    assert [ids(average("G", name, queues(8), names)) for name in names] == [
        [0, 1, 2],
        [3, 4, 5],
        [6, 7],
    ]


def test_circle_deals_queues_out_like_cards() -> None:
    names = ["a", "b", "c"]
    assert ids(average_by_circle("G", "b", queues(8), names)) == [1, 4, 7]


@pytest.mark.parametrize("strategy", [*COMPLETE, by_machine_room(["room"])])
def test_who_is_not_in_the_list_gets_nothing(strategy: Strategy) -> None:
    assert list(strategy("G", "stranger", queues(8), ["a", "b"])) == []


def test_config_takes_its_queues_whoever_else_is_there() -> None:
    wanted = queues(8)[2:4]
    assert by_config(wanted)("G", "a", queues(8), ["b"]) == wanted
    assert by_config(wanted)("G", "a", queues(3), ["b"]) == wanted[:1]  # one is gone


def test_machine_room_shares_only_the_brokers_of_its_rooms() -> None:
    everything = queues(3, "near@a", "far@b", "plain")
    strategy = by_machine_room({"near"})
    taken = [strategy("G", name, everything, ["a", "b"]) for name in ("a", "b")]
    assert [[q.broker_name for q in share] for share in taken] == [["near@a"] * 2, ["near@a"]]
    assert [ids(share) for share in taken] == [[0, 2], [1]]


def nearby() -> Strategy:
    return machine_room_nearby(
        average,
        broker_room=lambda queue: queue.broker_name.split("-")[0],
        client_room=lambda client: client.split("-")[0],
    )


def test_nearby_members_take_the_queues_of_their_room() -> None:
    everything, names = queues(2, "x-1", "y-1"), ["x-a", "x-b", "y-a"]
    taken = {name: nearby()("G", name, everything, names) for name in names}
    assert {name: [q.broker_name for q in share] for name, share in taken.items()} == {
        "x-a": ["x-1"],
        "x-b": ["x-1"],
        "y-a": ["y-1", "y-1"],
    }


def test_a_room_without_members_is_shared_by_all() -> None:
    everything, names = queues(2, "x-1", "z-1"), ["x-a", "y-a"]
    assert [q.broker_name for q in nearby()("G", "x-a", everything, names)] == ["x-1", "x-1", "z-1"]
    assert [q.broker_name for q in nearby()("G", "y-a", everything, names)] == ["z-1"]


def test_a_room_that_nobody_knows_is_an_error_that_names_the_queue() -> None:
    strategy = machine_room_nearby(average, broker_room=lambda _: "", client_room=lambda _: "x")
    with pytest.raises(ValueError, match="machine room is known for queue"):
        strategy("G", "a", queues(1), ["a"])


@given(members=st.integers(2, 8), gone=st.integers(0, 7))
def test_on_the_ring_a_member_that_leaves_moves_only_its_own_queues(
    members: int, gone: int
) -> None:
    names, everything = [f"c{n}" for n in range(members)], queues(32)
    left = [name for name in names if name != f"c{gone % members}"]
    for name in left:
        before = consistent_hash("G", name, everything, names)
        assert set(before) <= set(consistent_hash("G", name, everything, left))


def test_a_ring_without_nodes_gives_nothing() -> None:
    assert consistent_hash_ring(0)("G", "a", queues(4), ["a"]) == []


def test_the_ring_takes_a_hash_of_ones_own() -> None:
    strategy = consistent_hash_ring(1, hash_of=lambda key: 5 if key == "b-0" else 9)
    assert len(strategy("G", "a", queues(3), ["a", "b"])) == 3  # all queues lie at 9, as a does
