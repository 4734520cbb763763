"""Keyed messages through real sockets and files, over restarts."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from bolide import AdminClient, LitePullConsumer, Message, Producer, SendResult, StoredMessage
from bolide.protocol.bodies.topics import TopicConfig
from bolide.protocol.refusals import InvalidParameter
from bolide.store.config import FlushMode
from tests.support.aio import on_loop
from tests.support.own_cluster import OwnCluster, own_cluster

TOPIC = "Once"


async def set_window(cluster: OwnCluster, span: str, queues: int = 4) -> None:
    config = TopicConfig(
        topic_name=TOPIC,
        read_queue_nums=queues,
        write_queue_nums=queues,
        attributes={"+dedup.window": span},
    )
    async with AdminClient(cluster.address) as admin:
        await admin.topics.update(cluster.broker.address, config)


def producer(cluster: OwnCluster, **settings: Any) -> Producer:
    return Producer("G", name_server=cluster.address, send_timeout=10, **settings)


def messages(count: int, first: int = 0, **given: Any) -> list[Message]:
    return [
        Message(TOPIC, b"%d" % number, dedup_key=f"key-{number}", **given)
        for number in range(first, first + count)
    ]


def places(results: list[SendResult]) -> list[tuple[str, int, str]]:
    return [(str(each.queue), each.queue_offset, each.offset_message_id) for each in results]


async def stored(cluster: OwnCluster, count: int) -> list[StoredMessage]:
    """All messages of the topic, which are to be `count`."""
    found: list[StoredMessage] = []
    async with LitePullConsumer("readers", name_server=cluster.address) as consumer:
        queues = await consumer.fetch_subscribe_queues(TOPIC)
        await consumer.assign(queues)
        for queue in queues:
            await consumer.seek(queue, 0)
        async with asyncio.timeout(10):
            while len(found) < count:
                found += await consumer.poll(1.0)
        ends = [await consumer.max_offset(queue) for queue in queues]
    assert sum(ends) == len(found) == count
    return found


@pytest.mark.parametrize("mode", FlushMode)
@on_loop
async def test_repeats_are_known_over_connections_restarts_and_ways_to_send(
    tmp_path: Path, mode: FlushMode
) -> None:
    async with own_cluster(tmp_path, flush_mode=mode) as cluster:
        await set_window(cluster, "1h")
        async with producer(cluster) as p:
            first = [await p.send(message) for message in messages(20)]
            burst = await asyncio.gather(*(p.send(message) for message in messages(20) * 3))
            assert places(burst) == places(first) * 3
        async with producer(cluster) as other:
            together = await other.send(messages(25))
            assert sum(result.repeats for result in together) == 20
        await cluster.stop_broker()
        await cluster.start_broker()
        async with producer(cluster) as p:
            again = [await p.send(message) for message in messages(20)]
            assert places(again) == places(first)
            assert sum(result.repeats for result in await p.send(messages(25))) == 25
        found = await stored(cluster, 25)
    assert sorted(int(message.body) for message in found) == list(range(25))
    assert {message.dedup_key for message in found} == {f"key-{number}" for number in range(25)}


@on_loop
async def test_concurrent_first_sends_of_one_key_are_stored_once(tmp_path: Path) -> None:
    async with own_cluster(tmp_path, flush_mode=FlushMode.SYNC) as cluster:
        await set_window(cluster, "1000")
        async with producer(cluster) as one, Producer("H", name_server=cluster.address) as other:
            (message,) = messages(1)
            results = await asyncio.gather(*(p.send(message) for p in [one, other] * 20))
        assert len(set(places(results))) == 1
        assert sum(result.repeats for result in results) == 39
        await stored(cluster, 1)


@on_loop
async def test_a_window_of_messages_is_as_long_after_a_restart(tmp_path: Path) -> None:
    async with own_cluster(tmp_path) as cluster:
        await set_window(cluster, "10", queues=1)
        async with producer(cluster) as p:
            for message in messages(12):
                await p.send(message)
        await cluster.stop_broker()
        await cluster.start_broker()
        async with producer(cluster) as p:
            results = [await p.send(message) for message in messages(10, first=2)]
            assert [result.repeats for result in results] == [1] * 10
            assert [(await p.send(each)).repeats for each in messages(3)] == [0, 0, 0]


@on_loop
async def test_a_delayed_message_is_delivered_once_though_sent_again(tmp_path: Path) -> None:
    async with own_cluster(tmp_path, message_delay_level="2s") as cluster:
        await set_window(cluster, "1h")
        (message,) = messages(1, delay_level=1)
        async with producer(cluster) as p:
            assert (await p.send(message)).repeats == 0
            assert (await p.send(message)).repeats == 1
            await cluster.stop_broker()
            await cluster.start_broker()
            assert (await p.send(message)).repeats == 1, "it waits in a delay queue"
            await stored(cluster, 1)
            await cluster.stop_broker()
            await cluster.start_broker()
            assert (await p.send(message)).repeats == 1, "it was delivered"
            await stored(cluster, 1)


@on_loop
async def test_a_window_that_cannot_be_is_refused_by_name(tmp_path: Path) -> None:
    async with own_cluster(tmp_path) as cluster, AdminClient(cluster.address) as admin:
        address = cluster.broker.address
        for span in ("0", "10001d", "soon"):
            with pytest.raises(InvalidParameter, match=r"'dedup.window' cannot be .*1s to 7d"):
                await set_window(cluster, span)
        retries = TopicConfig(topic_name="%RETRY%G", attributes={"+dedup.window": "1h"})
        with pytest.raises(InvalidParameter, match="not allowed on retry and dead-letter topics"):
            await admin.topics.update(address, retries)
