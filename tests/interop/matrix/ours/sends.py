"""Every way to send, and what is then found in the queues."""

import asyncio

from bolide import Message
from tests.interop.matrix.ours.stage import Facts, Stage, numbered
from tests.interop.matrix.ours.telling import result_told

MANY = 12


async def sync(stage: Stage) -> Facts:
    """The topic is not there before the first send; one body is long enough to be compressed."""
    sent = [result_told(await stage.producer.send(rich(stage, n))) for n in range(MANY)]
    return {"sent": sent, "stored": await stage.stored(MANY)}


def rich(stage: Stage, n: int) -> Message:
    body = f"message {n} Grüße" + " and so on" * (1000 if n == 3 else 0)
    return Message(
        stage.topic,
        body.encode(),
        tags=f"tag{n}",
        keys=[f"key{n}", "all"],
        properties={"number": str(n), "sign": "ü € 😀"},
    )


async def at_once(stage: Stage) -> Facts:
    """What our client has for asynchronous sends: several under way at a time."""
    outcomes = await asyncio.gather(
        *(stage.producer.send(stage.message(body)) for body in numbered(MANY)),
        return_exceptions=True,
    )
    return {
        "sent": [result_told(each) for each in outcomes if not isinstance(each, BaseException)],
        "failures": [repr(each) for each in outcomes if isinstance(each, BaseException)],
        "stored": await stage.stored(MANY),
    }


async def one_way(stage: Stage) -> Facts:
    for body in numbered(MANY):
        await stage.producer.send_oneway(stage.message(body))
    return {"stored": await stage.stored(MANY)}


async def batch(stage: Stage) -> Facts:
    messages = [stage.message(body, f"tag{n}") for n, body in enumerate(numbered(MANY))]
    (sent,) = await stage.producer.send_batch(messages)
    return {"sent": result_told(sent), "stored": await stage.stored(MANY)}


async def selector(stage: Stage) -> Facts:
    sent = [
        result_told(
            await stage.producer.send(
                stage.message(body), selector=lambda queues, _, key: queues[key % 4], key=n
            )
        )
        for n, body in enumerate(numbered(MANY))
    ]
    return {"sent": sent, "stored": await stage.stored(MANY)}
