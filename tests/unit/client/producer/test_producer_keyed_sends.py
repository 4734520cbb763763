"""Messages with a `dedup_key`: one queue, whatever happens to its broker."""

import asyncio
from typing import Any

import pytest

from bolide.client.errors import BatchPartlySent, BrokerUnknown, SendFailed, SendTimedOut
from bolide.client.producer.producer import Producer
from bolide.client.producer.queue_choice import KeyedQueues
from bolide.client.producer.selectors import dedup_queue
from bolide.model.message import Message
from bolide.model.message_checks import InvalidMessage
from bolide.model.message_queue import MessageQueue
from bolide.protocol.batch import iter_batch
from bolide.protocol.frame import Frame
from bolide.protocol.headers.send import SendHeader, SendReply
from bolide.protocol.property_string import decode_properties
from bolide.protocol.refusals import NoPermission, SystemBusy
from bolide.remoting.dispatch import Reply
from tests.support.aio import on_loop
from tests.support.cluster import FakeCluster, fake_cluster, route_of, stored

QUEUES = [MessageQueue("T", name, number) for name in ("broker-a", "broker-b") for number in (0, 1)]


def keyed(key: str, body: bytes = b"body") -> Message:
    return Message("T", body, dedup_key=key)


def producer(cluster: FakeCluster, **settings: Any) -> Producer:
    return Producer("G", name_server=cluster.name_server.address, **settings)


def queues_of(cluster: FakeCluster) -> list[MessageQueue]:
    return [
        MessageQueue("T", broker.name, header.queue_id)
        for broker in cluster.brokers
        for header in broker.sends
    ]


def key_of(broker_name: str) -> str:
    """A key that hashes to one of the broker's queues."""
    return next(
        key for key in map(str, range(100)) if dedup_queue(key, QUEUES).broker_name == broker_name
    )


# ---- the key and its queue


def test_a_key_has_its_queue_in_whatever_order_they_are_told() -> None:
    for key in ("a", "b", "ü", "spark-1-2-3"):
        assert dedup_queue(key, QUEUES) == dedup_queue(key, QUEUES[::-1])
    assert {dedup_queue(str(number), QUEUES) for number in range(50)} == set(QUEUES)
    assert dedup_queue("a", QUEUES) == QUEUES[3], "as every version before has chosen it"


@pytest.mark.parametrize("key", ["x" * 256, "a\nb", "a\x01b", "a\x7fb"])
def test_keys_that_cannot_be_are_refused(key: str) -> None:
    with pytest.raises(InvalidMessage, match="dedup_key"):
        keyed(key)


def test_a_key_is_given_by_its_own_name() -> None:
    assert keyed("x" * 255).dedup_key == "x" * 255
    assert Message("T", b"1").dedup_key is None
    with pytest.raises(InvalidMessage, match="use dedup_key="):
        Message("T", b"1", properties={"DEDUP_KEY": "a"})


@on_loop
async def test_a_keyed_message_goes_to_the_queue_of_its_key() -> None:
    async with fake_cluster("broker-a", "broker-b") as cluster, producer(cluster) as p:
        for _ in range(3):
            result = await p.send(keyed("a"))
            assert result.queue == dedup_queue("a", QUEUES)
        assert (await p.send(keyed("a"), queue=QUEUES[1])).queue == QUEUES[1]
        await p.send_oneway(keyed("a"))
        properties = decode_properties(cluster.sends[0].properties)
    assert properties["DEDUP_KEY"] == "a"


@on_loop
async def test_the_result_says_how_many_were_repeats() -> None:
    async with fake_cluster() as cluster, producer(cluster) as p:
        assert (await p.send(keyed("a"))).repeats == 0
        reply = SendReply(msg_id="0" * 32, queue_id=0, queue_offset=7, repeats=1)
        cluster.brokers[0].answer = lambda _header, _frame: Reply(header=reply)
        assert (await p.send(keyed("a"))).repeats == 1


# ---- tries


@on_loop
async def test_a_refused_try_is_repeated_at_the_same_queue_only() -> None:
    async with fake_cluster("broker-a", "broker-b") as cluster, producer(cluster) as p:
        owner = next(b for b in cluster.brokers if b.name == dedup_queue("a", QUEUES).broker_name)

        def busy_at_first(header: SendHeader, frame: Frame) -> Reply:
            if len(owner.sends) < 5:
                raise SystemBusy("flow control")
            return stored(header, frame)

        owner.answer = busy_at_first
        await p.send(keyed("a"))
        assert queues_of(cluster) == [dedup_queue("a", QUEUES)] * 5, "more tries than `retries`"


@on_loop
async def test_without_retries_there_is_one_try() -> None:
    async with fake_cluster() as cluster, producer(cluster, retries=0) as p:

        def busy(_header: SendHeader, _frame: Frame) -> Reply:
            raise SystemBusy("flow control")

        cluster.brokers[0].answer = busy
        with pytest.raises(SendFailed, match="1 try"):
            await p.send(keyed("a"))


@on_loop
async def test_what_only_another_broker_could_take_fails_at_once() -> None:
    async with fake_cluster() as cluster, producer(cluster, send_timeout=60) as p:

        def forbidden(_header: SendHeader, _frame: Frame) -> Reply:
            raise NoPermission("sending message is forbidden")

        cluster.brokers[0].answer = forbidden
        with pytest.raises(SendFailed, match="1 try"):
            await p.send(keyed("a"))


@on_loop
async def test_a_broker_that_is_away_keeps_its_keys_and_gets_them_when_it_is_back() -> None:
    key, names = key_of("broker-b"), ("broker-a", "broker-b")
    async with fake_cluster(*names) as cluster, producer(cluster, send_timeout=10) as p:
        await p.send(keyed(key))
        cluster.name_server.routes["T"] = route_of(cluster.brokers[0])
        await p.fetch_publish_queues("T")
        with pytest.raises(SendTimedOut) as failed:
            await p.send(keyed(key), timeout=0.2)
        assert isinstance(failed.value.__cause__, BrokerUnknown)
        sending = asyncio.ensure_future(p.send(keyed(key)))
        await asyncio.sleep(0.05)
        cluster.name_server.routes["T"] = route_of(*cluster.brokers)
        assert (await sending).queue == dedup_queue(key, QUEUES)
        assert not cluster.brokers[0].sends


def test_the_number_of_queues_is_what_the_route_says_last() -> None:
    queues = KeyedQueues()
    assert queues.of(QUEUES) == QUEUES
    more = [*QUEUES[:2], MessageQueue("T", "broker-a", 2)]
    assert queues.of(more) == [*more, *QUEUES[2:]]
    assert queues.of(QUEUES[:1]) == [QUEUES[0], *QUEUES[2:]]


# ---- batches


@on_loop
async def test_a_batch_is_sent_queue_by_queue() -> None:
    messages = [keyed(str(number), b"%d" % number) for number in range(40)]
    async with fake_cluster("broker-a", "broker-b") as cluster, producer(cluster) as p:
        results = await p.send_batch(messages)
        frames = [frame for broker in cluster.brokers for frame in broker.frames]
    assert {result.queue for result in results} == set(QUEUES)
    for queue, frame in zip(queues_of(cluster), frames, strict=True):
        bodies = [int(bytes(item.body)) for item in iter_batch(frame.body)]
        assert bodies == sorted(bodies)
        assert {dedup_queue(str(number), QUEUES) for number in bodies} == {queue}
    assert sum(len(result.message_ids) for result in results) == 40


@on_loop
async def test_a_batch_is_all_keyed_or_not_at_all() -> None:
    async with fake_cluster() as cluster, producer(cluster) as p:
        with pytest.raises(
            InvalidMessage, match="must be set in all messages of a batch, or in none"
        ):
            await p.send([keyed("a"), Message("T", b"1")])
        (result,) = await p.send([keyed("a"), keyed("b"), keyed("c")], queue=QUEUES[0])
    assert result.queue == QUEUES[0]


@on_loop
async def test_a_keyed_batch_sent_in_part_says_to_send_all_again() -> None:
    async with fake_cluster("broker-a", "broker-b") as cluster, producer(cluster) as p:

        def forbidden(_header: SendHeader, _frame: Frame) -> Reply:
            raise NoPermission("sending message is forbidden")

        cluster.brokers[1].answer = forbidden
        messages = [keyed(key_of("broker-a")), keyed(key_of("broker-b"))]
        with pytest.raises(BatchPartlySent, match="send all again"):
            await p.send(messages)
