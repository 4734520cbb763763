"""Send messages with different tags.

python examples/tag_filter_producer.py [name server]
"""

import asyncio
import sys

from bolide import Message, Producer

NAME_SERVER = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876"
TAGS = ("TagA", "TagB", "TagC")


async def main() -> None:
    async with Producer("tag-producer", name_server=NAME_SERVER) as producer:
        for number in range(12):
            tag = TAGS[number % len(TAGS)]
            await producer.send(Message("TagFilterTopic", f"{number}".encode(), tags=tag))
    print("sent 12 messages, 4 of each tag")


if __name__ == "__main__":
    asyncio.run(main())
