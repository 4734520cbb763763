"""All that a topic holds, for tests that compare it with what was sent."""

import asyncio

from bolide import MessageQueue, PullConsumer, StoredMessage

_AT_ONCE = 1000


async def contents(name_server: str, topic: str) -> dict[MessageQueue, list[StoredMessage]]:
    """The messages of each queue, in order."""
    async with PullConsumer("contents", name_server=name_server) as consumer:
        queues = await consumer.fetch_subscribe_queues(topic)
        return {queue: await _messages(consumer, queue) for queue in queues}


def all_messages(name_server: str, topic: str) -> list[StoredMessage]:
    """The messages of all queues, for code without an event loop."""
    found = asyncio.run(contents(name_server, topic))
    return [message for queue in found.values() for message in queue]


async def _messages(consumer: PullConsumer, queue: MessageQueue) -> list[StoredMessage]:
    end, found = await consumer.max_offset(queue), list[StoredMessage]()
    while len(found) < end:
        found += (await consumer.pull(queue, "*", len(found), _AT_ONCE)).messages
    return found
