"""A million messages through one broker, while its consumers come, go and are killed."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from bolide import Producer
from bolide.admin import AdminClient
from bolide.admin.consumer_lag import lag_of
from tests.interop.bench import Server
from tests.interop.ours import bolide_broker, bolide_namesrv
from tests.soak.cast import Cast
from tests.soak.member import GROUPS
from tests.soak.play import Play, Step
from tests.support.aio import on_loop
from tests.support.own_cluster import create_topic
from tests.support.process_figures import private_memory, require_proc

log = logging.getLogger(__name__)

TOPIC = "Soak"
QUEUES = 8
GROWTH = 12 * 2**20
"""Bytes by which private memory may grow from a fifth of the messages to all of them."""

HANDOVER = 20.0
"""Seconds in which a queue finds its next holder, far less than a lock left behind would take."""

COMMITTED_WITHIN = 30.0
"""Seconds; members commit every 5."""

LOG_LINES = 40
"""Of all processes together, for each change of members: nothing is logged for each message."""

# The lock of an ordered queue outlives a killed holder by up to a minute: not in a short play.
SHORT = (
    Step(0.00, "come", "a"),
    Step(0.00, "come", "b", GROUPS[:1]),
    Step(0.10, "come", "c"),
    Step(0.30, "kill", "b"),
    Step(0.45, "come", "b", GROUPS[:1]),
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


@on_loop
async def test_twenty_thousand_messages_reach_members_that_come_and_go(tmp_path: Path) -> None:
    async with stage(tmp_path) as it:
        play = Play(it.producer, it.cast, 20_000, most_behind=2_000)
        await play.run(SHORT)
        await check(it, play)
        longest = [ledger.longest_handover() for ledger in it.cast.ledgers]
        assert max(longest) < HANDOVER, longest


@pytest.mark.long
@pytest.mark.timeout(1200)
@on_loop
async def test_a_million_messages_reach_members_that_come_and_go(tmp_path: Path) -> None:
    async with stage(tmp_path) as it:
        play = Play(it.producer, it.cast, 1_000_000, most_behind=20_000)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(play.run(LONG))
            await play.reached(0.2)
            early = it.private_memory()
        late = it.private_memory()
        await check(it, play)
        log.info("private memory after a fifth and at the end: %s, %s", early, late)
        assert all(late[name] < early[name] + GROWTH for name in early), (early, late)


@dataclass(slots=True)
class Stage:
    """A broker process, a producer here, and the consumer processes."""

    name_server: str
    broker: Server
    producer: Producer
    cast: Cast

    def private_memory(self) -> dict[str, int]:
        """Of the broker and of the member that never leaves."""
        pids = {"broker": self.broker.process.pid, "member": self.cast.pid("a")}
        return {name: private_memory(pid) for name, pid in pids.items()}


@asynccontextmanager
async def stage(directory: Path) -> AsyncIterator[Stage]:
    require_proc()
    files = {"mappedFileSizeCommitLog": 64 * 2**20}
    with (
        bolide_namesrv(directory / "namesrv") as servers,
        bolide_broker(directory / "broker", servers.address, **files) as broker,
    ):
        cast = Cast(servers.address, TOPIC, directory)
        try:
            async with Producer("soak", name_server=servers.address) as producer:
                await create_topic(producer, TOPIC, QUEUES)
                yield Stage(servers.address, broker, producer, cast)
        finally:
            cast.close()


async def check(it: Stage, play: Play) -> None:
    """The groups did as they must, their progress is kept, and nobody talked too much."""
    assert not play.sent.twice, "the broker acknowledged two messages with one offset"
    async with AdminClient(it.name_server) as admin:
        await all_committed(admin)
        await it.cast.leave()
        for group, ledger in zip(GROUPS, it.cast.ledgers, strict=True):
            assert ledger.complaints(play.sent) == [], group
            assert lag_of(await admin.offsets.progress(group, TOPIC)) == 0, group
            log.info("%s: %d of %d came again", group, len(ledger.again), ledger.count)
    lines = it.cast.log_lines + len(it.broker.process.output)
    log.info("%d lines of log, %d changes of members", lines, it.cast.changes)
    assert lines < LOG_LINES * it.cast.changes


async def all_committed(admin: AdminClient) -> None:
    """Wait until members have committed all they consumed.

    Before that, a queue that changes hands begins with messages which its last holder consumed
    but had not committed. Its next holder may leave amid them, and commits less than was consumed.
    """
    async with asyncio.timeout(COMMITTED_WITHIN):
        for group in GROUPS:
            while lag_of(await admin.offsets.progress(group, TOPIC)):  # noqa: ASYNC110  no event
                await asyncio.sleep(0.1)
