"""Send the steps of several orders; the steps of one order keep their sequence.

python examples/ordered_producer.py [name server]
"""

import asyncio
import sys

from bolide import Message, Producer

NAME_SERVER = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876"
STEPS = ("created", "paid", "sent", "received")


async def main() -> None:
    async with Producer("ordered-producer", name_server=NAME_SERVER) as producer:
        for step in STEPS:
            for order in range(5):
                message = Message("OrderedTopic", step.encode(), keys=f"order-{order}")
                # Equal keys go to one queue, the same as with Java's SelectMessageQueueByHash.
                result = await producer.send(message, key=order)
                print(f"order {order} {step}: {result.queue}")


if __name__ == "__main__":
    asyncio.run(main())
