import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from bolide.client.errors import RouteNotFound
from bolide.client.instance.lookups import MessageNotFound
from bolide.client.producer.producer import Producer
from bolide.model.message import Message, StoredMessage
from bolide.model.message_checks import InvalidMessage
from bolide.model.message_queue import MessageQueue
from bolide.protocol.headers.offsets import Boundary
from bolide.protocol.message_id import BadMessageId
from bolide.protocol.refusals import Refusal
from tests.support.aio import PATIENCE, on_loop
from tests.support.broker import broker_in
from tests.support.name_servers import name_server


@asynccontextmanager
async def producing(directory: Path, namespace: str = "") -> AsyncIterator[Producer]:
    """A producer of a NameServer and a broker of ours."""
    async with (
        name_server(directory) as names,
        broker_in(directory / "broker", name_servers=(names.address,), broker_ip1="127.0.0.1"),
        Producer("G", name_server=names.address, namespace=namespace) as producer,
    ):
        yield producer


async def registered(producer: Producer, topic: str) -> None:
    """The NameServer hears of a new topic a moment after it is made."""
    async with asyncio.timeout(PATIENCE):
        while True:
            with suppress(RouteNotFound):
                await producer.fetch_publish_queues(topic)
                return
            await asyncio.sleep(0.005)


@on_loop
async def test_positions_are_those_of_the_queue(tmp_path: Path) -> None:
    async with producing(tmp_path) as p:
        await p.create_topic("T", 2)
        await registered(p, "T")
        assert await p.fetch_publish_queues("T") == [
            MessageQueue("T", "broker-a", 0),
            MessageQueue("T", "broker-a", 1),
        ]
        results = [await p.send(Message("T", b"1"), key=1) for _ in range(3)]
        queue = results[0].queue
        assert queue == MessageQueue("T", "broker-a", 1)
        assert [result.queue_offset for result in results] == [0, 1, 2]
        assert (await p.min_offset(queue), await p.max_offset(queue)) == (0, 3)
        last = await p.view_message(results[-1].offset_message_id)
        assert await p.search_offset(queue, last.store_timestamp + 1) == 3
        assert await p.search_offset(queue, last.store_timestamp, Boundary.UPPER) == 2
        first = await p.view_message(results[0].offset_message_id)
        assert await p.earliest_time(queue) == first.store_timestamp


@pytest.mark.parametrize("namespace", ["", "NS"])
@on_loop
async def test_a_message_is_found_by_each_of_its_ids_and_its_key(
    tmp_path: Path, namespace: str
) -> None:
    async with producing(tmp_path, namespace) as p:
        sent = await p.send(Message("T", b"1" * 5000, keys=["a", "b"]))
        await p.send(Message("T", b"2", keys=["b"]))

        def check(found: StoredMessage) -> None:
            assert (found.topic, found.body) == ("T", b"1" * 5000)
            assert found.message_id == sent.message_id
            assert found.offset_message_id == sent.offset_message_id
            assert found.broker_name == "broker-a"

        check(await p.view_message(sent.offset_message_id))
        check(await p.view_message(sent.offset_message_id, "T"))
        check(await p.view_message(sent.message_id, "T"))
        (found,) = await p.query_messages("T", "a")
        check(found)
        assert [each.body[:1] for each in await p.query_messages("T", "b")] == [b"1", b"2"]
        assert len(await p.query_messages("T", "b", max_num=1)) == 1
        assert await p.query_messages("T", "b", end=1) == []
        assert await p.query_messages("T", "c") == []


@on_loop
async def test_a_client_that_has_sent_nothing_finds_messages_too(tmp_path: Path) -> None:
    async with producing(tmp_path) as p:
        sent = await p.send(Message("T", b"1"))
        await registered(p, "T")
        for message_id in (sent.offset_message_id, sent.message_id):
            async with Producer("H", name_server=p._client.name_servers) as fresh:
                found = await fresh.view_message(message_id, "T")
                assert found.message_id == sent.message_id
        async with Producer("H", name_server=p._client.name_servers) as fresh:
            route = await fresh._instance.routes.require("T")
            named = route.broker_datas[0].broker_addrs
            named[0] = named[0].replace("127.0.0.1", "localhost")
            fresh._instance.routes.brokers = {"broker-a": dict(named)}
            found = await fresh.view_message(sent.offset_message_id, "T")
            assert found.message_id == sent.message_id


@on_loop
async def test_what_is_not_there_is_not_found(tmp_path: Path) -> None:
    async with producing(tmp_path) as p:
        sent = await p.send(Message("T", b"1"))
        with pytest.raises(MessageNotFound):
            await p.view_message(sent.offset_message_id[:-1] + "1")
        with pytest.raises(MessageNotFound, match="in topic 'T'"):
            await p.view_message(sent.message_id[:-4] + "FFFF", "T")
        with pytest.raises(BadMessageId):
            await p.view_message("nonsense", "T")
        with pytest.raises(RouteNotFound):
            await p.query_messages("Missing", "k")
        with pytest.raises(RouteNotFound):
            await p.create_topic("New", key="Missing")
        with pytest.raises(InvalidMessage, match="topic"):
            await p.create_topic("a b")
        with pytest.raises(Refusal):
            await p.create_topic("TBW102")
