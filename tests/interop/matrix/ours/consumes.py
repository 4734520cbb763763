"""Choosing, order without locks, batches, and consuming by order of somebody else."""

from bolide import AdminClient, Message, StoredMessage
from bolide.protocol.bodies.pop import RequestMode
from tests.interop.matrix.ours.deliveries import Deliveries
from tests.interop.matrix.ours.pushes import broadcasting
from tests.interop.matrix.ours.stage import Facts, Stage, numbered, settle, until_so

MANY = 12
BATCHES = 24
AT_ONCE = 4
POPPED = 24


async def sql(stage: Stage) -> Facts:
    deliveries = Deliveries()
    wanted = "number BETWEEN 2 AND 7 AND TAGS IN ('even', 'other') AND nothing IS NULL"
    async with stage.push_consumer() as consumer:
        await consumer.subscribe(stage.topic, deliveries, sql=wanted)
        for n, body in enumerate(numbered(10)):
            tag = ("even", "odd")[n % 2]
            message = Message(stage.topic, body.encode(), tags=tag, properties={"number": str(n)})
            await stage.producer.send(message)
        return {"deliveries": await deliveries.wait(3)}


async def broadcast_ordered(stage: Stage) -> Facts:
    queues = await stage.queues()
    for queue in queues:
        for body in numbered(MANY):
            await stage.producer.send(stage.message(body), queue=queue)
    first, second = Deliveries(), Deliveries()
    async with (
        stage.push_consumer(**broadcasting(stage, "first")) as one,
        stage.push_consumer(**broadcasting(stage, "second")) as other,
    ):
        await one.subscribe(stage.topic, "*", first, ordered=True)
        await other.subscribe(stage.topic, "*", second, ordered=True)
        expected = MANY * len(queues)
        return {"first": await first.wait(expected), "second": await second.wait(expected)}


async def order_config(stage: Stage) -> Facts:
    """The name server says how many of the queues take part: producers see no others."""
    deliveries = Deliveries()
    async with stage.push_consumer() as consumer:
        await consumer.subscribe(stage.topic, "*", deliveries, ordered=True)
        queues = await stage.producer.fetch_publish_queues(stage.topic)
        for n, body in enumerate(numbered(MANY)):
            await stage.producer.send(
                stage.message(body), selector=lambda known, _, key: known[key % len(known)], key=n
            )
        return {"queues": len(queues), "deliveries": await deliveries.wait(MANY)}


async def batch_consume(stage: Stage) -> Facts:
    """All are there when the consumer starts. Of the batch with message 0 only that is taken."""
    for body in numbered(BATCHES):
        await stage.producer.send(stage.message(body))
    batches: list[list[str]] = []

    async def handle(messages: list[StoredMessage]) -> int:
        batches.append([message.body.decode() for message in messages])
        new = not messages[0].reconsume_times
        return 1 if new and batches[-1][0] == "message 0" else len(messages)

    async with stage.push_consumer() as consumer:
        await consumer.subscribe(stage.topic, "*", handle, batch=AT_ONCE)
        await until_so(lambda: sum(map(len, batches)) >= BATCHES + AT_ONCE - 1)
        await settle()
        return {"batches": batches}


async def consume_directly(stage: Stage) -> Facts:
    deliveries = Deliveries()
    async with stage.push_consumer() as consumer, AdminClient(stage.name_server) as admin:
        await consumer.subscribe(stage.topic, "*", deliveries)
        sent = await stage.producer.send(stage.message("message", "tag"))
        await deliveries.wait(1)
        result = await admin.clients.consume_directly(
            stage.group, consumer.client_id, sent.offset_message_id, stage.broker
        )
        verdict = result.consume_result
        return {
            "result": verdict and verdict.name,
            "id": sent.message_id,
            "deliveries": await deliveries.wait(2),
        }


async def pop(stage: Stage) -> Facts:
    deliveries = Deliveries()
    async with AdminClient(stage.name_server) as admin:
        await admin.pop.set_mode(stage.broker, stage.topic, stage.group, RequestMode.POP, 8)
    async with stage.push_consumer(rebalance="broker") as consumer:
        await consumer.subscribe(stage.topic, "*", deliveries)
        for body in numbered(POPPED):
            await stage.producer.send(stage.message(body, "tag"))
        return {"deliveries": await deliveries.wait(POPPED)}
