"""Consume the messages with two of three tags; the broker filters.

python examples/tag_filter_consumer.py [name server]
"""

import asyncio
import sys
from collections import Counter

from bolide import PushConsumer, StoredMessage

NAME_SERVER = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876"


async def main() -> None:
    finished = asyncio.Event()
    seen: Counter[str | None] = Counter()

    async def handle(message: StoredMessage) -> None:
        seen[message.tags] += 1
        if seen.total() == 8:
            finished.set()

    async with PushConsumer(
        "tag-consumer", name_server=NAME_SERVER, consume_from="first"
    ) as consumer:
        await consumer.subscribe("TagFilterTopic", "TagA || TagC", handle)
        await finished.wait()
    print(", ".join(f"{number} of {tag}" for tag, number in sorted(seen.items())))


if __name__ == "__main__":
    asyncio.run(main())
