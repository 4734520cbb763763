"""Send a list that is too large for one request; it is split at the size limit.

python examples/batch_split.py [name server]
"""

import asyncio
import sys

from bolide import Message, Producer

NAME_SERVER = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876"
MIB = 1024 * 1024


async def main() -> None:
    messages = [Message("BatchTopic", bytes(10_000), keys=f"part-{n}") for n in range(500)]
    async with Producer(
        "batch-producer", name_server=NAME_SERVER, max_message_size=MIB
    ) as producer:
        results = await producer.send(messages)
    stored = sum(len(result.message_ids) for result in results)
    print(f"{stored} messages in {len(results)} requests")


if __name__ == "__main__":
    asyncio.run(main())
