"""Send messages again that may have been stored: a topic with a dedup window stores each once.

python examples/send_once.py [name server]
"""

import asyncio
import sys

from bolide import AdminClient, Message, Producer

NAME_SERVER = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876"


async def main() -> None:
    async with AdminClient(NAME_SERVER) as admin:
        window = {"dedup.window": "10m"}
        await admin.topics.create("OnceTopic", "DefaultCluster", queues=4, attributes=window)
    orders = [
        Message("OnceTopic", f"order {number}".encode(), dedup_key=f"order-{number}")
        for number in range(10)
    ]
    async with Producer("once-producer", name_server=NAME_SERVER) as producer:
        for order in orders[:7]:  # suppose the program stops here and starts again
            await producer.send(order)
        results = await producer.send(orders)
        queues = await producer.fetch_publish_queues("OnceTopic")
        ends = [await producer.max_offset(queue) for queue in queues]
    print(f"{sum(result.repeats for result in results)} were there already, {sum(ends)} are now")


if __name__ == "__main__":
    asyncio.run(main())
