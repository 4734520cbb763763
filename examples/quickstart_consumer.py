"""Receive ten messages of TopicTest, beginning with the first, and end.

python examples/quickstart_consumer.py [name server]
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
        print(f"received {message.body.decode()!r} from {message.queue}")
        if next(numbers) == 10:
            finished.set()

    async with PushConsumer(
        "quickstart-consumer", name_server=NAME_SERVER, consume_from="first"
    ) as consumer:
        await consumer.subscribe("TopicTest", "*", handle)
        await finished.wait()


if __name__ == "__main__":
    asyncio.run(main())
