"""Messages for a time of their own, through our client and a broker of ours."""

import asyncio
import struct
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from typer.testing import CliRunner

from bolide import (
    AdminClient,
    InvalidMessage,
    Message,
    Producer,
    StoredMessage,
    TransactionProducer,
    TransactionState,
)
from bolide.cli import app
from bolide.model.names import TIMER_TOPIC
from bolide.model.properties import PropertyName
from bolide.protocol import fastjson
from bolide.protocol.bodies.replication import TimerMetrics
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.headers.runtime import TimerEngineHeader
from bolide.protocol.headers.send import RecallHeader
from bolide.protocol.recall_handle import BadRecallHandle
from bolide.protocol.record import Record
from bolide.protocol.refusals import IllegalOperation, InvalidParameter, NoPermission, Refusal
from bolide.remoting.client import RemotingClient
from tests.support.aio import on_loop
from tests.support.broker import BrokerClient, broker_in
from tests.support.own_cluster import OwnCluster, create_topic, own_cluster

TOPIC = "Later"
LATE_MS = 500
"""Far more than deliveries need, for machines that are busy."""


async def received(client: BrokerClient, count: int) -> list[Record]:
    """The first messages of the topic's one queue, when they are there."""
    found: list[Record] = []
    while len(found) < count:
        pulled = await client.wait_for(TOPIC, len(found))
        found += pulled.records
    return found


def lateness(record: Record) -> int:
    due = record.decode_properties()[PropertyName.TIMER_OUT_MS]
    return record.store_timestamp - int(due)


@on_loop
async def test_messages_come_when_they_are_due_also_after_a_restart(tmp_path: Path) -> None:
    small = {"mapped_file_size_timer_log": 1024 * 1024}
    async with own_cluster(tmp_path, **small) as cluster:
        async with Producer("later", name_server=cluster.address) as producer:
            await create_topic(producer, TOPIC, 1)
            now = time.time()
            messages = [
                Message(TOPIC, b"%d" % at, deliver_at=now + 2 + at / 1000) for at in range(400)
            ]
            await asyncio.gather(*map(producer.send, messages))
            soon = datetime.now(UTC) + timedelta(seconds=0.2)
            await producer.send(Message(TOPIC, b"first", deliver_at=soon))
            await producer.send(Message(TOPIC, b"second", delay=timedelta(seconds=0.4)))
            await producer.send(Message(TOPIC, b"now", deliver_at=1.0))
            await producer.create_topic("Once", 1, attributes={"+dedup.window": "1h"})
            once = Message("Once", b"once", dedup_key="k", delay=3600)
            assert (await producer.send(once)).repeats == 0
        async with BrokerClient(cluster.broker.address) as client:
            early = await received(client, 3)
        assert [bytes(record.body) for record in early] == [b"now", b"first", b"second"]
        await cluster.stop_broker()
        await cluster.start_broker()
        async with BrokerClient(cluster.broker.address) as client:
            records = (await received(client, 403))[1:]
            assert [int(bytes(record.body)) for record in records[2:]] == list(range(400))
            assert all(lateness(record) >= 0 for record in records)
            assert sorted(map(lateness, records))[len(records) // 2] < LATE_MS
            assert (await client.pull(TOPIC, 403)).records == []
        async with Producer("later", name_server=cluster.address) as producer:
            assert (await producer.send(once)).repeats == 1, "it waits"


@on_loop
async def test_what_waits_is_seen_and_taken_back(tmp_path: Path) -> None:
    async with (
        own_cluster(tmp_path, mapped_file_size_timer_log=1024 * 1024) as cluster,
        Producer("later", name_server=cluster.address) as producer,
        AdminClient(cluster.address) as admin,
    ):
        await create_topic(producer, TOPIC, 1)
        address = cluster.broker.address
        sent = [
            await producer.send(Message(TOPIC, b"%d" % at, keys=[f"k{at % 2}"], delay=delay))
            for at, delay in enumerate([0.8, 0.9, 1.0, 3600, 30 * 86400])
        ]
        assert all(result.recall_handle for result in sent)

        shown = [each async for each in admin.timers.each(address)]
        assert [each.message_id for each in shown] == [result.message_id for result in sent]
        page = await admin.timers.page(address, TOPIC, limit=2)
        rest = await admin.timers.page(address, TOPIC, begin=page.next, limit=9)
        assert (len(page.timers), len(rest.timers), rest.next) == (2, 3, "")
        assert (await admin.timers.page(address, "Other")).timers == []

        first, handle = sent[0], sent[0].recall_handle
        assert await producer.recall(TOPIC, handle) == first.message_id
        by_key = await admin.timers.recall(address, TOPIC, "k1")
        assert {each.message_id for each in by_key} == {sent[1].message_id, sent[3].message_id}
        words = ("-b", address, "-t", TOPIC)
        shown_far = await command(cluster, "listTimers", *words, "-m", "9")
        assert sent[4].message_id in shown_far
        assert sent[3].message_id not in shown_far
        recalled = await command(
            cluster, "recallMessage", *words, "--yes", "-k", sent[4].message_id
        )
        assert sent[4].message_id in recalled
        assert "no message" in await command(
            cluster, "recallMessage", *words, "--yes", "-k", "other"
        )
        async with BrokerClient(address) as client:
            (record,) = await received(client, 1)
            assert bytes(record.body) == b"2"
            await refused(cluster, producer, handle or "", client)


async def command(cluster: OwnCluster, *words: str) -> str:
    """What a command of `bolide admin` prints."""
    given = ["admin", *words, "-n", cluster.address]
    return (await asyncio.to_thread(CliRunner().invoke, app, given)).output


@on_loop
async def test_every_answer_to_a_recall_has_the_region(tmp_path: Path) -> None:
    """The trace hook of Java's client does nothing without it."""
    async with (
        broker_in(tmp_path, region_id="north") as broker,
        BrokerClient(broker.address) as client,
    ):
        due = str(int(time.time() * 1000) + 60_000)
        sent = await client.send(properties={"UNIQ_KEY": "1", "TIMER_DELIVER_MS": due})
        assert sent.recall_handle
        for handle, code in ((sent.recall_handle, 0), ("x", ResponseCode.ILLEGAL_OPERATION)):
            header = RecallHeader(producer_group="p", topic="T", recall_handle=handle)
            answer = await client.remoting.call(
                client.address, RequestCode.RECALL_MESSAGE, header,
                accept=[ResponseCode.ILLEGAL_OPERATION],
            )  # fmt: skip
            assert answer.code == code
            assert answer.fields is not None
            assert answer.fields["MSG_REGION"] == "north"
            assert ("msgId" in answer.fields) == (code == 0)


@on_loop
async def test_the_engine_in_files_may_be_chosen_and_no_other(tmp_path: Path) -> None:
    async with broker_in(tmp_path) as broker, RemotingClient() as client:

        async def choose(engine: str) -> None:
            header = TimerEngineHeader(engine)
            await client.call(broker.address, RequestCode.SWITCH_TIMER_ENGINE, header)

        await choose("F")
        for engine, reason in (
            ("R", "timerRocksDBEnable must be configured"),
            ("X", "param error"),
        ):
            with pytest.raises(InvalidParameter, match=reason):
                await choose(engine)


@on_loop
async def test_a_time_counts_from_the_commit_of_a_transaction_on(tmp_path: Path) -> None:
    async def check(_: StoredMessage) -> TransactionState:
        return TransactionState.COMMIT

    async with (
        own_cluster(tmp_path, mapped_file_size_timer_log=1024 * 1024) as cluster,
        TransactionProducer("later", check=check, name_server=cluster.address) as producer,
        BrokerClient(cluster.broker.address) as client,
    ):
        await create_topic(producer, TOPIC, 1)
        async with producer.transaction(Message(TOPIC, b"x", delay=0.3)):
            await asyncio.sleep(0.4)
            assert (await client.pull(TOPIC)).records == []
            ended = time.time()
        (record,) = await received(client, 1)
        assert record.store_timestamp >= int(ended * 1000) + 300  # the store's clock has whole ms
        with pytest.raises(Refusal, match="timerMaxDelaySec"):
            async with producer.transaction(Message(TOPIC, b"x", delay=10**9)):
                pass


async def refused(
    cluster: OwnCluster, producer: Producer, handle: str, client: BrokerClient
) -> None:
    """What cannot be recalled, and what replicas are told by then."""
    with pytest.raises(IllegalOperation, match="its time is over"):
        await producer.recall(TOPIC, handle)
    with pytest.raises(BadRecallHandle, match="None is no recall handle"):
        await producer.recall(TOPIC, None)
    await create_topic(producer, "Other", 1)
    with pytest.raises(IllegalOperation, match="of topic 'Later'"):
        await producer.recall("Other", handle)
    cluster.broker.parts.timers.save()
    numbers = struct.unpack(">7q", (await client.call(RequestCode.GET_TIMER_CHECK_POINT)).body)
    assert numbers[2] == numbers[3] == cluster.broker.store.max_offset(TIMER_TOPIC, 0) == 9
    body = (await client.call(RequestCode.GET_TIMER_METRICS)).body
    assert fastjson.decode(body, TimerMetrics).timing_count.keys() == {TOPIC}
    await client.call(RequestCode.UPDATE_BROKER_CONFIG, body=b"recallMessageEnable=false")
    with pytest.raises(NoPermission, match="recallMessageEnable is false"):
        await producer.recall(TOPIC, handle)
    with pytest.raises(InvalidMessage, match="cannot be timed"):
        await producer.send_batch([Message(TOPIC, b"x", delay=1)])
    with pytest.raises(Refusal, match="timerMaxDelaySec=31536000"):
        await producer.send(Message(TOPIC, b"x", delay=timedelta(days=366)))
