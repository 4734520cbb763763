"""Poll for messages of a topic whose queues the members of a group share.

python examples/lite_pull_subscribe.py [name server]
"""

import asyncio
import sys

from bolide import LitePullConsumer, Message, Producer

NAME_SERVER = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876"


async def main() -> None:
    async with Producer("lite-producer", name_server=NAME_SERVER) as producer:
        for number in range(12):
            await producer.send(Message("LiteTopic", f"event {number}".encode()))

    async with LitePullConsumer(
        "lite-subscriber", name_server=NAME_SERVER, consume_from="first"
    ) as consumer:
        await consumer.subscribe("LiteTopic")
        polled = 0
        while polled < 12:
            for message in await consumer.poll(timeout=5):
                print(f"polled {message.body.decode()}")
                polled += 1
        # Each poll marks earlier messages as done; leaving the block marks all of them.


if __name__ == "__main__":
    asyncio.run(main())
