"""Send in a namespace: topics of the same name in other namespaces are other topics.

python examples/namespace_producer.py [name server]
"""

import asyncio
import sys

from bolide import Message, Producer

NAME_SERVER = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876"


async def main() -> None:
    async with Producer("producers", name_server=NAME_SERVER, namespace="testing") as producer:
        for number in range(4):
            result = await producer.send(Message("NamespaceTopic", f"trial {number}".encode()))
            print(f"sent to {result.queue.topic}")  # testing%NamespaceTopic for the broker


if __name__ == "__main__":
    asyncio.run(main())
