import asyncio
import logging
import random
import socket
import threading
import time
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from bolide.client.errors import (
    BatchPartlySent,
    GroupTaken,
    NoNameServer,
    RouteNotFound,
    SendFailed,
    SendTimedOut,
    WrongState,
)
from bolide.client.producer.hooks import SendContext, SendKind
from bolide.client.producer.producer import Producer
from bolide.client.producer.results import SendResult, SendStatus
from bolide.client.producer.selectors import by_random
from bolide.errors import ConfigError
from bolide.model.message import CompressionType, Message
from bolide.model.message_checks import InvalidMessage
from bolide.model.message_queue import MessageQueue
from bolide.protocol.batch import iter_batch
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.frame import Frame
from bolide.protocol.headers.send import SendHeader, SendReply
from bolide.protocol.message_id import UniqueId
from bolide.protocol.property_string import decode_properties
from bolide.protocol.refusals import MessageIllegal, SystemBusy
from bolide.remoting.dispatch import Reply
from bolide.remoting.errors import CallTimedOut, ConnectFailed
from bolide.remoting.tls import ClientTls, ServerTls, TlsMode
from tests.support.aio import PATIENCE, on_loop, until
from tests.support.certificates import make_pair
from tests.support.cluster import FakeBroker, FakeCluster, fake_cluster, route_of, serving, stored
from tests.support.producers import Warm

MESSAGE = Message("T", b"body", tags="A", keys=["k"], properties={"a": "b"}, flag=9)
NOWHERE = "127.0.0.1:1"


@pytest.fixture(params=["cold", "warm"], autouse=True)
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test runs twice: the first send to a broker takes another way than the next ones."""
    monkeypatch.setitem(_kinds, "now", Warm if request.param == "warm" else Producer)


_kinds: dict[str, type[Producer]] = {}


def producer(cluster: FakeCluster, group: str = "G", **settings: Any) -> Producer:
    return _kinds["now"](group, name_server=cluster.name_server.address, **settings)


def cold(cluster: FakeCluster, **settings: Any) -> Producer:
    """One that knows nothing yet: the routes change before its first send."""
    return Producer("G", name_server=cluster.name_server.address, **settings)


def busy(_header: SendHeader, _frame: Frame) -> Reply:
    raise SystemBusy("flow control")


# What is sent


@on_loop
async def test_a_send_says_all_that_the_message_says() -> None:
    async with fake_cluster() as cluster, producer(cluster) as p:
        result = await p.send(MESSAGE)
        (header,) = cluster.sends
        frame = cluster.brokers[0].frames[0]
    assert frame.code == RequestCode.SEND_MESSAGE_V2
    assert frame.body == b"body"
    assert (header.producer_group, header.topic, header.flag) == ("G", "T", 9)
    assert (header.default_topic, header.default_topic_queue_nums) == ("TBW102", 4)
    assert (header.sys_flag, header.broker_name, header.batch) == (0, "broker-a", False)
    properties = decode_properties(header.properties)
    unique_id = properties.pop("UNIQ_KEY")
    assert properties == {"TAGS": "A", "KEYS": "k", "a": "b"}
    assert UniqueId.decode(unique_id)
    assert result.status is SendStatus.SEND_OK
    assert (result.message_id, result.offset_message_id) == (unique_id, "0" * 32)
    assert result.queue == MessageQueue("T", "broker-a", header.queue_id)
    assert (result.queue_offset, result.region, result.trace_on) == (7, "DefaultRegion", True)
    assert "UNIQ_KEY" not in MESSAGE.properties


@on_loop
async def test_a_message_sent_twice_has_two_ids() -> None:
    async with fake_cluster() as cluster, producer(cluster) as p:
        first, second = await p.send(MESSAGE), await p.send(MESSAGE)
    assert first.message_id != second.message_id


@pytest.mark.parametrize("size", [4096, 100_000])
@on_loop
async def test_a_large_body_is_compressed(size: int) -> None:
    async with fake_cluster() as cluster, producer(cluster) as p:
        await p.send(Message("T", bytes(size - 1)))
        await p.send(Message("T", bytes(size)))
        small, large = cluster.brokers[0].frames
        flags = [header.sys_flag for header in cluster.sends]
    assert zlib.decompress(large.body) == bytes(size)
    assert flags[1] == CompressionType.ZLIB.flags
    assert (flags[0] == 0) == (size == 4096)
    assert small.body


@pytest.mark.parametrize("size", [4096, 100_000])
@on_loop
async def test_a_body_that_compression_would_lengthen_goes_as_it_is(size: int) -> None:
    body = random.Random(size).randbytes(size)
    async with fake_cluster() as cluster, producer(cluster) as p:
        await p.send(Message("T", body))
        (sent,) = cluster.brokers[0].frames
        (header,) = cluster.sends
    assert (sent.body, header.sys_flag) == (body, 0)


@on_loop
async def test_a_namespace_is_on_the_wire_only() -> None:
    async with fake_cluster() as cluster, producer(cluster, namespace="NS") as p:
        cluster.name_server.routes["NS%T"] = cluster.name_server.routes.pop("T")
        seen: list[MessageQueue] = []

        def first(queues: Sequence[MessageQueue], _message: Message, _key: object) -> MessageQueue:
            seen.extend(queues)
            return queues[0]

        result = await p.send(MESSAGE, selector=first)
        (header,) = cluster.sends
        assert await p.fetch_publish_queues("T") == seen
    assert (header.topic, header.producer_group) == ("NS%T", "NS%G")
    assert decode_properties(header.properties)["INSTANCE_ID"] == "NS"
    assert {queue.topic for queue in [result.queue, *seen]} == {"T"}


@on_loop
async def test_a_consumer_that_sends_to_a_retry_topic_says_how_often_it_was_tried() -> None:
    async with fake_cluster() as cluster, producer(cluster) as p:
        cluster.name_server.routes["%RETRY%G"] = cluster.name_server.routes["T"]
        properties = {"RECONSUME_TIME": "3", "MAX_RECONSUME_TIMES": "16", "a": "b"}
        await p.send(Message.unchecked("%RETRY%G", b"1", properties))
        (header,) = cluster.sends
    assert (header.reconsume_times, header.max_reconsume_times) == (3, 16)
    assert decode_properties(header.properties).keys() == {"a", "UNIQ_KEY"}


@pytest.mark.parametrize(
    ("code", "status"),
    [(10, "FLUSH_DISK_TIMEOUT"), (11, "SLAVE_NOT_AVAILABLE"), (12, "FLUSH_SLAVE_TIMEOUT")],
)
@on_loop
async def test_a_message_that_is_stored_less_safely_is_a_result(code: int, status: str) -> None:
    async with fake_cluster() as cluster, producer(cluster) as p:
        reply = SendReply(msg_id="1", queue_id=0, queue_offset=1, transaction_id="t")
        cluster.brokers[0].answer = lambda _header, _frame: Reply(code=code, header=reply)
        result = await p.send(MESSAGE)
    assert result.status.name == status
    assert result.transaction_id == "t"
    assert len(cluster.sends) == 1


# Where it goes


@on_loop
async def test_queues_take_turns() -> None:
    async with fake_cluster("broker-a", "broker-b") as cluster, producer(cluster) as p:
        results = [await p.send(MESSAGE) for _ in range(8)]
    places = [result.queue for result in results]
    assert len(set(places[:4])) == 4
    assert places[:4] == places[4:]


@on_loop
async def test_a_queue_a_selector_or_a_key_decides() -> None:
    async with fake_cluster("broker-a", "broker-b") as cluster, producer(cluster) as p:
        queue = MessageQueue("T", "broker-b", 1)
        assert (await p.send(MESSAGE, queue=queue)).queue == queue
        given: list[Any] = []

        def last(queues: Sequence[MessageQueue], message: Message, key: Any) -> MessageQueue:
            given.extend((len(queues), message, key))
            return queues[-1]

        assert (await p.send(MESSAGE, selector=last, key="k")).queue == queue
        assert given == [4, MESSAGE, "k"]
        assert {(await p.send(MESSAGE, key=5)).queue.queue_id for _ in range(5)} == {1}
        assert (await p.send(MESSAGE, selector=by_random)).queue.topic == "T"


@on_loop
async def test_a_topic_that_does_not_exist_is_made_by_the_first_message() -> None:
    async with fake_cluster(queues=8) as cluster, producer(cluster) as p:
        routes = cluster.name_server.routes
        routes["TBW102"] = routes["T"]
        results = [await p.send(Message("New", b"1")) for _ in range(8)]
        assert {result.queue.queue_id for result in results} == {0, 1, 2, 3}
        routes["New"] = route_of(*cluster.brokers, queues=1)
        await p._instance.poll_routes()
        assert (await p.send(Message("New", b"1"))).queue.queue_id == 0
        assert len(await p.fetch_publish_queues("New")) == 1


@on_loop
async def test_without_a_route_the_error_names_the_topic() -> None:
    async with fake_cluster() as cluster, producer(cluster) as p:
        with pytest.raises(RouteNotFound, match="'Missing'") as failed:
            await p.send(Message("Missing", b"1"))
        with pytest.raises(RouteNotFound):
            await p.fetch_publish_queues("Missing")
        await p.send(MESSAGE)
        del cluster.name_server.routes["T"]
        with pytest.raises(RouteNotFound):
            await p.fetch_publish_queues("T")
        await p.send(MESSAGE)
    assert failed.value.code == 10005


@on_loop
async def test_one_way_sends_expect_no_answer() -> None:
    async with fake_cluster() as cluster, producer(cluster) as p:
        (broker,) = cluster.brokers
        broker.answer = busy
        await p.send_oneway(MESSAGE, key=0)
        await asyncio.wait_for(broker.arrived.wait(), PATIENCE)
    assert broker.frames[0].is_one_way
    assert broker.sends[0].queue_id == 0


@on_loop
async def test_sends_are_encrypted_where_wanted(tmp_path: Path) -> None:
    pair = make_pair(tmp_path, "localhost")
    tls = ServerTls(mode=TlsMode.ENFORCING, certificate=pair.certificate, key=pair.key)
    async with (
        fake_cluster(tls=tls) as cluster,
        producer(cluster, tls=ClientTls(trust=pair.certificate)) as p,
    ):
        assert (await p.send(MESSAGE)).status is SendStatus.SEND_OK


class Witness:
    """Keeps the fields of the requests that a server got."""

    def __init__(self) -> None:
        self.fields: list[dict[str, str]] = []

    def before(self, peer: str, request: Frame) -> None:
        self.fields.append(request.fields or {})

    def after(self, peer: str, request: Frame, response: Frame) -> None:
        pass


@on_loop
async def test_every_request_is_signed_where_a_key_is_given() -> None:
    witness = Witness()
    async with (
        fake_cluster(hooks=(witness,)) as cluster,
        producer(cluster, access_key="a", secret_key="s") as p,
    ):
        await p.send(MESSAGE)
        await asyncio.wait_for(cluster.brokers[0].heartbeats.get(), PATIENCE)
    assert len(witness.fields) >= 2
    assert all(fields["AccessKey"] == "a" and fields["Signature"] for fields in witness.fields)


# When it fails


@on_loop
async def test_a_refusal_is_tried_at_another_broker_with_the_same_id() -> None:
    async with fake_cluster("broker-a", "broker-b") as cluster, producer(cluster) as p:
        first, second = cluster.brokers
        first.answer = busy
        for _ in range(4):
            assert (await p.send(MESSAGE)).queue.broker_name == "broker-b"
        tries = [decode_properties(header.properties)["UNIQ_KEY"] for header in cluster.sends]
    assert len(first.sends) in (1, 2)
    assert len(second.sends) == len(set(tries)) == 4


@on_loop
async def test_a_broker_that_is_down_is_passed_over_and_used_again_when_it_is_back() -> None:
    async with fake_cluster("broker-a") as cluster, cold(cluster) as p:
        other = FakeBroker("broker-b")
        async with serving(other) as server:
            cluster.name_server.routes["T"] = route_of(cluster.brokers[0], other)
            port = int(server.address.rpartition(":")[2])
            for _ in range(4):
                await p.send(MESSAGE)
        assert len(other.sends) == 2
        for _ in range(4):
            assert (await p.send(MESSAGE)).queue.broker_name == "broker-a"
        async with serving(other, port=port), asyncio.timeout(PATIENCE):
            while len(other.sends) < 4:  # the client notices it by a probe
                await p.send(MESSAGE)
                await asyncio.sleep(0.005)


@on_loop
async def test_after_all_tries_the_error_names_the_brokers_and_the_cause() -> None:
    async with fake_cluster("broker-a", "broker-b") as cluster, producer(cluster) as p:
        for broker in cluster.brokers:
            broker.answer = busy
        with pytest.raises(SendFailed, match=r"3 tries in .*: flow control") as failed:
            await p.send(MESSAGE)
    names = failed.value.brokers
    assert names[0] == names[2] != names[1]
    assert isinstance(failed.value.__cause__, SystemBusy)
    assert failed.value.code == ResponseCode.SYSTEM_BUSY
    assert len(cluster.sends) == 3


@on_loop
async def test_a_refusal_that_another_broker_would_repeat_is_not_retried() -> None:
    def illegal(_header: SendHeader, _frame: Frame) -> Reply:
        raise MessageIllegal("too big")

    async with fake_cluster("broker-a", "broker-b") as cluster, producer(cluster) as p:
        for broker in cluster.brokers:
            broker.answer = illegal
        with pytest.raises(MessageIllegal, match="too big"):
            await p.send(MESSAGE)
    assert len(cluster.sends) == 1


@on_loop
async def test_the_codes_to_retry_can_be_chosen() -> None:
    async with fake_cluster() as cluster, producer(cluster, retried_codes={13}) as p:
        cluster.brokers[0].answer = busy
        with pytest.raises(SystemBusy):
            await p.send(MESSAGE)


@on_loop
async def test_a_chosen_queue_is_tried_once() -> None:
    async with fake_cluster("broker-a", "broker-b") as cluster, producer(cluster) as p:
        cluster.brokers[0].answer = busy
        with pytest.raises(SendFailed, match="1 try"):
            await p.send(MESSAGE, queue=MessageQueue("T", "broker-a", 0))
    assert len(cluster.sends) == 1


@on_loop
async def test_a_queue_of_an_unknown_broker_is_an_error() -> None:
    async with fake_cluster() as cluster, producer(cluster) as p:
        with pytest.raises(SendFailed, match="'gone' is not known") as failed:
            await p.send(MESSAGE, queue=MessageQueue("T", "gone", 0))
    assert failed.value.code == 10003


@on_loop
async def test_a_broker_that_does_not_answer_ends_the_send_in_time() -> None:
    async with fake_cluster() as cluster, producer(cluster) as p:
        hold = cluster.brokers[0].hold = asyncio.Event()
        with pytest.raises(SendTimedOut, match=r"1 try .* did not answer") as failed:
            await p.send(MESSAGE, timeout=0.05)
        hold.set()
    assert isinstance(failed.value.__cause__, CallTimedOut)
    assert failed.value.code == 10002


@on_loop
async def test_a_send_that_has_no_time_left_for_another_try_timed_out() -> None:
    class Slow:
        def before(self, context: SendContext) -> None:
            pass

        def after(self, context: SendContext) -> None:
            time.sleep(0.11)

    async with fake_cluster() as cluster, producer(cluster) as p:
        p.add_send_hook(Slow())
        cluster.brokers[0].answer = busy
        with pytest.raises(SendTimedOut, match=r"1 try .* flow control") as failed:
            await p.send(MESSAGE, timeout=0.1)
    assert isinstance(failed.value.__cause__, SystemBusy)
    assert failed.value.code == 10002


@on_loop
async def test_looking_for_a_broker_ends_in_time_too() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        async with fake_cluster() as cluster, producer(cluster, call_timeout=60.0) as p:
            await p.send(MESSAGE)
            p.set_name_servers(f"127.0.0.1:{silent.getsockname()[1]}")
            gone = MessageQueue("T", "gone", 0)
            with pytest.raises(SendTimedOut, match="'gone' is not known"):
                await p.send(MESSAGE, queue=gone, timeout=0.05)
            with pytest.raises(SendTimedOut):
                await p.send_oneway(MESSAGE, queue=gone, timeout=0.05)


@on_loop
async def test_a_shorter_time_for_one_try_leaves_time_for_others() -> None:
    async with (
        fake_cluster("broker-a", "broker-b") as cluster,
        producer(cluster, try_timeout=0.05) as p,
    ):
        slow, quick = cluster.brokers
        hold = slow.hold = asyncio.Event()
        results = [await p.send(MESSAGE) for _ in range(4)]
        hold.set()
    assert {result.queue.broker_name for result in results} == {"broker-b"}
    assert slow.sends
    assert len(quick.sends) == 4


@on_loop
async def test_a_broker_that_cannot_be_reached_gives_its_code() -> None:
    async with fake_cluster() as cluster, cold(cluster, retries=0) as p:
        dead = FakeBroker("dead")
        dead.address = NOWHERE
        cluster.name_server.routes["T"] = route_of(dead)
        with pytest.raises(SendFailed) as failed:
            await p.send(MESSAGE)
    assert isinstance(failed.value.__cause__, ConnectFailed)
    assert failed.value.code == 10001


@on_loop
async def test_one_stored_less_safely_may_be_tried_elsewhere() -> None:
    def unsafe(header: SendHeader, frame: Frame) -> Reply:
        return Reply(code=10, header=stored(header, frame).header)

    async with (
        fake_cluster("broker-a", "broker-b") as cluster,
        producer(cluster, retry_another_broker_when_not_store_ok=True) as p,
    ):
        cluster.brokers[0].answer = unsafe
        for _ in range(4):
            assert (await p.send(MESSAGE)).status is SendStatus.SEND_OK
        assert cluster.brokers[0].sends
        cluster.brokers[1].answer = unsafe
        assert (await p.send(MESSAGE)).status is SendStatus.FLUSH_DISK_TIMEOUT


@on_loop
async def test_a_refusal_elsewhere_does_not_hide_that_it_is_stored_less_safely() -> None:
    def unsafe(header: SendHeader, frame: Frame) -> Reply:
        return Reply(code=10, header=stored(header, frame).header)

    def refuse(header: SendHeader, frame: Frame) -> Reply:
        raise MessageIllegal("not here")

    async with (
        fake_cluster("broker-a", "broker-b") as cluster,
        producer(cluster, retry_another_broker_when_not_store_ok=True) as p,
    ):
        cluster.brokers[0].answer, cluster.brokers[1].answer = unsafe, refuse
        outcomes = await asyncio.gather(
            *(p.send(MESSAGE) for _ in range(8)), return_exceptions=True
        )
    results = [each for each in outcomes if isinstance(each, SendResult)]
    assert {each.status for each in results} == {SendStatus.FLUSH_DISK_TIMEOUT}
    assert len(results) == len(cluster.brokers[0].sends)


@on_loop
async def test_with_latency_faults_a_failing_broker_is_left_alone() -> None:
    async with (
        fake_cluster("broker-a", "broker-b") as cluster,
        producer(cluster, latency_faults=True) as p,
    ):
        cluster.brokers[0].answer = busy
        for _ in range(10):
            assert (await p.send(MESSAGE)).queue.broker_name == "broker-b"
    assert len(cluster.brokers[0].sends) <= 1


@on_loop
async def test_it_starts_without_a_name_server_and_sends_once_there_is_one() -> None:
    async with Producer("G", name_server=NOWHERE) as p:
        with pytest.raises(NoNameServer, match=f"no NameServer answers, tried {NOWHERE}"):
            await p.send(MESSAGE)
        async with fake_cluster() as cluster:
            p.set_name_servers(cluster.name_server.address)
            assert (await p.send(MESSAGE)).status is SendStatus.SEND_OK


@on_loop
async def test_without_any_name_server_the_error_says_what_to_give(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    async with Producer("G") as p:
        with pytest.raises(NoNameServer, match="give name_server="):
            await p.send(MESSAGE)


@on_loop
async def test_a_bad_message_is_refused_before_anything_is_sent() -> None:
    async with fake_cluster() as cluster, producer(cluster, max_message_size=10) as p:
        with pytest.raises(InvalidMessage, match="body"):
            await p.send(Message("T", b""))
        with pytest.raises(InvalidMessage, match="max_message_size=10"):
            await p.send(Message("T", bytes(11)))
    assert not cluster.sends


# Batches


@on_loop
async def test_a_list_goes_out_as_one_request() -> None:
    messages = [Message("T", b"1", tags="A", flag=3), Message("T", b"2", keys="k")]
    async with fake_cluster() as cluster, producer(cluster) as p:
        (result,) = await p.send(messages)
        (header,) = cluster.sends
        frame = cluster.brokers[0].frames[0]
    assert frame.code == RequestCode.SEND_BATCH_MESSAGE
    assert header.batch
    items = [item.message("T") for item in iter_batch(frame.body)]
    assert [item.body for item in items] == [b"1", b"2"]
    assert (items[0].tags, items[0].flag, items[1].keys) == ("A", 3, ("k",))
    assert [item.unique_id for item in items] == result.message_ids


@pytest.mark.parametrize(
    ("field", "messages"),
    [
        ("topic", [Message("T", b"1"), Message("U", b"1")]),
        ("wait_stored", [Message("T", b"1"), Message("T", b"1", wait_stored=False)]),
        ("delay_level", [Message("T", b"1", delay_level=1)]),
        ("topic", [Message("%RETRY%G", b"1")]),
        ("body", [Message("T", b"")]),
        ("messages", []),
    ],
)
@on_loop
async def test_what_cannot_be_sent_together_is_refused(field: str, messages: list[Message]) -> None:
    async with fake_cluster() as cluster, producer(cluster) as p:
        with pytest.raises(InvalidMessage) as refused:
            await p.send_batch(messages)
    assert refused.value.field == field
    assert not cluster.sends


@on_loop
async def test_a_batch_keeps_its_wait_flag() -> None:
    async with fake_cluster() as cluster, producer(cluster) as p:
        await p.send_batch([Message("T", b"1", wait_stored=False)] * 2)
        (header,) = cluster.sends
    assert decode_properties(header.properties) == {"WAIT": "false"}


@on_loop
async def test_a_list_is_split_at_the_size_limit_unless_told_otherwise() -> None:
    messages = [Message("T", bytes([number]) * 400) for number in range(7)]
    async with fake_cluster() as cluster, producer(cluster, max_message_size=1100) as p:
        results = await p.send_batch(messages)
        frames = cluster.brokers[0].frames
        with pytest.raises(InvalidMessage, match="split=True"):
            await p.send_batch(messages, split=False)
    assert [len(result.message_ids) for result in results] == [2, 2, 2, 1]
    assert max(len(frame.body) for frame in frames) <= 1100
    bodies = [bytes(item.body) for frame in frames for item in iter_batch(frame.body)]
    assert bodies == [message.body for message in messages]


@on_loop
async def test_a_list_that_was_sent_in_part_says_how_far_it_came() -> None:
    messages = [Message("T", bytes(400)) for _ in range(5)]
    async with fake_cluster() as cluster, producer(cluster, max_message_size=1100) as p:

        def full_after_one(header: SendHeader, frame: Frame) -> Reply:
            return stored(header, frame) if len(cluster.sends) == 1 else busy(header, frame)

        cluster.brokers[0].answer = full_after_one
        with pytest.raises(BatchPartlySent, match="2 messages were stored, 3 were not") as failed:
            await p.send(messages)
    assert len(failed.value.results) == 1
    assert isinstance(failed.value.__cause__, SendFailed)


@on_loop
async def test_a_list_is_split_at_the_count_too_and_packed_beside_the_loop() -> None:
    messages = [Message("T", b"1")] * 25_000
    threads: list[str] = []

    class Watched(Message):
        @property
        def delay_level(self) -> int:
            threads.append(threading.current_thread().name)
            return 0

    messages[-1] = Watched("T", b"1", tags="A")
    async with fake_cluster() as cluster, producer(cluster) as p:
        results = await p.send(messages)
    assert [len(result.message_ids) for result in results] == [10_000, 10_000, 5_000]
    assert threads
    assert "MainThread" not in threads


@on_loop
async def test_one_bad_message_at_the_end_of_a_long_list_lets_nothing_be_sent() -> None:
    async with fake_cluster() as cluster, producer(cluster, max_message_size=1100) as p:
        with pytest.raises(InvalidMessage, match="body: is empty"):
            await p.send([*(Message("T", bytes(400)) for _ in range(9)), Message("T", b"")])
    assert not cluster.sends


# Back-pressure, hooks, life


@on_loop
async def test_sends_over_the_limit_wait_and_give_up_in_time() -> None:
    async with fake_cluster() as cluster, producer(cluster, max_sends_under_way=2) as p:
        (broker,) = cluster.brokers
        broker.hold = asyncio.Event()
        sends = [asyncio.create_task(p.send(MESSAGE)) for _ in range(4)]
        await until(lambda: len(broker.sends) == 2)
        with pytest.raises(SendTimedOut, match="nothing was sent to 'T'") as failed:
            await p.send(MESSAGE, timeout=0.05)
        assert failed.value.code == 10002
        assert len(broker.sends) == 2
        broker.hold.set()
        await asyncio.gather(*sends)
    assert len(broker.sends) == 4
    assert p._pressure.in_flight == (0, 0)


class Notes:
    """A hook that notes what it sees."""

    def __init__(self) -> None:
        self.before_each: list[SendContext] = []
        self.after_each: list[SendContext] = []

    def before(self, context: SendContext) -> None:
        context.notes["began"] = True
        self.before_each.append(context)

    def after(self, context: SendContext) -> None:
        assert context.notes["began"]
        self.after_each.append(context)


@on_loop
async def test_hooks_see_every_try() -> None:
    notes = Notes()
    async with fake_cluster() as cluster, producer(cluster) as p:
        p.add_send_hook(notes)
        result = await p.send(MESSAGE)
        cluster.brokers[0].answer = busy
        with pytest.raises(SendFailed):
            await p.send(Message("T", b"1", delay_level=2))
        await p.send_oneway(MESSAGE)
    good, *bad, thrown = notes.after_each
    assert (good.result, good.error, good.group, good.messages) == (result, None, "G", (MESSAGE,))
    assert (good.unique_ids, good.kind) == ((result.message_id,), SendKind.NORMAL)
    assert good.queue.broker_name == "broker-a"
    assert good.broker_address == cluster.brokers[0].address
    assert [type(context.error) for context in bad] == [SystemBusy] * 3
    assert {context.kind for context in bad} == {SendKind.DELAYED}
    assert thrown.one_way


@on_loop
async def test_hooks_hear_of_a_one_way_send_that_failed() -> None:
    notes = Notes()
    async with fake_cluster() as cluster, cold(cluster) as p:
        p.add_send_hook(notes)
        dead = FakeBroker("dead")
        dead.address = NOWHERE
        cluster.name_server.routes["T"] = route_of(dead)
        with pytest.raises(ConnectFailed):
            await p.send_oneway(MESSAGE)
    (thrown,) = notes.after_each
    assert isinstance(thrown.error, ConnectFailed)


@on_loop
async def test_a_hook_that_fails_is_logged_and_nothing_more(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Broken:
        def before(self, context: SendContext) -> None:
            raise KeyError("before")

        def after(self, context: SendContext) -> None:
            raise KeyError("after")

    async with fake_cluster() as cluster, producer(cluster) as p:
        p.add_send_hook(Broken())
        assert (await p.send(MESSAGE)).status is SendStatus.SEND_OK
    assert caplog.text.count("a send hook failed") == 2


@on_loop
async def test_a_hook_may_forbid_a_send() -> None:
    def forbid(context: SendContext) -> None:
        raise PermissionError(f"not to {context.queue.topic}")

    async with fake_cluster() as cluster, producer(cluster) as p:
        p.add_forbidden_hook(forbid)
        with pytest.raises(PermissionError, match="not to T"):
            await p.send(MESSAGE)
        with pytest.raises(PermissionError):
            await p.send_oneway(MESSAGE)
    assert not cluster.sends


@on_loop
async def test_it_is_used_between_start_and_close() -> None:
    async with fake_cluster() as cluster:
        p = producer(cluster)
        with pytest.raises(WrongState, match="not started"):
            await p.send(MESSAGE)
        async with p:
            with pytest.raises(WrongState, match="started already"):
                await p.start()
            await p.send(MESSAGE)
        await p.close()
        with pytest.raises(WrongState, match="is closed"):
            await p.send(MESSAGE)
        with pytest.raises(WrongState, match="is closed"):
            await p.max_offset(MessageQueue("T", "broker-a", 0))
        with pytest.raises(WrongState, match="is closed"):
            await p.start()


@on_loop
async def test_its_end_waits_for_the_sends_under_way() -> None:
    async with fake_cluster() as cluster:
        (broker,) = cluster.brokers
        hold = broker.hold = asyncio.Event()
        async with producer(cluster, max_sends_under_way=2) as p:
            sends = [asyncio.create_task(p.send(MESSAGE)) for _ in range(5)]
            await until(lambda: len(broker.sends) == 2)
            asyncio.get_running_loop().call_later(0.02, hold.set)
        assert {(await send).status for send in sends} == {SendStatus.SEND_OK}
    assert len(broker.sends) == 5


@on_loop
async def test_a_send_that_outlasts_the_end_fails_and_opens_no_connection() -> None:
    async with fake_cluster() as cluster:
        (broker,) = cluster.brokers
        hold = broker.hold = asyncio.Event()
        async with producer(cluster, send_timeout=0.05, call_timeout=0.05) as p:
            send = asyncio.create_task(p.send(MESSAGE, timeout=60.0))
            await until(lambda: broker.sends)
        with pytest.raises(SendFailed, match="the client is closed"):
            await send
        hold.set()
        assert not p._instance.remoting.is_connected(broker.address)
    assert len(broker.sends) == 1


@on_loop
async def test_a_start_that_failed_may_be_tried_again(tmp_path: Path) -> None:
    async with fake_cluster() as cluster:
        trust = tmp_path / "missing.pem"
        p = producer(cluster, tls=ClientTls(trust=trust))
        with pytest.raises(ConfigError):
            await p.start()
        with pytest.raises(WrongState, match="not started"):
            await p.send(MESSAGE)
        await p.close()


@on_loop
async def test_one_instance_name_with_other_settings_is_refused() -> None:
    async with fake_cluster() as cluster, producer(cluster, instance_name="one"):
        second = producer(cluster, instance_name="one", call_timeout=4.0)
        with pytest.raises(ConfigError, match=r"instance_name='one'.*another call_timeout"):
            await second.start()


@on_loop
async def test_a_second_producer_of_a_group_in_one_instance_is_refused() -> None:
    async with fake_cluster() as cluster, producer(cluster, instance_name="one"):
        second = producer(cluster, instance_name="one")
        with pytest.raises(GroupTaken, match="give this one an instance_name"):
            await second.start()
        async with producer(cluster, "other", instance_name="one") as p:
            await p.send(MESSAGE)
        async with producer(cluster):
            pass
    await second.close()


@on_loop
async def test_the_broker_hears_of_the_producer_and_of_its_end() -> None:
    async with fake_cluster() as cluster:
        (broker,) = cluster.brokers
        async with producer(cluster) as p:
            await p.send(MESSAGE)
            beat = await asyncio.wait_for(broker.heartbeats.get(), PATIENCE)
            assert beat.client_id == p.client_id
        assert [header.producer_group for header in broker.unregistered] == ["G"]


def test_an_unknown_argument_or_a_bad_one_is_refused() -> None:
    with pytest.raises(TypeError, match="colour"):
        Producer("G", colour="red")  # type: ignore[call-arg]  # the point of the test
    with pytest.raises(ConfigError, match="retries"):
        Producer("G", retries=-1)
    with pytest.raises(ConfigError, match="group"):
        Producer("")


@on_loop
async def test_nothing_is_logged_for_a_message(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "bolide.client")
    async with fake_cluster("broker-a", "broker-b") as cluster, producer(cluster) as p:
        cluster.brokers[0].answer = busy
        await p.send(MESSAGE)
        caplog.clear()
        for _ in range(10):
            await p.send(MESSAGE)
        assert not caplog.records
