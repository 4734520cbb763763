"""Operations on topics, and sends, at a broker of ours as a process."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

import pytest

from bolide.admin import AdminClient
from bolide.model.message import StoredMessage
from bolide.operations.cluster import Cluster
from bolide.operations.errors import BadInput, Conflict, NotFound
from bolide.operations.sending import (
    BodyFormat,
    Draft,
    SentMessage,
    TransactionEnd,
    send_message,
    sending_options,
)
from bolide.protocol.bodies.topics import TopicConfig
from tests.support.admin_cluster import Cluster as Servers
from tests.support.aio import PATIENCE, on_loop

T = TypeVar("T")
_numbers = itertools.count()


@asynccontextmanager
async def opened(servers: Servers) -> AsyncIterator[Cluster]:
    async with AdminClient(servers.name_server) as admin:
        yield Cluster(admin=admin, name_servers=servers.name_server)


async def made(shown: Cluster, servers: Servers, queues: int = 1) -> str:
    """A new topic."""
    config = TopicConfig(
        topic_name=f"Topic-{next(_numbers)}", read_queue_nums=queues, write_queue_nums=queues
    )
    await shown.admin.topics.update(servers.broker, config)
    return config.topic_name


async def sent(cluster: Cluster, topic: str, body: str, **how: object) -> SentMessage:
    transaction = how.pop("transaction", None)
    draft = Draft(body=body, **how)  # type: ignore[arg-type]
    done = await send_message.function(
        cluster,
        topic=topic,
        message=draft,
        transaction=transaction,  # type: ignore[arg-type]
    )
    return done.messages[0]


async def stored(cluster: Cluster, topic: str, count: int) -> list[StoredMessage]:
    """The messages of a topic, once there are so many."""

    async def read() -> list[StoredMessage]:
        found: list[StoredMessage] = []
        for queue in await cluster.admin.topics.queues(topic):
            pulled = await cluster.admin.messages.pull(queue, 0, 32)
            found += pulled.messages
        return sorted(found, key=lambda each: each.physical_offset)

    return await eventually(read, lambda found: len(found) >= count)


async def eventually(read: Callable[[], Awaitable[T]], good: Callable[[T], object]) -> T:
    async with asyncio.timeout(PATIENCE):
        while not good(found := await read()):  # noqa: ASYNC110  no event tells of it
            await asyncio.sleep(0.02)
        return found


@on_loop
async def test_messages_of_every_kind_are_sent(cluster: Servers) -> None:
    async with opened(cluster) as shown:
        topic = await made(shown, cluster, queues=4)
        plain = await sent(
            shown,
            topic,
            '{"a": 1}',
            body_format=BodyFormat.JSON,
            tags="t",
            keys=["k", "l"],
            properties={"colour": "red"},
        )
        assert plain.status == "SEND_OK"
        await sent(shown, topic, "00 ff", body_format=BodyFormat.HEX)
        first, message = await stored(shown, topic, 2)
        assert (first.message_id, first.body) == (plain.message_id, b'{"a": 1}')
        assert (first.tags, first.keys, first.properties["colour"]) == ("t", ("k", "l"), "red")
        assert (first.queue.queue_id, first.queue_offset) == (plain.queue, plain.queue_offset)
        assert message.body == b"\x00\xff"

        ordered = [await sent(shown, topic, "x", sharding_key="order-7") for _ in range(3)]
        assert len({each.queue for each in ordered}) == 1
        many = await send_message.function(
            shown, topic=topic, message=Draft(body="y"), broker=ordered[0].broker, queue=3, count=5
        )
        assert [each.queue for each in many.messages] == [3] * 5
        assert len({each.message_id for each in many.messages}) == 5

        delays = await made(shown, cluster)
        level = await sent(shown, delays, "level", delay_level=1)
        timed = await sent(shown, delays, "timed", delay_ms=300)
        assert timed.recall_handle is not None
        found = await stored(shown, delays, 2)
        assert {each.message_id for each in found} == {level.message_id, timed.message_id}

        ends = await made(shown, cluster)
        for end in (TransactionEnd.ROLLBACK, TransactionEnd.OPEN):
            half = await sent(shown, ends, end.value, transaction=end)
            assert half.transaction_end is end
        done = await sent(shown, ends, "commit", transaction=TransactionEnd.COMMIT)
        assert done.transaction_confirmed
        assert [each.message_id for each in await stored(shown, ends, 1)] == [done.message_id]


@on_loop
async def test_sends_that_cannot_be_are_refused(cluster: Servers) -> None:
    async with opened(cluster) as shown:
        topic = await made(shown, cluster)
        for how, wrong in (
            ({"message": Draft(body="")}, "body"),
            ({"message": Draft(body="{", body_format=BodyFormat.JSON)}, "body"),
            ({"message": Draft(body="0g", body_format=BodyFormat.HEX)}, "body"),
            ({"message": Draft(body="x", keys=["a b"])}, "keys"),
            ({"message": Draft(body="x", properties={"UNIQ_KEY": "x"})}, "properties"),
            ({"message": Draft(body="x", delay_ms=1, deliver_at_ms=1)}, "delay"),
            ({"message": Draft(body="x"), "queue": 0}, "queue"),
            ({"message": Draft(body="x"), "broker": "b", "queue": 0}, "broker"),
            ({"message": Draft(body="x"), "count": 0}, "count"),
            (
                {"message": Draft(body="x", delay_ms=5), "transaction": TransactionEnd.COMMIT},
                "transaction",
            ),
        ):
            with pytest.raises(BadInput) as refused:
                await send_message.function(shown, topic=topic, **how)  # type: ignore[arg-type]
            assert refused.value.field == wrong
        with pytest.raises(BadInput, match="only brokers write"):
            await sent(shown, "SCHEDULE_TOPIC_XXXX", "x")
        with pytest.raises(NotFound, match="create it first"):
            await sent(shown, "Missing", "x")
        assert "Missing" not in await shown.admin.topics.names()

        options = await sending_options.function(shown, topic=topic)
        assert options.delay_levels[:2] == ["1s", "5s"]
        assert [each.queues for each in options.queues] == [1]
        await shown.admin.topics.set_perm(cluster.broker, topic, 4)
        with pytest.raises(Conflict, match="permission"):
            await sent(shown, topic, "x")
