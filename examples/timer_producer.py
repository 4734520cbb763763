"""Send messages with a delivery time, and recall one of them.

python examples/timer_producer.py [name server]
"""

import asyncio
import sys
import time

from bolide import Message, Producer, PushConsumer, StoredMessage

NAME_SERVER = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876"
TOPIC = "TimerTopic"


async def main() -> None:
    arrived = asyncio.Event()

    async def hear(message: StoredMessage) -> None:
        print(f"got {message.body.decode()}")
        if message.body == b"the last one":
            arrived.set()

    async with (
        Producer("timer-producer", name_server=NAME_SERVER) as producer,
        PushConsumer("timer-consumer", name_server=NAME_SERVER, consume_from="first") as consumer,
    ):
        await producer.create_topic(TOPIC, 1)
        await consumer.subscribe(TOPIC, "*", hear)
        await producer.send(Message(TOPIC, b"the last one", deliver_at=time.time() + 2.5))
        await producer.send(Message(TOPIC, b"the first one", delay=1.25))
        regretted = await producer.send(Message(TOPIC, b"a mistake", delay=2.0))
        await producer.recall(TOPIC, regretted.recall_handle or "")
        await arrived.wait()


if __name__ == "__main__":
    asyncio.run(main())
