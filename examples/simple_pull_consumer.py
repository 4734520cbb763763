"""Pull from every queue of a topic, and commit the positions of the group.

python examples/simple_pull_consumer.py [name server]
"""

import asyncio
import sys

from bolide import Message, Producer, PullConsumer

NAME_SERVER = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876"


async def main() -> None:
    async with Producer("pull-producer", name_server=NAME_SERVER) as producer:
        for number in range(8):
            await producer.send(Message("PullTopic", f"item {number}".encode()))

    async with PullConsumer("pull-consumer", name_server=NAME_SERVER) as consumer:
        for queue in await consumer.fetch_subscribe_queues("PullTopic"):
            offset = await consumer.fetch_consume_offset(queue) or 0
            while True:
                found = await consumer.pull(queue, "*", offset, max_count=32)
                for message in found.messages:
                    print(f"{queue}: {message.body.decode()}")
                offset = found.next_offset
                await consumer.update_consume_offset(queue, offset)
                if offset >= found.max_offset:
                    break


if __name__ == "__main__":
    asyncio.run(main())
