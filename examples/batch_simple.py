"""Send several messages of one topic in one request.

python examples/batch_simple.py [name server]
"""

import asyncio
import sys

from bolide import Message, Producer

NAME_SERVER = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876"


async def main() -> None:
    messages = [
        Message("BatchTopic", f"order {number}".encode(), tags="Tag", keys=f"OrderID-{number}")
        for number in range(3)
    ]
    async with Producer("batch-producer", name_server=NAME_SERVER) as producer:
        (result,) = await producer.send_batch(messages, split=False)
    print(f"{len(result.message_ids)} messages from offset {result.queue_offset} on")


if __name__ == "__main__":
    asyncio.run(main())
