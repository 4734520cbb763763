"""Timer messages that are due while there is no master, at the slave that acts for it."""

import asyncio
import random
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from bolide.broker.replicas.escape import NoOtherGroup
from bolide.broker.timers import Timers
from bolide.broker.timers import acting as module
from bolide.broker.timers.acting import ActingTimers
from bolide.broker.timers.recurring import Recurring
from bolide.model.names import TIMER_TOPIC
from bolide.protocol.bodies.topics import TopicConfig
from bolide.protocol.record import RecordDraft
from bolide.store.timers import TimerCheckpoint, remove_derived
from tests.support.aio import on_loop, until
from tests.support.store import STORE_HOST
from tests.support.timer_bench import TimerBench

HOUR_MS = 3_600_000


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests own the clock, so real sleeps must be short."""
    for name in ("_LONGEST_SLEEP", "_RETRY_DELAY", "_SAVE_INTERVAL"):
        monkeypatch.setattr(module, name, 0.001)


class Elsewhere:
    """Another group: takes messages unless told otherwise."""

    def __init__(self) -> None:
        self.got: list[RecordDraft] = []
        self.refused: set[str] = set()

    async def take(self, draft: RecordDraft) -> None:
        await asyncio.sleep(0)
        if draft.topic.decode() in self.refused:
            raise NoOtherGroup("not here")
        self.got.append(draft)

    @property
    def bodies(self) -> list[int]:
        return [int(bytes(each.body)) for each in self.got]


class Slave:
    """A copy of a master's store, at which timers act; the clock is that of the master."""

    def __init__(self, bench: TimerBench) -> None:
        self.other = Elsewhere()
        self.master = bench
        root = bench.root.with_name("slave")
        shutil.copytree(bench.root, root)
        checkpoint = bench.timers.last_checkpoint()
        self.bench = TimerBench(root)
        self.bench.clock = bench.clock
        remove_derived(root)
        self._checkpoint = checkpoint

    @asynccontextmanager
    async def acting(self, **given: object) -> AsyncIterator[Timers]:
        bench = self.bench
        await bench.start(before=lambda timers: None)
        await bench.timers.stop()  # a slave does not run it
        remove_derived(bench.root)
        if self._checkpoint is not None:
            bench.timers.adopt(self._checkpoint)
        recurring = Recurring(lambda name: TopicConfig(topic_name=name), bench.clock)
        timers = ActingTimers(
            bench.store,
            bench.timers,
            cell=bench.cell,
            store_host=STORE_HOST,
            now=bench.clock,
            continuations=(recurring.continued,),
        )
        running = asyncio.create_task(timers.run(self.other.take))
        try:
            yield bench.timers
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            bench._end()
            bench.store.close()


async def reached(timers: Timers, bench: TimerBench) -> None:
    """Wait until the checkpoint says that everything before now is done."""
    await until(lambda: timers.checkpoint.read_time >= bench.now_ms)


@on_loop
async def test_each_message_comes_once_whoever_delivers_it(tmp_path: Path) -> None:
    bench = TimerBench(tmp_path / "store")
    await bench.start()
    dice = random.Random(7)
    for _ in range(200):
        bench.send(bench.now_ms + dice.randrange(1, 12_000))
    await bench.pass_time(4)
    bench.timers.save()
    slave = Slave(bench)
    await bench.stop()

    async with slave.acting() as timers:
        for _ in range(4):
            bench.clock.advance(1.0)
            await reached(timers, bench)
    assert slave.other.got

    taken: list[bool] = []
    await bench.start(before=lambda own: taken.append(own.take_ahead(timers.checkpoint)))
    await bench.pass_time(10)
    assert taken == [True]
    assert sorted(slave.other.bodies + bench.bodies) == list(range(1, 201))
    await bench.stop()


@on_loop
async def test_a_message_that_nobody_takes_is_delivered_by_the_master(tmp_path: Path) -> None:
    bench = TimerBench(tmp_path / "store")
    await bench.start()
    bench.send(bench.now_ms + 1000)
    bench.send(bench.now_ms + 2000, topic="T")
    slave = Slave(bench)
    slave.other.refused.add("T")
    await bench.stop()

    async with slave.acting() as timers:
        bench.clock.advance(5.0)
        await asyncio.sleep(0.05)
        assert timers.checkpoint.read_time <= bench.now_ms - 4000
    await bench.start(before=lambda own: own.take_ahead(timers.checkpoint))
    await bench.pass_time(1)
    assert bench.bodies == [1, 2]
    await bench.stop()


@on_loop
async def test_a_recalled_message_does_not_come(tmp_path: Path) -> None:
    bench = TimerBench(tmp_path / "store")
    await bench.start()
    bench.send(bench.now_ms + 1000)
    bench.send(bench.now_ms + 1000)
    bench.send(bench.now_ms + 1000, TIMER_DEL_UNIQKEY="T+ID1")
    slave = Slave(bench)
    await bench.stop()

    async with slave.acting() as timers:
        bench.clock.advance(5.0)
        await reached(timers, bench)
    assert slave.other.bodies == [2]


@on_loop
async def test_a_distant_message_moves_to_the_timers_of_the_other_group(tmp_path: Path) -> None:
    bench = TimerBench(tmp_path / "store")
    await bench.start()
    bench.send(bench.now_ms + 100 * HOUR_MS)
    slave = Slave(bench)
    await bench.stop()

    async with slave.acting() as timers:
        bench.clock.advance(49 * 3600)
        await reached(timers, bench)
        assert [each.topic.decode() for each in slave.other.got] == [TIMER_TOPIC]
    await bench.start(before=lambda own: own.take_ahead(timers.checkpoint))
    await bench.pass_time(60 * 3600)
    assert bench.bodies == []
    await bench.stop()


@on_loop
async def test_a_series_goes_on_in_the_other_group(tmp_path: Path) -> None:
    bench = TimerBench(tmp_path / "store")
    await bench.start()
    bench.send(bench.now_ms + 1000, BOLIDE_CRON="* * * * *")
    slave = Slave(bench)
    await bench.stop()

    async with slave.acting() as timers:
        bench.clock.advance(2.0)
        await reached(timers, bench)
    assert [each.topic for each in slave.other.got] == [b"T", TIMER_TOPIC.encode()]


@on_loop
async def test_a_slave_keeps_what_it_delivered_until_the_master_has_come_as_far(
    tmp_path: Path,
) -> None:
    bench = TimerBench(tmp_path / "store")
    await bench.start()
    timers, now = bench.timers, bench.now_ms
    await timers.stop()

    timers.record_acting(TimerCheckpoint(read_time=now + 5000))
    timers.adopt(TimerCheckpoint(read_time=now))
    assert timers.load_checkpoint().read_time == now + 5000
    timers.adopt(TimerCheckpoint(read_time=now + 6000))
    timers.adopt(TimerCheckpoint(read_time=now + 1000))  # the clock of the master was set back
    assert timers.load_checkpoint().read_time == now + 1000
    bench._end()
    bench.store.close()
