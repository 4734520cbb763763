"""Consume the messages that a SQL92 expression matches; the broker filters.

python examples/sql_filter_consumer.py [name server]
"""

import asyncio
import sys

from bolide import PushConsumer, StoredMessage

NAME_SERVER = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876"


async def main() -> None:
    finished = asyncio.Event()
    seen: list[str] = []

    async def handle(message: StoredMessage) -> None:
        seen.append(message.properties["a"])
        if len(seen) == 4:
            finished.set()

    async with PushConsumer(
        "sql-consumer", name_server=NAME_SERVER, consume_from="first"
    ) as consumer:
        await consumer.subscribe("SqlFilterTopic", handle, sql="a between 0 and 3")
        await finished.wait()
    print(f"got a = {', '.join(sorted(seen))}")


if __name__ == "__main__":
    asyncio.run(main())
