import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from bolide import AdminClient, StoredMessage
from bolide.client.producer.producer import Producer
from bolide.protocol.bodies.topics import TopicConfig
from bolide.spark.sink.options import SinkOptions
from bolide.spark.sink.rows import RowFailed, RowsFailed
from bolide.spark.sink.sender import Sender
from bolide.spark.sink.topic_checks import NoDedupWindow, TopicAbsent
from tests.support.aio import on_loop, until
from tests.support.own_cluster import OwnCluster, create_topic, own_cluster
from tests.support.topic_contents import contents
from tests.unit.spark.sink.packed import TASK, pack


def chosen(cluster: OwnCluster, **given: str) -> SinkOptions:
    return SinkOptions.of({"nameServer": cluster.address, "topic": "T", **given})


@asynccontextmanager
async def sending(cluster: OwnCluster, **given: str) -> AsyncIterator[Sender]:
    options = chosen(cluster, **given)
    sender = Sender(options.connection(), options, TASK)
    await sender.start()
    try:
        yield sender
    finally:
        await sender.close()


async def make_topic(cluster: OwnCluster, queues: int = 2) -> None:
    async with Producer("setup", name_server=cluster.address) as producer:
        await create_topic(producer, "T", queues)


async def stored(cluster: OwnCluster) -> list[list[StoredMessage]]:
    return list((await contents(cluster.address, "T")).values())


@on_loop
async def test_parcels_of_one_queue_are_stored_in_order(tmp_path: Path) -> None:
    async with own_cluster(tmp_path) as cluster, sending(cluster) as sender:
        await make_topic(cluster)
        rows = [f"{number}".encode() for number in range(100)]
        options = chosen(cluster, batchSize="7")
        row_batches = pack(options, body=rows, queue_id=[0] * 100, broker=["broker-a"] * 100)
        await asyncio.gather(*map(sender.send, row_batches))
        first, second = await stored(cluster)
    assert [message.body for message in first] == rows
    assert second == []


@on_loop
async def test_a_topic_is_made_by_rows_that_may_go_anywhere(tmp_path: Path) -> None:
    async with own_cluster(tmp_path) as cluster, sending(cluster) as sender:
        for row_batch in pack(
            chosen(cluster, batchSize="2"), body=[b"a", b"b", b"c"], keys=["k"] * 3
        ):
            await sender.send(row_batch)
        found = [message for queue in await stored(cluster) for message in queue]
    assert sorted(message.body for message in found) == [b"a", b"b", b"c"]
    assert {message.keys for message in found} == {("k",)}


@on_loop
async def test_a_refused_row_is_found_and_its_neighbours_are_stored(tmp_path: Path) -> None:
    async with own_cluster(tmp_path, max_message_size=1000) as cluster, sending(cluster) as sender:
        await make_topic(cluster, 1)
        bodies = [b"a" * 900, b"b" * 1001, b"c" * 900]
        (row_batch,) = pack(chosen(cluster), body=bodies, keys=["ka", "kb", "kc"])
        with pytest.raises(RowFailed, match=r"row 1 of partition 3, topic 'T', keys 'kb': .*1001"):
            await sender.send(row_batch)
        await until(lambda: cluster.broker.store.max_offset("T", 0) == 2)


@on_loop
async def test_a_batch_too_large_for_the_broker_is_sent_row_by_row(tmp_path: Path) -> None:
    async with own_cluster(tmp_path, max_message_size=1000) as cluster, sending(cluster) as sender:
        await make_topic(cluster, 1)
        (row_batch,) = pack(chosen(cluster), body=[b"x" * 900] * 3)
        await sender.send(row_batch)
        assert [len(queue) for queue in await stored(cluster)] == [3]


@on_loop
async def test_a_broker_that_comes_back_gets_what_waited(tmp_path: Path) -> None:
    async with own_cluster(tmp_path) as cluster, sending(cluster) as sender:
        await make_topic(cluster, 1)
        anywhere = pack(chosen(cluster), body=[b"a"])
        named = pack(chosen(cluster), body=[b"b"], queue_id=[0], broker=["broker-a"])
        await sender.send(anywhere[0])
        await cluster.stop_broker()
        waiting = [asyncio.create_task(sender.send(row_batch)) for row_batch in anywhere + named]
        await asyncio.sleep(0.2)
        assert not any(task.done() for task in waiting)
        await cluster.start_broker()
        await asyncio.gather(*waiting)
        (queue,) = await stored(cluster)
    assert {message.body for message in queue} == {b"a", b"b"}


@on_loop
async def test_a_broker_that_stays_away_fails_the_rows(tmp_path: Path) -> None:
    async with own_cluster(tmp_path) as cluster:
        async with sending(cluster, patienceMs="200", sendTimeoutMs="100") as sender:
            await make_topic(cluster, 1)
            await cluster.stop_broker()
            (row_batch,) = pack(chosen(cluster), body=[b"a", b"b"])
            with pytest.raises(RowsFailed, match=r"rows 0 to 1 of partition 3, topic 'T': .*0.2 s"):
                await sender.send(row_batch)
        await cluster.start_broker()


@on_loop
async def test_a_topic_that_must_know_repeats_is_asked_whether_it_does(tmp_path: Path) -> None:
    async with own_cluster(tmp_path) as cluster:
        await make_topic(cluster, 1)
        async with sending(cluster, dedup="row") as sender:
            with pytest.raises(NoDedupWindow, match=r"topic .T. has no attribute dedup\.window"):
                await sender.queues_of("T")


@on_loop
async def test_rows_sent_again_are_stored_once(tmp_path: Path) -> None:
    async with own_cluster(tmp_path) as cluster:
        async with Producer("setup", name_server=cluster.address) as producer:
            await producer.create_topic("T", 2, attributes={"+dedup.window": "10m"})
        async with sending(cluster, dedup="true") as sender:
            queues = await sender.queues_of("T")
            keys = [f"key-{number}" for number in range(50)]
            options = chosen(cluster, dedup="true")
            row_batches = pack(options, lambda _: queues, body=[b"x"] * 50, dedup_key=keys)
            for row_batch in [*row_batches, *row_batches]:
                await sender.send(row_batch)
        found = await stored(cluster)
    assert sorted(
        message.properties["DEDUP_KEY"] for queue in found for message in queue
    ) == sorted(keys)
    assert all(found)


@on_loop
async def test_a_topic_that_no_broker_has_is_not_waited_for(tmp_path: Path) -> None:
    closed = {"auto_create_topic_enable": False}
    async with own_cluster(tmp_path, **closed) as cluster, sending(cluster) as sender:
        missing = r"topic 'T': none of the brokers that are there \(broker-a\) has it: create it"
        with pytest.raises(TopicAbsent, match=missing):
            await sender.queues_of("T")
        (row_batch,) = pack(chosen(cluster), body=[b"a"])
        with pytest.raises(TopicAbsent, match=missing):
            await sender.send(row_batch)


@on_loop
async def test_a_topic_of_a_broker_that_is_away_is_waited_for(tmp_path: Path) -> None:
    async with own_cluster(tmp_path) as cluster, sending(cluster) as sender:
        await make_topic(cluster, 1)
        await cluster.stop_broker()
        waiting = asyncio.create_task(sender.queues_of("T"))
        await asyncio.sleep(1.5)  # longer than for a topic that is missing
        assert not waiting.done()
        await cluster.start_broker()
        assert len(await waiting) == 1


@on_loop
async def test_a_topic_that_takes_no_messages_is_not_waited_for(tmp_path: Path) -> None:
    async with own_cluster(tmp_path) as cluster, sending(cluster) as sender:
        async with AdminClient(cluster.address) as admin:
            await admin.topics.update(cluster.broker.address, TopicConfig(topic_name="T", perm=4))
        with pytest.raises(TopicAbsent, match="none of its queues is writable"):
            await sender.queues_of("T")


@on_loop
async def test_a_broker_without_timers_is_not_asked_again(tmp_path: Path) -> None:
    async with (
        own_cluster(tmp_path, timer_wheel_enable=False) as cluster,
        sending(cluster, timers="true") as sender,
    ):
        await make_topic(cluster, 1)
        (row_batch,) = pack(chosen(cluster, timers="true"), body=[b"a"], delay=[1234])
        with pytest.raises(RowFailed, match=r"row 0 of partition 3.*timerWheelEnable is false"):
            await sender.send(row_batch)


@on_loop
async def test_queues_that_are_fixed_stay_while_their_broker_is_away(tmp_path: Path) -> None:
    async with own_cluster(tmp_path) as cluster:
        await make_topic(cluster, 2)
        async with AdminClient(cluster.address) as admin:
            await admin.name_servers.update_config({"orderMessageEnable": "true"})
            await admin.name_servers.put_order_conf("T", {"broker-a": 2, "broker-b": 2})
        async with sending(cluster, patienceMs="200", sendTimeoutMs="100") as sender:
            queues = await sender.queues_of("T")
            row_batches = pack(
                chosen(cluster),
                lambda _: queues,
                body=[b"x"] * 50,
                dedup_key=list(map(str, range(50))),
            )
            away = next(
                each for each in row_batches if each.queue and each.queue.broker_name == "broker-b"
            )
            with pytest.raises(RowsFailed, match="broker 'broker-b' is not known"):
                await sender.send(away)
    assert [(each.broker_name, each.queue_id) for each in queues] == [
        ("broker-a", 0), ("broker-a", 1), ("broker-b", 0), ("broker-b", 1),
    ]  # fmt: skip
