"""Failures, crashes and clock changes at unfavourable moments of the timer."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bolide.broker.timers import due_queue, inspection, scheduler
from bolide.protocol.codes import ResponseCode
from bolide.protocol.record import MAX_PROPERTIES_SIZE, RecordDraft
from bolide.protocol.record_errors import RecordTooLarge
from bolide.store.appending import Appended
from bolide.store.commit_log import LogFile
from bolide.store.errors import StoreUnwritable
from bolide.store.timers import TimerEntry
from tests.support.aio import on_loop
from tests.support.store import draft
from tests.support.timer_bench import HastyDisk, TimerBench

HOUR = 3600
DAY = 24 * HOUR


@pytest.fixture(autouse=True)
def sound_sleep(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test owns the clock, so no sleep has to watch for clock changes."""
    monkeypatch.setattr(scheduler, "_MAX_SLEEP", float(DAY))


def recall(bench: TimerBench, unique_id: str, due: int) -> None:
    bench.send(due, UNIQ_KEY=unique_id, TIMER_DEL_UNIQKEY=f"T+{unique_id}")


def fill_a_file(bench: TimerBench) -> LogFile:
    """Roll over to another log file; return the first one."""
    for _ in range(30):
        bench.store.append(draft("Other", b"x" * 600))
    bench.store.flush()
    return bench.store.log.files[0]


def delete(bench: TimerBench, file: LogFile) -> None:
    bench.store.log.retire(file)
    bench.store.log.remove_retired(forcibly=True)


# ---- recalls


@pytest.mark.parametrize("is_first", [True, False])
@on_loop
async def test_a_recall_counts_though_the_broker_stood_still_when_both_were_due(
    tmp_path: Path, is_first: bool
) -> None:
    """The messages roll at different times, and many others are due between these."""
    bench = TimerBench(tmp_path / "store", timer_roll_window_slot=HOUR)
    await bench.start()
    due = bench.now_ms + 5_000_001
    if is_first:
        recall(bench, "far", due)
        await bench.pass_time(1500)
        bench.send(due, UNIQ_KEY="far")
    else:
        bench.send(due, UNIQ_KEY="far")
        await bench.pass_time(5)
        recall(bench, "far", due)
    for _ in range(2000):
        bench.send(due - 60_000)
    await bench.settle()
    await bench.stop()
    bench.clock.advance(3 * HOUR)
    await bench.start()
    await bench.pass_time(5)

    ids = [record.decode_properties()["UNIQ_KEY"] for record in bench.delivered()]
    assert len(ids) == 2000
    assert "far" not in ids
    await bench.stop()


# ---- log files about to be deleted


@on_loop
async def test_what_got_its_slot_late_is_not_taken_for_delivered(tmp_path: Path) -> None:
    """The broker crashed before its first checkpoint and was down for most of a day."""
    bench = TimerBench(tmp_path / "store", log_size=16 * 1024)
    await bench.start()
    bench.send(bench.now_ms + 1000)
    await bench.settle()
    bench.timers.save()
    bench.send(bench.now_ms + 60 * HOUR * 1000)
    await bench.crash()
    bench.clock.advance(20 * HOUR)
    await bench.start()
    await bench.settle()
    first = fill_a_file(bench)
    await bench.pass_time(29 * HOUR)
    bench.store.retention.may_go(first.end)
    await bench.pass_time(3)
    assert bench.store.retention.may_go(first.end)
    delete(bench, first)
    await bench.pass_time(DAY)

    assert bench.bodies == [2]  # the first was delivered into the deleted file
    await bench.stop()


@on_loop
async def test_a_file_waits_until_the_copies_of_what_is_in_it_are_safe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = TimerBench(tmp_path / "store", log_size=16 * 1024)
    await bench.start()
    bench.send(bench.now_ms + 60_000)
    await bench.settle()
    first = fill_a_file(bench)
    told: list[Callable[[int | StoreUnwritable], None]] = []
    monkeypatch.setattr(bench.durability, "when_durable", lambda _, tell: told.append(tell))
    append, may_go = bench.store.append, bench.store.retention.may_go
    monkeypatch.setattr(bench.store, "append", lambda _, **__: append(draft("Lost", b"x")))
    assert not may_go(first.end)
    await bench.pass_time(3)
    assert not may_go(first.end)
    monkeypatch.setattr(bench.store, "append", append)
    for outcome in (StoreUnwritable("fails"), ResponseCode.FLUSH_DISK_TIMEOUT):
        told.pop()(outcome)
        await bench.pass_time(3)
        assert not may_go(first.end)
    told.pop()(ResponseCode.SUCCESS)
    await bench.pass_time(3)
    assert may_go(first.end)
    monkeypatch.undo()
    delete(bench, first)
    await bench.pass_time(60)

    assert bench.bodies == [1]
    await bench.stop()


# ---- crashes


@on_loop
async def test_a_second_that_ends_while_a_message_gets_its_slot_does_not_lose_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = TimerBench(tmp_path / "store")
    await bench.start()
    bench.send(bench.now_ms + 1)
    await bench.pass_time(1)
    bench.clock.now = int(bench.clock.now) + 1.990
    await bench.settle()
    bench.send(bench.now_ms + 5)
    add, loop = bench.timers._files.add, asyncio.get_running_loop()

    def add_slowly(waiting: Sequence[TimerEntry]) -> None:
        add(waiting)
        bench.clock.advance(0.02)
        asyncio.run_coroutine_threadsafe(_delivered(bench), loop).result()

    monkeypatch.setattr(bench.timers._files, "add", add_slowly)
    await bench.timers.feed()
    bench.timers.save()
    await bench.crash()
    await bench.start()
    await bench.pass_time(1)

    assert bench.bodies == [1, 2]
    await bench.stop()


async def _delivered(bench: TimerBench) -> None:
    await bench.timers.deliver()


@on_loop
async def test_a_crash_while_lost_files_are_made_again_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def crashed(_: object) -> None: ...

    bench = TimerBench(tmp_path / "store")
    await bench.start()
    for due in (1000, 60_000):
        bench.send(bench.now_ms + due)
    await bench.pass_time(10)
    await bench.stop()
    (bench.root / "timerwheel").unlink()
    with monkeypatch.context() as patched:
        patched.setattr(scheduler.Timers, "_save_now", crashed)
        await bench.start()
    await bench.crash()
    await bench.start()
    await bench.pass_time(60)

    assert bench.bodies == [1, 2]
    await bench.stop()


# ---- disks and limits


class NoRoomAtFirst(HastyDisk):
    is_full = False

    def zero(self, descriptor: int, start: int, end: int) -> None:
        if self.is_full:
            raise OSError(28, "No space left on device")
        super().zero(descriptor, start, end)


@on_loop
async def test_files_that_cannot_be_opened_are_opened_later(tmp_path: Path) -> None:
    bench, disk = TimerBench(tmp_path / "store"), NoRoomAtFirst()
    await bench.start(disk)
    bench.send(bench.now_ms + 30_000)
    await bench.pass_time(40)
    bench.clock.advance(-20)
    bench.send(bench.now_ms + 1000)
    disk.is_full = True
    for _ in range(2):
        with pytest.raises(OSError, match="No space"):
            await bench.timers.feed()
    disk.is_full = False
    await bench.pass_time(5)

    assert bench.bodies == [1, 2]
    await bench.stop()


@on_loop
async def test_properties_that_barely_fit_wait_as_long_as_others(tmp_path: Path) -> None:
    bench = TimerBench(tmp_path / "store", timer_roll_window_slot=HOUR)
    await bench.start()
    due = bench.now_ms + 20_000_000
    size = len(bench.send(due).properties)
    bench.send(due, x="y" * (MAX_PROPERTIES_SIZE - size - 3))
    await bench.pass_time(20_001)

    assert bench.bodies == [1, 2]
    assert [record.store_timestamp for record in bench.delivered()] == [due, due]
    await bench.stop()


@on_loop
async def test_one_that_is_too_large_now_holds_no_other_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(due_queue, "_MAX_IN_MEMORY", 10)
    bench = TimerBench(tmp_path / "store")
    await bench.start()
    for at in range(100):
        bench.send(bench.now_ms + 5000 + at)
    await bench.settle()
    append = bench.store.append

    def limited(message: RecordDraft, **given: Any) -> Appended:
        if bytes(message.body) == b"5":
            raise RecordTooLarge("body", 2, 1)
        return append(message, **given)

    with monkeypatch.context() as patched:
        patched.setattr(bench.store, "append", limited)
        await bench.pass_time(8)
        assert len(bench.bodies) == 99
    await bench.pass_time(20)

    assert sorted(bench.bodies) == list(range(1, 101))
    await bench.stop()


# ---- sleeping


@on_loop
async def test_slots_are_read_in_time_after_a_flood(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(due_queue, "_MAX_IN_MEMORY", 50)
    bench = TimerBench(tmp_path / "store")
    await bench.start()
    bench.send(bench.now_ms + 6500)
    await bench.pass_time(1)
    for _ in range(100):
        bench.send(bench.now_ms + 500)
    while not (pause := await bench.timers.feed()):
        pass
    bench.timers._feed_wanted.clear()
    bench.clock.advance(0.6)
    while not await bench.timers.deliver():
        pass

    assert len(bench.bodies) == 100
    assert pause < 4 or bench.timers._feed_wanted.is_set()
    await bench.stop()


@on_loop
async def test_a_clock_that_is_put_forward_is_seen_within_moments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    bench = TimerBench(tmp_path / "store")
    await bench.start()
    running = asyncio.create_task(bench.timers.run())
    bench.send(bench.now_ms + HOUR * 1000)
    await bench.timers.wait_until_enqueued()
    await asyncio.sleep(0.05)  # both tasks sleep by now
    bench.clock.advance(HOUR)
    delivered = asyncio.Event()
    bench.intake.watch("T", delivered.set)
    async with asyncio.timeout(5):
        await delivered.wait()
    assert bench.bodies == [1]
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running
    await bench.stop()


# ---- other settings


@pytest.mark.parametrize("precision", [100, 10_000])
@on_loop
async def test_another_precision_loses_nothing(tmp_path: Path, precision: int) -> None:
    bench = TimerBench(tmp_path / "store")
    await bench.start()
    dues = [1000, 60_000, 30 * HOUR * 1000, 3 * DAY * 1000]
    for due in dues:
        bench.send(bench.now_ms + due)
    await bench.pass_time(10)
    await bench.stop()
    bench.cell.value = replace(bench.cell.value, timer_precision_ms=precision)
    await bench.start()
    await bench.pass_time(4 * DAY)

    assert bench.bodies == [1, 2, 3, 4]
    await bench.stop()


@on_loop
async def test_a_shorter_window_takes_nothing_for_delivered(tmp_path: Path) -> None:
    bench = TimerBench(tmp_path / "store", log_size=16 * 1024)
    await bench.start()
    bench.send(bench.now_ms + 40 * HOUR * 1000)
    await bench.settle()
    fill_a_file(bench)
    await bench.stop()
    bench.cell.value = replace(bench.cell.value, timer_roll_window_slot=HOUR)
    await bench.start()
    first = bench.store.log.files[0]
    await bench.pass_time(20 * HOUR)
    bench.store.retention.may_go(first.end)
    await bench.pass_time(3)
    assert bench.store.retention.may_go(first.end)
    delete(bench, first)
    await bench.pass_time(DAY)

    assert bench.bodies == [1]
    await bench.stop()


# ---- listing


@on_loop
async def test_a_page_ends_though_nothing_of_a_topic_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inspection, "_MAX_SKIPPED", 10)
    bench = TimerBench(tmp_path / "store")
    await bench.start()
    for at in range(25):
        bench.send(bench.now_ms + 5000 + at * 1000)
    await bench.settle()
    begin, pages, shown = "", 0, 0
    while pages == 0 or begin:
        other = bench.timers.listing.page("Other", begin, 100, bench.now_ms)
        found = bench.timers.listing.page("T", begin, 100, bench.now_ms)
        assert (other.timers, other.next) == ([], found.next)
        begin, pages, shown = found.next, pages + 1, shown + len(found.timers)

    assert (pages, shown) == (3, 25)
    await bench.stop()


@on_loop
async def test_a_store_that_takes_nothing_is_not_tried_without_a_pause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = TimerBench(tmp_path / "store")
    await bench.start()
    bench.send(bench.now_ms + 100)
    await bench.settle()
    bench.store.health.refuse("the disk", "no room")
    bench.clock.advance(1)
    tries = 0
    deliver = bench.timers.deliver

    async def counted() -> float:
        nonlocal tries
        tries += 1
        return await deliver()

    monkeypatch.setattr(bench.timers, "deliver", counted)
    running = asyncio.create_task(bench.timers.run())
    await asyncio.sleep(0.35)

    assert 2 <= tries <= 5
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    bench.store.health.allow("the disk")
    await bench.stop()


@on_loop
async def test_replicas_are_told_of_no_time_past_a_timer_that_was_late(tmp_path: Path) -> None:
    bench = TimerBench(tmp_path / "store")
    await bench.start()
    bench.send(bench.now_ms + 60_000)
    await bench.settle()
    due = bench.now_ms + 1_000
    bench.send(due)
    bench.clock.advance(30)  # nobody has read it meanwhile
    bench.timers._parts.due_queue.advance(bench.now_ms)  # type: ignore[union-attr]
    await bench.timers.feed()
    bench.store.health.refuse("the disk", "no room")
    await bench.timers._save_now()
    late = bench.timers.last_checkpoint()
    bench.store.health.allow("the disk")
    await bench.settle()
    after = bench.timers.last_checkpoint()

    assert late is not None
    assert after is not None
    assert late.read_time <= due
    assert after.read_time >= late.read_time
    await bench.stop()
