"""Send ten messages and print where each was stored.

python examples/quickstart_producer.py [name server]
"""

import asyncio
import sys

from bolide import Message, Producer

NAME_SERVER = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876"


async def main() -> None:
    async with Producer("quickstart-producer", name_server=NAME_SERVER) as producer:
        for number in range(10):
            message = Message("TopicTest", f"Hello Bolide {number}".encode(), tags="TagA")
            result = await producer.send(message)
            print(f"{result.status.name} {result.message_id} in {result.queue}")


if __name__ == "__main__":
    asyncio.run(main())
