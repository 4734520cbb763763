"""Messages that expire, from the sender to consumers and back."""

import json
import time
from pathlib import Path

import pytest

from bolide import Message, Producer, PullConsumer
from bolide.model.names import retry_topic
from bolide.model.properties import PropertyName
from bolide.protocol.batch import encode_batch
from bolide.protocol.codes import ResponseCode
from bolide.protocol.refusals import MessageIllegal, ServerError
from tests.support.aio import on_loop, until
from tests.support.broker import SUBSCRIBED, SUSPEND, BrokerClient, broker_in
from tests.support.broker_tables import BrokenDisk
from tests.support.clock import FakeClock
from tests.support.own_cluster import QUICK_DELAYS, own_cluster

EXPIRES = PropertyName.EXPIRES_AT


def expiring(clock: FakeClock, seconds: float) -> dict[str, str]:
    return {"UNIQ_KEY": "A" * 32, EXPIRES: str(int((clock.now + seconds) * 1000))}


@on_loop
async def test_no_consumer_gets_what_has_expired_neither_before_nor_after_a_restart(
    tmp_path: Path,
) -> None:
    clock = FakeClock(time.time())
    async with broker_in(tmp_path, now=clock) as broker, BrokerClient(broker.address) as client:
        await client.send(body=b"plain")
        await client.send(body=b"short", properties=expiring(clock, 10))
        await client.send(body=b"long", properties=expiring(clock, 100))
        before = await client.pull()
        clock.advance(10)
        after = await client.pull()
        only_expired = await client.pull(queue_offset=1, max_msg_nums=1)
    async with broker_in(tmp_path, now=clock) as broker, BrokerClient(broker.address) as client:
        restarted = await client.pull()

    assert before.bodies == [b"plain", b"short", b"long"]
    assert after.bodies == restarted.bodies == [b"plain", b"long"]
    assert after.header.next_begin_offset == 3
    assert only_expired.bodies == [b"long"]


@on_loop
async def test_a_pull_that_waits_is_not_woken_by_what_came_too_late(tmp_path: Path) -> None:
    clock = FakeClock(time.time())
    async with broker_in(tmp_path, now=clock) as broker, BrokerClient(broker.address) as client:
        await client.send(body=b"first")
        await client.send(body=b"late", properties=expiring(clock, -1))
        waited = await client.pull(
            queue_offset=1, sys_flag=SUBSCRIBED | SUSPEND, suspend_timeout_millis=200
        )

    assert waited.code == ResponseCode.PULL_RETRY_IMMEDIATELY
    assert waited.header.next_begin_offset == 2


@on_loop
async def test_what_expired_meanwhile_is_not_tried_again(tmp_path: Path) -> None:
    clock = FakeClock(time.time())
    retries = retry_topic("readers")
    async with broker_in(tmp_path, now=clock) as broker, BrokerClient(broker.address) as client:
        await client.send(body=b"message", properties=expiring(clock, 10))
        (record,) = (await client.pull()).records
        await client.send(retries, b"retried", properties=expiring(clock, 10))
        in_time = await client.pull(retries)
        clock.advance(10)
        too_late = await client.pull(retries)
        stored = broker.store.log.written
        await client.send_back(record)
        await client.send_back(record, delay_level=-1)  # not to the dead letters either

        assert broker.store.log.written == stored
    assert in_time.bodies == [b"retried"]
    assert too_late.bodies == []


@on_loop
async def test_messages_of_a_batch_expire_each_by_itself(tmp_path: Path) -> None:
    clock = FakeClock(time.time())
    batch = encode_batch(
        [
            Message("T", b"short", expires_at=clock.now + 10),
            Message("T", b"plain"),
            Message("T", b"long", expires_at=clock.now + 100),
        ]
    )
    async with broker_in(tmp_path, now=clock) as broker, BrokerClient(broker.address) as client:
        await client.send(body=batch, batch=True)
        before = await client.pull()
        clock.advance(10)
        after = await client.pull()

    assert before.bodies == [b"short", b"plain", b"long"]
    assert after.bodies == [b"plain", b"long"]


@on_loop
async def test_a_topic_is_noted_on_the_disk_before_its_first_message_is_stored(
    tmp_path: Path,
) -> None:
    """Or a crash between the two would have it handed out for ever."""
    clock, disk = FakeClock(time.time()), BrokenDisk()
    noted = tmp_path / "store" / "config" / "bolideExpiringTopics.json"
    async with (
        broker_in(tmp_path, now=clock, disk=disk) as broker,
        BrokerClient(broker.address) as client,
    ):
        await client.send(body=b"plain")
        stored = broker.store.log.written
        disk.is_full = True
        with pytest.raises(ServerError, match=r"bolideExpiringTopics.json cannot be written"):
            await client.send(body=b"short", properties=expiring(clock, 10))
        assert (broker.store.log.written, noted.exists()) == (stored, False)
        disk.is_full = False
        await client.send(body=b"short", properties=expiring(clock, 10))
        assert json.loads(noted.read_text()) == {"topics": ["T"]}
        clock.advance(10)
        assert (await client.pull()).bodies == [b"plain"]


@on_loop
async def test_what_expires_while_it_waits_for_its_time_is_not_delivered(tmp_path: Path) -> None:
    clock = FakeClock(time.time())
    async with (
        broker_in(tmp_path, now=clock, message_delay_level=QUICK_DELAYS) as broker,
        BrokerClient(broker.address) as client,
    ):
        for kind in ({"DELAY": "1"}, {"TIMER_DELAY_MS": "1000"}):
            for seconds in (0.5, 100):
                properties = expiring(clock, seconds) | kind
                await client.send(body=f"{seconds}".encode(), properties=properties)
        clock.advance(2)
        await until(lambda: broker.store.max_offset("T", 0) == 4)
        found = await client.pull()

    assert found.bodies == [b"100", b"100"]


@on_loop
async def test_a_time_that_is_no_number_is_refused(tmp_path: Path) -> None:
    async with broker_in(tmp_path) as broker, BrokerClient(broker.address) as client:
        bad = Message.unchecked("T", b"message", {EXPIRES: "soon"})
        with pytest.raises(MessageIllegal, match=f"{EXPIRES}.*soon"):
            await client.send(properties={EXPIRES: "soon"})
        with pytest.raises(MessageIllegal, match=f"{EXPIRES}.*soon"):
            await client.send(body=encode_batch([bad]), batch=True)


@on_loop
async def test_our_clients_send_it_and_leave_out_what_a_broker_hands_out_too_late(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        own_cluster(tmp_path) as cluster,
        Producer("G", name_server=cluster.address) as producer,
        PullConsumer("readers", name_server=cluster.address) as consumer,
    ):
        message = Message("T", b"short", expire_after=3600)
        sent = await producer.send(message)
        await producer.send(Message("T", b"plain"), queue=sent.queue)
        in_time = await consumer.pull(sent.queue, "*", 0)
        now = time.time() + 7200
        monkeypatch.setattr("bolide.client.consumer.received.time.time", lambda: now)
        too_late = await consumer.pull(sent.queue, "*", 0)

    assert [message.body for message in in_time.messages] == [b"short", b"plain"]
    assert in_time.messages[0].expires_at == message.expires_at
    assert [message.body for message in too_late.messages] == [b"plain"]
    assert too_late.next_offset == 2
