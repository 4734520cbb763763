"""Send messages that expire: consumers that pull later do not receive them.

python examples/expiring.py [name server]
"""

import asyncio
import sys
from datetime import timedelta

from bolide import Message, Producer, PullConsumer

NAME_SERVER = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876"


async def main() -> None:
    async with (
        Producer("expiring-producer", name_server=NAME_SERVER) as producer,
        PullConsumer("expiring-consumer", name_server=NAME_SERVER) as consumer,
    ):
        offer = Message("ExpiringTopic", b"an offer", expire_after=0.5)
        invoice = Message("ExpiringTopic", b"an invoice", expire_after=timedelta(days=30))
        sent = await producer.send(offer)
        await producer.send(invoice, queue=sent.queue)
        for _ in range(2):
            found = await consumer.pull(sent.queue, "*", 0)
            print("there is", ", ".join(message.body.decode() for message in found.messages))
            await asyncio.sleep(0.5)


if __name__ == "__main__":
    asyncio.run(main())
