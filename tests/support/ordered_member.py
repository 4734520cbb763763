"""A member of an ordered group in a process of its own, to be stopped or killed.

It handles topic Q in the order of its queues and topic K in that of its keys, and appends a line
for each message to a file that all members share: `<client id> <topic> <lane> <number>`.
"""

import asyncio
import os
import signal
import sys
from pathlib import Path

from bolide.client.consumer.push.push_consumer import PushConsumer
from bolide.model.message import StoredMessage

GROUP = "shift"


async def main(name_server: str, path: Path) -> None:
    asked_to_stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, asked_to_stop.set)
    book = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    async def note(message: StoredMessage) -> None:
        await asyncio.sleep(0.001)
        lane, number = message.body.decode().split()
        os.write(book, f"{member.client_id} {message.topic} {lane} {number}\n".encode())

    async with PushConsumer(
        GROUP, name_server=name_server, consume_from="first", commit_interval=0.3
    ) as member:
        await member.subscribe("Q", note, ordered=True)
        await member.subscribe("K", note, ordered=True, order_by="keys", on_poison="park")
        sys.stdout.write(f"{member.client_id}\n")
        sys.stdout.flush()
        await asked_to_stop.wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[2])))
