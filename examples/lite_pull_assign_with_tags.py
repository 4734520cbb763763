"""Poll chosen queues for messages with certain tags.

python examples/lite_pull_assign_with_tags.py [name server]
"""

import asyncio
import sys

from bolide import LitePullConsumer, Message, Producer

NAME_SERVER = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876"


async def main() -> None:
    async with Producer("lite-producer", name_server=NAME_SERVER) as producer:
        for tag in ("red", "green", "blue", "red"):
            await producer.send(Message("AssignTagTopic", f"{tag} paint".encode(), tags=tag))

    async with LitePullConsumer(
        "lite-assigned-tags", name_server=NAME_SERVER, consume_from="first"
    ) as consumer:
        queues = await consumer.fetch_subscribe_queues("AssignTagTopic")
        await consumer.assign(queues, "red || blue")
        polled = 0
        while polled < 3:
            for message in await consumer.poll():
                print(f"polled {message.body.decode()}")
                polled += 1


if __name__ == "__main__":
    asyncio.run(main())
