"""Send a message that recurs by a cron expression, then end the series.

python examples/recurring.py [name server]
"""

import asyncio
import sys

from bolide import Message, Producer, PushConsumer, StoredMessage

NAME_SERVER = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876"


async def main() -> None:
    ticks: asyncio.Queue[StoredMessage] = asyncio.Queue()
    async with (
        Producer("recurring-producer", name_server=NAME_SERVER) as producer,
        PushConsumer(
            "recurring-consumer", name_server=NAME_SERVER, consume_from="first"
        ) as consumer,
    ):
        await consumer.subscribe("RecurringTopic", ticks.put)
        # Six fields begin with seconds; "0 9 * * MON-FRI" is nine o'clock on working days.
        report = Message("RecurringTopic", b"report", cron="* * * * * *", cron_zone="Europe/Berlin")
        sent = await producer.send(report)
        for _ in range(2):
            print("time for a", (await ticks.get()).body.decode())
        await producer.recall("RecurringTopic", sent.recall_handle or "")
    print("recalled")


if __name__ == "__main__":
    asyncio.run(main())
