"""CPU time per message in our client, in alternation with a loop of the interpreter.

    python -m benchmarks.smoke.clients send|consume NAME_SERVER TOPIC ROUNDS

Prints a JSON list of pairs: microseconds of CPU time per message and per turn of the loop.
"""

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable

from benchmarks.smoke.reference import turn_around
from bolide import Message, Producer, PushConsumer
from bolide.model.message import StoredMessage

TURNS = 150_000
AT_ONCE = 250
SENT = 5_000
"""Messages per round."""
CONSUMED = 5_000

Pair = tuple[float, float]


def reference_cost() -> float:
    begun = time.process_time()
    turn_around(TURNS)
    return (time.process_time() - begun) / TURNS * 1e6


async def send(name_server: str, topic: str, rounds: int) -> list[Pair]:
    async with Producer("smoke-senders", name_server=name_server) as producer:

        async def send_some(count: int) -> float:
            begun = time.process_time()
            for _ in range(count // AT_ONCE):
                await asyncio.gather(
                    *(producer.send(Message(topic, bytes(128))) for _ in range(AT_ONCE))
                )
            return (time.process_time() - begun) / count * 1e6

        await send_some(SENT)
        return [(await send_some(SENT), reference_cost()) for _ in range(rounds)]


async def consume(name_server: str, topic: str, rounds: int) -> list[Pair]:
    """The first round is dropped, because it includes the start."""
    pairs: list[Pair] = []
    done = asyncio.Event()
    count, begun = 0, time.process_time()

    def listener(_: StoredMessage) -> None:
        nonlocal count, begun
        count += 1
        if count % CONSUMED == 0:
            cost = (time.process_time() - begun) / CONSUMED * 1e6
            pairs.append((cost, reference_cost()))
            begun = time.process_time()
            if len(pairs) > rounds:
                done.set()

    group = f"smoke-consumers-{time.time_ns()}"
    async with PushConsumer(group, name_server=name_server, consume_from="first") as consumer:
        await consumer.subscribe(topic, "*", listener, inline=True)
        await done.wait()
    return pairs[1 : rounds + 1]


KINDS: dict[str, Callable[[str, str, int], Awaitable[list[Pair]]]] = {
    "send": send,
    "consume": consume,
}


async def main(kind: str, name_server: str, topic: str, rounds: str) -> None:
    print(json.dumps(await KINDS[kind](name_server, topic, int(rounds))))


if __name__ == "__main__":
    try:
        import uvloop
    except ImportError:
        asyncio.run(main(*sys.argv[1:]))
    else:
        uvloop.run(main(*sys.argv[1:]))
