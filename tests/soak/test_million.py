"""A million messages through one broker, while its consumers come, go and are killed."""

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

from bolide import Message, Producer
from tests.interop.bench import Server
from tests.interop.ours import bolide_broker, bolide_namesrv
from tests.soak.cast import Cast
from tests.soak.ledger import Sent
from tests.soak.letters import body_of
from tests.soak.member import GROUPS
from tests.support.aio import on_loop, until
from tests.support.own_cluster import create_topic
from tests.support.process_figures import private_memory, require_proc

TOPIC = "Soak"
QUEUES = 8
SENDERS = 48
BATCH = 24
MEMORY_BOUND = 8 * 2**20
"""Bytes by which private memory may grow from a fifth of the messages to all of them."""

LOG_LINES = 40
"""Of all processes together, for each change of members: nothing is logged for each message."""

CONCURRENT, ORDERED = GROUPS


class Step(NamedTuple):
    """What happens when so much of all was sent: a role comes, goes or is killed."""

    at: float
    act: str
    role: str
    groups: tuple[str, ...] = GROUPS


# The lock of an ordered queue outlives a killed holder by up to a minute: not in a short play.
SHORT = (
    Step(0.00, "come", "a"),
    Step(0.00, "come", "b", (CONCURRENT,)),
    Step(0.10, "come", "c"),
    Step(0.30, "kill", "b"),
    Step(0.45, "come", "b", (CONCURRENT,)),
    Step(0.60, "go", "c"),
    Step(0.75, "come", "c"),
)
LONG = (
    Step(0.00, "come", "a"),
    Step(0.00, "come", "b"),
    Step(0.08, "come", "c"),
    Step(0.16, "go", "b"),
    Step(0.24, "come", "b"),
    Step(0.32, "kill", "c"),
    Step(0.40, "come", "c"),
    Step(0.48, "kill", "b"),
    Step(0.49, "come", "b"),
    Step(0.56, "go", "c"),
    Step(0.64, "come", "c"),
    Step(0.70, "kill", "c"),
    Step(0.72, "kill", "b"),
    Step(0.76, "come", "b"),
    Step(0.80, "come", "c"),
    Step(0.90, "go", "b"),
    Step(0.95, "come", "b"),
)


class Play:
    """Sends messages, no faster than they are consumed, and has members come and go meanwhile."""

    def __init__(self, producer: Producer, cast: Cast, total: int, *, most_behind: int) -> None:
        self.sent = Sent()
        self._producer = producer
        self._cast = cast
        self._total = total
        self._most_behind = most_behind
        self._numbers = itertools.count()
        self._allowed = 0

    async def run(self, steps: tuple[Step, ...]) -> None:
        async with asyncio.TaskGroup() as tasks:
            reading = tasks.create_task(self._read_on())
            tasks.create_task(self._act(steps))
            senders = [
                tasks.create_task(self._send(BATCH if number % 8 == 0 else 1))
                for number in range(SENDERS)
            ]
            await asyncio.wait(senders)
            await until(self._is_delivered, within=150)
            reading.cancel()

    async def reached(self, part: float) -> None:
        """Wait until so much of all was sent."""
        wanted = int(part * self._total)
        await until(lambda: self.sent.count >= wanted, within=900)

    def _is_delivered(self) -> bool:
        return all(ledger.count >= self.sent.count for ledger in self._cast.ledgers)

    async def _act(self, steps: tuple[Step, ...]) -> None:
        for step, following in itertools.pairwise([*steps, Step(1.0, "", "")]):
            await self.reached(step.at)
            # Messages flow while somebody comes or goes, but not past the step after it.
            self._allowed = int(following.at * self._total)
            act = getattr(self._cast, step.act)
            await (act(step.role, step.groups) if step.act == "come" else act(step.role))

    async def _send(self, size: int) -> None:
        """One request after the other until there are no more numbers."""
        while numbers := [n for n in itertools.islice(self._numbers, size) if n < self._total]:
            while self._must_wait(numbers[0]):  # noqa: ASYNC110  there is no event
                await asyncio.sleep(0.01)
            messages = [Message(TOPIC, body_of(number)) for number in numbers]
            if size == 1:
                result = await self._producer.send(messages[0])
            else:
                (result,) = await self._producer.send_batch(messages, split=False)
            for place, number in enumerate(numbers):
                self.sent.acknowledged(result.queue.queue_id, result.queue_offset + place, number)

    def _must_wait(self, number: int) -> bool:
        behind = number - self._cast.ledgers[0].count
        return number >= self._allowed or behind > self._most_behind

    async def _read_on(self) -> None:
        while True:
            await asyncio.sleep(0.1)
            self._cast.read_notes()
            self._cast.check_alive()


@asynccontextmanager
async def stage(directory: Path) -> AsyncIterator[tuple[Producer, Cast, Server]]:
    """A NameServer and a broker as processes, a producer here, and nobody who consumes yet."""
    require_proc()
    with (
        bolide_namesrv(directory / "namesrv") as servers,
        bolide_broker(
            directory / "broker", servers.address, mappedFileSizeCommitLog=64 * 2**20
        ) as broker,
    ):
        cast = Cast(servers.address, TOPIC, directory)
        try:
            async with Producer("soak", name_server=servers.address) as producer:
                await create_topic(producer, TOPIC, QUEUES)
                yield producer, cast, broker
        finally:
            cast.close()


async def check(directory: Path, total: int, steps: tuple[Step, ...], *, most_behind: int) -> None:
    async with stage(directory) as (producer, cast, broker):
        play = Play(producer, cast, total, most_behind=most_behind)
        watched = {"broker": broker.process.pid}
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(play.run(steps))
            await play.reached(0.2)
            watched["member"] = cast.pid("a")
            early = {name: private_memory(pid) for name, pid in watched.items()}
        late = {name: private_memory(pid) for name, pid in watched.items()}
        await cast.leave()
        for group, ledger in zip(GROUPS, cast.ledgers, strict=True):
            assert ledger.complaints(play.sent) == [], group
        assert (play.sent.count, play.sent.twice) == (total, 0)
        print(
            early,
            late,
            [len(ledger.again) for ledger in cast.ledgers],
            cast.log_lines,
            len(broker.process.output),
        )
        assert all(late[name] < early[name] + MEMORY_BOUND for name in watched), (early, late)
        lines = cast.log_lines + len(broker.process.output)
        assert lines < LOG_LINES * cast.changes, f"{lines} lines of log"


@on_loop
async def test_twenty_thousand_messages_reach_members_that_come_and_go(tmp_path: Path) -> None:
    await check(tmp_path, 20_000, SHORT, most_behind=2_000)


@pytest.mark.long
@pytest.mark.timeout(1200)
@on_loop
async def test_a_million_messages_reach_members_that_come_and_go(tmp_path: Path) -> None:
    await check(tmp_path, 1_000_000, LONG, most_behind=20_000)
