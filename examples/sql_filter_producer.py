"""Send messages with a number in their property `a`.

python examples/sql_filter_producer.py [name server]
"""

import asyncio
import sys

from bolide import Message, Producer

NAME_SERVER = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876"


async def main() -> None:
    async with Producer("sql-producer", name_server=NAME_SERVER) as producer:
        for number in range(10):
            text, properties = f"message {number}", {"a": str(number)}
            await producer.send(Message("SqlFilterTopic", text.encode(), properties=properties))
    print("sent 10 messages, with a from 0 to 9")


if __name__ == "__main__":
    asyncio.run(main())
