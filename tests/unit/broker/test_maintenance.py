"""Periodic work of a broker."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

import pytest

from bolide.broker import maintenance as module
from bolide.broker.delay import DelayScheduler
from bolide.broker.maintenance import Maintenance
from bolide.broker.pop.pop import Pop
from bolide.broker.statistics import Statistics
from bolide.broker.timers import Timers
from bolide.config import ConfigCell
from bolide.protocol.bodies.groups import GroupConfig
from bolide.protocol.bodies.topics import TopicConfig
from bolide.store.config import StoreConfig
from tests.support.aio import PATIENCE, on_loop, until
from tests.support.broker_tables import BrokerTables


class Delay:
    """A scheduler that counts how often it is saved."""

    saved = 0

    def save(self) -> None:
        self.saved += 1

    def save_due(self, now: float) -> None:
        self.saved += 1


class Bench:
    def __init__(self, tables: BrokerTables, delay_interval: float = 0.0) -> None:
        self.delay = Delay()
        self.sampled = 0
        self.statistics = Statistics("cluster", tables.clock)
        self.statistics.sample_in_slices = self._sample  # type: ignore[method-assign]
        config = StoreConfig(root=tables.directory, delay_offsets_interval=delay_interval)
        self.maintenance = Maintenance(
            offsets=tables.offsets,
            groups=tables.groups,
            delay=cast("DelayScheduler", self.delay),
            timers=cast("Timers", Delay()),
            pop=cast("Pop", Delay()),
            filters=tables.filters,
            statistics=self.statistics,
            clients=tables.clients,
            locks=tables.locks,
            store_config=ConfigCell(config),
        )

    def _sample(self) -> Iterator[None]:
        self.sampled += 1
        return iter([None, None])

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.maintenance.run())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


@pytest.fixture(autouse=True)
def busy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PERIOD", 0.005)
    monkeypatch.setattr(module, "_SAMPLE_PERIOD", 0.01)


def saved_offset(directory: Path) -> int | None:
    return BrokerTables(directory).offsets.find("readers", "T", 0)


@on_loop
async def test_consumer_offsets_are_saved_while_the_broker_runs(
    tables: BrokerTables,
) -> None:
    bench = Bench(tables)
    tables.offsets.commit("readers", "T", 0, 7)
    async with bench.running():
        await until(lambda: saved_offset(tables.directory) == 7)


@on_loop
async def test_tables_are_saved_while_all_shared_threads_are_busy(tables: BrokerTables) -> None:
    bench = Bench(tables)
    may_end = threading.Event()
    loop = asyncio.get_running_loop()
    with ThreadPoolExecutor(1) as shared:
        loop.set_default_executor(shared)
        cold = asyncio.ensure_future(asyncio.to_thread(may_end.wait, PATIENCE))
        try:
            await tables.topics.update(TopicConfig(topic_name="T"))
            await tables.groups.update(GroupConfig(group_name="readers"))
            await tables.offsets.save_now()
            tables.offsets.commit("readers", "T", 0, 7)
            async with bench.running():
                await until(lambda: saved_offset(tables.directory) == 7)
            assert not cold.done()
        finally:
            may_end.set()
            await cold


@on_loop
async def test_a_save_under_way_is_waited_for_at_the_end(
    tables: BrokerTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(tables)
    begun, may_end, ended = threading.Event(), threading.Event(), threading.Event()

    def save() -> None:
        begun.set()
        may_end.wait(PATIENCE)
        ended.set()

    monkeypatch.setattr(bench.delay, "save", save)
    async with bench.running():
        await until(begun.is_set)
        asyncio.get_running_loop().call_later(0.02, may_end.set)
    assert ended.is_set()


@on_loop
async def test_groups_that_were_created_on_the_way_are_saved(tables: BrokerTables) -> None:
    bench = Bench(tables)
    tables.groups.require("newcomers")
    async with bench.running():
        await until(lambda: "newcomers" in BrokerTables(tables.directory).groups)


@on_loop
async def test_all_tables_are_saved_on_request(tables: BrokerTables) -> None:
    bench = Bench(tables)
    tables.offsets.commit("readers", "T", 0, 7)
    tables.groups.require("newcomers")
    bench.maintenance.save()
    again = BrokerTables(tables.directory)
    assert again.offsets.find("readers", "T", 0) == 7
    assert "newcomers" in again.groups
    assert bench.delay.saved == 1


@on_loop
async def test_a_disk_that_is_full_is_tried_again_and_holds_up_nothing_else(
    tables: BrokerTables, caplog: pytest.LogCaptureFixture
) -> None:
    bench = Bench(tables)
    tables.disk.is_full = True
    tables.groups.require("newcomers")
    async with bench.running():
        await until(lambda: bench.delay.saved >= 2)
        assert "a table cannot be saved: [Errno 28]" in caplog.text
        tables.disk.is_full = False
        await until(lambda: "newcomers" in BrokerTables(tables.directory).groups)


@on_loop
async def test_a_failing_job_does_not_stop_the_others(
    tables: BrokerTables, caplog: pytest.LogCaptureFixture
) -> None:
    bench = Bench(tables)
    expired: list[str] = []
    bench.statistics.sample_in_slices = lambda: 1 // 0  # type: ignore[method-assign, assignment, return-value]
    tables.locks.expire = lambda: expired.append("locks")  # type: ignore[method-assign]
    async with bench.running():
        await until(lambda: len(expired) >= 2)
    assert "a maintenance job failed" in caplog.text


@on_loop
async def test_counters_are_sampled_and_silent_clients_are_forgotten(tables: BrokerTables) -> None:
    bench = Bench(tables)
    expired: list[str] = []
    tables.clients.expire = lambda: expired.append("clients")  # type: ignore[method-assign]
    async with bench.running():
        await until(lambda: bench.sampled >= 2)
    assert expired


@on_loop
async def test_progress_of_delayed_messages_is_saved_by_its_own_interval(
    tables: BrokerTables,
) -> None:
    bench = Bench(tables, delay_interval=60.0)
    async with bench.running():
        await until(lambda: bench.sampled >= 3)
    assert bench.delay.saved == 1
