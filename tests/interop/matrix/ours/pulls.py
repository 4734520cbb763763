"""Reading by position, by id and by key."""

import asyncio
import time

from bolide import LitePullConsumer, Message, MessageQueue, PullConsumer, StoredMessage
from bolide.protocol.refusals import Refusal
from tests.interop.matrix import facts
from tests.interop.matrix.ours.stage import ROUTE_INTERVAL, Facts, Stage, numbered, until
from tests.interop.matrix.ours.telling import message_told, pull_told, result_told

MANY = 10
POLLED = 12


async def pull(stage: Stage) -> Facts:
    (queue,) = await stage.queues()
    for n, body in enumerate(numbered(MANY)):
        await stage.producer.send(stage.message(body, f"tag{n % 2}"), queue=queue)
    async with PullConsumer(stage.group, name_server=stage.name_server) as consumer:

        async def is_visible() -> bool:
            return await consumer.max_offset(queue) == MANY

        await until(is_visible)
        return {
            "all": pull_told(await consumer.pull(queue, "*", 0)),
            "some": pull_told(await consumer.pull(queue, "*", 2, 3)),
            "tagged": pull_told(await consumer.pull(queue, "tag1", 0)),
            "unmatched": pull_told(await consumer.pull(queue, "other", 0)),
            "at_end": pull_told(await consumer.pull(queue, "*", MANY)),
            "beyond": pull_told(await consumer.pull(queue, "*", MANY + 5)),
            "bounds": facts.Bounds(
                await consumer.min_offset(queue), await consumer.max_offset(queue)
            ),
            "committed": await _committed(consumer, queue),
            "since": await _since(consumer, queue),
            "awaited": await _awaited(stage, consumer, queue),
        }


async def _committed(consumer: PullConsumer, queue: MessageQueue) -> int | None:
    await consumer.update_consume_offset(queue, 7)
    await consumer.commit()
    return await consumer.fetch_consume_offset(queue, from_store=True)


async def _since(consumer: PullConsumer, queue: MessageQueue) -> list[int]:
    last = (await consumer.pull(queue, "*", MANY - 1, 1)).messages[0]
    return [
        await consumer.search_offset(queue, 1),
        await consumer.search_offset(queue, last.store_timestamp + 60_000),
    ]


async def _awaited(stage: Stage, consumer: PullConsumer, queue: MessageQueue) -> facts.Pulled:
    """A pull that waits for its message."""
    pulling = asyncio.create_task(consumer.pull_block_if_not_found(queue, "*", MANY))
    await asyncio.sleep(0.5)
    begin = time.monotonic()
    await stage.producer.send(stage.message("awaited"), queue=queue)
    result = await pulling
    return pull_told(result, round((time.monotonic() - begin) * 1000))


async def lite_pull(stage: Stage) -> Facts:
    for body in numbered(POLLED):
        await stage.producer.send(stage.message(body))
    async with _lite(stage, stage.group) as consumer:
        await consumer.subscribe(stage.topic)
        polled = await _poll(consumer, POLLED)
        await consumer.commit()
        committed = {
            queue.queue_id: await consumer.committed(queue) for queue in await stage.queues()
        }
    return {"polled": polled, "committed": committed, "assigned": await _assigned(stage)}


async def _assigned(stage: Stage) -> list[facts.Message]:
    """One queue by choice, from its second message on."""
    async with _lite(stage, f"{stage.group}_assigned") as consumer:
        queues = await stage.queues()
        await consumer.assign(queues[:1])
        await consumer.seek(queues[0], 1)
        return await _poll(consumer, POLLED // len(queues) - 1)


def _lite(stage: Stage, group: str) -> LitePullConsumer:
    return LitePullConsumer(
        group,
        name_server=stage.name_server,
        consume_from="first",
        auto_commit=False,
        route_interval=ROUTE_INTERVAL,
    )


async def _poll(consumer: LitePullConsumer, count: int) -> list[facts.Message]:
    messages: list[StoredMessage] = []

    async def are_there() -> bool:
        messages.extend(await consumer.poll(0.2))
        return len(messages) >= count

    await until(are_there)
    messages.extend(await consumer.poll(0.2))
    return list(map(message_told, messages))


async def query(stage: Stage) -> Facts:
    sent = [await stage.producer.send(keyed(stage, n)) for n in range(4)]
    by_id = [await stage.producer.view_message(each.offset_message_id) for each in sent]
    by_unique_id = [await _by_unique_id(stage, each.message_id) for each in sent]
    return {
        "sent": list(map(result_told, sent)),
        "by_id": list(map(message_told, by_id)),
        "by_unique_id": by_unique_id,
        "popular": await _by_key(stage, "popular", 3),
        "number2": await _by_key(stage, "number2", 1),
        "lonely": await _by_key(stage, "lonely", 1),
    }


def keyed(stage: Stage, n: int) -> Message:
    keys = ["popular", f"number{n}"] if n < 3 else ["lonely"]
    return Message(stage.topic, f"message {n}".encode(), tags="tag", keys=keys)


async def _by_unique_id(stage: Stage, unique_id: str) -> str:
    """The index is written a moment after the message."""
    found: list[StoredMessage] = []

    async def is_there() -> bool:
        try:
            found.append(await stage.producer.view_message(unique_id, stage.topic))
        except Refusal:
            return False
        return True

    await until(is_there)
    return found[0].body.decode()


async def _by_key(stage: Stage, key: str, count: int) -> list[str]:
    found: list[StoredMessage] = []

    async def are_there() -> bool:
        try:
            found[:] = await stage.producer.query_messages(stage.topic, key)
        except Refusal:
            return False
        return len(found) >= count

    await until(are_there)
    return [message.body.decode() for message in found]
