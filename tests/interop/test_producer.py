"""Our producer against Apache's brokers."""

import asyncio
import zlib
from typing import Any

import pytest

from bolide.client.consumer.received import read_messages
from bolide.client.errors import RouteNotFound, SendFailed
from bolide.client.instance.lookups import MessageNotFound
from bolide.client.producer.producer import Producer
from bolide.client.producer.results import SendStatus
from bolide.model.message import CompressionType, Message, StoredMessage
from bolide.model.message_queue import MessageQueue
from bolide.protocol import fastjson
from bolide.protocol.bodies.consumers import ProducerConnections
from bolide.protocol.codes import RequestCode
from bolide.protocol.headers.clients import ProducerGroupHeader
from bolide.protocol.headers.pull import PullHeader
from bolide.protocol.refusals import Refusal, ServerError
from tests.interop.bench import Bench, Server
from tests.support.aio import PATIENCE, on_loop

KEYS: Any = {"access_key": "RocketMQ", "secret_key": "12345678"}
ACL = """
accounts:
- accessKey: RocketMQ
  secretKey: 12345678
  admin: true
"""


@pytest.fixture(scope="module")
def cluster(
    rocketmq: str, java_module_bench: Bench, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Server, Server]:
    """A NameServer and a broker that takes signed requests only."""
    namesrv = java_module_bench.namesrv(rocketmq)
    if rocketmq == "4.9":
        file = tmp_path_factory.mktemp("acl") / "plain_acl.yml"
        file.write_text(ACL)
        # It is looked for below the broker's home, wherever that is.
        jvm = [f"-Drocketmq.acl.plain.file={'/..' * 20}{file}"]
        broker = java_module_bench.broker(rocketmq, namesrv.address, jvm=jvm, aclEnable=True)
    else:
        provider = "org.apache.rocketmq.auth.authentication.provider"
        broker = java_module_bench.broker(
            rocketmq,
            namesrv.address,
            authenticationEnabled=True,
            authenticationProvider=f"{provider}.DefaultAuthenticationProvider",
            authenticationMetadataProvider=f"{provider}.LocalAuthenticationMetadataProvider",
            initAuthenticationUser='{"username":"RocketMQ","password":"12345678"}',
        )
    return namesrv, broker


def made(cluster: tuple[Server, Server], group: str = "makers", **settings: Any) -> Producer:
    return Producer(group, name_server=cluster[0].address, **KEYS, **settings)


@pytest.fixture
def producer(cluster: tuple[Server, Server]) -> Producer:
    return made(cluster)


async def pulled(producer: Producer, queue: MessageQueue, offset: int = 0) -> list[StoredMessage]:
    """What lies in a queue, read without a consumer."""
    header = PullHeader(
        consumer_group="TOOLS_CONSUMER",
        topic=queue.topic,
        queue_id=queue.queue_id,
        queue_offset=offset,
        max_msg_nums=32,
        sys_flag=4,
        commit_offset=0,
        suspend_timeout_millis=0,
        subscription="*",
        sub_version=0,
    )
    broker = producer._instance.routes.master(queue.broker_name)
    assert broker is not None
    answer = await producer._instance.call(broker, RequestCode.PULL_MESSAGE, header)
    return read_messages(answer.body, queue.broker_name)


async def queued(producer: Producer, queue: MessageQueue, count: int) -> None:
    """Java enters messages into their queues a moment after they are stored."""
    async with asyncio.timeout(PATIENCE):
        while await producer.max_offset(queue) < count:  # noqa: ASYNC110  the broker tells no event
            await asyncio.sleep(0.01)


@on_loop
async def test_a_message_is_stored_as_it_was_sent(
    cluster: tuple[Server, Server], producer: Producer
) -> None:
    message = Message("Plain", b"body", tags="A", keys=["k1", "k2"], properties={"a": "b"}, flag=7)
    async with producer as p:
        result = await p.send(message)
        await queued(p, result.queue, result.queue_offset + 1)
        (stored,) = await pulled(p, result.queue, result.queue_offset)
    assert result.status is SendStatus.SEND_OK
    assert result.queue.topic == "Plain"
    assert result.queue.broker_name == "broker-a"
    assert result.region == "DefaultRegion"
    assert (stored.topic, stored.body, stored.flag) == ("Plain", b"body", 7)
    assert (stored.tags, stored.keys, stored.properties["a"]) == ("A", ("k1", "k2"), "b")
    assert stored.message_id == result.message_id
    assert stored.offset_message_id == result.offset_message_id


@on_loop
async def test_the_first_messages_make_the_topic_and_go_round_its_queues(
    producer: Producer,
) -> None:
    async with producer as p:
        results = [await p.send(Message("Round", b"1")) for _ in range(8)]
        assert sorted(result.queue.queue_id for result in results) == [0, 0, 1, 1, 2, 2, 3, 3]
        queues: list[MessageQueue] = []

        async def is_registered() -> bool:
            nonlocal queues
            try:
                queues = await p.fetch_publish_queues("Round")
            except RouteNotFound:
                return False
            return True

        async with asyncio.timeout(PATIENCE):
            while not await is_registered():  # noqa: ASYNC110  as above
                await asyncio.sleep(0.05)
        assert queues == [MessageQueue("Round", "broker-a", number) for number in range(4)]


@on_loop
async def test_many_at_once_are_all_stored(producer: Producer) -> None:
    async with producer as p:
        sends = [p.send(Message("Many", str(number).encode())) for number in range(500)]
        results = await asyncio.gather(*sends)
    assert len({result.message_id for result in results}) == 500
    assert len({result.offset_message_id for result in results}) == 500


@on_loop
async def test_a_batch_is_stored_message_by_message(
    cluster: tuple[Server, Server], producer: Producer
) -> None:
    messages = [Message("Batch", f"b{n}".encode(), tags="T", keys=[f"k{n}"]) for n in range(5)]
    async with producer as p:
        (result,) = await p.send(messages)
        await queued(p, result.queue, result.queue_offset + 5)
        stored = await pulled(p, result.queue, result.queue_offset)
    assert [message.body for message in stored] == [message.body for message in messages]
    assert [message.keys for message in stored] == [message.keys for message in messages]
    assert [message.message_id for message in stored] == result.message_ids
    assert ",".join(each.offset_message_id for each in stored) == result.offset_message_id


@on_loop
async def test_a_long_list_is_split_at_the_size_limit(cluster: tuple[Server, Server]) -> None:
    messages = [Message("Split", bytes(400_000)) for _ in range(6)]
    async with made(cluster, max_message_size=1_000_000, send_timeout=10) as p:
        results = await p.send_batch(messages, key="one queue")
    assert [len(result.message_ids) for result in results] == [2, 2, 2]
    assert [result.queue_offset for result in results] == [0, 2, 4]


@pytest.mark.parametrize("compression", CompressionType)
@on_loop
async def test_a_large_body_travels_compressed(
    cluster: tuple[Server, Server], compression: CompressionType
) -> None:
    body = b"0123456789abcdef" * 10_000
    async with made(cluster, compression=compression) as p:
        result = await p.send(Message("Large", body))
        found = await p.view_message(result.offset_message_id)
    assert found.body == body
    assert found.size < len(body) // 10
    assert zlib.crc32(body) & 0x7FFF_FFFF != found.body_crc  # that of the compressed bytes


@on_loop
async def test_a_one_way_message_arrives(
    cluster: tuple[Server, Server], producer: Producer
) -> None:
    async with producer as p:
        first = await p.send(Message("OneWay", b"first"), key=1)
        await p.send_oneway(Message("OneWay", b"second"), queue=first.queue)
        await queued(p, first.queue, 2)
        bodies = [message.body for message in await pulled(p, first.queue)]
    assert bodies == [b"first", b"second"]


@on_loop
async def test_positions_messages_and_keys_are_found(producer: Producer, rocketmq: str) -> None:
    async with producer as p:
        await p.create_topic("Found", 2)
        result = await p.send(Message("Found", b"1", keys=["order-1"]), key="x")
        again = await p.send(Message("Found", b"2", keys=["order-1"]), key="x")
        assert again.queue == result.queue
        await queued(p, result.queue, 2)
        assert await p.min_offset(result.queue) == 0
        stored = await p.view_message(result.offset_message_id)
        assert await p.earliest_time(result.queue) == stored.store_timestamp
        assert await p.search_offset(result.queue, stored.store_timestamp) == 0
        beyond = await p.search_offset(result.queue, stored.store_timestamp + 60_000)
        assert beyond == (1 if rocketmq == "4.9" else 2)  # 4.9 knows no later one than the last
        found: list[StoredMessage] = []
        async with asyncio.timeout(PATIENCE):
            while len(found) < 2:
                found = await p.query_messages("Found", "order-1")
        assert [message.body for message in found] == [b"1", b"2"]
        by_unique_id = await p.view_message(again.message_id, "Found")
        assert by_unique_id.body == b"2"
        assert await p.query_messages("Found", "order-2") == []
        with pytest.raises(MessageNotFound):
            await p.view_message(result.message_id[:-4] + "FFFF", "Found")


@on_loop
async def test_a_namespace_is_put_on_and_taken_off(cluster: tuple[Server, Server]) -> None:
    async with made(cluster, namespace="NS") as p:
        result = await p.send(Message("Spaced", b"1", keys="k"))
        assert result.queue.topic == "Spaced"
        await queued(p, result.queue, 1)
        assert (await p.view_message(result.offset_message_id)).topic == "Spaced"
        wrapped = MessageQueue("NS%Spaced", "broker-a", result.queue.queue_id)
        (stored,) = await pulled(p, wrapped)
    assert stored.properties["INSTANCE_ID"] == "NS"


@on_loop
async def test_a_delayed_message_waits_in_the_brokers_topic(producer: Producer) -> None:
    async with producer as p:
        result = await p.send(Message("Delayed", b"1", delay_level=18))
        stored = await p.view_message(result.offset_message_id)
    assert stored.topic == "SCHEDULE_TOPIC_XXXX"
    assert stored.properties["REAL_TOPIC"] == "Delayed"


@on_loop
async def test_sends_go_through_the_vip_port(cluster: tuple[Server, Server]) -> None:
    async with made(cluster, vip_channel=True) as p:
        result = await p.send(Message("Vip", b"1"))
        host, _, port = cluster[1].address.rpartition(":")
        assert p._instance.remoting.is_connected(f"{host}:{int(port) - 2}")
    assert result.status is SendStatus.SEND_OK


@on_loop
async def test_the_broker_lists_the_producer_and_forgets_it(
    cluster: tuple[Server, Server], producer: Producer
) -> None:
    async def listed() -> list[str | None]:
        answer = await producer._instance.call(
            cluster[1].address,
            RequestCode.GET_PRODUCER_CONNECTION_LIST,
            ProducerGroupHeader("listed"),
        )
        found = fastjson.decode(answer.body, ProducerConnections)
        return [each.client_id for each in found.connection_set]

    async with producer:
        async with made(cluster, "listed") as p:
            await p.send(Message("Listed", b"1"))
            await p._instance.heartbeat()
            assert await listed() == [p.client_id]
        with pytest.raises(ServerError, match="not exist"):
            await listed()


@on_loop
async def test_without_a_signature_nothing_is_sent(cluster: tuple[Server, Server]) -> None:
    async with Producer("unsigned", name_server=cluster[0].address, retries=0) as p:
        with pytest.raises(SendFailed, match=r"accessKey|username") as refused:
            await p.send(Message("Plain", b"1"))
    assert refused.value.brokers == ("broker-a",)
    assert isinstance(refused.value.__cause__, Refusal)
