"""Consume concurrently with a plain function, from a point in the past on.

python examples/simple_push_consumer.py [name server]
"""

import asyncio
import sys
import threading
from datetime import UTC, datetime, timedelta

from bolide import Message, Producer, PushConsumer, StoredMessage

NAME_SERVER = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876"
LAST_HOUR = datetime.now(UTC) - timedelta(hours=1)


async def main() -> None:
    loop, finished = asyncio.get_running_loop(), asyncio.Event()
    bodies: list[str] = []

    def handle(message: StoredMessage) -> None:
        """Runs in a thread of a pool, so it may block: a database, a file, a computation."""
        assert threading.current_thread() is not threading.main_thread()
        bodies.append(message.body.decode())
        if len(bodies) == 20:
            loop.call_soon_threadsafe(finished.set)

    async with Producer("push-producer", name_server=NAME_SERVER) as producer:
        await producer.send([Message("PushTopic", f"{number}".encode()) for number in range(20)])

    async with PushConsumer(
        "push-consumer",
        name_server=NAME_SERVER,
        consume_from="timestamp",
        consume_timestamp=LAST_HOUR,
        concurrency=8,
    ) as consumer:
        await consumer.subscribe("PushTopic", "*", handle)
        await finished.wait()
    print(f"consumed {len(bodies)} messages, {sum(map(int, bodies))} in sum")


if __name__ == "__main__":
    asyncio.run(main())
