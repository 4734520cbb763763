"""Send messages that are delivered only if the sender's transaction succeeds.

The broker checks back on open transactions, after 6 to 36 seconds by default.

python examples/transaction_producer.py [name server]
"""

import asyncio
import sys

from bolide import Message, StoredMessage, TransactionProducer, TransactionState

NAME_SERVER = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876"
TOPIC = "TransactionTopic"

paid: set[str] = set()  # the database of this shop
all_asked = asyncio.Event()


async def pay(message: Message, order: int) -> TransactionState:
    """The local transaction. Every third customer has no money, and every fourth call is lost."""
    if order % 3 == 0:
        return TransactionState.ROLLBACK
    paid.update(message.keys)
    return TransactionState.UNKNOWN if order % 4 == 0 else TransactionState.COMMIT


async def check(message: StoredMessage) -> TransactionState:
    """Answers a check-back: the broker was not told how the transaction ended."""
    (key,) = message.keys
    print(f"asked about {key}")
    if key == "order-8":
        all_asked.set()
    return TransactionState.COMMIT if key in paid else TransactionState.ROLLBACK


async def main() -> None:
    async with TransactionProducer("shop", check=check, name_server=NAME_SERVER) as producer:
        for order in range(10):
            message = Message(TOPIC, f"ship order {order}".encode(), keys=f"order-{order}")
            sent = await producer.send_in_transaction(message, pay, order)
            print(f"order-{order} {sent.state.name}")
        await asyncio.wait_for(all_asked.wait(), 90)
        await asyncio.sleep(0.2)  # until the last end of a transaction has arrived
        queues = await producer.fetch_publish_queues(TOPIC)
        delivered = sum([await producer.max_offset(queue) for queue in queues])
    print(f"{delivered} of 10 messages are delivered")


if __name__ == "__main__":
    asyncio.run(main())
