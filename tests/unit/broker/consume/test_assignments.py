"""Queue assignment by the broker, and request modes."""

from typing import Any

import pytest

from bolide.broker.consume.assignments import Assignments, ClusterQueues, RequestModes, pop_share
from bolide.model import allocation
from bolide.model.message_queue import MessageQueue
from bolide.protocol.bodies.heartbeat import ConsumerGroup, Heartbeat, MessageModel
from bolide.protocol.bodies.pop import AssignmentQuery, RequestMode, RequestModeSetting
from bolide.protocol.bodies.topics import TopicConfig
from bolide.store.tables import REQUEST_MODES, Table
from tests.support.aio import on_loop
from tests.support.broker_tables import BrokerTables

QUEUES = [MessageQueue("T", name, number) for name in ("broker-a", "broker-b") for number in (0, 1)]
POP = RequestModeSetting(topic="T", consumer_group="g", mode=RequestMode.POP)


async def sharing(tables: BrokerTables, *client_ids: str) -> Assignments:
    """A broker with topic T of four queues and members of group g."""
    config = TopicConfig(topic_name="T", read_queue_nums=4, write_queue_nums=4)
    await tables.topics.update_all([config, TopicConfig(topic_name="%RETRY%g")])
    tables.groups.require("g")
    for client_id in client_ids:
        beat = Heartbeat(client_id=client_id, consumer_data_set=[ConsumerGroup(group_name="g")])
        tables.clients.heartbeat(beat, client_id, "PYTHON", 0)  # type: ignore[arg-type]
    modes = RequestModes(Table(tables.directory / "config", REQUEST_MODES))
    return Assignments(
        tables.cell, tables.clients, ClusterQueues(tables.cell, tables.topics), modes
    )


async def asked(assignments: Assignments, client_id: str = "b", **given: Any) -> list[int] | None:
    """The queue ids that a client gets."""
    values: dict[str, Any] = {"topic": "T", "consumer_group": "g", "strategy_name": "AVG"}
    found = await assignments.query(AssignmentQuery(client_id=client_id, **values | given))
    return None if found is None else [each.message_queue.queue_id for each in found]


@on_loop
async def test_members_share_the_queues_by_the_strategy_they_name(tables: BrokerTables) -> None:
    assignments = await sharing(tables, "b", "a")
    assert await asked(assignments, "a") == [0, 1]
    assert await asked(assignments, "b") == [2, 3]
    assert await asked(assignments, "b", strategy_name="AVG_BY_CIRCLE") == [1, 3]
    assert await asked(assignments, message_model=MessageModel.BROADCASTING) == [0, 1, 2, 3]


@on_loop
async def test_a_client_without_an_assignment_keeps_its_queues(tables: BrokerTables) -> None:
    assignments = await sharing(tables, "a")
    assert await asked(assignments, "stranger") is None
    assert await asked(assignments, "a", strategy_name="MACHINE_ROOM") is None
    assert await asked(assignments, "a", topic="missing") is None


@on_loop
async def test_without_the_balancer_everybody_gets_all(tables: BrokerTables) -> None:
    closed = tables.restarted(server_load_balancer_enable=False)
    assert await asked(await sharing(closed, "a", "b"), "a") == [0, 1, 2, 3]


@on_loop
async def test_a_group_that_pops_gets_whole_brokers_but_pulls_its_retries(
    tables: BrokerTables,
) -> None:
    popping = tables.restarted(default_message_request_mode=RequestMode.POP)
    assignments = await sharing(popping, "a", "b")
    query = AssignmentQuery(topic="T", consumer_group="g", client_id="a", strategy_name="AVG")
    (whole,) = await assignments.query(query) or []
    assert (whole.mode, whole.message_queue) == (
        RequestMode.POP,
        MessageQueue("T", "broker-a", -1),
    )
    query.topic = "%RETRY%g"
    retries = await assignments.query(query) or []
    assert {each.mode for each in retries} == {RequestMode.PULL}
    assert {each.message_queue.queue_id for each in retries} >= {0}


@on_loop
async def test_a_request_mode_of_a_group_overrides_the_default(tables: BrokerTables) -> None:
    assignments = await sharing(tables, "a")
    await assignments.modes.set(POP)
    assert await asked(assignments, "a") == [-1]
    assert await asked(assignments, "a", consumer_group="other") is None
    again = Table(tables.directory / "config", REQUEST_MODES)
    again.load()
    assert RequestModes(again).find("T", "g") == POP


def test_modes_are_read_as_java_brokers_write_them(tables: BrokerTables) -> None:
    file = tables.directory / "config" / "messageRequestMode.json"
    file.parent.mkdir()
    file.write_text(
        '{\n\t"messageRequestModeMap":{\n\t\t"T":{\n\t\t\t"g":{\n\t\t\t\t"consumerGroup":"g",'
        '\n\t\t\t\t"mode":"POP",\n\t\t\t\t"popShareQueueNum":0,\n\t\t\t\t"topic":"T"\n}}}}'
    )
    table = Table(file.parent, REQUEST_MODES)
    table.load()
    assert RequestModes(table).find("T", "g") == POP


@pytest.mark.parametrize("strategy", [allocation.average, allocation.by_circle])
@pytest.mark.parametrize("members", range(1, 6))
@pytest.mark.parametrize("shared_with", [-1, 0, 1, 2, 7])
def test_every_queue_is_popped_by_a_member(strategy: Any, members: int, shared_with: int) -> None:
    popped: set[MessageQueue] = set()
    for index in range(members):
        popped |= set(pop_share(strategy, QUEUES, index, members, shared_with))
    assert popped in ({MessageQueue("T", f"broker-{x}", -1) for x in "ab"}, set(QUEUES))


def test_a_member_shares_the_queues_of_the_members_after_it() -> None:
    def share(index: int, members: int) -> list[MessageQueue]:
        return list(pop_share(allocation.average, QUEUES, index, members, 1))

    assert share(0, 4) == [QUEUES[0], QUEUES[1]]
    assert share(3, 4) == [QUEUES[3], QUEUES[0]]
    assert share(5, 6) == [QUEUES[1]]  # more members than queues: one for each
    assert share(0, 2) == [MessageQueue("T", "broker-a", -1), MessageQueue("T", "broker-b", -1)]
