"""Messages for a certain time, and those that are taken back before it."""

import time

from bolide import Message
from tests.interop.matrix.ours.deliveries import Deliveries
from tests.interop.matrix.ours.stage import Facts, Stage


async def timer(stage: Stage) -> Facts:
    """Sent in the order in which they must not arrive; seconds are milliseconds to our client."""
    deliveries = Deliveries()
    async with stage.push_consumer() as consumer:
        await consumer.subscribe(stage.topic, "*", deliveries)
        now = time.time()
        messages = {
            "at": Message(stage.topic, b"at", tags="tag", deliver_at=now + 3.777),
            "seconds": Message(stage.topic, b"seconds", tags="tag", delay=2),
            "milliseconds": Message(stage.topic, b"milliseconds", tags="tag", delay=1.333),
            "over": Message(stage.topic, b"over", tags="tag", deliver_at=now - 10),
        }
        for message in messages.values():
            await stage.producer.send(message)
        due = {"at": now + 3.777, "seconds": now + 2, "milliseconds": now + 1.333, "over": now}
        return {
            "due": {body: int(seconds * 1000) for body, seconds in due.items()},
            "deliveries": await deliveries.wait(4),
        }


async def recall(stage: Stage) -> Facts:
    deliveries = Deliveries()
    async with stage.push_consumer() as consumer:
        await consumer.subscribe(stage.topic, "*", deliveries)
        recalled = await stage.producer.send(Message(stage.topic, b"recalled", delay=4))
        await stage.producer.send(Message(stage.topic, b"kept", delay=5))
        told = await stage.producer.recall(stage.topic, recalled.recall_handle or "")
        return {
            "id": recalled.message_id,
            "told": told,
            "deliveries": await deliveries.wait(1),
        }
