"""Our remoting client talks to Java's NameServer and broker."""

import asyncio

import pytest

from bolide.protocol import fastjson, json_dialect
from bolide.protocol.bodies.heartbeat import (
    ConsumeFromWhere,
    ConsumerGroup,
    ConsumeType,
    Heartbeat,
    MessageModel,
    ProducerGroup,
    Subscription,
)
from bolide.protocol.bodies.routes import ClusterInfo, TopicRoute
from bolide.protocol.codes import RequestCode
from bolide.protocol.frame import HeaderEncoding
from bolide.protocol.headers.clients import ConsumerGroupHeader, HeartbeatReply
from bolide.protocol.headers.namesrv import RouteHeader
from bolide.protocol.refusals import TopicNotFound
from bolide.remoting.client import ClientConfig, RemotingClient
from tests.interop.bench import Bench, Server

GROUP, TOPIC = "bolide-group", "TBW102"


@pytest.fixture(scope="module")
def cluster(rocketmq: str, java_module_bench: Bench) -> tuple[Server, Server]:
    namesrv = java_module_bench.namesrv(rocketmq)
    return namesrv, java_module_bench.broker(rocketmq, namesrv.address)


@pytest.mark.parametrize("encoding", HeaderEncoding)
def test_it_reads_routes_and_cluster_info(
    cluster: tuple[Server, Server], encoding: HeaderEncoding
) -> None:
    async def scenario() -> None:
        namesrv, broker = cluster
        async with RemotingClient(ClientConfig(encoding=encoding)) as client:
            found = await client.call(
                namesrv.address, RequestCode.GET_ROUTEINFO_BY_TOPIC, RouteHeader(TOPIC)
            )
            info = await client.call(namesrv.address, RequestCode.GET_BROKER_CLUSTER_INFO)
        route = fastjson.decode(found.body, TopicRoute)
        assert route.broker_datas[0].broker_addrs == {0: broker.address}
        assert route.queue_datas[0].read_queue_nums == 8
        clusters = fastjson.decode(info.body, ClusterInfo)
        assert clusters.cluster_addr_table == {"DefaultCluster": ["broker-a"]}
        assert clusters.broker_addr_table["broker-a"].broker_addrs == {0: broker.address}

    asyncio.run(scenario())


def test_it_gets_a_typed_refusal_for_an_unknown_topic(cluster: tuple[Server, Server]) -> None:
    async def scenario() -> None:
        async with RemotingClient() as client:
            with pytest.raises(TopicNotFound, match="No topic route info"):
                await client.call(
                    cluster[0].address, RequestCode.GET_ROUTEINFO_BY_TOPIC, RouteHeader("Missing")
                )

    asyncio.run(scenario())


def test_a_java_broker_takes_its_heartbeat_and_lists_it(cluster: tuple[Server, Server]) -> None:
    async def scenario() -> None:
        broker = cluster[1].address
        async with RemotingClient() as client:
            reply = await client.call(broker, RequestCode.HEART_BEAT, body=heartbeat("client-1"))
            listed = await client.call(
                broker, RequestCode.GET_CONSUMER_LIST_BY_GROUP, ConsumerGroupHeader(GROUP)
            )
        assert HeartbeatReply.from_fields(reply.fields)
        assert json_dialect.parse(listed.body) == {"consumerIdList": ["client-1"]}

    asyncio.run(scenario())


def heartbeat(client_id: str) -> bytes:
    consumer = ConsumerGroup(
        group_name=GROUP,
        consume_type=ConsumeType.CONSUME_PASSIVELY,
        message_model=MessageModel.CLUSTERING,
        consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        subscription_data_set=[Subscription(topic=TOPIC)],
    )
    return fastjson.encode(
        Heartbeat(
            client_id=client_id,
            producer_data_set=[ProducerGroup(group_name=GROUP)],
            consumer_data_set=[consumer],
        )
    )
