"""Consume in a namespace.

python examples/namespace_push_consumer.py [name server]
"""

import asyncio
import sys
from itertools import count

from bolide import PushConsumer, StoredMessage

NAME_SERVER = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876"


async def main() -> None:
    finished = asyncio.Event()
    numbers = count(1)

    async def handle(message: StoredMessage) -> None:
        print(f"{message.topic}: {message.body.decode()}")
        if next(numbers) == 4:
            finished.set()

    async with PushConsumer(
        "consumers", name_server=NAME_SERVER, namespace="testing", consume_from="first"
    ) as consumer:
        await consumer.subscribe("NamespaceTopic", "*", handle)
        await finished.wait()


if __name__ == "__main__":
    asyncio.run(main())
