"""Two consumers of a group share its queues until one is killed.

The other one is a process of its own, killed without a chance to say goodbye. It is run as
`python -m tests.interop.matrix.ours.sharing NAMESRV TOPIC GROUP`, prints what it gets and holds,
and ends with the one that started it.
"""

import asyncio
import sys
from asyncio.subprocess import PIPE, Process

from bolide import PushConsumer, StoredMessage
from tests.interop.matrix.ours.deliveries import Deliveries
from tests.interop.matrix.ours.stage import Facts, Stage, settle, until_so
from tests.support.aio import ended

QUEUES = 4
MANY = 16


async def sharing(stage: Stage) -> Facts:
    deliveries = Deliveries()
    lines: list[str] = []
    async with stage.push_consumer() as consumer:
        await consumer.subscribe(stage.topic, "*", deliveries)
        other = await asyncio.create_subprocess_exec(
            sys.executable, "-m", __name__, stage.name_server, stage.topic, stage.group,
            stdin=PIPE, stdout=PIPE,
        )  # fmt: skip
        reading = asyncio.create_task(_read(other, lines))
        try:
            await until_so(lambda: _is_shared(consumer, lines))
            await stage.send("shared", MANY)
            await until_so(lambda: deliveries.count("shared") + len(_bodies(lines)) >= MANY)
            held_when_shared = len(consumer.assigned_queues)
        finally:
            other.kill()
            await reading
            await ended(other)
        await stage.send("alone", MANY)
        await until_so(lambda: deliveries.count("alone") >= MANY)
        await settle()
        return {
            "held_when_shared": held_when_shared,
            "held_alone": len(consumer.assigned_queues),
            "here": deliveries.told,
            "there": _bodies(lines),
        }


async def _read(process: Process, lines: list[str]) -> None:
    assert process.stdout is not None
    async for line in process.stdout:
        lines.append(line.decode().rstrip("\n"))  # noqa: PERF401 - read while it grows


def _is_shared(consumer: PushConsumer, lines: list[str]) -> bool:
    held = [line.removeprefix("holds ") for line in lines if line.startswith("holds ")]
    return len(consumer.assigned_queues) == QUEUES // 2 and held[-1:] == [str(QUEUES // 2)]


def _bodies(lines: list[str]) -> list[str]:
    return [line.removeprefix("got ") for line in lines if line.startswith("got ")]


async def _be_the_other(name_server: str, topic: str, group: str) -> None:
    async def tell(message: StoredMessage) -> None:
        print("got", message.body.decode(), flush=True)

    async with PushConsumer(
        group, name_server=name_server, consume_from="first", route_interval=1.0
    ) as consumer:
        await consumer.subscribe(topic, "*", tell)
        ended = asyncio.create_task(asyncio.to_thread(sys.stdin.read))
        told = -1
        while not ended.done():
            held = len(consumer.assigned_queues)
            if held != told:
                print("holds", held, flush=True)
                told = held
            await asyncio.sleep(0.02)


if __name__ == "__main__":
    asyncio.run(_be_the_other(*sys.argv[1:]))
