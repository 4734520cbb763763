"""Send without waiting for an answer, as for logs of which one may be missing.

python examples/simple_oneway_producer.py [name server]
"""

import asyncio
import sys

from bolide import Message, Producer

NAME_SERVER = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876"


async def main() -> None:
    async with Producer("oneway-producer", name_server=NAME_SERVER) as producer:
        for number in range(10):
            await producer.send_oneway(Message("OnewayTopic", f"log line {number}".encode()))

        # Nobody answers. The queues tell how many came; most programs would not ask.
        queues = await producer.fetch_publish_queues("OnewayTopic")
        print(f"stored: {sum([await producer.max_offset(queue) for queue in queues])}")


if __name__ == "__main__":
    asyncio.run(main())
