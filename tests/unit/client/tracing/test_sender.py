"""Trace records on their way out: all of them leave, or are counted."""

import asyncio
from collections import deque

import pytest

from bolide.client.producer.producer import Producer
from bolide.client.tracing import sender
from bolide.client.tracing.sender import TraceSender
from bolide.client.tracing.settings import Trace
from bolide.model.message import Message
from bolide.protocol.trace import TraceRecord, read_records
from tests.support.aio import on_loop, until
from tests.support.cluster import FakeBroker, FakeCluster, fake_cluster, route_of


def producer_of(cluster: FakeCluster, trace: Trace | bool = False) -> Producer:
    (broker,) = cluster.brokers
    for topic in ("Traces", "Traces2"):
        cluster.name_server.routes[topic] = route_of(broker)
    return Producer("G", name_server=cluster.name_server.address, trace=trace)


def recalled(message_id: str) -> TraceRecord:
    return TraceRecord(kind="Recall", time_ms=1, message_id=message_id, success=True)


def told(broker: FakeBroker) -> list[str | None]:
    """The ids that were told of on the trace topic."""
    bodies = [
        frame.body.decode()
        for header, frame in zip(broker.sends, broker.frames, strict=True)
        if header.topic == "Traces"
    ]
    found = [record for body in bodies for record in read_records(body)]
    return [record.message_id for record in found if isinstance(record, TraceRecord)]


class Crowded(deque[TraceRecord]):
    """Another thread adds its first record between two steps of ours."""

    def append(self, record: TraceRecord) -> None:
        super().append(record)
        if record.message_id == "ours":
            super().append(recalled("theirs"))


@on_loop
async def test_records_that_threads_add_at_the_same_moment_leave_in_time() -> None:
    async with fake_cluster("broker-a") as cluster, producer_of(cluster) as producer:
        trace = Trace(topic="Traces", interval=0.01)
        tracing = TraceSender(trace, producer._instance, "G", "PRODUCE")
        tracing._waiting = Crowded()
        tracing.start()
        await asyncio.to_thread(tracing.add, recalled("ours"))
        await until(lambda: told(cluster.brokers[0]) == ["ours", "theirs"])
        await asyncio.to_thread(tracing.add, recalled("later"))
        await until(lambda: told(cluster.brokers[0])[2:] == ["later"])
        await tracing.close()


@on_loop
async def test_what_a_close_cuts_off_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sender, "_CLOSE_TIMEOUT", 0.05)
    async with fake_cluster("broker-a") as cluster, producer_of(cluster) as producer:
        (broker,) = cluster.brokers
        await producer.send(Message("T", b"x"))
        tracing = TraceSender(Trace(topic="Traces"), producer._instance, "G", "PRODUCE")
        tracing.start()
        broker.hold = asyncio.Event()  # it answers nothing any more
        for number in range(3):
            tracing.add(recalled(str(number)))
        await tracing.close()
        broker.hold.set()
        broker.hold = None
    assert tracing.dropped == 3


@on_loop
async def test_a_message_with_half_a_character_does_not_end_the_trace() -> None:
    async with fake_cluster("broker-a") as cluster:
        async with producer_of(cluster, Trace(topic="Traces", batch=1)) as producer:
            sent = [await producer.send(Message("T", b"x", keys=key)) for key in ("\ud800", "k")]
        assert producer.tracing is not None
        assert producer.tracing.dropped == 0
        assert sorted(map(str, told(cluster.brokers[0]))) == [one.message_id for one in sent]


@on_loop
async def test_only_the_trace_topic_itself_is_not_traced() -> None:
    async with fake_cluster("broker-a") as cluster:
        async with producer_of(cluster, Trace(topic="Traces")) as producer:
            await producer.send(Message("Traces", b"x"))
            sent = await producer.send(Message("Traces2", b"x"))
        assert told(cluster.brokers[0]) == [sent.message_id]
