import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from bolide.broker.transactions import check_back
from bolide.broker.transactions.check_back import AllBlocked, CheckRules, Verdict
from bolide.broker.transactions.ending import EndRequest
from bolide.broker.transactions.half_messages import Half
from bolide.config import ConfigCell
from bolide.model.message import TransactionType
from bolide.model.names import (
    HALF_TOPIC,
    OP_HALF_TOPIC,
    TRANS_CHECK_MAX_TIME_TOPIC,
    TRANSACTION_GROUP,
)
from bolide.protocol.record import Placement, RecordDraft, place_record
from bolide.protocol.refusals import ServerError, ServiceNotAvailable
from bolide.remoting.connection import Connection
from bolide.store.appending import Appended
from bolide.store.config import FlushMode, StoreConfig
from bolide.store.errors import StoreUnwritable
from bolide.store.flusher import Flushed, Listener
from bolide.store.health import LOG_FILES
from bolide.store.memory_store import MemoryStore
from tests.support.aio import on_loop, until
from tests.support.clock import FakeClock
from tests.support.transaction_core import TransactionCore, new_tables
from tests.unit.broker.transactions.test_half_messages import BORN, half

RULES = CheckRules(timeout=6.0, max_checks=15, max_age=72 * 3600.0)
STORED = (BORN + 40) / 1000
OLD = {"TRAN_PREPARED_QUEUE_OFFSET": "1"}


def copy(times: int) -> Any:
    """A copy of a half whose producer was asked."""
    found = half(queue_offset=9)
    found.properties.update(OLD | {"TRANSACTION_CHECK_TIMES": str(times)})
    return found


@pytest.mark.parametrize(
    ("found", "after", "verdict"),
    [
        (half(), 5.9, Verdict.YOUNG),
        (half(), 6.0, Verdict.CHECK),
        (half(CHECK_IMMUNITY_TIME_IN_SECONDS="60"), 59.0, Verdict.DEFER),
        (half(CHECK_IMMUNITY_TIME_IN_SECONDS="60"), 60.0, Verdict.CHECK),
        (half(CHECK_IMMUNITY_TIME_IN_SECONDS="0"), 0.0, Verdict.CHECK),
        (half(CHECK_IMMUNITY_TIME_IN_SECONDS="soon"), 3.0, Verdict.YOUNG),
        (half(), -3600.0, Verdict.CHECK),  # the clock was set back
        (half(), 72 * 3600 + 1.0, Verdict.CHECK),  # the broker was down for days
        (half(CHECK_IMMUNITY_TIME_IN_SECONDS="999999"), 72 * 3600 + 1.0, Verdict.GIVE_UP),
        (copy(1), 0.1, Verdict.CHECK),
        (copy(14), 1.0, Verdict.CHECK),
        (copy(15), 1.0, Verdict.GIVE_UP),
        (copy(1), 72 * 3600 + 1.0, Verdict.CHECK),
    ],
)
def test_what_is_done_with_an_open_half(found: Any, after: float, verdict: Verdict) -> None:
    assert RULES.decide(found, STORED + after) is verdict


class HeldStore(MemoryStore):
    """A store whose flushes complete when the test says so."""

    def on_flushed(self, listener: Listener) -> None:
        self.tell = listener


@asynccontextmanager
async def core_in(
    directory: Path, mode: FlushMode = FlushMode.ASYNC, **settings: Any
) -> AsyncIterator[TransactionCore]:
    clock = FakeClock(1_700_000_000.0)
    config = ConfigCell(StoreConfig(root=directory, flush_mode=mode))
    with HeldStore(config, clock=clock) as store:
        core = TransactionCore(store, new_tables(directory, clock, **settings))
        await core.start()
        yield core
        core.stop()


@on_loop
async def test_halves_behind_one_that_is_immune_are_looked_at(tmp_path: Path) -> None:
    async with core_in(tmp_path) as core:
        await core.send(0, CHECK_IMMUNITY_TIME_IN_SECONDS="100")
        await core.send(1)
        core.clock.now += 10
        assert await core.coordinator.check_back.run_round() == 1
        assert [half.check_times for half in core.halves] == [0, 0, 1]
        offsets = core.tables.offsets
        assert (
            offsets.find(TRANSACTION_GROUP, HALF_TOPIC, 0) is None
        )  # progress stays at the first half
        core.clock.now += 90
        assert await core.coordinator.check_back.run_round() == 2
        assert offsets.find(TRANSACTION_GROUP, HALF_TOPIC, 0) == 3
        assert offsets.find(TRANSACTION_GROUP, OP_HALF_TOPIC, 0) == 3


@pytest.mark.parametrize("said", [{"CHECK_IMMUNITY_TIME_IN_SECONDS": "100"}, {}])
@on_loop
async def test_one_that_is_not_due_makes_room_when_many_that_are_done_lie_behind_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: dict[str, str]
) -> None:
    monkeypatch.setattr(check_back, "_MAX_CLOSED_BEHIND", 2)
    async with core_in(tmp_path, transaction_timeout=100.0) as core:
        await core.send(0, **said)
        for number in range(1, 4):
            place = await core.send(number)
            ending = EndRequest(place.physical_offset, number, TransactionType.ROLLBACK, "g")
            await core.coordinator.ender.end(ending)
        await core.send(4, **said)
        assert await core.coordinator.check_back.run_round() == 0
        assert [(half.queue_offset, half.check_times) for half in core.halves][5:] == [(5, 0)]
        assert sorted(core.open) == [0, 4]
        assert core.tables.offsets.find(TRANSACTION_GROUP, HALF_TOPIC, 0) == 4
        core.clock.now += 100
        assert await core.coordinator.check_back.run_round() == 2


@on_loop
async def test_producers_that_do_not_read_are_asked_later_and_it_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check_back, "_MAX_BLOCKED_WAIT", 0.0)
    async with core_in(tmp_path, transaction_check_interval=30.0) as core:
        await core.send(0)
        core.clock.now += 10
        core.producers.choose = _blocked  # type: ignore[method-assign]
        for _ in range(5):
            assert await core.coordinator.check_back.run_round() == 0
        assert len(core.halves) == 1
        del core.producers.choose
        assert await core.coordinator.check_back.run_round() == 0  # not before the next interval
        core.clock.now += 30
        assert await core.coordinator.check_back.run_round() == 1


def _blocked(_: Half) -> Connection | None:
    raise AllBlocked


@on_loop
async def test_others_are_served_while_many_are_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check_back, "_SKIPPED_PER_TURN", 10)
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async with core_in(tmp_path) as core:
        for number in range(100):
            await core.send(number, CHECK_IMMUNITY_TIME_IN_SECONDS="100")
        await core.coordinator.check_back.run_round()
        others = asyncio.create_task(other())
        async for _ in core.coordinator.check_back._due_halves(100):
            pytest.fail("all of them are held")
        others.cancel()
        assert turns >= 10


@on_loop
async def test_a_half_that_cannot_be_copied_is_asked_about_where_it_is(tmp_path: Path) -> None:
    async with core_in(tmp_path) as core:
        await core.send(0, filler="x")
        room = 32_767 - len(core.halves[0].record.properties)
        await core.send(1, filler="x" * (room - 10))
        core.clock.now += 10
        assert await core.coordinator.check_back.run_round() == 2
        assert [half.queue_offset for half in core.producers.asked] == [2, 1]
        assert core.open == [1, 0]


@on_loop
async def test_halves_whose_files_are_gone_hold_up_nobody(tmp_path: Path) -> None:
    async with core_in(tmp_path) as core:
        for number in range(3):
            await core.send(number)
        core.store.trim(core.halves[2].record.physical_offset)
        core.clock.now += 10
        assert await core.coordinator.check_back.run_round() == 1
        assert core.open == [2]
        assert core.tables.offsets.find(TRANSACTION_GROUP, HALF_TOPIC, 0) == 3


@on_loop
async def test_a_half_with_a_number_that_none_has_ends_nothing(tmp_path: Path) -> None:
    """A message body may contain bytes that look like a half at a claimed offset."""
    async with core_in(tmp_path) as core:
        place = await core.send(0)
        forged = bytearray(core.store.record_at(place.physical_offset) or b"")
        place_record(forged, 0, Placement(2**50, place.physical_offset, 0))
        core.store.record_at = lambda *_, **__: memoryview(forged)  # type: ignore[method-assign]
        ending = EndRequest(place.physical_offset, 2**50, TransactionType.ROLLBACK, "g")
        with pytest.raises(ServerError, match="Find prepared"):
            await core.coordinator.ender.end(ending)
        assert core.store.max_offset(OP_HALF_TOPIC, 0) == 0


# ---- store failures


@on_loop
async def test_a_full_disk_changes_nothing_and_is_tried_again(tmp_path: Path) -> None:
    async with core_in(tmp_path, transaction_check_max=1) as core:
        place = await core.send(0)
        core.store.health.refuse(LOG_FILES, "the disk is full")
        core.clock.now += 10
        with pytest.raises(StoreUnwritable):
            await core.coordinator.check_back.run_round()
        ending = EndRequest(place.physical_offset, 0, TransactionType.COMMIT, "g")
        with pytest.raises(ServiceNotAvailable):
            await core.coordinator.ender.end(ending)
        assert (core.open, core.delivered, core.producers.asked) == ([0], [], [])
        core.store.health.allow(LOG_FILES)
        assert await core.coordinator.check_back.run_round() == 1
        await core.coordinator.ender.end(ending)
        assert (core.open, core.delivered) == ([], [0])


@on_loop
async def test_a_rollback_that_cannot_be_written_is_none(tmp_path: Path) -> None:
    async with core_in(tmp_path) as core:
        place = await core.send(0)
        core.store.health.refuse(LOG_FILES, "the disk is full")
        ending = EndRequest(place.physical_offset, 0, TransactionType.ROLLBACK, "g")
        with pytest.raises(ServiceNotAvailable):
            await core.coordinator.ender.end(ending)
        assert core.open == [0]


@on_loop
async def test_a_commit_counts_though_the_disk_was_full_right_after_the_message(
    tmp_path: Path,
) -> None:
    async with core_in(tmp_path) as core:
        place = await core.send(0)
        append = core.intake.append
        _fill_after_one(core)
        ending = EndRequest(place.physical_offset, 0, TransactionType.COMMIT, "g")
        await core.coordinator.ender.end(ending)
        assert (core.delivered, core.open) == ([0], [])
        await core.coordinator.ender.end(ending)
        await core.coordinator.queue.checkpoint()
        assert core.tables.offsets.find(TRANSACTION_GROUP, HALF_TOPIC, 0) is None
        core.store.health.allow(LOG_FILES)
        core.intake.append = append  # type: ignore[method-assign]
        await core.coordinator.check_back.run_round()
        assert core.store.max_offset(OP_HALF_TOPIC, 0) == 1
        assert core.tables.offsets.find(TRANSACTION_GROUP, HALF_TOPIC, 0) == 1
        assert (core.delivered, core.open) == ([0], [])


@on_loop
async def test_an_end_that_the_store_takes_back_is_none(tmp_path: Path) -> None:
    async with core_in(tmp_path, FlushMode.SYNC) as core:
        assert isinstance(core.store, HeldStore)
        place = await core.send(0)
        ending = EndRequest(place.physical_offset, 0, TransactionType.COMMIT, "g")
        op = core.coordinator.ender.end_now(ending)
        assert core.open == []
        core.store.tell(Flushed(place.end, StoreUnwritable("the disk fails"), 1))
        with pytest.raises(ServiceNotAvailable):
            await core.coordinator.ender.wait_durable(op)
        assert core.open == [0]
        assert core.coordinator.queue.find_end(core.halves[0]) is None


@on_loop
async def test_a_commit_whose_message_is_taken_back_is_none_though_its_op_was_never_written(
    tmp_path: Path,
) -> None:
    async with core_in(tmp_path, FlushMode.SYNC) as core:
        assert isinstance(core.store, HeldStore)
        place, append = await core.send(0), core.intake.append
        _fill_after_one(core)
        ending = EndRequest(place.physical_offset, 0, TransactionType.COMMIT, "g")
        needed = core.coordinator.ender.end_now(ending)
        assert needed is not None
        core.store.tell(Flushed(place.end, StoreUnwritable("the disk fails"), 1))
        with pytest.raises(ServiceNotAvailable):
            await core.coordinator.ender.wait_durable(needed)
        assert core.open == [0]
        core.store.health.allow(LOG_FILES)
        core.intake.append = append  # type: ignore[method-assign]
        await core.coordinator.check_back.run_round()
        assert core.store.max_offset(OP_HALF_TOPIC, 0) == 0


def _fill_after_one(core: TransactionCore) -> None:
    append = core.intake.append

    def append_once(draft: RecordDraft) -> Appended:
        appended = append(draft)
        core.store.health.refuse(LOG_FILES, "the disk is full")
        return appended

    core.intake.append = append_once  # type: ignore[method-assign]


@on_loop
async def test_of_a_commit_only_the_op_is_taken_back_and_it_is_not_delivered_again(
    tmp_path: Path,
) -> None:
    async with core_in(tmp_path, FlushMode.SYNC) as core:
        assert isinstance(core.store, HeldStore)
        place = await core.send(0)
        ending = EndRequest(place.physical_offset, 0, TransactionType.COMMIT, "g")
        op = core.coordinator.ender.end_now(ending)
        assert op is not None
        core.store.tell(Flushed(op.physical_offset, StoreUnwritable("the disk fails"), 1))
        with pytest.raises(ServiceNotAvailable):
            await core.coordinator.ender.wait_durable(op)
        assert (core.open, core.delivered) == ([], [0])
        core.clock.now += 10
        assert await core.coordinator.check_back.run_round() == 0
        assert core.store.max_offset(OP_HALF_TOPIC, 0) == 2
        core.store.tell(Flushed(2**40))
        await core.coordinator.ender.end(ending)
        assert core.delivered == [0]


@on_loop
async def test_of_a_move_only_the_op_is_taken_back_and_one_half_is_left(tmp_path: Path) -> None:
    async with core_in(tmp_path, FlushMode.SYNC) as core:
        assert isinstance(core.store, HeldStore)
        await core.send(0)
        copy, place = core.coordinator.queue.move(core.halves[0], check_times=1)
        core.store.tell(Flushed(place.end, StoreUnwritable("the disk fails"), 1))
        assert (core.open, copy.queue_offset) == ([0], 1)


@on_loop
async def test_producers_are_asked_when_the_disk_has_what_they_are_asked_about(
    tmp_path: Path,
) -> None:
    async with core_in(tmp_path, FlushMode.SYNC) as core:
        assert isinstance(core.store, HeldStore)
        for number in range(3):
            await core.send(number)
        core.clock.now += 10
        look = asyncio.create_task(core.coordinator.check_back.run_round())
        await until(lambda: len(core.halves) == 6)
        await asyncio.sleep(0.01)
        assert core.producers.asked == []
        core.store.tell(Flushed(2**40))
        assert await look == 3
        assert [half.queue_offset for half in core.producers.asked] == [3, 4, 5]


# ---- no producer connected


@on_loop
async def test_a_look_when_no_producer_is_there_does_not_count(tmp_path: Path) -> None:
    async with core_in(tmp_path, transaction_check_max=2) as core:
        await core.send(0)
        core.producers.are_there = False
        for _ in range(20):
            core.clock.now += 600
            assert await core.coordinator.check_back.run_round() == 0
        assert [half.check_times for half in core.halves] == [0]
        core.producers.are_there = True
        assert await core.coordinator.check_back.run_round() == 1
        assert core.open == [0]


@on_loop
async def test_one_whose_producers_stay_away_outlives_its_file_and_is_set_aside_at_last(
    tmp_path: Path,
) -> None:
    async with core_in(tmp_path, transaction_check_max=2) as core:
        await core.send(0)
        core.producers.are_there = False
        for hours, copies in ((35, 1), (2, 2), (34, 2)):
            core.clock.now += hours * 3600
            await core.coordinator.check_back.run_round()
            assert (len(core.halves), core.open) == (copies, [0])
        core.clock.now += 2 * 3600
        await core.coordinator.check_back.run_round()
        assert core.open == []
        assert core.store.max_offset(TRANS_CHECK_MAX_TIME_TOPIC, 0) == 1


@on_loop
async def test_one_that_cannot_be_copied_with_its_number_is_set_aside_as_it_is(
    tmp_path: Path,
) -> None:
    async with core_in(tmp_path) as core:
        await core.send(0, filler="x")
        room = 32_767 - len(core.halves[0].record.properties)
        await core.send(1, filler="x" * (room - 10))
        core.producers.are_there = False
        core.clock.now += 73 * 3600
        await core.coordinator.check_back.run_round()
        assert core.open == []
        assert core.store.max_offset(TRANS_CHECK_MAX_TIME_TOPIC, 0) == 2
        second = core.halves[1].record.physical_offset
        await core.coordinator.ender.end(EndRequest(second, 1, TransactionType.COMMIT, "g"))
        assert (core.delivered, core.open) == ([1], [])
