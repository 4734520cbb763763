"""Who must know of a client before it asks, and what is sent then."""

import asyncio

import pytest

from bolide.client.errors import CannotReply, RequestTimedOut
from bolide.client.producer import request_reply as requests
from bolide.client.producer.producer import Producer
from bolide.client.producer.request_reply import reply_to
from bolide.model.message import Message, StoredMessage
from bolide.model.properties import PropertyName
from bolide.protocol.codes import RequestCode
from bolide.protocol.frame import Frame
from bolide.protocol.headers.send import PushReplyHeader
from bolide.protocol.property_string import decode_properties, encode_properties
from tests.support.aio import PATIENCE, on_loop, until
from tests.support.cluster import FakeBroker, FakeCluster, fake_cluster, route_of

ASKED = {"CLUSTER": "c", "CORRELATION_ID": "id", "REPLY_TO_CLIENT": "me", "TTL": "3000"}


def asker(cluster: FakeCluster) -> Producer:
    return Producer("G", name_server=cluster.name_server.address)


async def push(broker: FakeBroker, properties: dict[str, str], body: bytes) -> Frame:
    """Hand a reply to the one client of a broker."""
    (connection,) = broker.connections
    header = PushReplyHeader(
        producer_group="R",
        topic="c_REPLY_TOPIC",
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=0,
        sys_flag=0,
        born_timestamp=1,
        flag=0,
        properties=encode_properties(properties),
        born_host="no address",
        store_host="127.0.0.1:10911",
        store_timestamp=2,
    )
    code = RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT
    frame = Frame(code=code, fields=header.to_fields(), body=body)
    return await connection.call(frame, PATIENCE)


@on_loop
async def test_every_broker_that_a_reply_may_come_by_knows_the_client_first() -> None:
    async with fake_cluster("broker-a", "broker-b") as cluster, asker(cluster) as producer:
        first, second = cluster.brokers
        routes = cluster.name_server.routes
        routes["T"] = route_of(first)
        routes["c_REPLY_TOPIC"] = route_of(first, second)
        first.hold = second.hold = asyncio.Event()  # they take their time
        asked = asyncio.create_task(producer.request(Message("T", b"?"), timeout=PATIENCE))
        async with asyncio.timeout(PATIENCE):
            beats = [await broker.heartbeats.get() for broker in cluster.brokers]
        assert not first.sends
        first.hold.set()
        first.hold = second.hold = None
        await first.arrived.wait()
        sent = decode_properties(first.sends[0].properties)
        answer = await push(second, {"CORRELATION_ID": sent["CORRELATION_ID"]}, b"!")
        late = await push(second, {"CORRELATION_ID": "unknown"}, b"!")
        reply = await asked
        assert not producer._instance.open_requests
    assert [beat.producer_data_set[0].group_name for beat in beats] == ["G", "G"]
    assert sent["REPLY_TO_CLIENT"] == producer.client_id
    assert 9_000 < int(sent["TTL"]) <= 10_000
    assert (answer.code, late.code, reply.body) == (0, 0, b"!")
    assert (str(reply.store_host), str(reply.born_host)) == ("127.0.0.1:10911", "0.0.0.0:0")


@on_loop
async def test_a_broker_that_is_gone_holds_up_a_request_for_a_second_at_most() -> None:
    async with fake_cluster("broker-a", "broker-b") as cluster, asker(cluster) as producer:
        first, second = cluster.brokers
        second.hold = asyncio.Event()
        cluster.name_server.routes["c_REPLY_TOPIC"] = route_of(first, second)
        cluster.name_server.routes["T"] = route_of(first)
        loop = asyncio.get_running_loop()
        began = loop.time()
        with pytest.raises(RequestTimedOut):
            await producer.request(Message("T", b"?"), timeout=1.5)
        assert loop.time() - began < 3.0
        assert len(first.sends) == 1
        second.hold.set()


@on_loop
async def test_a_broker_that_answers_no_more_holds_up_later_requests_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(requests, "_ANNOUNCE_TIMEOUT", 0.1)
    async with (
        fake_cluster("broker-a", "broker-b") as cluster,
        Producer("G", name_server=cluster.name_server.address, call_timeout=0.3) as producer,
    ):
        first, second = cluster.brokers
        cluster.name_server.routes["c_REPLY_TOPIC"] = route_of(first, second)
        cluster.name_server.routes["T"] = route_of(first)

        async def ask() -> None:
            with pytest.raises(RequestTimedOut):
                await producer.request(Message("T", b"?"), timeout=0.2)

        await ask()  # both know it now
        second.hold = asyncio.Event()
        for connection in second.connections:
            connection.close()
        await until(lambda: not producer._instance.remoting.is_connected(second.address))
        await ask()
        await until(lambda: second.address in producer._instance._heartbeats._silent)
        second.hold.set()


def test_a_reply_carries_what_finds_its_way_back() -> None:
    reply = reply_to(StoredMessage("T", b"?", ASKED), b"!", tags="t", properties={"a": "b"})
    carried = {name: text for name, text in ASKED.items() if name != PropertyName.CLUSTER}
    assert reply.topic == "c_REPLY_TOPIC"
    assert dict(reply.properties) == {"TAGS": "t", "a": "b", "MSG_TYPE": "reply", **carried}


@pytest.mark.parametrize("missing", ["CLUSTER", "CORRELATION_ID", "REPLY_TO_CLIENT"])
def test_what_says_no_way_back_cannot_be_replied_to(missing: str) -> None:
    said = {name: text for name, text in ASKED.items() if name != missing}
    with pytest.raises(CannotReply, match=f"it has no {missing}:"):
        reply_to(StoredMessage("T", b"?", said), b"!")
