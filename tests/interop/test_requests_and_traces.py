"""Java's clients and ours ask and answer each other, and each reads what the other traced."""

import asyncio
import re
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from bolide import AdminClient, Message, Producer, PushConsumer, StoredMessage, Trace
from bolide.admin import MessageNotFound
from bolide.client.errors import RouteNotFound
from tests.interop.bench import Bench
from tests.interop.matrix.brokers import OURS, cluster
from tests.interop.mqadmin import run_commands
from tests.support.aio import PATIENCE
from tests.support.own_cluster import create_topic

COUNT = 5
TRACE = Trace(topic="Traces", interval=0.05)
PLACES = [
    (OURS, "5.x"),
    pytest.param("5.x", "5.x", marks=pytest.mark.long),
    pytest.param(OURS, "4.9", marks=pytest.mark.long),
    pytest.param("4.9", "4.9", marks=pytest.mark.long),
]
Story = list[tuple[str, str]]


@pytest.mark.parametrize(("broker", "client"), PLACES)
def test_both_clients_ask_answer_and_trace(
    broker: str, client: str, java_bench: Bench, tmp_path: Path
) -> None:
    with cluster(broker, tmp_path, java_bench) as served:
        asyncio.run(create_topics(served.namesrv_address))
        arguments = (served.namesrv_address, "WeServe", "JavaServes", TRACE.topic, COUNT)
        java = java_bench.client(client, "RequestsAndTraces", *arguments)
        ours, replies = asyncio.run(ask_and_serve(served.namesrv_address))
        lines = java.wait()
        told = [line.split(" ", 2) for line in lines if line.startswith("reply ")]
        by_java = told[0][1]
        commands = [["queryMsgTraceById", "-i", one, "-t", TRACE.topic] for one in (ours, by_java)]
        stories = [asyncio.run(traced(served.namesrv_address, one)) for one in (ours, by_java)]
        printed = run_commands(java_bench, client, served.namesrv_address, commands)
    assert replies == [f"java:{number}".encode() for number in range(COUNT)]
    assert [body for _, _, body in told] == [f"ours:question {n}" for n in range(1, COUNT + 1)]
    assert lines[-2:] == ["silence", f"served {COUNT}"]
    for story, text, groups in zip(
        stories, printed, (("askers", "java-repliers"), ("java-askers", "repliers")), strict=True
    ):
        asker, replier = groups
        assert story == [("Pub", asker), ("SubBefore", replier), ("SubAfter", replier)]
        assert re.search(rf"(?m)^Pub +{asker} .* \d+ms +success", text), text
        assert re.search(rf"(?m)^Sub +{replier} .* \d+ms +success", text), text


async def create_topics(address: str) -> None:
    async with Producer("setup", name_server=address) as producer:
        for topic in ("WeServe", "JavaServes", "Unserved", TRACE.topic):
            await create_topic(producer, topic, 2)


async def ask_and_serve(address: str) -> tuple[str, list[bytes]]:
    """Answer Java until it has asked all, and ask it; the id of a request, and the answers."""
    answered = asyncio.Semaphore(0)
    async with AsyncExitStack() as stack:
        producer = Producer("askers", name_server=address, trace=TRACE)
        consumer = PushConsumer("repliers", name_server=address, consume_from="first", trace=TRACE)
        await stack.enter_async_context(producer)
        await stack.enter_async_context(consumer)

        async def answer(request: StoredMessage) -> None:
            await producer.reply(request, b"ours:" + request.body, timeout=PATIENCE)
            answered.release()

        await consumer.subscribe("WeServe", answer)
        requests = [Message("JavaServes", b"%d" % n, keys=f"ours-{n}") for n in range(COUNT)]
        asked = [producer.request(each, timeout=40.0) for each in requests]
        replies = await asyncio.gather(*asked)
        async with asyncio.timeout(40.0):
            for _ in range(COUNT):
                await answered.acquire()
        (first,) = await found_by_key(producer, "JavaServes", "ours-0")
    return first.message_id, [reply.body for reply in replies]


async def found_by_key(producer: Producer, topic: str, key: str) -> list[StoredMessage]:
    """Java's brokers index keys a moment later."""
    async with asyncio.timeout(PATIENCE):
        while not (found := await producer.query_messages(topic, key)):  # noqa: ASYNC110  as said
            await asyncio.sleep(0.05)
    return found


async def traced(address: str, message_id: str) -> Story:
    """What was told of a message, once both sides have told all."""
    found: Story = []
    async with AdminClient(address) as admin, asyncio.timeout(PATIENCE):
        while len(found) < 3:
            try:
                records = await admin.traces.of(message_id, topic=TRACE.topic)
            except (MessageNotFound, RouteNotFound):
                await asyncio.sleep(0.1)
                continue
            found = [(each.record.kind, str(each.record.group)) for each in records]
    return found
