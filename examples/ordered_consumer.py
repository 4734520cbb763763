"""Consume each queue in order; a failure blocks its own queue, not the others.

python examples/ordered_consumer.py [name server]
"""

import asyncio
import sys

from bolide import PushConsumer, Retry, StoredMessage

NAME_SERVER = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876"


async def main() -> None:
    finished = asyncio.Event()
    orders: dict[str, list[str]] = {}

    async def handle(message: StoredMessage) -> None:
        (order,), step = message.keys, message.body.decode()
        if order == "order-3" and step == "paid" and not message.reconsume_times:
            raise Retry("the bank does not answer", suspend=0.1)
        orders.setdefault(order, []).append(step)
        if sum(map(len, orders.values())) == 20:
            finished.set()

    async with PushConsumer(
        "ordered-consumer", name_server=NAME_SERVER, consume_from="first"
    ) as consumer:
        await consumer.subscribe("OrderedTopic", "*", handle, ordered=True)
        await finished.wait()
    for order, steps in sorted(orders.items()):
        print(f"{order}: {', '.join(steps)}")


if __name__ == "__main__":
    asyncio.run(main())
