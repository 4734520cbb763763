"""When waiters are completed: flush, failure and timeout."""

import asyncio
import errno
from pathlib import Path

import pytest

from bolide.broker.produce.durability import Durability, unavailable
from bolide.config import ConfigCell
from bolide.protocol.codes import ResponseCode
from bolide.store.appending import Appended
from bolide.store.config import FlushMode, StoreConfig
from bolide.store.errors import StoreUnwritable
from bolide.store.flusher import Flushed
from bolide.store.memory_store import MemoryStore
from bolide.store.message_store import MessageStore
from tests.support.aio import on_loop, until
from tests.support.faults import FaultyDisk
from tests.support.store import draft, small_config

OK, SLOW = ResponseCode.SUCCESS, ResponseCode.FLUSH_DISK_TIMEOUT
BROKEN = StoreUnwritable("the disk fails")


def place(end: int, generation: int = 0) -> Appended:
    return Appended(end - 10, 10, 0, 0, generation)


class Bench:
    """A store that the test flushes, and the outcomes reported to waiters."""

    def __init__(self, mode: FlushMode = FlushMode.SYNC, timeout: float = 60.0) -> None:
        config = ConfigCell(
            StoreConfig(root=Path("unused"), flush_mode=mode, sync_flush_timeout=timeout)
        )
        self.store = MemoryStore(config)
        self.store.on_flushed = self._listen  # type: ignore[method-assign]
        self.durability = Durability(self.store, config)
        self.told: list[tuple[str, int | StoreUnwritable]] = []
        self.progress: list[int] = []
        self.durability.on_progress.add(self.progress.append)
        self.durability.start()

    def _listen(self, listener: object) -> None:
        self._listener = listener

    async def flushed(
        self, position: int, failure: StoreUnwritable | None = None, generation: int = 1
    ) -> None:
        """Report a flush from another thread, as the flusher does."""
        flushed = Flushed(position, failure, generation)
        await asyncio.to_thread(self._listener, flushed)  # type: ignore[arg-type]
        await asyncio.sleep(0)

    def wait(self, name: str, end: int, generation: int = 0) -> None:
        self.durability.when_durable(
            place(end, generation), lambda outcome: self.told.append((name, outcome))
        )


@on_loop
async def test_without_sync_flush_a_message_is_safe_at_once() -> None:
    bench = Bench(FlushMode.ASYNC)
    bench.wait("a", 10)
    assert bench.told == [("a", OK)]
    assert await bench.durability.wait_durable(place(10)) == OK
    assert not hasattr(bench, "_listener")


@on_loop
async def test_with_sync_flush_senders_are_told_in_order_when_the_disk_has_their_messages() -> None:
    bench = Bench()
    for name, end in (("a", 10), ("b", 20), ("c", 30)):
        bench.wait(name, end)
    assert bench.told == []
    await bench.flushed(20)
    assert bench.told == [("a", OK), ("b", OK)]
    await bench.flushed(30)
    assert bench.told[2:] == [("c", OK)]
    assert bench.progress == [20, 30]
    bench.durability.stop()


@on_loop
async def test_of_a_group_that_fails_those_behind_the_position_are_refused() -> None:
    bench = Bench()
    for name, end in (("a", 10), ("b", 20), ("c", 30)):
        bench.wait(name, end)
    await bench.flushed(10, BROKEN)
    assert sorted(bench.told) == [("a", OK), ("b", BROKEN), ("c", BROKEN)]
    bench.durability.stop()


@on_loop
async def test_what_was_appended_after_a_failure_is_not_refused_with_it() -> None:
    bench = Bench()
    bench.wait("before", 20)
    bench.wait("after", 20, generation=1)  # the store has failed, `Durability` does not know yet
    await bench.flushed(10, BROKEN)
    assert bench.told == [("before", BROKEN)]
    await bench.flushed(20)
    assert bench.told[1:] == [("after", OK)]
    bench.durability.stop()


@on_loop
async def test_each_failure_refuses_its_own_generation() -> None:
    bench = Bench()
    await bench.flushed(0, BROKEN)
    bench.wait("second", 20, generation=1)
    await bench.flushed(0, BROKEN, generation=2)
    bench.wait("third", 20, generation=2)
    assert bench.told == [("second", BROKEN)]
    await bench.flushed(20)
    assert bench.told[1:] == [("third", OK)]
    bench.durability.stop()


@on_loop
async def test_failures_before_the_term_of_a_master_do_not_hide_a_rollback(
    tmp_path: Path,
) -> None:
    config = ConfigCell(small_config(tmp_path, mode=FlushMode.SYNC))
    disk = FaultyDisk()
    with MessageStore(config, disk=disk, background=False) as store:
        store.append(draft(body=b"of an earlier term"))
        with disk.failing("sync", errno.EIO, "commitlog"):
            assert not store.flush()
        store.maintenance.run()
        durability = Durability(store, config)
        durability.start()
        told: list[int | StoreUnwritable] = []
        durability.when_answerable(store.append(draft(body=b"rolled back")), told.append)
        with disk.failing("sync", errno.EIO, "commitlog"):
            assert not store.flush()
        await until(lambda: told)
        store.maintenance.run()
        durability.stop()
        assert [type(each) for each in told] == [StoreUnwritable]


@on_loop
async def test_who_has_waited_too_long_is_told_so_once() -> None:
    bench = Bench(timeout=0.05)
    bench.wait("slow", 10)
    await until(lambda: bench.told)
    assert bench.told == [("slow", SLOW)]
    await bench.flushed(10)
    assert bench.told == [("slow", SLOW)]
    bench.wait("quick", 20)
    await bench.flushed(20)
    assert bench.told[1:] == [("quick", OK)]
    bench.durability.stop()


@on_loop
async def test_a_coroutine_can_wait_for_the_disk() -> None:
    bench = Bench()
    reaching = asyncio.create_task(bench.durability.wait_durable(place(10)))
    refused = asyncio.create_task(bench.durability.wait_durable(place(20)))
    await asyncio.sleep(0)
    await bench.flushed(10)
    assert await reaching == OK
    await bench.flushed(10, BROKEN)
    with pytest.raises(StoreUnwritable):
        await refused
    bench.durability.stop()


@on_loop
async def test_a_coroutine_that_gave_up_is_not_told() -> None:
    bench = Bench()
    reaching = asyncio.create_task(bench.durability.wait_durable(place(10)))
    await asyncio.sleep(0)
    reaching.cancel()
    await asyncio.gather(reaching, return_exceptions=True)
    await bench.flushed(10)
    bench.durability.stop()


def test_the_last_flush_of_a_store_may_come_after_the_event_loop() -> None:
    async def scenario() -> Bench:
        return Bench()

    bench = asyncio.run(scenario())
    bench._listener(Flushed(10))  # type: ignore[operator]


def test_the_refusal_names_the_reason() -> None:
    refusal = unavailable(BROKEN)
    assert (refusal.code, refusal.retriable) == (ResponseCode.SERVICE_NOT_AVAILABLE, True)
    assert "the disk fails" in refusal.remark


@on_loop
async def test_a_group_grows_while_senders_join_it() -> None:
    bench = Bench()
    assert not bench.durability.is_growing()
    bench.wait("a", 10)
    assert bench.durability.is_growing()
    bench.wait("b", 20)
    assert bench.durability.is_growing()
    assert not bench.durability.is_growing()
    bench.wait("c", 30)
    assert bench.durability.is_growing()


@on_loop
async def test_a_group_does_not_grow_for_ever() -> None:
    bench, clock = Bench(), FakeClock()
    bench.durability._loop = clock  # type: ignore[assignment]
    turns = 0
    while True:
        bench.wait("a", 10 * (turns + 1))
        if not bench.durability.is_growing():
            break
        clock.now += 0.0001
        turns += 1
    assert 19 <= turns <= 21
    bench.wait("a", 10 * (turns + 2))
    assert bench.durability.is_growing()  # the next group


class FakeClock:
    """The clock of an event loop without other work."""

    now = 1.0

    def time(self) -> float:
        return self.now

    def call_later(self, *_: object) -> None:
        """Ignore timers: no test lasts that long."""
