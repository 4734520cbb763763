"""Plain sends: what takes the shortest way, and that nobody can tell it from the ordinary one."""

import asyncio
import logging
from collections import Counter
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from bolide.client.errors import RouteNotFound, SendFailed, SendTimedOut
from bolide.client.producer.fast_path import SendFastPath
from bolide.client.producer.hooks import SendContext
from bolide.client.producer.producer import Producer
from bolide.client.producer.results import SendStatus
from bolide.client.producer.send_request import RequestBuilder
from bolide.client.tracing.opentelemetry import OpenTelemetry
from bolide.model.message import Message
from bolide.model.message_checks import InvalidMessage
from bolide.model.message_queue import MessageQueue
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.frame import Frame
from bolide.protocol.headers.send import SendHeader, SendReply
from bolide.protocol.property_string import decode_properties
from bolide.protocol.refusals import SystemBusy
from bolide.protocol.signature import is_signed_by
from bolide.remoting.calls import PendingCalls
from bolide.remoting.dispatch import Reply
from bolide.remoting.errors import CallTimedOut, ConnectionLost
from tests.support.aio import on_loop, until
from tests.support.cluster import FakeCluster, fake_cluster, route_of, stored
from tests.support.producers import Warm

PLAIN = Message("T", b"body", flag=9)


class Labelled(bytes):
    """As `numpy.bytes_` is: bytes to whoever asks, and not the type itself."""


class Ways:
    """Which way messages went."""

    def __init__(self) -> None:
        self.express: list[Message] = []
        self.packed: list[Message] = []


@pytest.fixture
def ways(monkeypatch: pytest.MonkeyPatch) -> Iterator[Ways]:
    seen = Ways()
    post, build = SendFastPath.try_send, RequestBuilder.build

    def noted_post(self: SendFastPath, message: Message, seconds: float | None = None) -> Any:
        sent = post(self, message, seconds)
        if sent is not None:
            seen.express.append(message)
        return sent

    async def noted_pack(self: RequestBuilder, message: Message) -> Any:
        seen.packed.append(message)
        return await build(self, message)

    monkeypatch.setattr(SendFastPath, "try_send", noted_post)
    monkeypatch.setattr(RequestBuilder, "build", noted_pack)
    yield seen


def warm(cluster: FakeCluster, **settings: Any) -> Producer:
    return Warm("G", name_server=cluster.name_server.address, **settings)


@pytest.mark.parametrize(
    "message",
    [
        pytest.param(PLAIN, id="nothing said"),
        pytest.param(Message("T", b"1", tags="A", keys=["k", "l"]), id="tags and keys"),
        pytest.param(Message("T", b"1", properties={"ä": "ö\U0001f600", "q": '"\\\n'}), id="text"),
        pytest.param(Message("T", b"1", delay_level=3), id="delayed"),
        pytest.param(Message("T", b"1", wait_stored=False), id="not waited for"),
        pytest.param(Message("T", bytes(4095)), id="as large as is not compressed"),
    ],
)
@pytest.mark.parametrize("namespace", ["", "NS"])
@on_loop
async def test_the_request_is_that_of_the_ordinary_way(
    ways: Ways, message: Message, namespace: str
) -> None:
    async with fake_cluster(queues=1) as cluster:
        cluster.name_server.routes["NS%T"] = cluster.name_server.routes["T"]
        async with warm(cluster, namespace=namespace, unit_mode=True) as p:
            first = await p.send(message)
            second = await p.send(message, queue=MessageQueue("T", "broker-a", 0))
        frames = cluster.brokers[0].frames
    assert (ways.express, ways.packed) == ([message], [message])
    said, expected = (_comparable(frame) for frame in frames)
    assert said == expected
    assert msgspec.structs.replace(first, message_id="") == msgspec.structs.replace(
        second, message_id=""
    )


@pytest.mark.parametrize("token", [None, "t"])
@on_loop
async def test_a_signed_send_takes_the_same_way_and_is_signed_right(
    ways: Ways, token: str | None
) -> None:
    keys = {"access_key": "a", "secret_key": "s", "security_token": token}
    async with fake_cluster(queues=1) as cluster:
        async with warm(cluster, **keys) as p:
            await p.send(PLAIN)
            await p.send_oneway(PLAIN)
            await p.send(PLAIN, queue=MessageQueue("T", "broker-a", 0))
            await until(lambda: len(cluster.brokers[0].frames) == 3)
        frames = cluster.brokers[0].frames
    assert (len(ways.express), len(ways.packed)) == (1, 1)
    for frame in frames:
        fields = frame.fields or {}
        assert (fields["AccessKey"], fields.get("SecurityToken")) == ("a", token)
        assert is_signed_by(fields, frame.body, b"s", frame.version)


def _comparable(frame: Frame) -> tuple[dict[str, Any], Frame]:
    fields: dict[str, Any] = dict(frame.fields or {})
    properties = decode_properties(fields.pop("i"))
    assert len(properties.pop("UNIQ_KEY")) in {32, 56}
    assert int(fields.pop("g")) > 0
    same = msgspec.structs.replace(frame, fields=None, opaque=0)
    return {**fields, "i": list(properties.items())}, same


@pytest.mark.parametrize(
    "message",
    [
        pytest.param(Message("T", bytes(4096)), id="compressed"),
        pytest.param(Message("T", Labelled(b"1")), id="a body of a class derived from bytes"),
        pytest.param(PLAIN.with_properties({"UNIQ_KEY": "MY-OWN"}), id="an id of its own"),
        pytest.param(Message("T", b"1", dedup_key="k"), id="keyed"),
        pytest.param(PLAIN.with_properties({"TRAN_MSG": "true"}), id="a half message"),
        pytest.param(PLAIN.with_properties({"MSG_TYPE": "request"}), id="a request"),
        pytest.param(PLAIN.with_properties({"INSTANCE_ID": "mine"}), id="an instance id"),
        pytest.param(PLAIN.with_properties({"a": "\ud800"}), id="half a surrogate pair"),
        pytest.param(PLAIN.with_properties({"a": "b" * 0x8000}), id="long properties"),
    ],
)
@on_loop
async def test_what_is_not_plain_takes_the_ordinary_way(ways: Ways, message: Message) -> None:
    async with fake_cluster() as cluster, warm(cluster) as p:
        await p.send(message)
    assert (ways.express, ways.packed) == ([], [message])
    assert len(cluster.sends) == 1


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({"latency_faults": True}, id="latency faults"),
        pytest.param({"telemetry": OpenTelemetry()}, id="telemetry"),
        pytest.param({"trace": True}, id="traced"),
    ],
)
@on_loop
async def test_who_wants_to_see_every_send_has_the_ordinary_way(
    ways: Ways, settings: dict[str, Any]
) -> None:
    async with fake_cluster() as cluster, warm(cluster, **settings) as p:
        await p.send(PLAIN)
        await p.send_oneway(PLAIN)
    assert ways.express == []
    assert len([message for message in ways.packed if message.topic == "T"]) == 2


@on_loop
async def test_a_hook_sees_every_send_from_the_moment_it_is_there(ways: Ways) -> None:
    seen: list[SendContext] = []

    def allow(context: SendContext) -> None:
        seen.append(context)

    async with fake_cluster() as cluster, warm(cluster) as p:
        await p.send(PLAIN)
        p.add_forbidden_hook(allow)
        await p.send(PLAIN)
    assert (len(ways.express), len(seen)) == (1, 1)


@on_loop
async def test_queues_take_turns_whichever_way_a_message_goes(ways: Ways) -> None:
    large = Message("T", bytes(5000))
    async with fake_cluster(queues=4) as cluster, warm(cluster) as p:
        for message in [PLAIN, large, large, PLAIN, PLAIN, large, PLAIN, large]:
            await p.send(message)
        await p.send_oneway(PLAIN)
        await until(lambda: len(cluster.sends) == 9)
    turns = [header.queue_id for header in cluster.sends]
    assert turns == [(turns[0] + number) % 4 for number in range(9)]
    assert (len(ways.express), len(ways.packed)) == (4, 4)


@on_loop
async def test_a_changed_route_counts_from_the_next_send_on(ways: Ways) -> None:
    async with fake_cluster("broker-a", "broker-b", queues=1) as cluster, warm(cluster) as p:
        for _ in range(4):
            await p.send(PLAIN)
        first, second = cluster.brokers
        cluster.name_server.routes["T"] = route_of(second, queues=3)
        await p._instance.routes.refresh("T")
        for _ in range(3):
            await p.send(PLAIN)
    assert (len(first.sends), len(second.sends), len(ways.express)) == (2, 5, 7)
    assert {header.queue_id for header in second.sends[2:]} == {0, 1, 2}


@on_loop
async def test_the_topics_of_plain_sends_are_kept_fresh() -> None:
    async with fake_cluster() as cluster, warm(cluster) as p:
        assert "T" not in p.topics()
        await p.send(PLAIN)
        assert "T" in p.topics()


@on_loop
async def test_a_topic_that_nobody_has_is_not_asked_for_ever_after() -> None:
    async with fake_cluster() as cluster, warm(cluster) as p:
        for send in (p.send, p.send_oneway):
            with pytest.raises(RouteNotFound):
                await send(Message("Nowhere", b"1"))
        assert "Nowhere" not in p.topics()


@on_loop
async def test_a_bad_message_is_refused_with_the_same_words() -> None:
    async with fake_cluster() as cluster, warm(cluster, max_message_size=100) as p:
        for bad in (Message("T", b""), Message("T", bytes(101))):
            for send in (p.send, p.send_oneway):
                with pytest.raises(InvalidMessage, match="body"):
                    await send(bad)
        with pytest.raises(InvalidMessage, match="SCHEDULE_TOPIC_XXXX"):
            await p.send(Message("SCHEDULE_TOPIC_XXXX", b"1"))
        with pytest.raises(ValueError, match="separator"):
            await p.send(PLAIN.with_properties({"a": "b\x02c"}))
        with pytest.raises(TypeError, match="a Message is wanted"):
            await p.send_oneway("text")  # type: ignore[arg-type]
    assert cluster.sends == []


# Answers


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (ResponseCode.FLUSH_DISK_TIMEOUT, SendStatus.FLUSH_DISK_TIMEOUT),
        (ResponseCode.SUCCESS, SendStatus.SEND_OK),
    ],
)
@on_loop
async def test_an_unusual_answer_says_all_that_it_says(
    ways: Ways, code: ResponseCode, status: SendStatus
) -> None:
    def answer(header: SendHeader, _frame: Frame) -> Reply:
        reply = SendReply(
            msg_id="1" * 32, queue_id=5, queue_offset=6, transaction_id="t", recall_handle="h",
            repeats=1, region="r", trace_on=False,
        )  # fmt: skip
        return Reply(code=code, header=reply)

    async with fake_cluster() as cluster, warm(cluster) as p:
        cluster.brokers[0].answer = answer
        result = await p.send(PLAIN)
    assert ways.express == [PLAIN]
    assert (result.status, result.offset_message_id, result.queue.queue_id) == (status, "1" * 32, 5)
    assert (result.queue_offset, result.transaction_id, result.region) == (6, "t", "r")
    assert (result.trace_on, result.recall_handle, result.repeats) == (False, "h", 1)
    assert result.message_id == _id(cluster.sends[0])


@on_loop
async def test_a_queue_that_the_broker_chose_is_told() -> None:
    def elsewhere(header: SendHeader, frame: Frame) -> Reply:
        return stored(msgspec.structs.replace(header, queue_id=header.queue_id + 5), frame)

    async with fake_cluster(queues=1) as cluster, warm(cluster) as p:
        cluster.brokers[0].answer = elsewhere
        assert (await p.send(PLAIN)).queue == MessageQueue("T", "broker-a", 5)


@on_loop
async def test_many_sends_under_way_get_their_own_answers(ways: Ways) -> None:
    def numbered(header: SendHeader, frame: Frame) -> Reply:
        reply = SendReply(msg_id="0" * 32, queue_id=header.queue_id, queue_offset=int(frame.body))
        return Reply(header=reply)

    async with fake_cluster("broker-a", "broker-b") as cluster, warm(cluster) as p:
        for broker in cluster.brokers:
            broker.answer = numbered
        sends = [p.send(Message("T", b"%d" % number)) for number in range(500)]
        results = await asyncio.gather(*sends)
    assert [result.queue_offset for result in results] == list(range(500))
    assert len({result.message_id for result in results}) == len(ways.express) == 500


@on_loop
async def test_the_usual_answer_never_becomes_a_frame(monkeypatch: pytest.MonkeyPatch) -> None:
    answers: list[Frame] = []
    resolve = PendingCalls.resolve

    def noted(self: PendingCalls, response: Frame) -> bool:
        if "msgId" in (response.fields or {}):
            answers.append(response)
        return resolve(self, response)

    monkeypatch.setattr(PendingCalls, "resolve", noted)
    async with fake_cluster() as cluster, warm(cluster) as p:
        await asyncio.gather(*(p.send(PLAIN) for _ in range(20)))
        assert answers == []
        await p.send(Message("T", bytes(5000)))
        assert len(answers) == 1


# Failures


@on_loop
async def test_a_refused_send_goes_on_at_another_broker_with_the_same_id(ways: Ways) -> None:
    def busy(_header: SendHeader, _frame: Frame) -> Reply:
        raise SystemBusy("flow control")

    async with fake_cluster("broker-a", "broker-b", queues=1) as cluster, warm(cluster) as p:
        cluster.brokers[0].answer = busy
        for _ in range(2):
            result = await p.send(PLAIN)
            assert result.queue.broker_name == "broker-b"
        cluster.brokers[1].answer = busy
        with pytest.raises(SendFailed, match=r"broker-a.*broker-b|broker-b.*broker-a") as failed:
            await p.send(PLAIN)
    assert isinstance(failed.value.__cause__, SystemBusy)
    assert len(ways.express) == 3
    refused, taken = (broker.sends for broker in cluster.brokers)
    attempts = Counter(_id(header) for header in refused + taken)
    assert attempts[_id(refused[0])] == 2  # there, then at the other one
    assert sorted(attempts.values()) in ([1, 2, 3], [2, 2, 3])


def _id(header: SendHeader) -> str:
    return decode_properties(header.properties)["UNIQ_KEY"]


def _ids(headers: list[SendHeader]) -> set[str]:
    return set(map(_id, headers))


@on_loop
async def test_a_broker_that_does_not_answer_ends_the_send_in_time_and_not_before() -> None:
    async with fake_cluster() as cluster, warm(cluster) as p:
        cluster.brokers[0].hold = asyncio.Event()
        loop = asyncio.get_running_loop()
        began = loop.time()
        with pytest.raises(SendTimedOut, match="broker-a") as failed:
            await p.send(PLAIN, timeout=0.1)
        took = loop.time() - began
        cluster.brokers[0].hold.set()
        await p.send(PLAIN)  # the late answer reaches nobody
    cause = failed.value.__cause__
    assert isinstance(cause, CallTimedOut)
    assert (cause.code, cause.seconds) == (RequestCode.SEND_MESSAGE_V2, 0.1)
    assert 0.1 <= took + 1e-6 < 2.0
    assert len(cluster.sends) == 2


@on_loop
async def test_a_shorter_time_for_one_try_counts_for_the_first_one() -> None:
    async with (
        fake_cluster("broker-a", "broker-b", queues=1) as cluster,
        warm(cluster, try_timeout=0.05) as p,
    ):
        cluster.brokers[0].hold = asyncio.Event()
        for _ in range(2):
            assert (await p.send(PLAIN)).queue.broker_name == "broker-b"
        cluster.brokers[0].hold.set()


@on_loop
async def test_a_lost_connection_fails_the_sends_under_way_and_another_is_made(ways: Ways) -> None:
    async with fake_cluster() as cluster, warm(cluster, retries=0) as p:
        broker = cluster.brokers[0]
        broker.hold = asyncio.Event()
        sends = [asyncio.create_task(p.send(PLAIN)) for _ in range(3)]
        await until(lambda: len(broker.sends) == 3)
        connection = p._instance.find_connection("broker-a")
        assert connection is not None
        connection.abort()
        outcomes = await asyncio.gather(*sends, return_exceptions=True)
        assert all(isinstance(each.__cause__, ConnectionLost) for each in outcomes)  # type: ignore[union-attr]
        broker.hold = None
        await p.send(PLAIN)
        assert p._pressure.in_flight == (0, 0)
    assert (len(ways.express), len(ways.packed)) == (3, 4)


@on_loop
async def test_a_cancelled_send_leaves_nothing_behind(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    async with fake_cluster() as cluster, warm(cluster, max_sends_under_way=1) as p:
        broker = cluster.brokers[0]
        broker.hold = asyncio.Event()
        send = asyncio.create_task(p.send(PLAIN))
        await broker.arrived.wait()
        assert p._pressure.in_flight == (1, 4)
        send.cancel()
        with pytest.raises(asyncio.CancelledError):
            await send
        assert p._pressure.in_flight == (0, 0)
        connection = p._instance.find_connection("broker-a")
        assert connection is not None
        assert not connection._pending._plain
        broker.hold.set()
        await p.send(PLAIN)
    assert caplog.records == []


@on_loop
async def test_a_send_over_the_limit_waits_in_the_ordinary_way(ways: Ways) -> None:
    async with fake_cluster() as cluster, warm(cluster, max_sends_under_way=1) as p:
        broker = cluster.brokers[0]
        broker.hold = asyncio.Event()
        sends = [asyncio.create_task(p.send(PLAIN)) for _ in range(2)]
        await broker.arrived.wait()
        await asyncio.sleep(0)
        assert len(broker.sends) == 1
        broker.hold.set()
        await asyncio.gather(*sends)
    assert (len(ways.express), len(ways.packed)) == (1, 1)


@on_loop
async def test_a_one_way_send_is_written_at_once_and_answered_by_nobody(ways: Ways) -> None:
    async with fake_cluster(queues=1) as cluster, warm(cluster) as p:
        for _ in range(3):
            await p.send_oneway(PLAIN)
        await until(lambda: len(cluster.sends) == 3)
        frames = cluster.brokers[0].frames
        assert p._pressure.in_flight == (0, 0)
    assert ways.packed == []
    assert all(frame.is_one_way and frame.body == b"body" for frame in frames)
    assert len({frame.opaque for frame in frames}) == len(_ids(cluster.sends)) == 3
