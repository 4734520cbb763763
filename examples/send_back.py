"""Send a message back explicitly, to receive it again after a delay.

python examples/send_back.py [name server]
"""

import asyncio
import sys

from bolide import LitePullConsumer, Message, Producer, PushConsumer, StoredMessage

NAME_SERVER = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876"


async def main() -> None:
    finished = asyncio.Event()

    async with Producer("back-producer", name_server=NAME_SERVER) as producer:
        await producer.send(Message("SendBackTopic", b"a parcel"))

    async with LitePullConsumer(
        "back-consumer", name_server=NAME_SERVER, consume_from="first"
    ) as poller:
        await poller.subscribe("SendBackTopic")
        while not (messages := await poller.poll()):
            pass
        for message in messages:
            # Level 1 is one second; 0 lets the broker choose, -1 makes it a dead letter at once.
            await poller.send_back(message, delay_level=1)
            print(f"sent back {message.body.decode()!r}")

    async def handle(message: StoredMessage) -> None:
        print(f"again {message.body.decode()!r}, retry {message.reconsume_times}")
        finished.set()

    async with PushConsumer("back-consumer", name_server=NAME_SERVER) as consumer:
        await consumer.subscribe("SendBackTopic", "*", handle)
        await finished.wait()


if __name__ == "__main__":
    asyncio.run(main())
