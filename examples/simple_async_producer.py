"""Send a hundred messages at once and handle each outcome as it arrives.

python examples/simple_async_producer.py [name server]
"""

import asyncio
import sys

from bolide import BolideError, Message, Producer

NAME_SERVER = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876"


async def main() -> None:
    messages = [Message("AsyncTopic", f"reading {number}".encode()) for number in range(100)]
    stored = 0
    async with Producer("async-producer", name_server=NAME_SERVER, retries=3) as producer:
        for outcome in asyncio.as_completed([producer.send(message) for message in messages]):
            try:
                await outcome
            except BolideError as exc:
                print(f"failed: {exc}")
            else:
                stored += 1
    print(f"{stored} of {len(messages)} stored")


if __name__ == "__main__":
    asyncio.run(main())
