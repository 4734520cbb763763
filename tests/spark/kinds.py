"""Messages of every kind, and what rows they must become."""

import asyncio
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from bolide import AdminClient, Message, MessageQueue, Producer, SendResult
from tests.support.aio import PATIENCE

COLUMNS = ("topic", "broker", "queue_id", "queue_offset", "message_id", "keys", "tags", "body")
LARGEST = 4 * 1024 * 1024
DELAYED = b"delayed"

Row = tuple[Any, ...]


@dataclass
class WriteResult:
    """What was sent to one topic, by its place."""

    rows: dict[tuple[MessageQueue, int], Row] = field(default_factory=dict)
    properties: dict[tuple[MessageQueue, int], dict[str, str]] = field(default_factory=dict)

    def note(self, message: Message, result: SendResult, number: int = 0) -> None:
        queue, offset = result.queue, result.queue_offset + number
        place = (message.topic, queue.broker_name, queue.queue_id, offset)
        keys = " ".join(message.keys) or None
        content = (result.message_ids[number], keys, message.tags, message.body)
        self.rows[queue, offset] = place + content
        self.properties[queue, offset] = dict(message.properties)

    def check(self, rows: Iterable[Any]) -> None:
        """All are there once, in the order of their queues, and a delayed one besides."""
        got = list(rows)
        (late,) = (row for row in got if row.body == DELAYED)
        assert (late.tags, late.keys) == ("late", "k9")
        got.sort(key=queue_of)  # keeps the order within each
        assert [as_sent(row) for row in got if row is not late] == [
            self.rows[place] for place in sorted(self.rows)
        ]
        for row in got:
            wanted = self.properties.get((queue_of(row), row.queue_offset), {})
            assert wanted.items() <= row.properties.items()
            assert row.born_timestamp <= row.store_timestamp


def queue_of(row: Any) -> MessageQueue:
    return MessageQueue(row.topic, row.broker, row.queue_id)


def as_sent(row: Any) -> Row:
    return tuple(row[name] for name in COLUMNS)


def messages_of_all_kinds(topic: str) -> list[Message]:
    return [
        Message(topic, b"plain"),
        Message(topic, "Käse \U0001f9c0".encode(), tags="cheese", keys=["k1", "k2"]),
        Message(topic, b"\xff\xfe\x00\x80 no text", properties={"a": "7", "größe": "β"}),
        Message(topic, b"x" * 20_000, tags="compressed", flag=17),
        Message(topic, b'{"id": 1}', properties={"a": "8"}, sharding_key="s"),
    ]


def send_all_kinds(name_server: str, topic: str) -> WriteResult:
    """Send one of each, some as a batch and one with a delay; waits for nothing."""

    async def send() -> WriteResult:
        sent = WriteResult()
        async with Producer("kinds", name_server=name_server) as producer:
            for message in messages_of_all_kinds(topic):
                sent.note(message, await producer.send(message))
            await send_largest(name_server, topic, sent)
            batch = [Message(topic, b"batch %d" % n, keys=f"b{n}", tags="b") for n in range(5)]
            (result,) = await producer.send_batch(batch)
            for number, message in enumerate(batch):
                sent.note(message, result, number)
            late = Message(topic, DELAYED, tags="late", keys="k9", delay_level=1)
            await producer.send(late)
        return sent

    return asyncio.run(send())


async def send_largest(name_server: str, topic: str, sent: WriteResult) -> None:
    async with Producer("largest", name_server=name_server, compress_over=2 * LARGEST) as producer:
        message = Message(topic, os.urandom(LARGEST), tags="largest")
        sent.note(message, await producer.send(message))


def send(name_server: str, messages: Iterable[Message]) -> None:
    async def send_each() -> None:
        async with Producer("kinds", name_server=name_server) as producer:
            for message in messages:
                await producer.send(message)

    asyncio.run(send_each())


def wait_for(name_server: str, topic: str, count: int) -> None:
    """Wait until the topic has so many messages: delayed ones come by themselves."""

    async def look() -> None:
        async with AdminClient(name_server) as admin, asyncio.timeout(PATIENCE):
            while True:
                stats = await admin.topics.stats(topic)
                if sum(each.max_offset for each in stats.offset_table.values()) >= count:
                    return
                await asyncio.sleep(0.05)

    asyncio.run(look())
