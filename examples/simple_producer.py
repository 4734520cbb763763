"""Send messages with keys, wait for each, and query them by key and by id.

python examples/simple_producer.py [name server]
"""

import asyncio
import sys

from bolide import Message, Producer, SendStatus

NAME_SERVER = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876"


async def main() -> None:
    async with Producer("simple-producer", name_server=NAME_SERVER) as producer:
        for number in range(3):
            message = Message(
                "SimpleTopic",
                f"invoice {number}".encode(),
                tags="created",
                keys=[f"invoice-{number}"],
                properties={"customer": "4711"},
            )
            result = await producer.send(message, timeout=5)
            if result.status is not SendStatus.SEND_OK:
                print(f"stored, but not as safely as it should be: {result.status.name}")

        found = await producer.view_message(result.offset_message_id)
        print(f"by id: {found.body.decode()}, customer {found.properties['customer']}")
        for found in await producer.query_messages("SimpleTopic", "invoice-1"):
            print(f"by key: {found.body.decode()}, tagged {found.tags}")


if __name__ == "__main__":
    asyncio.run(main())
