"""Consume as given on the command line; with -f every second message fails and is retried.

python examples/operation_consumer.py -g GROUP -t TOPIC [-s TAGS] [-f] [-c COUNT] [-n ADDRESS]
"""

import argparse
import asyncio
from itertools import count

from bolide import PushConsumer, Retry, StoredMessage


async def main(given: argparse.Namespace) -> None:
    finished = asyncio.Event()
    times = count(1)

    async def handle(message: StoredMessage) -> None:
        number = next(times)
        print(f"{number:<8} {message.body.decode()}, retry {message.reconsume_times}")
        if number == given.count:
            finished.set()
        if given.fails and number % 2 == 0:
            raise Retry("every second one fails")

    async with PushConsumer(
        given.group, name_server=given.name_server, consume_from="first"
    ) as consumer:
        await consumer.subscribe(given.topic, given.tags, handle)
        await finished.wait()


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-g", dest="group", required=True)
    parser.add_argument("-t", dest="topic", required=True)
    parser.add_argument("-s", dest="tags", default="*")
    parser.add_argument("-f", dest="fails", action="store_true")
    parser.add_argument("-c", dest="count", type=int, default=10, help="end after so many calls")
    parser.add_argument("-n", dest="name_server", default="127.0.0.1:9876")
    return parser.parse_args()


if __name__ == "__main__":
    asyncio.run(main(arguments()))
