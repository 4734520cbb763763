"""Requests over messages: our client, our broker, real sockets and files."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from bolide import Message, Producer, PushConsumer, StoredMessage, sync
from bolide.broker.produce import request_reply
from bolide.client.errors import CannotReply, RequestTimedOut, WrongState
from bolide.model.properties import PropertyName
from bolide.protocol import fastjson
from bolide.protocol.bodies.heartbeat import Heartbeat, ProducerGroup
from bolide.protocol.codes import RequestCode
from bolide.protocol.headers.send import SendReply
from bolide.protocol.refusals import NoPermission, ServerError
from tests.support.aio import PATIENCE, on_loop, until
from tests.support.broker import BrokerClient, broker_in, send_header
from tests.support.own_cluster import OwnCluster, create_topic, own_cluster
from tests.support.wire import RawPeer, request_bytes

REPLIES = "DefaultCluster_REPLY_TOPIC"
REPLY = RequestCode.SEND_REPLY_MESSAGE_V2


@asynccontextmanager
async def answering(cluster: OwnCluster, **settings: Any) -> AsyncIterator[Producer]:
    """A service that answers each request of topic `Sums`; yields who asks."""
    async with AsyncExitStack() as stack:
        replier = Producer("repliers", name_server=cluster.address)
        consumer = PushConsumer("service", name_server=cluster.address, consume_from="first")
        asker = Producer("askers", name_server=cluster.address, **settings)
        await stack.enter_async_context(replier)
        await stack.enter_async_context(asker)
        await create_topic(asker, "Sums", 2)
        await stack.enter_async_context(consumer)

        async def answer(request: StoredMessage) -> None:
            if request.body != b"unanswerable":
                await replier.reply(request, request.body * 2, keys="k", properties={"a": "b"})

        await consumer.subscribe("Sums", "*", answer)
        yield asker


@on_loop
async def test_each_of_many_requests_gets_its_own_reply(tmp_path: Path) -> None:
    async with own_cluster(tmp_path) as cluster, answering(cluster) as asker:
        asked = [b"%d" % number for number in range(100)]
        big = b"x" * 5000  # compressed both ways
        requests = [asker.request(Message("Sums", body), timeout=PATIENCE) for body in asked]
        found = await asyncio.gather(asker.request(Message("Sums", big)), *requests)
        async with BrokerClient(cluster.broker.address) as reader:
            kept = await reader.pull(REPLIES, max_msg_nums=1)
    assert [reply.body for reply in found] == [big * 2, *(body * 2 for body in asked)]
    one = found[1]
    assert (one.topic, one.keys, one.properties["a"]) == (REPLIES, ("k",), "b")
    pushed, arrived = (
        int(one.properties[name])
        for name in (PropertyName.PUSH_REPLY_TIME, PropertyName.ARRIVE_TIME)
    )
    assert one.born_timestamp <= pushed <= arrived
    assert kept.header.max_offset == len(found)  # every reply is stored too


@on_loop
async def test_a_request_without_a_reply_ends_in_time_and_a_late_one_is_dropped(
    tmp_path: Path,
) -> None:
    async with own_cluster(tmp_path) as cluster, answering(cluster) as asker:
        with pytest.raises(RequestTimedOut, match="no reply to a request of topic 'Sums'") as told:
            await asker.request(Message("Sums", b"unanswerable"), timeout=0.2)
        assert told.value.code == 10006
        assert not asker._instance.open_requests
        got: list[StoredMessage] = []
        async with PushConsumer("late", name_server=cluster.address, consume_from="first") as late:
            await late.subscribe("Sums", "*", got.append)
            await until(lambda: got)
        result = await asker.reply(got[0], b"too late")  # the client says that it took it
        assert result.queue.topic == REPLIES
        assert (await asker.request(Message("Sums", b"2"))).body == b"22"


@on_loop
async def test_closing_a_producer_ends_its_requests(tmp_path: Path) -> None:
    async with own_cluster(tmp_path) as cluster, answering(cluster, send_timeout=0.1) as asker:
        waiting = asyncio.create_task(
            asker.request(Message("Sums", b"unanswerable"), timeout=PATIENCE)
        )
        await until(lambda: asker._instance.open_requests)
        await asker.close()
        with pytest.raises(WrongState, match="closed while a request waited"):
            await waiting


@on_loop
async def test_requests_go_on_after_the_broker_came_back(tmp_path: Path) -> None:
    async with own_cluster(tmp_path) as cluster, answering(cluster) as asker:
        assert (await asker.request(Message("Sums", b"1"), timeout=PATIENCE)).body == b"11"
        await cluster.stop_broker()
        await cluster.start_broker()
        assert (await asker.request(Message("Sums", b"2"), timeout=PATIENCE)).body == b"22"


def test_the_blocking_front_asks_and_replies(tmp_path: Path) -> None:
    class Answers:
        def __init__(self, replier: sync.Producer) -> None:
            self.replier = replier

        def __call__(self, request: StoredMessage) -> None:
            self.replier.reply(request, b"pong")

    async def serve(ready: "asyncio.Future[str]", done: asyncio.Event) -> None:
        async with own_cluster(tmp_path) as cluster:
            ready.set_result(cluster.address)
            await done.wait()

    async def play() -> bytes:
        loop = asyncio.get_running_loop()
        ready: asyncio.Future[str] = loop.create_future()
        done = asyncio.Event()
        serving = asyncio.create_task(serve(ready, done))
        address = await ready
        body = await asyncio.to_thread(ask, address)
        done.set()
        await serving
        return body

    def ask(address: str) -> bytes:
        with (
            sync.Producer("both", name_server=address) as producer,
            sync.PushConsumer("s", name_server=address, consume_from="first") as consumer,
        ):
            producer.send(Message("Ping", b"first"))
            consumer.subscribe("Ping", "asked", Answers(producer))
            return producer.request(Message("Ping", b"ping", tags="asked"), timeout=PATIENCE).body

    assert asyncio.run(play()) == b"pong"


@on_loop
async def test_a_reply_is_refused_and_stored_if_nobody_can_be_told(tmp_path: Path) -> None:
    async with broker_in(tmp_path) as broker, BrokerClient(broker.address) as client:
        header = send_header(REPLIES, properties={"REPLY_TO_CLIENT": "gone"})
        with pytest.raises(ServerError, match="channel of <gone> not found"):
            await client.call(REPLY, header.to_short(), b"x")
        with pytest.raises(ServerError, match=r"properties\[REPLY_TO_CLIENT\] is null"):
            await client.call(RequestCode.SEND_REPLY_MESSAGE, send_header(REPLIES), b"x")
        with pytest.raises(NoPermission):
            await client.call(REPLY, send_header("SCHEDULE_TOPIC_XXXX").to_short(), b"x")
        assert (await client.pull(REPLIES)).bodies == [b"x", b"x"]


@on_loop
async def test_a_client_that_does_not_answer_holds_up_nobody_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_reply, "PUSH_TIMEOUT", 0.3)
    settings = {"store_reply_message_enable": False}
    async with own_cluster(tmp_path, **settings) as cluster, answering(cluster) as asker:
        beat = Heartbeat(client_id="mute", producer_data_set=[ProducerGroup("m")])
        body = fastjson.encode(beat)
        async with await RawPeer.connect(cluster.broker.address) as mute:
            await mute.send(request_bytes(RequestCode.HEART_BEAT, body=body))
            await until(lambda: cluster.broker.parts.clients.find_producer("mute"))
            async with BrokerClient(cluster.broker.address) as replier:
                header = send_header(REPLIES, properties={"REPLY_TO_CLIENT": "mute"})
                stuck = [replier.call(REPLY, header.to_short(), b"x") for _ in range(50)]
                lost = asyncio.gather(*stuck, return_exceptions=True)
                assert (await asker.request(Message("Sums", b"1"), timeout=PATIENCE)).body == b"11"
                assert all(isinstance(each, ServerError) for each in await lost)
        await until(lambda: cluster.broker.parts.clients.find_producer("mute") is None)


@on_loop
async def test_replies_need_not_be_stored(tmp_path: Path) -> None:
    settings = {"store_reply_message_enable": False}
    async with own_cluster(tmp_path, **settings) as cluster, answering(cluster) as asker:
        assert (await asker.request(Message("Sums", b"1"), timeout=PATIENCE)).body == b"11"
        async with BrokerClient(cluster.broker.address) as client:
            assert not (await client.pull(REPLIES)).records
            asked = {"REPLY_TO_CLIENT": asker.client_id, "CORRELATION_ID": "unknown"}
            header = send_header(REPLIES, properties=asked)
            answer = await client.call(REPLY, header.to_short(), b"y")
    assert SendReply.from_fields(answer.fields).msg_id == "0"


@on_loop
async def test_only_requests_can_be_replied_to(tmp_path: Path) -> None:
    async with own_cluster(tmp_path) as cluster, answering(cluster) as asker:
        plain = StoredMessage("T", b"", {"CLUSTER": "c"})
        with pytest.raises(CannotReply, match="no CORRELATION_ID and no REPLY_TO_CLIENT") as told:
            await asker.reply(plain, b"x")
    assert told.value.code == 10007
