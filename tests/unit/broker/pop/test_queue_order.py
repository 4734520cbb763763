"""The order in which pops visit queues: by priority where the topic asks for it."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from bolide.protocol.bodies.groups import GroupConfig
from bolide.protocol.bodies.topics import TopicConfig
from bolide.protocol.codes import RequestCode
from bolide.protocol.headers.pop import PopHeader
from tests.support.aio import on_loop
from tests.support.pop_core import PopCore
from tests.support.popping import read_pop

TOPIC = TopicConfig(
    topic_name="T",
    read_queue_nums=4,
    write_queue_nums=4,
    attributes={"message.type": "PRIORITY"},
)
RETRY = TopicConfig(topic_name="%RETRY%G_T", read_queue_nums=1, write_queue_nums=1)


def header(**given: Any) -> PopHeader:
    values: dict[str, Any] = {
        "consumer_group": "G", "topic": "T", "queue_id": -1, "max_msg_nums": 32,
        "invisible_time": 60_000, "poll_time": 0, "born_time": 0, "init_mode": 0,
    }  # fmt: skip
    return PopHeader(**values | given)


async def core_with(directory: Path, topic: TopicConfig = TOPIC, **settings: Any) -> PopCore:
    core = PopCore(directory, **settings)
    await core.tables.topics.update(topic)
    core.tables.groups.require("G")
    return core


def visited(core: PopCore, topic: TopicConfig = TOPIC, **given: Any) -> list[tuple[str, int]]:
    return list(core.pop.delivery.order.queues(header(**given), topic))


@pytest.mark.parametrize("ascending", [True, False])
@on_loop
async def test_messages_are_popped_by_priority(tmp_path: Path, ascending: bool) -> None:
    core = await core_with(tmp_path, priority_order_asc=ascending)
    for round_number in range(20):
        for queue_id in (1, 3, 0, 2):
            core.send("T", queue_id, b"%d" % queue_id)
        found = read_pop("T", await core.call(RequestCode.POP_MESSAGE, header())).bodies
        expected = [b"3", b"2", b"1", b"0"] if ascending else [b"0", b"1", b"2", b"3"]
        assert found == expected, round_number
    await core.stop()


@on_loop
async def test_retries_come_after_the_lowest_priority(tmp_path: Path) -> None:
    core = await core_with(tmp_path)
    await core.tables.topics.update(RETRY)
    orders = {tuple(visited(core)) for _ in range(50)}
    await core.stop()
    assert orders == {(("T", 3), ("T", 2), ("T", 1), ("T", 0), ("%RETRY%G_T", 0))}


@on_loop
async def test_the_probability_of_retries_first_has_a_setting_of_its_own(tmp_path: Path) -> None:
    core = await core_with(tmp_path, pop_from_retry_probability_for_priority=100)
    await core.tables.topics.update(RETRY)
    assert {visited(core)[0] for _ in range(20)} == {("%RETRY%G_T", 0)}
    await core.stop()


@on_loop
async def test_the_factor_of_the_group_says_how_many_pops_go_by_priority(tmp_path: Path) -> None:
    core = await core_with(tmp_path)

    async def first_queues(factor: str) -> Counter[int]:
        attributes = {"priority.factor": factor}
        await core.tables.groups.update(GroupConfig(group_name="G", attributes=attributes))
        return Counter(visited(core)[0][1] for _ in range(400))

    assert (await first_queues("100")).keys() == {3}
    assert (await first_queues("0")).keys() == {0, 1, 2, 3}
    half = await first_queues("50")
    await core.stop()
    assert half.keys() == {0, 1, 2, 3}
    assert 180 < half[3] < 320  # five eighths of 400 are expected


@on_loop
async def test_other_topics_begin_at_any_queue(tmp_path: Path) -> None:
    plain = TopicConfig(topic_name="T", read_queue_nums=4, write_queue_nums=4)
    core = await core_with(tmp_path, plain)
    orders = [visited(core, plain) for _ in range(200)]
    await core.stop()
    assert {order[0][1] for order in orders} == {0, 1, 2, 3}
    assert all(sorted(order) == [("T", number) for number in range(4)] for order in orders)


@on_loop
async def test_a_pop_of_one_queue_or_in_order_does_not_go_by_priority(tmp_path: Path) -> None:
    core = await core_with(tmp_path)
    assert visited(core, queue_id=1) == [("T", 1)]
    assert {visited(core, order=True)[0][1] for _ in range(200)} == {0, 1, 2, 3}
    await core.stop()
