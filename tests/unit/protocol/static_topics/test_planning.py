"""Plans of static topics: any series of them keeps every queue and moves few."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bolide.protocol import fastjson
from bolide.protocol.bodies.topics import MappedTopicConfig, MappingPlan, TopicConfig
from bolide.protocol.static_topics.planning import (
    check_agreement,
    check_plan,
    led_by,
    mapping_of,
    place_leaders,
    plan_creation,
    plan_remapping,
    unused_at,
)
from bolide.protocol.static_topics.positions import BLOCK, BadMapping

NOW = 1_700_000_000_000
BROKERS = ("a", "b", "c", "d")

some_brokers = st.sets(st.sampled_from(BROKERS), min_size=1)


def created(total: int, *brokers: str) -> MappingPlan:
    return plan_creation("T", total, brokers=brokers, known={}, now=NOW)


def leaders(plan: MappingPlan) -> dict[int, str]:
    queues = check_plan(plan.topic, plan.broker_config_map)
    return {number: led.broker for number, led in queues.items()}


def ends(plan: MappingPlan, messages: int) -> dict[str, dict[int, int]]:
    """So many messages in each queue."""
    return {
        name: dict.fromkeys(range(config.write_queue_nums), messages)
        for name, config in plan.broker_config_map.items()
    }


def carry_out(plan: MappingPlan, messages: int = 5) -> None:
    for broker in plan.broker_to_map_out:
        place_leaders(plan, broker, ends(plan, messages)[broker])


@given(st.integers(1, 20), some_brokers)
def test_new_queues_are_spread_evenly(total: int, brokers: set[str]) -> None:
    loads = Counter(leaders(created(total, *brokers)).values())
    counts = [loads[name] for name in brokers]
    assert sum(counts) == total
    assert max(counts) - min(counts) <= 1


@given(st.integers(1, 9), st.lists(some_brokers, min_size=1, max_size=5))
def test_after_any_moves_all_queues_are_led_evenly_by_the_last_brokers(
    total: int, moves: list[set[str]]
) -> None:
    plan, epoch = created(total, "a", "b"), 0
    for brokers in moves:
        before = leaders(plan)
        plan = plan_remapping("T", brokers=brokers, known=plan.broker_config_map, now=NOW)
        assert plan.epoch > epoch
        epoch = plan.epoch
        after = leaders(plan)
        loads = Counter(after.values())
        assert set(loads) <= brokers
        assert max(loads.values()) - min(loads[name] for name in brokers) <= 1
        assert not {*plan.broker_to_map_in} & {*plan.broker_to_map_out}
        moved = {number for number in after if after[number] != before[number]}
        must = sum(before[number] not in brokers for number in before)
        assert len(moved) >= must
        if not moved:
            assert before == after
        carry_out(plan)
        for number in moved:
            items = led_by_number(plan, number)
            assert items[-1].logic_offset % BLOCK == 0
            assert items[-1].logic_offset > items[-2].logic_offset


def led_by_number(plan: MappingPlan, number: int) -> list:  # type: ignore[type-arg]
    mappings = [mapping_of(name, each) for name, each in plan.broker_config_map.items()]
    return led_by(mappings)[number].items


def test_a_move_to_the_same_brokers_moves_nothing() -> None:
    plan = created(4, "a", "b")
    again = plan_remapping("T", brokers=["a", "b"], known=plan.broker_config_map, now=NOW)
    assert (again.broker_to_map_in, again.broker_to_map_out) == ([], [])
    assert leaders(again) == leaders(plan)


def test_more_queues_keep_the_old_ones_where_they_are() -> None:
    plan = created(2, "a")
    more = plan_creation("T", 4, brokers=["b"], known=plan.broker_config_map, now=NOW)
    assert leaders(more) == {0: "a", 1: "a", 2: "b", 3: "b"}
    assert more.epoch >= plan.epoch + 1000


def test_the_known_configurations_are_not_changed_by_a_plan() -> None:
    plan = created(2, "a")
    before = fastjson.encode(plan)
    plan_remapping("T", brokers=["b"], known=plan.broker_config_map, now=NOW)
    plan_creation("T", 3, brokers=["b"], known=plan.broker_config_map, now=NOW)
    assert fastjson.encode(plan) == before


def test_a_plan_is_the_same_after_it_was_written_to_a_file() -> None:
    plan = created(3, "a", "b")
    assert fastjson.decode(fastjson.encode(plan), MappingPlan) == plan


def test_a_new_leader_begins_behind_all_messages_of_the_old_one() -> None:
    plan = plan_remapping("T", brokers=["b"], known=created(1, "a").broker_config_map, now=NOW)
    assert led_by_number(plan, 0)[-1].logic_offset == -1
    place_leaders(plan, "a", {0: 7_000})
    assert led_by_number(plan, 0)[-1].logic_offset == 2 * BLOCK


def test_a_leader_is_not_placed_without_the_end_of_the_old_queue() -> None:
    plan = plan_remapping("T", brokers=["b"], known=created(1, "a").broker_config_map, now=NOW)
    with pytest.raises(BadMapping, match="ends"):
        place_leaders(plan, "a", {})


@pytest.mark.parametrize("total", [1, 2])
def test_a_topic_cannot_lose_queues(total: int) -> None:
    with pytest.raises(BadMapping, match="only get more"):
        plan_creation("T", total, brokers=["a"], known=created(2, "a").broker_config_map, now=NOW)


def test_a_topic_that_exists_and_is_not_static_is_refused() -> None:
    known = {"a": MappedTopicConfig(topic_name="T")}
    with pytest.raises(BadMapping, match="not a static topic"):
        plan_creation("T", 2, brokers=["a"], known=known, now=NOW)
    with pytest.raises(BadMapping, match="not a static topic"):
        plan_remapping("T", brokers=["a"], known=known, now=NOW)
    with pytest.raises(BadMapping, match="no broker has"):
        plan_remapping("T", brokers=["a"], known={}, now=NOW)


def test_brokers_that_disagree_are_refused() -> None:
    configs = created(2, "a", "b").broker_config_map
    mapping_of("a", configs["a"]).epoch += 1
    with pytest.raises(BadMapping, match="disagree"):
        check_agreement("T", configs)


def test_two_leaders_of_one_queue_are_refused_unless_the_newest_may_win() -> None:
    configs = created(2, "a", "b").broker_config_map
    mappings = [mapping_of(name, configs[name]) for name in "ab"]
    number = next(iter(mappings[0].hosted_queues))
    stolen = mappings[0].hosted_queues[number][0]
    mappings[1].hosted_queues[number] = [
        type(stolen)(gen=1, queue_id=9, bname="b", logic_offset=BLOCK)
    ]
    mappings[1].epoch += 1
    with pytest.raises(BadMapping, match="two leaders"):
        led_by(mappings)
    assert led_by(mappings, complete=False)[number].broker == "b"


def test_a_physical_queue_cannot_be_part_of_two_logical_ones() -> None:
    configs = created(2, "a").broker_config_map
    hosted = mapping_of("a", configs["a"]).hosted_queues
    hosted[1] = hosted[0]
    with pytest.raises(BadMapping, match="share queue"):
        check_plan("T", configs)


def test_a_broker_without_queues_knows_how_many_there_are() -> None:
    config = unused_at("c", "T", NOW, 4)
    assert isinstance(config, TopicConfig)
    assert (config.read_queue_nums, config.write_queue_nums) == (0, 0)
    mapping = mapping_of("c", config)
    assert (mapping.bname, mapping.total_queues, mapping.epoch) == ("c", 4, NOW)
