"""Consumer lag of all groups."""

from bolide.admin.consumer_lag import GroupLag, inflight_of, lag_of
from bolide.protocol.bodies.consumers import Connection, ConsumerConnections
from bolide.protocol.bodies.heartbeat import ConsumeType, MessageModel
from bolide.protocol.bodies.message_queue import MessageQueue
from bolide.protocol.bodies.routes import TopicList
from bolide.protocol.bodies.stats import ConsumeStats, QueueProgress
from bolide.protocol.codes import RequestCode
from tests.support.aio import on_loop
from tests.unit.admin.scripted import cast

STATS = ConsumeStats(
    offset_table={
        MessageQueue("Orders", "broker-a", number): QueueProgress(
            broker_offset=10, consumer_offset=4, pull_offset=6
        )
        for number in range(2)
    },
    consume_tps=2.5,
)


def test_lag_is_what_is_not_consumed_and_in_flight_what_was_pulled() -> None:
    assert (lag_of(STATS), inflight_of(STATS)) == (12, 4)


@on_loop
async def test_every_group_with_a_retry_topic_is_told_the_oldest_client_counts() -> None:
    clients = ConsumerConnections(
        connection_set=[Connection(client_id=f"c{v}", version=v) for v in (479, 409)],
        consume_type=ConsumeType.CONSUME_PASSIVELY,
        message_model=MessageModel.CLUSTERING,
    )
    names = TopicList(topic_list=["Orders", "%RETRY%billing", "%RETRY%billing+Orders"])
    async with cast() as stage:
        stage.name_server.answers(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, names)
        stage.first.answers(RequestCode.GET_CONSUME_STATS, STATS)
        stage.first.answers(RequestCode.GET_CONSUMER_CONNECTION_LIST, clients)

        (found,) = await stage.admin.progress.of_all()

        assert found == GroupLag(
            "billing",
            2,
            409,
            ConsumeType.CONSUME_PASSIVELY,
            MessageModel.CLUSTERING,
            2.5,
            12,
        )


@on_loop
async def test_a_group_that_brokers_will_not_tell_of_is_told_as_offline() -> None:
    async with cast() as stage:
        found = await stage.admin.progress.of("billing")

        assert found == GroupLag("billing", 0, None, None, None, 0.0, 0)


@on_loop
async def test_the_lag_of_a_group_is_unknown_while_one_of_its_brokers_is_away() -> None:
    async with cast() as stage:
        await stage.first.server.close()
        found = await stage.admin.progress.of("billing")

        assert found == GroupLag("billing", None, None, None, None, None, None)
