"""Receive delayed messages, and print the delay of each.

python examples/delayed_consumer.py [name server]
"""

import asyncio
import sys
import time
from itertools import count

from bolide import PushConsumer, StoredMessage

NAME_SERVER = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876"


async def main() -> None:
    finished = asyncio.Event()
    numbers = count(1)

    async def handle(message: StoredMessage) -> None:
        seconds = time.time() - message.born_timestamp / 1000
        print(f"{message.body.decode()} after {seconds:.1f} s")
        if next(numbers) == 3:
            finished.set()

    async with PushConsumer(
        "delayed-consumer", name_server=NAME_SERVER, consume_from="first"
    ) as consumer:
        await consumer.subscribe("DelayedTopic", "*", handle)
        await finished.wait()


if __name__ == "__main__":
    asyncio.run(main())
