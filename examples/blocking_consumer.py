"""Consume messages in a program without asyncio.

python examples/blocking_consumer.py [name server]
"""

import queue
import sys

from bolide.sync import PushConsumer, StoredMessage

NAME_SERVER = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876"


def main() -> None:
    handled: queue.SimpleQueue[str] = queue.SimpleQueue()

    def handle(message: StoredMessage) -> None:
        """Runs in a thread of a pool."""
        handled.put(message.body.decode())

    with PushConsumer(
        "blocking-consumer", name_server=NAME_SERVER, consume_from="first"
    ) as consumer:
        consumer.subscribe("BlockingTopic", "*", handle)
        for _ in range(10):
            print(f"received {handled.get()!r}")


if __name__ == "__main__":
    main()
