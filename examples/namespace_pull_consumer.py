"""Pull in a namespace.

python examples/namespace_pull_consumer.py [name server]
"""

import asyncio
import sys

from bolide import PullConsumer

NAME_SERVER = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876"


async def main() -> None:
    async with PullConsumer("pullers", name_server=NAME_SERVER, namespace="testing") as consumer:
        for queue in await consumer.fetch_subscribe_queues("NamespaceTopic"):
            found = await consumer.pull(queue, "*", 0)
            for message in found.messages:
                print(f"{message.topic}: {message.body.decode()}")


if __name__ == "__main__":
    asyncio.run(main())
