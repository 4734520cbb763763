"""Bursts of appends: work done once per burst, and when long polls wake."""

import asyncio
from pathlib import Path

import pytest

from bolide.broker.consume.long_polling import CallbackWaiter, LongPolling
from bolide.broker.produce.durability import Durability
from bolide.broker.produce.intake import Intake
from bolide.config import ConfigCell
from bolide.protocol.record_errors import RecordTooLarge
from bolide.store.config import FlushMode, StoreConfig
from bolide.store.flusher import Listener
from bolide.store.memory_store import MemoryStore
from tests.support.aio import on_loop
from tests.support.store import draft


class CountingStore(MemoryStore):
    """A store whose flushes the test reports."""

    settled = 0

    def on_flushed(self, listener: Listener) -> None: ...

    def end_burst(self) -> bool:
        self.settled += 1
        return super().end_burst()


class Bench:
    def __init__(self, mode: FlushMode = FlushMode.ASYNC) -> None:
        config = ConfigCell(StoreConfig(root=Path("unused"), flush_mode=mode))
        self.store = CountingStore(config)
        self.store.__enter__()
        self.durability = Durability(self.store, config)
        self.long_polling = LongPolling()
        self.intake = Intake(self.store, self.durability, self.long_polling)
        self.durability.on_progress.add(self.intake.wake_up_to)
        for part in (self.durability, self.long_polling, self.intake):
            part.start()
        self.woken: list[tuple[str, int]] = []

    def hold(self, topic: str, queue_id: int) -> None:
        def retry(is_last: bool) -> bool:
            if not is_last:
                self.woken.append((topic, queue_id))
            return False

        self.long_polling.hold(CallbackWaiter((topic, queue_id), retry), 60.0)

    def stop(self) -> None:
        self.intake.stop()
        self.long_polling.stop()
        self.durability.stop()


@on_loop
async def test_a_burst_is_settled_once_and_wakes_each_of_its_queues_once() -> None:
    bench = Bench()
    for key in (("T", 0), ("T", 1), ("U", 0)):
        bench.hold(*key)
    for _ in range(5):
        bench.intake.append(draft("T"))
    bench.intake.append_batch([draft("T", queue_id=1), draft("T", queue_id=1)])
    assert (bench.store.settled, bench.woken) == (0, [])
    await asyncio.sleep(0)
    assert bench.store.settled == 1
    assert sorted(bench.woken) == [("T", 0), ("T", 1)]
    bench.intake.append(draft("T"))
    await asyncio.sleep(0)
    assert bench.store.settled == 2
    bench.stop()


@on_loop
async def test_a_message_can_be_read_when_its_waiters_are_woken() -> None:
    bench = Bench()
    offsets: list[int] = []

    def retry(is_last: bool) -> bool:
        offsets.append(bench.store.max_offset("T", 0))
        return True

    bench.long_polling.hold(CallbackWaiter(("T", 0), retry), 60.0)
    bench.intake.append(draft("T"))
    await asyncio.sleep(0)
    assert offsets == [1]
    bench.stop()


@on_loop
async def test_with_sync_flush_nobody_is_woken_before_the_disk_has_it() -> None:
    bench = Bench(FlushMode.SYNC)
    bench.hold("T", 0)
    bench.hold("T", 1)
    first = bench.intake.append(draft("T"))
    second = bench.intake.append(draft("T", queue_id=1))
    await asyncio.sleep(0)
    assert (bench.store.settled, bench.woken) == (1, [])
    bench.durability.on_progress(first.end)
    assert ("T", 0) in bench.woken
    bench.woken.clear()
    bench.durability.on_progress(second.end)
    assert bench.woken == [("T", 1)], "it was not yet on the disk before"
    bench.durability.on_progress(second.end)
    assert bench.woken == [("T", 1)]
    bench.stop()


@on_loop
async def test_a_watcher_hears_of_its_topic_only() -> None:
    bench = Bench()
    heard: list[str] = []
    bench.intake.watch("T", lambda: heard.append("T"))
    bench.intake.append(draft("U"))
    await asyncio.sleep(0)
    assert heard == []
    bench.intake.append(draft("T", queue_id=3))
    bench.intake.append(draft("T"))
    await asyncio.sleep(0)
    assert heard == ["T"]
    bench.stop()


@on_loop
async def test_what_the_store_refuses_is_no_arrival() -> None:
    bench = Bench()
    bench.hold("T", 0)
    with pytest.raises(RecordTooLarge):
        bench.intake.append(draft("T", bytes(5 * 1024 * 1024)))
    await asyncio.sleep(0)
    assert (bench.store.settled, bench.woken) == (0, [])
    bench.stop()


@on_loop
async def test_the_last_burst_is_settled_at_the_end() -> None:
    bench = Bench()
    bench.intake.append(draft("T"))
    bench.stop()
    assert bench.store.settled == 1
    await asyncio.sleep(0)
    assert bench.store.settled == 1


@on_loop
async def test_with_sync_flush_senders_of_several_turns_are_one_group() -> None:
    bench = Bench(FlushMode.SYNC)
    for _ in range(3):
        appended = bench.intake.append(draft("T"))
        bench.durability.when_durable(appended, lambda _: None)
        await asyncio.sleep(0)
        assert bench.store.settled == 0
    await asyncio.sleep(0)
    assert bench.store.settled == 1
    bench.stop()


@on_loop
async def test_with_sync_flush_a_burst_that_nobody_waits_for_is_settled_at_once() -> None:
    bench = Bench(FlushMode.SYNC)
    bench.intake.append(draft("T"))
    await asyncio.sleep(0)
    assert bench.store.settled == 1
    bench.stop()


@on_loop
async def test_a_group_that_still_grows_at_the_end_is_settled() -> None:
    bench = Bench(FlushMode.SYNC)
    bench.durability.when_durable(bench.intake.append(draft("T")), lambda _: None)
    await asyncio.sleep(0)
    bench.stop()
    assert bench.store.settled == 1
