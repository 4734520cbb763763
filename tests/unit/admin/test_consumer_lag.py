"""Consumer lag of all groups."""

from bolide.admin.consumer_lag import GroupLag, inflight_of, lag_of
from bolide.protocol.bodies.consumers import Connection, ConsumerConnections
from bolide.protocol.bodies.heartbeat import ConsumeType, MessageModel
from bolide.protocol.bodies.message_queue import MessageQueue
from bolide.protocol.bodies.routes import TopicList
from bolide.protocol.bodies.stats import ConsumeStats, QueueProgress
from bolide.protocol.codes import RequestCode
from bolide.protocol.refusals import ConsumerNotOnline, GroupNotFound, NoPermission
from bolide.remoting.dispatch import Reply
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
async def test_a_group_that_brokers_do_not_know_is_told_as_offline() -> None:
    def nobody(_fields: dict[str, str]) -> Reply:
        raise ConsumerNotOnline("the consumer group[billing] not online")

    def nothing(_fields: dict[str, str]) -> Reply:
        raise GroupNotFound("subscription group [billing] does not exist")

    async with cast() as stage:
        stage.first.answers(RequestCode.GET_CONSUME_STATS, nothing)
        stage.first.answers(RequestCode.GET_CONSUMER_CONNECTION_LIST, nobody)
        found = await stage.admin.progress.of("billing")

        assert found == GroupLag("billing", 0, None, None, None, 0.0, 0)


@on_loop
async def test_the_lag_of_a_group_is_unknown_while_one_of_its_brokers_is_away() -> None:
    async with cast() as stage:
        await stage.first.server.close()
        found = await stage.admin.progress.of("billing")

        assert found == GroupLag("billing", None, None, None, None, None, None)


@on_loop
async def test_what_a_broker_refuses_is_unknown_and_what_another_tells_is_kept() -> None:
    def refuse(_fields: dict[str, str]) -> Reply:
        raise NoPermission("not yours")

    clients = ConsumerConnections(connection_set=[Connection(client_id="c", version=479)])
    async with cast("broker-a", "broker-b") as stage:
        telling, silent = stage.brokers.values()
        telling.answers(RequestCode.GET_CONSUME_STATS, STATS)
        telling.answers(RequestCode.GET_CONSUMER_CONNECTION_LIST, clients)
        for code in (RequestCode.GET_CONSUME_STATS, RequestCode.GET_CONSUMER_CONNECTION_LIST):
            silent.answers(code, refuse)
        partial = await stage.admin.progress.of("billing")
        telling.answers(RequestCode.GET_CONSUME_STATS, refuse)
        telling.answers(RequestCode.GET_CONSUMER_CONNECTION_LIST, refuse)
        unknown = await stage.admin.progress.of("billing")

    assert (partial.lag, partial.clients, partial.tps) == (None, None, None)
    assert (partial.least_lag, partial.least_clients, partial.version) == (12, 1, 479)
    assert unknown == GroupLag("billing", None, None, None, None, None, None)
    for found, count in ((partial, 2), (unknown, 4)):
        assert [type(each) for each in found.failures] == [NoPermission] * count
