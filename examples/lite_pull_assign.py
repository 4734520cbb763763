"""Poll chosen queues from chosen positions, and commit explicitly.

python examples/lite_pull_assign.py [name server]
"""

import asyncio
import sys

from bolide import LitePullConsumer, Message, Producer

NAME_SERVER = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876"


async def main() -> None:
    async with Producer("lite-producer", name_server=NAME_SERVER) as producer:
        first = (await producer.send(Message("AssignTopic", b"first 0"))).queue
        second = (await producer.send(Message("AssignTopic", b"second 0"))).queue
        for number in range(1, 6):
            await producer.send(Message("AssignTopic", f"first {number}".encode()), queue=first)
            await producer.send(Message("AssignTopic", f"second {number}".encode()), queue=second)

    async with LitePullConsumer(
        "lite-assigned", name_server=NAME_SERVER, auto_commit=False
    ) as consumer:
        await consumer.assign([first, second])
        await consumer.seek_to_end(first)  # skip the messages stored so far
        await consumer.seek(second, 4)
        polled = 0
        while polled < 2:
            for message in await consumer.poll():
                print(f"{message.queue} at {message.queue_offset}: {message.body.decode()}")
                polled += 1
        await consumer.commit()
        print(f"committed: {await consumer.committed(second)}")


if __name__ == "__main__":
    asyncio.run(main())
