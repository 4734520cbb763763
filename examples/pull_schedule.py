"""Call a function repeatedly for each assigned queue; the function pulls.

python examples/pull_schedule.py [name server]
"""

import asyncio
import sys

from bolide import Message, MessageQueue, Producer, PullSchedule, PullTurn

NAME_SERVER = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9876"


async def main() -> None:
    finished = asyncio.Event()
    pulled = 0

    async def pull(queue: MessageQueue, turn: PullTurn) -> None:
        nonlocal pulled
        offset = await turn.consumer.fetch_consume_offset(queue) or 0
        found = await turn.consumer.pull(queue, "*", offset)
        for message in found.messages:
            print(f"{queue}: {message.body.decode()}")
            pulled += 1
        await turn.consumer.update_consume_offset(queue, found.next_offset)
        turn.next_delay = 0.1 if found.messages else 1.0
        if pulled >= 8:
            finished.set()

    async with Producer("schedule-producer", name_server=NAME_SERVER) as producer:
        for number in range(8):
            await producer.send(Message("PullScheduleTopic", f"job {number}".encode()))

    async with PullSchedule("schedule-consumer", name_server=NAME_SERVER) as schedule:
        await schedule.register("PullScheduleTopic", pull)
        await finished.wait()


if __name__ == "__main__":
    asyncio.run(main())
