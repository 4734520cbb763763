"""Pop messages and acknowledge each of them; the others are delivered again.

python examples/pop_consumer.py [name server]
"""

import asyncio
import sys

from bolide import Message, PopConsumer, Producer

NAME_SERVER = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876"


async def main() -> None:
    async with Producer("pop-producer", name_server=NAME_SERVER) as producer:
        for number in range(5):
            await producer.send(Message("PopTopic", f"task {number}".encode()))

    async with PopConsumer(
        "pop-workers", name_server=NAME_SERVER, consume_from="first", invisible=2.0
    ) as consumer:
        await consumer.subscribe("PopTopic")
        done = 0
        async for message in consumer:
            task = message.body.decode()
            if task == "task 3" and message.reconsume_times == 0:
                print(f"{task} is left alone, as if its worker had died")
                continue
            if task == "task 4":
                await consumer.change_invisible(message, 30.0)  # it takes longer than the others
            await consumer.ack(message)
            print(f"{task} is done at try {message.reconsume_times + 1}")
            done += 1
            if done == 5:
                break


if __name__ == "__main__":
    asyncio.run(main())
