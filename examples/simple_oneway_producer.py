"""Send without an answer, as for logs of which single messages may be lost.

python examples/simple_oneway_producer.py [name server]
"""

import asyncio
import sys

from bolide import LitePullConsumer, Message, Producer

NAME_SERVER = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876"


async def main() -> None:
    async with Producer("oneway-producer", name_server=NAME_SERVER) as producer:
        for number in range(10):
            await producer.send_oneway(Message("OnewayTopic", f"log line {number}".encode()))

    # One-way sends have no result; a consumer shows what was stored.
    async with LitePullConsumer(
        "oneway-consumer", name_server=NAME_SERVER, consume_from="first"
    ) as consumer:
        await consumer.subscribe("OnewayTopic")
        arrived = 0
        while arrived < 10:
            arrived += len(await consumer.poll())
    print(f"{arrived} arrived")


if __name__ == "__main__":
    asyncio.run(main())
