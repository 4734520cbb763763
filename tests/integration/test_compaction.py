"""Topics that keep the newest message of each key, from the sender to consumers and tables."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from bolide import AdminClient, Message, Producer, PushConsumer
from bolide.arrow import read_topic
from bolide.broker.server import Broker
from bolide.protocol.batch import encode_batch
from bolide.protocol.bodies.topics import TopicConfig
from bolide.protocol.codes import ResponseCode
from bolide.protocol.refusals import InvalidParameter, MessageIllegal, ServerError
from tests.support.aio import on_loop, until
from tests.support.broker import SUBSCRIBED, SUSPEND, BrokerClient
from tests.support.compaction import LOG_SIZE, PER_FILE, QUEUE_SIZE, newest
from tests.support.own_cluster import OwnCluster, own_cluster
from tests.support.popping import PopClient

TOPIC = "Latest"
SETTINGS: dict[str, Any] = {
    "compaction_file_size": LOG_SIZE,
    "compaction_queue_file_size": QUEUE_SIZE,
    "compaction_interval": 0.05,
}
VALUES = [(f"k{number % 4}", b"v%d" % number) for number in range(3 * PER_FILE + 5)]
KEPT = newest(VALUES, 3 * PER_FILE)


async def create(cluster: OwnCluster, topic: str = TOPIC, **attributes: str) -> None:
    given = attributes or {"+cleanup.policy": "COMPACTION"}
    config = TopicConfig(topic_name=topic, read_queue_nums=1, write_queue_nums=1, attributes=given)
    async with AdminClient(cluster.address) as admin:
        await admin.topics.update(cluster.broker.address, config)


async def send_all(client: BrokerClient, values: list[tuple[str, bytes]] = VALUES) -> None:
    for number, (key, body) in enumerate(values):
        properties = {"KEYS": key, "UNIQ_KEY": f"{number:032d}"}
        await client.send(TOPIC, body, properties=properties)


async def compacted(broker: Broker, client: BrokerClient) -> list[bytes]:
    """The bodies once the full files are compacted, by pulls from the beginning."""
    await asyncio.to_thread(broker.store.flush)
    bodies: list[bytes] = []

    async def is_done() -> bool:
        bodies[:] = await pull_all(client)
        return len(bodies) == len(KEPT)

    async with asyncio.timeout(30):
        while not await is_done():  # noqa: ASYNC110  there is no event for it
            await asyncio.sleep(0.05)
    return bodies


async def pull_all(client: BrokerClient) -> list[bytes]:
    bodies: list[bytes] = []
    offset = 0
    while (found := await client.pull(TOPIC, offset)).code != ResponseCode.PULL_NOT_FOUND:
        bodies += found.bodies
        offset = found.header.next_begin_offset
    return bodies


def bodies_of_table(name_server: str) -> list[bytes]:
    reader = read_topic(TOPIC, name_server=name_server)
    return [body for batch in reader for body in batch.column("body").to_pylist()]


@on_loop
async def test_pulls_push_consumers_and_tables_get_the_newest_of_each_key(tmp_path: Path) -> None:
    async with own_cluster(tmp_path, **SETTINGS) as cluster:
        await create(cluster)
        async with BrokerClient(cluster.broker.address) as client:
            await send_all(client)
            assert await compacted(cluster.broker, client) == [body for _, _, body in KEPT]

        got: list[tuple[int, str, bytes]] = []

        async def handle(message: Any) -> None:
            got.append((message.queue_offset, message.keys, message.body))

        async with PushConsumer(
            "readers", name_server=cluster.address, consume_from="first"
        ) as consumer:
            await consumer.subscribe(TOPIC, handle)
            await until(lambda: len(got) >= len(KEPT))
            async with Producer("writers", name_server=cluster.address) as producer:
                await producer.send(Message(TOPIC, b"new", keys="k"))
            await until(lambda: len(got) > len(KEPT))
        assert sorted(offset for offset, _, _ in got) == [*(o for o, _, _ in KEPT), len(VALUES)]

        bodies = await asyncio.to_thread(bodies_of_table, cluster.address)
        assert bodies == [*(body for _, _, body in KEPT), b"new"]


@on_loop
async def test_a_restart_and_the_retention_of_the_commit_log_keep_the_newest_of_each_key(
    tmp_path: Path,
) -> None:
    quick: dict[str, Any] = {"file_reserved_hours": 0, "clean_interval": 0.05}
    async with own_cluster(tmp_path, **SETTINGS, **quick) as cluster:
        await create(cluster)
        async with BrokerClient(cluster.broker.address) as client:
            await send_all(client)
            await compacted(cluster.broker, client)
        await cluster.stop_broker()
        await cluster.start_broker()
        broker = cluster.broker
        async with BrokerClient(broker.address) as client:
            for number in range(3):
                unique = {"UNIQ_KEY": f"{number:032d}"}
                await client.send("Filler", b"x" * 900_000, properties=unique)
            await asyncio.to_thread(broker.store.flush)

            def is_deleted() -> bool:
                broker.store.retention.delete_expired_soon()  # for 20 rounds, a second
                return broker.store.log.min_offset > 0

            await until(is_deleted)
            queue = broker.store.find_queue(TOPIC, 0)
            assert queue is not None
            await until(lambda: queue.min_offset > 0)
            assert await pull_all(client) == [body for _, _, body in KEPT]
        bodies = await asyncio.to_thread(bodies_of_table, cluster.address)
        assert bodies == [body for _, _, body in KEPT]


@on_loop
async def test_a_waiting_pull_is_woken_by_a_message(tmp_path: Path) -> None:
    async with own_cluster(tmp_path, **SETTINGS) as cluster:
        await create(cluster)
        async with BrokerClient(cluster.broker.address) as client:
            await send_all(client)
            bodies = await compacted(cluster.broker, client)
            assert bodies
            waiting = asyncio.create_task(client.wait_for(TOPIC, len(VALUES)))
            await until(lambda: len(cluster.broker.parts.long_polling))
            await client.send(TOPIC, b"new", properties={"KEYS": "k", "UNIQ_KEY": "A" * 32})
            assert (await waiting).bodies == [b"new"]


@on_loop
async def test_a_message_that_failed_comes_again_whatever_else_has_its_position(
    tmp_path: Path,
) -> None:
    async with (
        own_cluster(tmp_path, **SETTINGS) as cluster,
        BrokerClient(cluster.broker.address) as client,
    ):
        await client.send("Other", b"at position 0", properties={"UNIQ_KEY": "B" * 32})
        await create(cluster)
        await send_all(client)
        await compacted(cluster.broker, client)
        first, *_ = (await client.pull(TOPIC)).records
        assert first.physical_offset == 0
        unique = first.decode_properties()["UNIQ_KEY"]
        await client.send_back(first, origin_topic=TOPIC, origin_msg_id=unique)
        new = {"KEYS": "k", "UNIQ_KEY": "C" * 32}
        await client.send(TOPIC, b"not copied", properties=new)
        (last,) = (await client.pull(TOPIC, len(VALUES))).records
        await client.send_back(last, origin_topic=TOPIC, origin_msg_id="C" * 32)
        with pytest.raises(ServerError, match="look message by offset failed"):
            await client.send_back(first, origin_topic=TOPIC, origin_msg_id="D" * 32)
        found = [await client.wait_for("%RETRY%readers", number) for number in range(2)]
    assert [each.bodies[0] for each in found] == [bytes(first.body), b"not copied"]


@on_loop
async def test_a_pop_gets_the_newest_of_each_key(tmp_path: Path) -> None:
    async with (
        own_cluster(tmp_path, **SETTINGS) as cluster,
        PopClient(cluster.broker.address) as client,
    ):
        await create(cluster)
        await send_all(client)
        await compacted(cluster.broker, client)
        bodies: list[bytes] = []
        while (popped := await client.pop(TOPIC, max_msg_nums=32)).messages:
            bodies += popped.bodies
            for message in popped.messages:
                await client.ack(TOPIC, message)
        assert bodies == [body for _, _, body in KEPT]
        offsets = cluster.broker.parts.offsets
        await until(lambda: offsets.find("poppers", TOPIC, 0) == len(VALUES))


@on_loop
async def test_the_fast_path_serves_no_request_for_such_a_topic(tmp_path: Path) -> None:
    async with own_cluster(tmp_path, **SETTINGS) as cluster:
        await create(cluster)
        await create(cluster, "Plain", **{"+message.type": "NORMAL"})
        fast_path = cluster.broker.parts.fast_path
        async with BrokerClient(cluster.broker.address) as client:
            for topic in (TOPIC, "Plain"):
                before = _served(fast_path)
                for number in range(5):
                    properties = {"KEYS": "k", "UNIQ_KEY": f"{number:032d}"}
                    await client.send(topic, b"%d" % number, properties=properties)
                    await client.pull(topic, number, sys_flag=SUBSCRIBED | SUSPEND)
                if fast_path is not None:
                    assert (_served(fast_path) > before) is (topic == "Plain")


def _served(fast_path: Any) -> int:
    if fast_path is None:  # plain Python: the handlers serve all
        return 0
    found = fast_path.fall_throughs
    return int(found.served_sends + found.served_pulls)


@on_loop
async def test_messages_that_cannot_be_kept_are_refused(tmp_path: Path) -> None:
    async with own_cluster(tmp_path, **SETTINGS) as cluster:
        await create(cluster)
        async with BrokerClient(cluster.broker.address) as client:
            with pytest.raises(MessageIllegal, match="Required message key is missing"):
                await client.send(TOPIC, b"x", properties={"UNIQ_KEY": "A" * 32})
            with pytest.raises(MessageIllegal, match="Required message key is missing"):
                await client.send(TOPIC, b"x", properties={"KEYS": "  "})
            with pytest.raises(MessageIllegal, match="raise compactionMappedFileSize"):
                await client.send(TOPIC, b"x" * LOG_SIZE, properties={"KEYS": "k"})
            batch = [Message(TOPIC, b"1", keys="k"), Message(TOPIC, b"2")]
            with pytest.raises(MessageIllegal, match="Required message key is missing"):
                await client.send(TOPIC, encode_batch(batch), batch=True)
            await client.send(TOPIC, b"", properties={"KEYS": "k"})
            with pytest.raises(MessageIllegal, match="no body"):
                await client.send("Plain", b"", properties={"KEYS": "k"})
            assert (await client.pull(TOPIC)).bodies == [b""]


@on_loop
async def test_attributes_are_checked_as_rocketmq_checks_them(tmp_path: Path) -> None:
    async with own_cluster(tmp_path, **SETTINGS) as cluster:
        await create(cluster)
        with pytest.raises(InvalidParameter, match=r"'cleanup.policy' cannot be changed"):
            await create(cluster, **{"+cleanup.policy": "DELETE"})
        with pytest.raises(InvalidParameter, match=r"'reserve.time' cannot be '-2'"):
            await create(cluster, **{"+reserve.time": "-2"})
        await create(cluster, **{"+reserve.time": "3600"})
        config = cluster.broker.parts.topics.require(TOPIC)
        assert config.attributes == {"cleanup.policy": "COMPACTION", "reserve.time": "3600"}
