"""Send messages that are delivered later, by the broker's delay levels.

python examples/delayed_producer.py [name server]
"""

import asyncio
import sys

from bolide import Message, Producer

NAME_SERVER = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876"


async def main() -> None:
    async with Producer("delayed-producer", name_server=NAME_SERVER) as producer:
        for number in range(3):
            # Level 1 is one second, 2 five, 3 ten, and so on up to 18, two hours.
            message = Message("DelayedTopic", f"reminder {number}".encode(), delay_level=1)
            await producer.send(message)
            print(f"sent reminder {number}")


if __name__ == "__main__":
    asyncio.run(main())
