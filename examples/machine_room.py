"""Prefer brokers in the same machine room, for sending and for consuming.

A broker's room is the part of its name before the @, such as `north@broker-a`. This program
works with one broker without a room: all messages go to it.

python examples/machine_room.py [name server]
"""

import asyncio
import sys

from bolide import (
    Message,
    MessageQueue,
    Producer,
    PushConsumer,
    StoredMessage,
    assignment,
    selectors,
)

NAME_SERVER = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876"


def broker_room(queue: MessageQueue) -> str:
    return queue.broker_name.partition("@")[0]


def client_room(client_id: str) -> str:
    """Client ids are `address@instance`; here the instance begins with the room and a dash."""
    return client_id.partition("@")[2].partition("-")[0]


async def main() -> None:
    finished = asyncio.Event()
    handled = 0

    async def handle(message: StoredMessage) -> None:
        nonlocal handled
        handled += 1
        if handled == 8:
            finished.set()

    async with Producer("room-producer", name_server=NAME_SERVER) as producer:
        for number in range(8):
            message = Message("RoomTopic", f"{number}".encode())
            await producer.send(message, selector=selectors.by_machine_room(["north"]))

    async with PushConsumer(
        "room-consumer",
        name_server=NAME_SERVER,
        instance_name="north-1",
        consume_from="first",
        allocate=assignment.machine_room_nearby(
            assignment.average, broker_room=broker_room, client_room=client_room
        ),
    ) as consumer:
        await consumer.subscribe("RoomTopic", "*", handle)
        await finished.wait()
        print(f"{handled} messages from {len(consumer.assigned_queues)} queues")


if __name__ == "__main__":
    asyncio.run(main())
