"""Keep the order of each key; a key that fails is parked, and resumed when the cause is fixed.

python examples/keyed_order_consumer.py [name server]
"""

import asyncio
import sys

from bolide import AdminClient, Message, Producer, PushConsumer, StoredMessage

NAME_SERVER = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876"
GROUP = "keyed-order-consumer"
STEPS = ("created", "paid", "sent")


async def send() -> None:
    async with Producer("keyed-order-producer", name_server=NAME_SERVER) as producer:
        for step in STEPS:
            for account in ("anna", "bert", "cleo"):
                message = Message("KeyedTopic", step.encode(), sharding_key=account)
                await producer.send(message, key="all")  # all keys in one queue


async def until_parked(admin: AdminClient, count: int) -> None:
    while True:
        found = await admin.parked.keys(GROUP)
        if sum(key.count for key in found) == count:
            return
        await asyncio.sleep(0.05)


async def main() -> None:
    broken = {"bert"}

    async def handle(message: StoredMessage) -> None:
        account = message.sharding_key
        if account in broken:
            raise LookupError(f"no account of {account}")
        print(f"{account}: {message.body.decode()}")

    await send()
    async with (
        AdminClient(NAME_SERVER) as admin,
        PushConsumer(
            GROUP,
            name_server=NAME_SERVER,
            consume_from="first",
            max_reconsume_times=2,
            ordered_suspend=0.05,
        ) as consumer,
    ):
        await consumer.subscribe(
            "KeyedTopic", handle, ordered=True, order_by="keys", on_poison="park"
        )
        await until_parked(admin, 3)
        for parked in await admin.parked.keys(GROUP):
            print(f"parked: {parked.count} messages of {parked.key}, {parked.error}")
        broken.clear()
        await admin.parked.resume(GROUP, key="bert")
        await until_parked(admin, 0)


if __name__ == "__main__":
    asyncio.run(main())
