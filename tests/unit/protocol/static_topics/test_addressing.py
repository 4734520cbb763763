"""The logical queues of a route."""

from bolide.model.message_queue import MessageQueue
from bolide.protocol.bodies.queues import QueueMapping
from bolide.protocol.static_topics.addressing import (
    NO_LEADER,
    is_logical,
    logical_broker_name,
    queue_leaders,
)


def mapping(broker: str, epoch: int, *queues: int, total: int = 3) -> QueueMapping:
    places = {number: place for place, number in enumerate(queues)}
    return QueueMapping(
        topic="T", bname=broker, epoch=epoch, total_queues=total, curr_id_map=places
    )


def leaders(*mappings: QueueMapping) -> list[str]:
    found = queue_leaders("T", {each.bname: each for each in mappings})
    assert list(found) == [MessageQueue("T", "__syslo__global__", n) for n in range(len(found))]
    return list(found.values())


def test_each_logical_queue_has_the_leader_that_claims_it() -> None:
    assert leaders(mapping("a", 1, 0, 2), mapping("b", 1, 1)) == ["a", "b", "a"]


def test_of_two_claims_the_higher_epoch_is_right() -> None:
    assert leaders(mapping("a", 1, 0, 1, 2), mapping("b", 2, 1)) == ["a", "b", "a"]
    assert leaders(mapping("b", 2, 1), mapping("a", 1, 0, 1, 2)) == ["a", "b", "a"]


def test_a_queue_that_nobody_leads_is_there_without_a_leader() -> None:
    assert leaders(mapping("a", 1, 0, 2)) == ["a", NO_LEADER, "a"]


def test_the_newest_mapping_tells_the_number_of_queues() -> None:
    assert leaders(mapping("a", 1, 0, total=1), mapping("b", 2, 1, total=2)) == ["a", "b"]


def test_plain_topics_have_no_logical_queues() -> None:
    assert queue_leaders("T", None) == {}


def test_logical_queues_have_a_broker_name_that_no_broker_has() -> None:
    assert logical_broker_name("__global__") == "__syslo__global__"
    assert logical_broker_name("zone") == "__syslo__zone"
    assert is_logical("__syslo__global__")
    assert not is_logical("broker-a")
