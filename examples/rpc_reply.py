"""Reply to the three requests of rpc_request.py.

python examples/rpc_reply.py [name server]
"""

import asyncio
import sys
from itertools import count

from bolide import Producer, PushConsumer, StoredMessage

NAME_SERVER = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876"


async def main() -> None:
    finished = asyncio.Event()
    numbers = count(1)
    producer = Producer("rpc-replier", name_server=NAME_SERVER)
    consumer = PushConsumer("rpc-service", name_server=NAME_SERVER, consume_from="first")

    async def answer(request: StoredMessage) -> None:
        one, _, other = request.body.decode().partition(" + ")
        await producer.reply(request, str(int(one) + int(other)).encode())
        print(f"answered {request.body.decode()!r}")
        if next(numbers) == 3:
            finished.set()

    async with producer, consumer:
        await producer.create_topic("RequestTopic")
        await consumer.subscribe("RequestTopic", answer)
        await finished.wait()


if __name__ == "__main__":
    asyncio.run(main())
