"""Send messages as given on the command line.

python examples/operation_producer.py -g GROUP -t TOPIC [-a TAGS] [-k KEYS] [-c COUNT] [-n ADDRESS]
"""

import argparse
import asyncio

from bolide import Message, Producer


async def main(given: argparse.Namespace) -> None:
    async with Producer(given.group, name_server=given.name_server) as producer:
        for number in range(given.count):
            message = Message(
                given.topic,
                f"message {number}".encode(),
                tags=given.tags,
                keys=given.keys,
            )
            result = await producer.send(message)
            print(f"{number:<8} {result.status.name} {result.message_id}")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-g", dest="group", required=True)
    parser.add_argument("-t", dest="topic", required=True)
    parser.add_argument("-a", dest="tags", default="")
    parser.add_argument("-k", dest="keys", default="", help="one key")
    parser.add_argument("-c", dest="count", type=int, default=10)
    parser.add_argument("-n", dest="name_server", default="127.0.0.1:9876")
    return parser.parse_args()


if __name__ == "__main__":
    asyncio.run(main(arguments()))
