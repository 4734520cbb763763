"""Who has made a topic finds it at the NameServer: brokers answer when that knows it."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from bolide.protocol import fastjson
from bolide.protocol.bodies.heartbeat import ConsumerGroup, Heartbeat
from bolide.protocol.bodies.routes import TopicRoute
from bolide.protocol.codes import RequestCode
from bolide.protocol.headers.namesrv import RouteHeader
from bolide.protocol.headers.topics import CreateTopicHeader
from tests.support.aio import on_loop, until
from tests.support.broker import BrokerClient, broker_in, send_header
from tests.support.name_servers import name_server


async def send(client: BrokerClient) -> str:
    await client.send("Fresh")
    return "Fresh"


async def update(client: BrokerClient) -> str:
    header = CreateTopicHeader(
        topic="Made",
        default_topic="TBW102",
        read_queue_nums=4,
        write_queue_nums=4,
        perm=6,
        topic_filter_type="SINGLE_TAG",
        order=False,
    )
    await client.call(RequestCode.UPDATE_AND_CREATE_TOPIC, header)
    return "Made"


async def join(client: BrokerClient) -> str:
    """A group's first heartbeat makes its retry topic."""
    heartbeat = Heartbeat(client_id="me", consumer_data_set=[ConsumerGroup(group_name="fresh")])
    await client.call(RequestCode.HEART_BEAT, body=fastjson.encode(heartbeat))
    return "%RETRY%fresh"


@pytest.mark.parametrize("make", [send, update, join])
@on_loop
async def test_a_new_topic_has_a_route_when_its_maker_is_answered(
    tmp_path: Path, make: Callable[[BrokerClient], Awaitable[str]]
) -> None:
    async with (
        name_server(tmp_path / "names") as names,
        broker_in(tmp_path, name_servers=(names.address,)) as broker,
        BrokerClient(broker.address) as client,
    ):
        topic = await make(client)
        code = RequestCode.GET_ROUTEINFO_BY_TOPIC
        answer = await client.remoting.call(names.address, code, RouteHeader(topic=topic))
    route = fastjson.decode(answer.body, TopicRoute)
    assert [each.broker_name for each in route.broker_datas] == ["broker-a"]


@on_loop
async def test_name_servers_that_do_not_answer_hold_nobody_up_for_long(tmp_path: Path) -> None:
    async with broker_in(tmp_path) as broker, asyncio.timeout(5):
        # Nothing has changed, so no registration is under way that could end the waiting.
        await broker.parts.topics.on_published()


@on_loop
async def test_messages_for_a_new_topic_are_stored_though_their_sender_has_left(
    tmp_path: Path,
) -> None:
    async with broker_in(tmp_path) as broker:
        async with BrokerClient(broker.address) as client:
            for _ in range(3):
                header = send_header("Fresh").to_short()
                code = RequestCode.SEND_MESSAGE_V2
                await client.remoting.notify(broker.address, code, header, body=b"one way")
        await until(lambda: broker.store.max_offset("Fresh", 0) == 3)
