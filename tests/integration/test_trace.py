"""Message trace and spans: our clients, our broker, real sockets and files."""

import asyncio
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanContext, SpanKind, StatusCode
from typer.testing import CliRunner

from bolide import AdminClient, Message, Producer, PushConsumer, StoredMessage, Trace
from bolide.admin import MessageNotFound
from bolide.admin.message_history import TraceEntry
from bolide.cli import app
from bolide.client.errors import RequestTimedOut
from bolide.client.producer.results import TransactionState
from bolide.client.producer.settings import ProducerArguments
from bolide.client.producer.transactions import TransactionProducer
from bolide.client.tracing.opentelemetry import OpenTelemetry
from bolide.client.tracing.sender import TraceSender
from bolide.errors import ConfigError
from bolide.model.names import BENCHMARK_TOPIC, TRACE_TOPIC
from bolide.protocol.bodies.pop import RequestMode
from bolide.protocol.recall_handle import RecallHandle
from bolide.protocol.refusals import Refusal
from bolide.protocol.trace import TraceRecord
from tests.support.aio import PATIENCE, on_loop, until
from tests.support.own_cluster import OwnCluster, create_topic, own_cluster

QUICKLY = Trace(interval=0.02)
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


async def traces_of(
    cluster: OwnCluster, message_id: str, count: int, topic: str = TRACE_TOPIC
) -> list[TraceEntry]:
    """All records of a message, once there are so many."""
    async with AdminClient(cluster.address) as admin, asyncio.timeout(PATIENCE):
        while True:
            try:
                found = await admin.traces.of(message_id, topic=topic)
            except MessageNotFound:
                found = []
            if len(found) >= count:
                return found
            await asyncio.sleep(0.02)


@on_loop
async def test_sends_and_consumptions_are_told_and_found_by_id_and_key(tmp_path: Path) -> None:
    seen: list[StoredMessage] = []

    async def consume(message: StoredMessage) -> None:
        seen.append(message)
        if message.body == b"twice" and not message.reconsume_times:
            raise ValueError("once more")

    async with (
        own_cluster(tmp_path, trace_topic_enable=True) as cluster,
        Producer("shop", name_server=cluster.address, trace=QUICKLY) as producer,
        PushConsumer(
            "billing", name_server=cluster.address, consume_from="first", trace=QUICKLY
        ) as consumer,
    ):
        await create_topic(producer, "Orders", 1)
        await consumer.subscribe("Orders", "*", consume)
        one = await producer.send(Message("Orders", b"twice", tags="paid", keys=["k1", "k2"]))
        (two,) = await producer.send_batch([Message("Orders", b"%d" % n) for n in range(2)])
        await until(lambda: len(seen) == 4)
        found = await traces_of(cluster, one.message_id, 5)
        pubs = [(await traces_of(cluster, each, 3))[0].record for each in two.message_ids]
        async with AdminClient(cluster.address) as admin:
            (by_key, *_) = await admin.messages.by_key(TRACE_TOPIC, "k2")
        assert producer.tracing is not None
        assert producer.tracing.dropped == 0
        words = ["admin", "queryMsgTraceById", "-n", cluster.address, "-i", one.message_id]
        shown = await asyncio.to_thread(CliRunner().invoke, app, words)
        listed = await asyncio.to_thread(CliRunner().invoke, app, [*words, "--json"])
        first = await asyncio.to_thread(CliRunner().invoke, app, [*words, "-c", "1"])
    assert "cut after 1 trace messages from broker-a, which may have more; -c 2" in first.output
    assert one.message_id in by_key.keys
    assert re.search(
        r"(?m)^#Type +#ProducerGroup .*\nPub +shop +127\S+ .*ms +success$", shown.output
    )
    assert re.search(r"(?m)^#Type +#ConsumerGroup .*\n(Sub +billing .*\n?){2}", shown.output)
    assert [each["kind"] for each in json.loads(listed.output)] == [
        each.record.kind for each in found
    ]
    pub, before, after, again, done = (each.record for each in found)
    assert [each.kind for each in (pub, before, after, again, done)] == [
        "Pub", "SubBefore", "SubAfter", "SubBefore", "SubAfter",
    ]  # fmt: skip
    assert pub == TraceRecord(
        kind="Pub",
        time_ms=pub.time_ms,
        region="DefaultRegion",
        group="shop",
        topic="Orders",
        message_id=one.message_id,
        offset_message_id=one.offset_message_id,
        tags="paid",
        keys="k1 k2",
        store_host=cluster.broker.address,
        body_length=5,
        cost_ms=pub.cost_ms,
        success=True,
        message_type="Normal",
    )
    assert (before.request_id, before.retry_times, before.keys) == (after.request_id, 0, "k1 k2")
    assert (after.outcome, after.success, after.group) == ("EXCEPTION", False, "billing")
    assert (again.request_id, again.retry_times) == (done.request_id, 1)
    assert (done.outcome, done.success) == ("SUCCESS", True)
    assert [each.offset_message_id for each in pubs] == two.offset_message_id.split(",")


@on_loop
async def test_what_is_popped_is_told_as_what_is_pulled(tmp_path: Path) -> None:
    def consume(message: StoredMessage) -> None:
        if message.body == b"bad":
            raise ValueError("later")

    async with (
        own_cluster(tmp_path, trace_topic_enable=True) as cluster,
        Producer("shop", name_server=cluster.address, trace=QUICKLY) as producer,
        AdminClient(cluster.address) as admin,
    ):
        await create_topic(producer, "Orders", 1)
        await admin.pop.set_mode(cluster.broker.address, "Orders", "g", RequestMode.POP)
        async with PushConsumer(
            "g",
            name_server=cluster.address,
            consume_from="first",
            rebalance="broker",
            trace=QUICKLY,
        ) as consumer:
            await consumer.subscribe("Orders", consume)
            sent = [await producer.send(Message("Orders", body)) for body in (b"good", b"bad")]
            found = [await traces_of(cluster, one.message_id, 3) for one in sent]
            assert {queue.queue_id for queue in consumer.assigned_queues} == {-1}  # it pops
    stories = [[each.record.kind for each in story] for story in found]
    assert stories == [["Pub", "SubBefore", "SubAfter"]] * 2
    assert [story[2].record.outcome for story in found] == ["SUCCESS", "EXCEPTION"]
    for _, before, after in found:
        assert before.record.request_id == after.record.request_id
        assert (before.record.group, before.record.retry_times) == ("g", 0)


@on_loop
async def test_the_ends_of_transactions_and_recalls_are_told(tmp_path: Path) -> None:
    async with own_cluster(tmp_path) as cluster:
        async with TransactionProducer(
            "shop",
            check=lambda _: TransactionState.UNKNOWN,
            name_server=cluster.address,
            trace=True,
        ) as producer:
            message = Message("Orders", b"1", keys="k")
            result = await producer.send_in_transaction(
                message, lambda _: TransactionState.ROLLBACK
            )
            handle = RecallHandle("Orders", "broker-a", 1, "7F00000112345678ABCDEF0000010000")
            with pytest.raises(Refusal):
                await producer.recall("Orders", handle.encode())
        half, end = (each.record for each in await traces_of(cluster, result.message_id, 2))
        (recall,) = await traces_of(cluster, handle.unique_id, 1)
    assert (recall.record.kind, recall.record.success) == ("Recall", False)
    assert (half.kind, half.message_type, half.topic) == ("Pub", "TransHalf", "Orders")
    assert end == TraceRecord(
        kind="EndTransaction",
        time_ms=end.time_ms,
        region="DefaultRegion",
        group="shop",
        topic="Orders",
        message_id=result.message_id,
        keys="k",
        store_host=cluster.broker.address,
        message_type="TransCommit",
        transaction_id=result.transaction_id,
        transaction_state="ROLLBACK_MESSAGE",
        from_check=False,
    )


@on_loop
async def test_a_topic_of_ones_own_is_made_and_never_traced_itself(tmp_path: Path) -> None:
    trace = Trace(topic="Traces", interval=0.02)
    async with own_cluster(tmp_path) as cluster:
        settings: ProducerArguments = {"name_server": cluster.address, "trace": trace}
        within: ProducerArguments = {**settings, "namespace": "ns"}
        async with Producer("shop", **within) as producer:
            result = await producer.send(Message("Orders", b"1"))
        async with Producer("other", **settings) as producer:
            unseen = await producer.send(Message("Traces", b"no record"))
        (traced,) = await traces_of(cluster, result.message_id, 1, "Traces")  # left at the close
        async with AdminClient(cluster.address) as admin:
            with pytest.raises(MessageNotFound):
                await admin.traces.of(unseen.message_id, topic="Traces")
    assert (traced.record.topic, traced.record.group) == ("Orders", "shop")


@on_loop
async def test_no_trace_is_told_if_the_broker_does_not_want_any(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    added: list[TraceRecord] = []
    monkeypatch.setattr(TraceSender, "add", lambda _, record: added.append(record))
    async with (
        own_cluster(tmp_path, trace_on=False) as cluster,
        Producer("shop", name_server=cluster.address, trace=True) as producer,
        PushConsumer(
            "g", name_server=cluster.address, consume_from="first", trace=True
        ) as consumer,
    ):
        seen = asyncio.Event()
        await producer.send(Message("Orders", b"1"))
        await consumer.subscribe("Orders", lambda _: seen.set(), inline=True)
        await seen.wait()
    assert not added


@on_loop
async def test_what_cannot_be_sent_is_dropped_and_counted_and_stops_nobody(tmp_path: Path) -> None:
    trace = Trace(topic="Traces", batch=2, interval=60.0, most_waiting=3)
    async with own_cluster(tmp_path, auto_create_topic_enable=False) as cluster:
        async with Producer("shop", name_server=cluster.address, trace=trace) as producer:
            for _ in range(20):
                await producer.send(Message(BENCHMARK_TOPIC, b"1"))
            tracing = producer.tracing
            assert tracing is not None
        await producer.close()
    assert tracing.dropped == 20


@on_loop
async def test_a_burst_is_dropped_beyond_what_may_wait(tmp_path: Path) -> None:
    async with own_cluster(tmp_path) as cluster:
        async with Producer("shop", name_server=cluster.address) as producer:
            sender = TraceSender(Trace(most_waiting=10), producer._instance, "shop", "PRODUCE")
            sender.start()
            for number in range(25):
                sender.add(TraceRecord(kind="Recall", time_ms=1, message_id=str(number)))
            await sender.close()
        found = await traces_of(cluster, "9", 1)
    assert sender.dropped == 15
    assert found[0].record.message_id == "9"


@pytest.mark.parametrize(
    "given",
    [
        {"batch": 0}, {"interval": 0}, {"most_waiting": 0},
        {"topic": ""}, {"topic": "a b"}, {"topic": "SCHEDULE_TOPIC_XXXX"},
    ],
)  # fmt: skip
def test_settings_that_cannot_work_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(given))):
        Trace(**given)


# ---- OpenTelemetry


class Spans:
    """Where spans end up."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.telemetry = OpenTelemetry(self.provider)

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.exporter.get_finished_spans() if span.name == name]


def context_of(span: ReadableSpan) -> SpanContext:
    found = span.get_span_context()
    assert found is not None
    return found


def parent_of(span: ReadableSpan) -> int:
    assert span.parent is not None
    return span.parent.span_id


@on_loop
async def test_a_message_and_what_comes_of_it_are_one_trace(tmp_path: Path) -> None:
    spans = Spans()
    together: list[Sequence[StoredMessage]] = []
    async with (
        own_cluster(tmp_path) as cluster,
        Producer("shop", name_server=cluster.address, telemetry=spans.telemetry) as producer,
        PushConsumer(
            "g", name_server=cluster.address, consume_from="first", telemetry=spans.telemetry
        ) as consumer,
    ):
        for topic in ("Orders", "Bills", "Lists"):
            await create_topic(producer, topic, 1)

        async def bill(message: StoredMessage) -> None:
            await producer.send(Message("Bills", b"bill", properties={"traceparent": PARENT}))
            if not message.reconsume_times:
                raise ValueError("again")

        await consumer.subscribe("Orders", bill)
        await consumer.subscribe("Lists", together.append, batch=10)
        sent = await producer.send(Message("Orders", b"order", tags="paid", keys="k"))
        await producer.send_batch([Message("Lists", b"a"), Message("Lists", b"b")])
        with pytest.raises(RequestTimedOut):
            await producer.request(Message("Bills", b"unanswered"), timeout=0.2)
        await until(
            lambda: len(spans.named("process Orders")) == 2 and spans.named("process Lists")
        )

    (order,) = spans.named("send Orders")
    failed, done = spans.named("process Orders")
    (asked,) = (span for span in spans.named("send Bills") if span.links == ())
    first_bill, *_ = (span for span in spans.named("send Bills") if span.links)
    assert order.kind is SpanKind.PRODUCER
    assert order.attributes is not None
    assert order.attributes["messaging.message.id"] == sent.message_id
    assert order.attributes["messaging.rocketmq.message.keys"] == ("k",)
    assert asked.status.status_code is StatusCode.ERROR
    assert asked.attributes is not None
    assert asked.attributes["messaging.message.id"]
    assert failed.kind is done.kind is SpanKind.CONSUMER
    assert failed.status.status_code is StatusCode.ERROR
    assert parent_of(failed) == parent_of(done) == context_of(order).span_id
    assert parent_of(first_bill) == context_of(failed).span_id
    trace = {context_of(span).trace_id for span in (order, failed, done, first_bill)}
    assert len(trace) == 1
    assert format(first_bill.links[0].context.span_id, "x") == PARENT.split("-")[2]
    (batch,) = spans.named("send Lists")
    calls = spans.named("process Lists")
    joined = [link.context.span_id for call in calls for link in call.links]
    joined += [parent_of(call) for call in calls if call.parent]
    assert set(joined) == {context_of(batch).span_id}
