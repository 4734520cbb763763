"""Retry a message whose handler fails, until it becomes a dead letter.

python examples/retry_and_dead_letter.py [name server]
"""

import asyncio
import sys

from bolide import LitePullConsumer, Message, Producer, PushConsumer, Retry, StoredMessage

NAME_SERVER = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876"
GROUP = "retry-consumer"


async def main() -> None:
    finished = asyncio.Event()

    async def handle(message: StoredMessage) -> None:
        print(f"try {message.reconsume_times + 1} of {message.body.decode()!r}")
        if message.reconsume_times == 2:
            finished.set()
        # Any exception requests a retry. Retry can set the delay level: 1 is one second. Without
        # it the broker waits ten seconds, then thirty, then a minute and so on.
        raise Retry("no stock", delay_level=1)

    async with Producer("retry-producer", name_server=NAME_SERVER) as producer:
        await producer.send(Message("RetryTopic", b"order 17"))

    async with PushConsumer(
        GROUP, name_server=NAME_SERVER, consume_from="first", max_reconsume_times=2
    ) as consumer:
        await consumer.subscribe("RetryTopic", "*", handle)
        await finished.wait()

    async with LitePullConsumer(
        "undertaker", name_server=NAME_SERVER, consume_from="first"
    ) as poller:
        await poller.subscribe(f"%DLQ%{GROUP}")
        while not (messages := await poller.poll()):
            pass
        for message in messages:
            print(f"dead letter {message.body.decode()!r}, sent to {message.topic}")


if __name__ == "__main__":
    asyncio.run(main())
