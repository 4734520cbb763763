"""Send messages in a program without asyncio: one by one, and many at once with futures.

python examples/blocking_producer.py [name server]
"""

import sys

from bolide.sync import Message, Producer

NAME_SERVER = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876"


def main() -> None:
    with Producer("blocking-producer", name_server=NAME_SERVER) as producer:
        result = producer.send(Message("BlockingTopic", b"number 0"))
        print(f"{result.status.name} in {result.queue}")

        futures = [
            producer.send_async(Message("BlockingTopic", f"number {number}".encode()))
            for number in range(1, 10)
        ]
        print(f"{len([future.result() for future in futures])} more")


if __name__ == "__main__":
    main()
