"""Where a new group begins, and how its position is set back."""

import asyncio
import time

from bolide import AdminClient, PushConsumer
from tests.interop.matrix.ours.deliveries import Deliveries
from tests.interop.matrix.ours.stage import Facts, Stage, settle, until, until_so


async def from_first(stage: Stage) -> Facts:
    deliveries = Deliveries()
    await stage.send("before", 3)
    async with stage.push_consumer() as consumer:
        await consumer.subscribe(stage.topic, "*", deliveries)
        await _until_assigned(consumer)
        await stage.send("after", 3)
        await until_so(lambda: deliveries.count("after") >= 3)
        await settle()
        return {"deliveries": deliveries.told}


async def from_last(stage: Stage) -> Facts:
    deliveries = Deliveries()
    await stage.send("before", 3)
    await stage.stored(3)
    async with stage.push_consumer(consume_from="last") as consumer:
        await consumer.subscribe(stage.topic, "*", deliveries)
        await _until_assigned(consumer)
        await stage.send("after", 3)
        return {"deliveries": await deliveries.wait(3)}


async def from_timestamp(stage: Stage) -> Facts:
    """A second begins between the two sends, nearer to the second; see the player in Java."""
    deliveries = Deliveries()
    await stage.send("before", 3)
    second = int(time.time() + 1.5) + 1
    await asyncio.sleep(second - time.time() + 0.005)
    await stage.send("after", 3)
    await stage.stored(3)
    text = time.strftime("%Y%m%d%H%M%S", time.localtime(second))
    async with stage.push_consumer(consume_from="timestamp", consume_timestamp=text) as consumer:
        await consumer.subscribe(stage.topic, "*", deliveries)
        return {"deliveries": await deliveries.wait(3)}


async def offset_reset(stage: Stage) -> Facts:
    """The running group is set back to the moment between the two sends."""
    deliveries = Deliveries()
    await stage.send("before", 4)
    await asyncio.sleep(1.5)
    between = time.time_ns() // 1_000_000
    await stage.send("after", 4)
    async with (
        stage.push_consumer() as consumer,
        AdminClient(stage.name_server) as admin,
    ):
        await consumer.subscribe(stage.topic, "*", deliveries)
        first = await deliveries.wait(8)
        await consumer.commit()
        told = await admin.offsets.reset_by_time(stage.group, stage.topic, between)
        await stage.send("wake", 2)
        await until_so(lambda: deliveries.count("after") >= 8 and deliveries.count("wake") >= 2)
        await settle()
        return {
            "first": first,
            "told": {queue.queue_id: offset for queue, offset in told.items()},
            "again": deliveries.told[len(first) :],
        }


async def _until_assigned(consumer: PushConsumer) -> None:
    async def is_assigned() -> bool:
        return bool(consumer.assigned_queues)

    await until(is_assigned)
