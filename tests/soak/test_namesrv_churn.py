"""Brokers come, change, hang up and go for minutes, while clients look up routes."""

import asyncio
import random
from collections import Counter
from pathlib import Path

import pytest

from bolide.protocol import fastjson
from bolide.protocol.bodies.data_version import DataVersion
from bolide.protocol.bodies.routes import ClusterInfo, TopicRoute
from bolide.protocol.codes import RequestCode
from bolide.protocol.headers.namesrv import BrokerNameHeader, RouteHeader
from bolide.protocol.refusals import TopicNotFound
from bolide.remoting.client import RemotingClient
from tests.support.aio import on_loop
from tests.support.brokers import broker_header, leaving_header, plain, topics_body
from tests.support.name_servers import NameServerProcess, name_server_process

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

SECONDS = 120
BROKERS = 30
TOPICS = [f"topic-{number}" for number in range(200)]


class Broker:
    """A broker that does one random thing after the other, through a connection of its own."""

    def __init__(self, number: int, address: str, chance: random.Random) -> None:
        self.header = broker_header(f"10.0.0.{number}:10911", name=f"broker-{number}")
        self.topics: set[str] = set()
        self._address = address
        self._chance = chance
        self._changes = 0
        self._client = RemotingClient()

    async def run(self, end: float, done: Counter[str]) -> None:
        loop = asyncio.get_running_loop()
        await self._client.__aenter__()
        while loop.time() < end:
            act = self._chance.choice([self._register, self._register, self._leave, self._hang_up])
            await act()
            done[act.__name__] += 1
            await asyncio.sleep(self._chance.random() * 0.02)
        await self._register()

    async def close(self) -> None:
        await self._client.__aexit__(None, None, None)

    async def _register(self) -> None:
        self._changes += 1
        self.topics = set(self._chance.sample(TOPICS, 20))
        version = DataVersion(counter=self._changes, timestamp=self._changes)
        body = plain(topics_body(*sorted(self.topics), version=version))
        # Topics are never taken away by a later registration, so start from nothing.
        await self._leave()
        await self._client.call(self._address, RequestCode.REGISTER_BROKER, self.header, body=body)

    async def _leave(self) -> None:
        code = RequestCode.UNREGISTER_BROKER
        await self._client.call(self._address, code, leaving_header(self.header))

    async def _hang_up(self) -> None:
        await self.close()
        self._client = RemotingClient()
        await self._client.__aenter__()


@on_loop
async def test_routes_are_right_and_memory_is_level_after_minutes_of_churn(tmp_path: Path) -> None:
    chance = random.Random(20)
    with name_server_process(tmp_path) as server:
        end = asyncio.get_running_loop().time() + SECONDS
        brokers = [Broker(number, server.address, chance) for number in range(BROKERS)]
        done: Counter[str] = Counter()
        async with RemotingClient() as client, asyncio.TaskGroup() as group:
            watch = group.create_task(watch_memory(server, end))
            for _ in range(8):
                group.create_task(look_up(client, server.address, end, chance, done))
            for broker in brokers:
                group.create_task(broker.run(end, done))
        async with RemotingClient() as client:
            await check_routes(client, server.address, brokers)
        for broker in brokers:
            await broker.close()
        early, late = watch.result()
        assert late < early + 8 * 2**20, f"{early} bytes grew to {late}"
        assert min(done[name] for name in ("_register", "_leave", "_hang_up", "found")) > 100, done


async def look_up(
    client: RemotingClient, address: str, end: float, chance: random.Random, done: Counter[str]
) -> None:
    loop = asyncio.get_running_loop()
    while loop.time() < end:
        header = RouteHeader(chance.choice(TOPICS))
        try:
            reply = await client.call(address, RequestCode.GET_ROUTEINFO_BY_TOPIC, header)
        except TopicNotFound:
            done["missing"] += 1
            continue
        route = fastjson.decode(reply.body, TopicRoute)
        names = {queues.broker_name for queues in route.queue_datas}
        assert names == {broker.broker_name for broker in route.broker_datas}
        done["found"] += 1
        if done["found"] % 500 == 0:
            wipe = BrokerNameHeader(chance.choice(sorted(names)))
            await client.call(address, RequestCode.WIPE_WRITE_PERM_OF_BROKER, wipe)


async def watch_memory(server: NameServerProcess, end: float) -> tuple[int, int]:
    """Private memory after a third of the time, and at the end."""
    loop = asyncio.get_running_loop()
    await asyncio.sleep((end - loop.time()) / 3)
    early = server.private_memory()
    await asyncio.sleep(end - loop.time())
    return early, server.private_memory()


async def check_routes(client: RemotingClient, address: str, brokers: list[Broker]) -> None:
    """What clients are told is exactly what the brokers said last."""
    reply = await client.call(address, RequestCode.GET_BROKER_CLUSTER_INFO)
    assert len(fastjson.decode(reply.body, ClusterInfo).broker_addr_table) == len(brokers)
    for topic in TOPICS:
        expected = {broker.header.broker_name for broker in brokers if topic in broker.topics}
        try:
            reply = await client.call(
                address, RequestCode.GET_ROUTEINFO_BY_TOPIC, RouteHeader(topic)
            )
        except TopicNotFound:
            assert not expected, topic
            continue
        route = fastjson.decode(reply.body, TopicRoute)
        assert {queues.broker_name for queues in route.queue_datas} == expected, topic
