"""Handlers: concurrent, in order, broadcast, by tags; and what comes to them later."""

from bolide import Message
from tests.interop.matrix.ours.deliveries import Deliveries
from tests.interop.matrix.ours.stage import Facts, Stage, numbered

MANY = 40


async def concurrent(stage: Stage) -> Facts:
    deliveries = Deliveries()
    for body in numbered(MANY)[: MANY // 2]:
        await stage.producer.send(stage.message(body))
    async with stage.push_consumer() as consumer:
        await consumer.subscribe(stage.topic, "*", deliveries)
        for body in numbered(MANY)[MANY // 2 :]:
            await stage.producer.send(stage.message(body))
        return {"deliveries": await deliveries.wait(MANY)}


async def ordered(stage: Stage) -> Facts:
    """Message 3 of each queue is refused twice."""
    deliveries = Deliveries(
        lambda message: message.body == b"message 3" and message.reconsume_times < 2
    )
    queues = await stage.queues()
    for queue in queues:
        for body in numbered(10):
            await stage.producer.send(stage.message(body), queue=queue)
    async with stage.push_consumer(ordered_suspend=0.1) as consumer:
        await consumer.subscribe(stage.topic, "*", deliveries, ordered=True)
        return {"deliveries": await deliveries.wait(12 * len(queues))}


async def broadcast(stage: Stage) -> Facts:
    first, second = Deliveries(), Deliveries()
    async with (
        stage.push_consumer(**broadcasting(stage, "first")) as one,
        stage.push_consumer(**broadcasting(stage, "second")) as other,
    ):
        await one.subscribe(stage.topic, "*", first)
        await other.subscribe(stage.topic, "*", second)
        for body in numbered(MANY):
            await stage.producer.send(stage.message(body))
        return {"first": await first.wait(MANY), "second": await second.wait(MANY)}


def broadcasting(stage: Stage, member: str) -> dict[str, object]:
    return {
        "model": "broadcasting",
        "instance_name": member,
        "offset_directory": stage.directory / member,
    }


async def tags(stage: Stage) -> Facts:
    """ "Aa" and "BB" have one hash: only the client can tell them apart."""
    deliveries = Deliveries()
    async with stage.push_consumer() as consumer:
        await consumer.subscribe(stage.topic, "A || Aa", deliveries)
        for n in range(3):
            for tag in ("A", "B", "Aa", "BB", ""):
                await stage.producer.send(stage.message(f"{tag or None} {n}", tag))
        return {"deliveries": await deliveries.wait(6)}


async def retry_success(stage: Stage) -> Facts:
    """Every other message is refused once."""
    deliveries = Deliveries(
        lambda message: message.body.endswith(b"odd") and not message.reconsume_times
    )
    async with stage.push_consumer() as consumer:
        await consumer.subscribe(stage.topic, "*", deliveries)
        for n in range(6):
            await stage.producer.send(stage.message(f"{n} {('even', 'odd')[n % 2]}", f"tag{n}"))
        return {"deliveries": await deliveries.wait(9)}


async def dead_letter(stage: Stage) -> Facts:
    deliveries = Deliveries(lambda message: message.body == b"bad")
    bad = Message(stage.topic, b"bad", tags="tag", properties={"colour": "red"})
    async with stage.push_consumer(max_reconsume_times=2) as consumer:
        await consumer.subscribe(stage.topic, "*", deliveries)
        await stage.producer.send(bad)
        await stage.producer.send(stage.message("good", "tag"))
        delivered = await deliveries.wait(4)
        return {"deliveries": delivered, "dead": await stage.stored(1, f"%DLQ%{stage.group}")}


async def delay_level(stage: Stage) -> Facts:
    deliveries = Deliveries()
    async with stage.push_consumer() as consumer:
        await consumer.subscribe(stage.topic, "*", deliveries)
        ids = []
        for level in (2, 1, 0):
            message = stage.message(f"level {level}", "tag", delay_level=level)
            ids.append((await stage.producer.send(message)).message_id)
        return {"ids": ids, "deliveries": await deliveries.wait(3)}
