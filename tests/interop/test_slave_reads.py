"""Our consumer reads from a Java slave while the Java master is down, and returns to the master."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from bolide import Message, Producer, PushConsumer
from bolide.client.errors import RouteNotFound
from bolide.client.instance.instance import ClientInstance
from bolide.errors import BolideError
from bolide.model.message import StoredMessage
from bolide.protocol.codes import RequestCode
from bolide.protocol.headers.offsets import OffsetReply, QueryOffsetHeader, QueueHeader
from bolide.protocol.headers.topics import TopicConfigHeader
from tests.interop.bench import BROKER_NEIGHBOURS, Bench, Server
from tests.interop.conftest import NEWEST
from tests.interop.ours import bolide_namesrv
from tests.support.aio import on_loop, until
from tests.support.ports import free_port

QUEUES, COUNT = 2, 40
PATIENCE = 90.0
GROUP = "slave_readers"
UNMAPPING = ("--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",)
"""What 4.9 needs with Java 17 to recover a store after it was killed."""


class JavaPair:
    """A master that can be killed and started again, and its slave."""

    def __init__(self, bench: Bench, version: str, namesrv: str, directory: Path) -> None:
        self._bench = bench
        self._version = version
        self._namesrv = namesrv
        self._directory = directory
        self._port = free_port(BROKER_NEIGHBOURS)
        self.master = self.start_master()
        self.slave: Server

    def start_master(self) -> Server:
        self.master = self._broker(brokerId=0, brokerRole="ASYNC_MASTER", listenPort=self._port)
        return self.master

    def start_slave(self) -> None:
        """Start the slave; it copies topics and offsets every 10 s, that of 5.x after a minute."""
        self.slave = self._broker(brokerId=1, brokerRole="SLAVE")

    def _broker(self, **given: Any) -> Server:
        store = self._directory / f"store-{given['brokerId']}"
        settings: dict[str, Any] = {"slaveReadEnable": True, "storePathRootDir": str(store)} | given
        settings["storePathCommitLog"] = str(store / "commitlog")
        return self._bench.broker(self._version, self._namesrv, jvm=UNMAPPING, **settings)


class Reader:
    """What a consumer received, by body and by the broker at which it was stored."""

    def __init__(self) -> None:
        self.bodies: set[bytes] = set()

    async def take(self, message: StoredMessage) -> None:
        self.bodies.add(message.body)


async def offsets(instance: ClientInstance, address: str) -> int | None:
    """The sum of the offsets that the group has committed at a broker; None if it has not."""
    total = 0
    for number in range(QUEUES):
        header = QueryOffsetHeader(consumer_group=GROUP, topic="Slaves", queue_id=number)
        try:
            reply = await instance.call(address, RequestCode.QUERY_CONSUMER_OFFSET, header)
        except BolideError:
            return None
        total += OffsetReply.from_fields(reply.fields).offset
    return total


async def has_offsets(instance: ClientInstance, address: str) -> bool:
    return await offsets(instance, address) == COUNT


async def has_topic(instance: ClientInstance, address: str) -> bool:
    """For 5.x, whose slaves cannot read the offsets of their masters: fastjson2 refuses them."""
    try:
        header = TopicConfigHeader(topic="Slaves")
        await instance.call(address, RequestCode.GET_TOPIC_CONFIG, header)
    except BolideError:
        return False
    return True


async def ends(instance: ClientInstance, address: str) -> int:
    """How many messages of the topic a broker has."""
    total = 0
    for number in range(QUEUES):
        try:
            reply = await instance.call(
                address, RequestCode.GET_MAX_OFFSET, QueueHeader("Slaves", number)
            )
        except BolideError:
            return -1
        total += OffsetReply.from_fields(reply.fields).offset
    return total


async def eventually(condition: Any) -> None:
    async with asyncio.timeout(PATIENCE):
        while not await condition():  # noqa: ASYNC110
            await asyncio.sleep(0.1)


async def send(producer: Producer, first: int) -> set[bytes]:
    bodies = {b"%d" % number for number in range(first, first + COUNT)}
    for body in sorted(bodies):
        await producer.send(Message("Slaves", body))
    return bodies


async def create_topic(producer: Producer) -> None:
    async def is_routed() -> bool:
        try:
            await producer.fetch_publish_queues("Slaves")
        except RouteNotFound:
            return False
        return True

    await producer.create_topic("Slaves", QUEUES)
    await eventually(is_routed)


@pytest.mark.parametrize("version", ["4.9", pytest.param(NEWEST, marks=pytest.mark.long)])
@on_loop
async def test_our_consumer_goes_on_at_a_java_slave_and_commits_to_the_master_when_it_is_back(
    version: str, java_bench: Bench, tmp_path: Path
) -> None:
    with bolide_namesrv(tmp_path / "namesrv") as servers:
        pair = await asyncio.to_thread(JavaPair, java_bench, version, servers.address, tmp_path)
        reader = Reader()
        async with (
            Producer("P", name_server=servers.address) as producer,
            PushConsumer(
                GROUP, name_server=servers.address, consume_from="first", route_interval=1.0
            ) as consumer,
        ):
            instance = consumer._instance
            await create_topic(producer)
            await consumer.subscribe("Slaves", "*", reader.take)
            first = await send(producer, 0)
            await until(lambda: reader.bodies >= first, within=PATIENCE)
            await consumer.commit()
            await asyncio.to_thread(pair.start_slave)

            async def is_synced() -> bool:
                """The slave has the messages and its first copy of the tables."""
                slave = pair.slave.address
                copied = await (has_offsets if version == "4.9" else has_topic)(instance, slave)
                return copied and await ends(instance, slave) == COUNT

            await eventually(is_synced)
            consumer.pause()
            second = await send(producer, COUNT)

            async def is_replicated() -> bool:
                return await ends(instance, pair.slave.address) == 2 * COUNT

            await eventually(is_replicated)
            await asyncio.to_thread(pair.master.kill)
            consumer.resume()
            await until(lambda: reader.bodies >= first | second, within=PATIENCE)

            await asyncio.to_thread(pair.start_master)

            async def is_home() -> bool:
                return await offsets(instance, pair.master.address) == 2 * COUNT

            await eventually(is_home)
            third = await send(producer, 2 * COUNT)
            await until(lambda: reader.bodies >= first | second | third, within=PATIENCE)
