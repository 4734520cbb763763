"""Consume the messages of trace_producer.py with tracing on, and print the trace of each.

`bolide admin queryMsgTraceById -i ID` shows the same, with times.

python examples/trace_consumer.py [name server]
"""

import asyncio
import sys

from bolide import AdminClient, PushConsumer, StoredMessage
from bolide.admin import MessageNotFound

NAME_SERVER = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876"


async def main() -> None:
    consumed: asyncio.Queue[StoredMessage] = asyncio.Queue()
    async with PushConsumer(
        "trace-consumer", name_server=NAME_SERVER, consume_from="first", trace=True
    ) as consumer:
        await consumer.subscribe("TraceTopic", consumed.put)
        messages = [await consumed.get() for _ in range(3)]
    async with AdminClient(NAME_SERVER) as admin:
        for message in sorted(messages, key=lambda message: message.body):
            print(f"{message.body.decode()}: {await story(admin, message.message_id)}")


async def story(admin: AdminClient, message_id: str) -> str:
    told: list[str] = []
    while len(told) < 3:  # brokers index keys a moment after the messages are stored
        try:
            traced = await admin.traces.of(message_id)
        except MessageNotFound:
            await asyncio.sleep(0.1)
        else:
            told = [f"{each.record.kind} by {each.record.group}" for each in traced]
    return ", ".join(told)


if __name__ == "__main__":
    asyncio.run(main())
