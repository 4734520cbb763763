"""Skip old messages when the consumer is far behind and only the newest matter.

python examples/skip_when_behind.py [name server]
"""

import asyncio
import sys

from bolide import Message, Producer, PushConsumer, StoredMessage

NAME_SERVER = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876"
TOO_FAR = 100


async def main() -> None:
    finished = asyncio.Event()
    skipped = handled = 0

    async def handle(message: StoredMessage) -> None:
        nonlocal skipped, handled
        if message.lag is not None and message.lag > TOO_FAR:
            skipped += 1  # counts as done: the position moves on
        else:
            handled += 1
        if skipped + handled == 500:
            finished.set()

    async with Producer("skip-producer", name_server=NAME_SERVER) as producer:
        quotes = [Message("SkipTopic", f"quote {number}".encode()) for number in range(500)]
        await producer.send(quotes, key="all in one queue")

    async with PushConsumer(
        "skip-consumer", name_server=NAME_SERVER, consume_from="first"
    ) as consumer:
        await consumer.subscribe("SkipTopic", "*", handle)
        await finished.wait()
    print(f"skipped {skipped}, handled {handled}")


if __name__ == "__main__":
    asyncio.run(main())
