"""Topics on several brokers, and on older brokers with fewer requests."""

import pytest

from bolide.admin.errors import AttributeUnknown
from bolide.admin.topics import attribute_changes
from bolide.protocol.bodies.groups import GroupList
from bolide.protocol.bodies.message_queue import MessageQueue
from bolide.protocol.bodies.topics import (
    TopicConfig,
    TopicConfigTable,
    TopicOffset,
    TopicStats,
)
from bolide.protocol.codes import RequestCode
from bolide.protocol.refusals import RequestCodeNotSupported, ServerError, TopicNotFound
from bolide.remoting.dispatch import Reply
from tests.support.aio import on_loop
from tests.unit.admin.scripted import CLUSTER, cast

ORDERS = TopicConfig(
    topic_name="Orders",
    read_queue_nums=3,
    write_queue_nums=5,
    order=True,
    attributes={"message.type": "FIFO"},
)


@on_loop
async def test_stats_of_all_brokers_are_one_table() -> None:
    async with cast("broker-a", "broker-b") as stage:
        for name, broker in stage.brokers.items():
            table = {MessageQueue("Orders", name, 0): TopicOffset(max_offset=7)}
            stats = TopicStats(offset_table=table, topic_put_tps=1.5)
            broker.answers(RequestCode.GET_TOPIC_STATS_INFO, stats)

        stats = await stage.admin.topics.stats("Orders")

        assert [queue.broker_name for queue in stats.offset_table] == ["broker-a", "broker-b"]
        assert stats.topic_put_tps == 3.0


@on_loop
async def test_groups_that_only_one_broker_knows_are_told() -> None:
    async with cast("broker-a", "broker-b") as stage:
        one, other = stage.brokers.values()
        one.answers(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, GroupList(["both", "one"]))
        other.answers(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, GroupList(["both"]))

        assert await stage.admin.topics.groups("Orders") == ["both", "one"]


def refuse(_fields: dict[str, str]) -> Reply:
    raise ServerError("unsupported key: dedup.window")


@pytest.mark.parametrize("answer", [refuse, None], ids=["5.x refuses it", "4.9 passes over it"])
@on_loop
async def test_an_attribute_that_a_broker_does_not_know_is_named(answer: object) -> None:
    wanted = TopicConfig(topic_name="Orders", attributes={"dedup.window": "10m"})
    async with cast() as stage:
        stage.first.answers(RequestCode.UPDATE_AND_CREATE_TOPIC, answer)
        stage.first.answers(RequestCode.GET_TOPIC_CONFIG, TopicConfig(topic_name="Orders"))

        with pytest.raises(AttributeUnknown, match=r"only Bolide's brokers have dedup\.window"):
            await stage.admin.topics.update(stage.first.address, wanted)


@on_loop
async def test_a_change_of_permission_leaves_the_rest_as_it_is() -> None:
    async with cast() as stage:
        stage.first.answers(RequestCode.GET_TOPIC_CONFIG, ORDERS)
        stage.first.answers(RequestCode.UPDATE_AND_CREATE_TOPIC)

        old = await stage.admin.topics.set_perm(stage.first.address, "Orders", 4)

        assert old == ORDERS
        (fields,) = stage.first.fields_of(RequestCode.UPDATE_AND_CREATE_TOPIC)
        wanted = {"perm": "4", "readQueueNums": "3", "writeQueueNums": "5", "order": "true"}
        assert wanted.items() <= fields.items()
        assert "attributes" not in fields


@on_loop
async def test_the_permission_that_is_there_is_not_sent_again() -> None:
    async with cast() as stage:
        stage.first.answers(RequestCode.GET_TOPIC_CONFIG, ORDERS)

        await stage.admin.topics.set_perm(stage.first.address, "Orders", ORDERS.perm)

        assert not stage.first.fields_of(RequestCode.UPDATE_AND_CREATE_TOPIC)


@on_loop
async def test_a_broker_that_tells_all_topics_or_none_is_asked_for_all() -> None:
    async with cast() as stage:
        table = TopicConfigTable(topic_config_table={"Orders": ORDERS})
        stage.first.answers(RequestCode.GET_ALL_TOPIC_CONFIG, table)

        assert await stage.admin.topics.config(stage.first.address, "Orders") == ORDERS
        with pytest.raises(TopicNotFound, match="has no topic 'Bills'"):
            await stage.admin.topics.config(stage.first.address, "Bills")


@on_loop
async def test_a_deleted_topic_goes_from_brokers_before_name_servers() -> None:
    async with cast("broker-a", "broker-b") as stage:
        for broker in stage.brokers.values():
            broker.answers(RequestCode.DELETE_TOPIC_IN_BROKER)
        stage.name_server.answers(RequestCode.DELETE_TOPIC_IN_NAMESRV)

        await stage.admin.topics.delete("Orders", CLUSTER)

        for broker in stage.brokers.values():
            assert broker.fields_of(RequestCode.DELETE_TOPIC_IN_BROKER) == [{"topic": "Orders"}]
        code, fields = stage.name_server.asked[-1]
        assert code == RequestCode.DELETE_TOPIC_IN_NAMESRV
        assert fields == {"topic": "Orders", "clusterName": CLUSTER}


@on_loop
async def test_a_broker_that_fails_does_not_keep_a_topic_elsewhere() -> None:
    async with cast("broker-a", "broker-b") as stage:
        living = stage.brokers["broker-b"]
        living.answers(RequestCode.DELETE_TOPIC_IN_BROKER)
        stage.name_server.answers(RequestCode.DELETE_TOPIC_IN_NAMESRV)

        with pytest.raises(RequestCodeNotSupported) as caught:
            await stage.admin.topics.delete("Orders", CLUSTER)

        assert f"done at {living.address}; repeat it for the others" in caught.value.__notes__
        assert living.fields_of(RequestCode.DELETE_TOPIC_IN_BROKER)
        assert stage.name_server.fields_of(RequestCode.DELETE_TOPIC_IN_NAMESRV)


@on_loop
async def test_a_topic_is_created_on_every_master() -> None:
    async with cast("broker-a", "broker-b") as stage:
        for broker in stage.brokers.values():
            broker.answers(RequestCode.UPDATE_AND_CREATE_TOPIC)

        made = await stage.admin.topics.create("Orders", CLUSTER)

        assert made == [broker.address for broker in stage.brokers.values()]
        for broker in stage.brokers.values():
            (fields,) = broker.fields_of(RequestCode.UPDATE_AND_CREATE_TOPIC)
            assert (fields["readQueueNums"], fields["writeQueueNums"]) == ("8", "8")


def test_attributes_are_written_as_changes() -> None:
    changes = attribute_changes({"+message.type": "FIFO", "cleanup.policy": "DELETE", "-x": ""})

    assert changes == "+message.type=FIFO,+cleanup.policy=DELETE,-x"
