"""Two consumers of one group, each of which gets every message.

python examples/broadcast_consumer.py [name server]
"""

import asyncio
import sys
from collections import Counter

from bolide import Message, Producer, PushConsumer, StoredMessage

NAME_SERVER = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876"


async def main() -> None:
    finished = asyncio.Event()
    seen: Counter[str] = Counter()

    def consumer(name: str) -> PushConsumer:
        # The client id contains the instance name, and offsets are stored in a file by client id:
        # give each consumer an instance name that stays the same over restarts.
        return PushConsumer(
            "broadcast-consumer",
            name_server=NAME_SERVER,
            instance_name=name,
            model="broadcasting",
            consume_from="first",
        )

    async def one(message: StoredMessage) -> None:
        note("one")

    async def two(message: StoredMessage) -> None:
        note("two")

    def note(name: str) -> None:
        seen[name] += 1
        if seen["one"] >= 5 and seen["two"] >= 5:
            finished.set()

    async with Producer("broadcast-producer", name_server=NAME_SERVER) as producer:
        for number in range(5):
            await producer.send(Message("BroadcastTopic", f"price {number}".encode()))

    async with consumer("one") as first, consumer("two") as second:
        await first.subscribe("BroadcastTopic", "*", one)
        await second.subscribe("BroadcastTopic", "*", two)
        await finished.wait()
    print(f"one got {seen['one']}, two got {seen['two']}")


if __name__ == "__main__":
    asyncio.run(main())
