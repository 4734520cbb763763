"""Move a running group back, so that it consumes the last hour again.

python examples/reset_offset.py [name server]
"""

import asyncio
import sys
import time

from bolide import AdminClient, Message, Producer, PushConsumer, StoredMessage

NAME_SERVER = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876"


async def main() -> None:
    handled = asyncio.Semaphore(0)

    async def handle(message: StoredMessage) -> None:
        print(f"handled {message.body.decode()}")
        handled.release()

    async def wait_for(number: int) -> None:
        for _ in range(number):
            await handled.acquire()

    async with Producer("reset-producer", name_server=NAME_SERVER) as producer:
        await producer.send([Message("ResetTopic", f"sale {n}".encode()) for n in range(3)])

    async with (
        PushConsumer("reset-consumer", name_server=NAME_SERVER, consume_from="first") as consumer,
        AdminClient(NAME_SERVER) as admin,
    ):
        await consumer.subscribe("ResetTopic", "*", handle)
        await wait_for(3)
        an_hour_ago = int((time.time() - 3600) * 1000)
        await admin.offsets.reset_by_time("reset-consumer", "ResetTopic", an_hour_ago)
        print("reset")
        await wait_for(3)


if __name__ == "__main__":
    asyncio.run(main())
