"""Timer messages: never early, never lost, across restarts, crashes and recalls."""

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bolide.broker.timers import due_queue, scheduler
from bolide.model.names import TIMER_TOPIC
from bolide.model.properties import PropertyName
from bolide.protocol.codes import ResponseCode
from bolide.protocol.record import Record, RecordDraft
from bolide.store.errors import StoreUnwritable
from bolide.store.health import DISK_SPACE, LOG_FILES
from bolide.store.timers import TimerCheckpoint
from tests.support.aio import on_loop
from tests.support.store import draft
from tests.support.timer_bench import HastyDisk, TimerBench

HOUR = 3600
DAY = 24 * HOUR


@pytest.fixture(autouse=True)
def sound_sleep(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test owns the clock, so no sleep has to watch for clock changes."""
    monkeypatch.setattr(scheduler, "_MAX_SLEEP", float(DAY))


def errors(records: list[Record]) -> list[int]:
    """Milliseconds between the due time and the store time of each delivery."""
    return [
        record.store_timestamp - int(record.decode_properties()[PropertyName.TIMER_DELIVER_MS])
        for record in records
    ]


@on_loop
async def test_each_comes_at_its_millisecond_in_the_order_of_times(tmp_path: Path) -> None:
    bench = TimerBench(tmp_path / "store")
    await bench.start()
    dues = [7, 1500, 1499, 2, 61_001, 3000, 2999, 999, 1000, 1001]
    for due in dues:
        bench.send(bench.now_ms + due)

    await bench.pass_time(120)

    order = [str(1 + dues.index(due)).encode() for due in sorted(dues)]
    assert [bytes(record.body) for record in bench.delivered()] == order
    assert set(errors(bench.delivered())) == {0}
    await bench.stop()


@on_loop
async def test_a_delivered_message_keeps_what_it_said_and_says_when_it_came(
    tmp_path: Path,
) -> None:
    bench = TimerBench(tmp_path / "store")
    await bench.start()
    due = bench.now_ms + 5000
    bench.send(due, TAGS="a", KEYS="k")
    await bench.pass_time(5)

    (record,) = bench.delivered()
    assert record.decode_properties() == {
        "UNIQ_KEY": "ID1", "TAGS": "a", "KEYS": "k", "TIMER_DELIVER_MS": str(due),
        "TIMER_OUT_MS": str(due), "REAL_TOPIC": "T", "REAL_QID": "1",
        "TIMER_ENQUEUE_MS": str(due - 5000), "TIMER_DEQUEUE_MS": str(due),
    }  # fmt: skip
    assert record.queue_id == 1
    assert bench.timers.figures()["timerCongestNum"] == "0"
    await bench.stop()


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_none_is_early_and_none_is_lost_through_stops_and_crashes(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    @on_loop
    async def scenario() -> None:
        bench = TimerBench(
            tmp_path_factory.mktemp("timers") / "store",
            wheel_slots=10_000, timer_roll_window_slot=3600,
        )  # fmt: skip
        await bench.start()
        for step in data.draw(st.lists(st.sampled_from("sstprc"), min_size=1, max_size=12)):
            if step == "s":
                for due in data.draw(st.lists(st.integers(1, 8000), max_size=20)):
                    bench.send(bench.now_ms + due)
            elif step == "t":
                await bench.pass_time(data.draw(st.floats(0.001, 4)))
            elif step == "p":
                bench.timers.save()
            elif step == "r":
                await bench.stop()
                bench.clock.advance(data.draw(st.floats(0, 20)))
                await bench.start()
            else:
                await bench.crash()
                await bench.start()
        await bench.pass_time(10)
        assert sorted(bench.bodies) == list(range(1, bench.sent + 1))  # no duplicates
        assert all(error >= 0 for error in errors(bench.delivered()))
        await bench.stop()

    scenario()


@on_loop
async def test_after_a_long_stop_all_that_is_overdue_comes_in_the_order_of_times(
    tmp_path: Path,
) -> None:
    bench = TimerBench(tmp_path / "store")
    await bench.start()
    dues = [random.Random(at).randrange(1, 40 * DAY * 1000) for at in range(300)]
    for due in dues:
        bench.send(bench.now_ms + due)
    await bench.settle()
    await bench.stop()
    bench.clock.advance(41 * DAY)
    await bench.start()
    bench.send(bench.now_ms + 50)
    await bench.pass_time(1)

    near = [at + 1 for at in sorted(range(300), key=lambda at: dues[at]) if dues[at] < DAY * 1000]
    assert bench.bodies[: len(near)] == near
    assert sorted(bench.bodies) == list(range(1, 302))
    await bench.stop()


@on_loop
async def test_weeks_pass_through_two_days_of_log(tmp_path: Path) -> None:
    bench = TimerBench(tmp_path / "store", log_size=16 * 1024, file_reserved_hours=48)
    await bench.start()
    due = bench.now_ms + 40 * DAY * 1000
    bench.send(due - 1)
    for _ in range(41):
        await bench.pass_time(DAY)
        for _ in range(30):
            bench.store.append(draft("Other", b"x" * 600))
        bench.store.flush()
        bench.store.retention.delete_expired_soon()
        bench.store.retention.run()
        await bench.settle()
        bench.store.retention.run()
    (record,) = bench.delivered()
    assert record.store_timestamp == due - 1
    assert int(record.decode_properties()[PropertyName.TIMER_ROLL_TIMES]) > 15
    assert bench.store.log.min_offset > 30 * 16 * 1024
    assert len(list((bench.root / "timerlog").iterdir())) == 1
    await bench.stop()


@pytest.mark.parametrize("is_full", [False, True])
@on_loop
async def test_a_log_file_goes_only_when_what_waits_in_it_was_carried_forward(
    tmp_path: Path, is_full: bool
) -> None:
    bench = TimerBench(tmp_path / "store", log_size=16 * 1024)
    await bench.start()
    dues = [10_000, 3_600_000, DAY * 1000, 20 * DAY * 1000]
    for due in dues:
        bench.send(bench.now_ms + due)
    await bench.settle()
    for _ in range(60):
        bench.store.append(draft("Other", b"x" * 600))
    bench.store.flush()
    retention, first = bench.store.retention, bench.store.log.files[0]
    if is_full:
        bench.store.health.refuse(DISK_SPACE, "nearly full")
    assert not retention.may_go(first.end)
    await bench.pass_time(3)  # timers due in a moment are not re-appended
    assert retention.may_go(first.end)
    bench.store.log.retire(first)
    bench.store.log.remove_retired(forcibly=True)
    bench.store.health.allow(DISK_SPACE)
    await bench.pass_time(21 * DAY)

    assert sorted(bench.bodies) == [1, 2, 3, 4]
    assert errors(bench.delivered()) == [0, 0, 0, 0]
    await bench.stop()


@on_loop
async def test_what_was_carried_is_not_delivered_twice_while_its_file_is_there(
    tmp_path: Path,
) -> None:
    bench = TimerBench(tmp_path / "store", log_size=16 * 1024)
    await bench.start()
    bench.send(bench.now_ms + 60_000)
    await bench.settle()
    for _ in range(30):
        bench.store.append(draft("Other", b"x" * 600))
    bench.store.flush()
    assert not bench.store.retention.may_go(bench.store.log.files[0].end)
    await bench.pass_time(3)
    await bench.crash()
    await bench.start()
    await bench.pass_time(60)

    assert bench.bodies == [1]
    await bench.stop()


@on_loop
async def test_a_recalled_message_does_not_come(tmp_path: Path) -> None:
    bench = TimerBench(tmp_path / "store")
    await bench.start()
    for due in (1500, 1600, 4 * DAY * 1000 + 1):
        bench.send(bench.now_ms + due)
    kept, _ = bench.now_ms, await bench.settle()
    for number, due in ((2, 1600), (3, 4 * DAY * 1000 + 1)):
        recall(bench, f"T+ID{number}", kept + due)
    await bench.pass_time(5 * DAY)

    assert bench.bodies == [1]
    assert bench.timers.figures()["timerCongestNum"] == "0"
    await bench.stop()


@on_loop
async def test_a_recall_counts_until_the_last_moment(tmp_path: Path) -> None:
    bench = TimerBench(tmp_path / "store")
    await bench.start()
    due = bench.now_ms + 1500
    bench.send(due)
    bench.send(due)
    await bench.pass_time(1.49)  # its slot is in memory by now
    recall(bench, "T+ID2", due)
    await bench.pass_time(1)

    assert bench.bodies == [1]
    await bench.stop()


@pytest.mark.parametrize("early", [True, False], ids=["in the files", "in memory"])
@on_loop
async def test_a_recall_concerns_only_messages_of_its_own_topic(
    tmp_path: Path, early: bool
) -> None:
    bench = TimerBench(tmp_path / "store")
    await bench.start()
    due = bench.now_ms + 5500
    for unique_id in ("a", "b", "c", "d"):
        bench.send(due, UNIQ_KEY=unique_id)
    await bench.pass_time(0 if early else 5.4)
    for topic, key in (("U", "T+a"), ("U", "b"), ("T", "c"), ("T", "T+d")):
        bench.send(due, topic=topic, UNIQ_KEY="x", TIMER_DEL_UNIQKEY=key)
    await bench.settle()
    listed = bench.timers.listing.page("T", "", 9, bench.now_ms).timers
    await bench.pass_time(10)

    assert bench.bodies == [1, 2]
    assert [each.message_id for each in listed] == ["a", "b"]
    await bench.stop()


def recall(bench: TimerBench, key: str, due: int) -> None:
    bench.send(due, UNIQ_KEY=key.partition("+")[2], TIMER_DEL_UNIQKEY=key)


@on_loop
async def test_what_rocketmq_floored_to_its_slot_does_not_come_early(tmp_path: Path) -> None:
    bench = TimerBench(tmp_path / "store")
    await bench.start()
    due = bench.now_ms - bench.now_ms % 1000 + 3456
    floored = str(due - 456)
    for number, asked in enumerate(
        [{"TIMER_DELIVER_MS": str(due)}, {"TIMER_DELAY_MS": "3456"}, {"TIMER_DELIVER_MS": "1"}]
    ):
        java = {"UNIQ_KEY": f"J{number}", "TIMER_OUT_MS": floored, **asked}
        java |= {"REAL_TOPIC": "T", "REAL_QID": "1"}
        bench.intake.append(draft(TIMER_TOPIC, str(number).encode(), properties=java))
    await bench.pass_time(10)

    came = {record.body.tobytes(): record.store_timestamp for record in bench.delivered()}
    assert came == {b"0": due, b"1": due + 544, b"2": due + 544}
    await bench.stop()


@on_loop
async def test_more_in_one_second_than_fits_into_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(due_queue, "_MAX_IN_MEMORY", 50)
    bench = TimerBench(tmp_path / "store")
    await bench.start()
    base = bench.now_ms + 5000
    for at in range(400):
        bench.send(base + at * 7 % 1000)
    await bench.pass_time(4.5)
    assert len(bench.timers._parts.due_queue) <= 50  # type: ignore[union-attr]
    bench.send(base + 1)  # goes into a partly read slot
    bench.send(base + 998)
    await bench.pass_time(4)

    assert sorted(bench.bodies) == list(range(1, 403))
    assert set(errors(bench.delivered())) == {0}
    await bench.stop()


@pytest.mark.parametrize("lost", [["timerwheel"], ["timerlog"], ["timerwheel", "timerlog"]])
@on_loop
async def test_lost_files_are_made_again_from_the_queue(tmp_path: Path, lost: list[str]) -> None:
    bench = TimerBench(tmp_path / "store")
    await bench.start()
    for due in (1000, 5000, 60_000, 3 * DAY * 1000):
        bench.send(bench.now_ms + due)
    await bench.pass_time(10)
    await bench.stop()
    remove(bench.root, *lost)
    await bench.start()
    await bench.pass_time(4 * DAY)

    assert bench.bodies == [1, 2, 3, 4]
    await bench.stop()


@on_loop
async def test_what_was_delivered_is_read_again_without_a_pause(tmp_path: Path) -> None:
    bench, checkpoint = await _after_500_deliveries(tmp_path)
    bench.send(bench.now_ms + 5000)
    await bench.pass_time(0)
    await bench.stop()
    await bench.start(before=lambda timers: timers.adopt(checkpoint))

    assert await bench.settle() >= 1  # nothing is left to be read
    await bench.pass_time(5)
    assert bench.bodies == list(range(1, 502))
    await bench.stop()


@pytest.mark.parametrize("by_rocketmq", [False, True])
@on_loop
async def test_a_crash_while_files_are_made_again_repeats_nothing(
    tmp_path: Path, by_rocketmq: bool
) -> None:
    bench, checkpoint = await _after_500_deliveries(tmp_path)
    bench.send(bench.now_ms + 1)
    await bench.stop()
    if by_rocketmq:
        checkpoint = replace(checkpoint, recovery_point=None)
    bench.clock.advance(60)
    await bench.start(before=lambda timers: timers.adopt(checkpoint))
    for _ in range(3):
        await bench.timers.feed()  # some of the queue, not all
        bench.timers.save()
        assert bench.timers.last_checkpoint() is not None
        copied = bench.timers.last_checkpoint()
        await bench.crash()
        await bench.start()
    await bench.settle()
    await bench.crash()
    await bench.start()
    await bench.settle()
    assert bench.bodies == list(range(1, 502))
    await bench.stop()

    assert copied is not None  # by a member that has copied it, neither
    await bench.start(before=lambda timers: timers.adopt(copied))
    await bench.settle()
    assert bench.bodies == list(range(1, 502))
    await bench.stop()


async def _after_500_deliveries(root: Path) -> tuple[TimerBench, TimerCheckpoint]:
    """A timer that has delivered 500 messages, and its checkpoint as replicas get it."""
    bench = TimerBench(root / "store")
    await bench.start()
    for _ in range(500):
        bench.send(bench.now_ms + 1000)
    await bench.pass_time(10)
    assert bench.bodies == list(range(1, 501))
    bench.timers.save()
    checkpoint = bench.timers.last_checkpoint()
    assert checkpoint is not None
    return bench, checkpoint


@on_loop
async def test_without_any_of_the_files_all_that_is_in_the_queue_comes(tmp_path: Path) -> None:
    bench = TimerBench(tmp_path / "store")
    await bench.start()
    for due in (1000, 60_000):
        bench.send(bench.now_ms + due)
    await bench.pass_time(10)
    await bench.stop()
    remove(bench.root, "timerwheel", "timerlog", "config/timercheck")
    await bench.start()
    await bench.pass_time(60)

    assert bench.bodies == [1, 1, 2]  # no checkpoint covers the first delivery
    await bench.stop()


def remove(root: Path, *names: str) -> None:
    for name in names:
        for path in [root / name, *(root / name).glob("*")]:
            if path.is_file():
                path.unlink()


@pytest.mark.parametrize("back", [10, HOUR, 30 * DAY])
@on_loop
async def test_a_clock_that_is_set_back_delays_nothing_by_more(tmp_path: Path, back: int) -> None:
    bench = TimerBench(tmp_path / "store")
    await bench.start()
    for due in (1000, 5000, 60_000):
        bench.send(bench.now_ms + due)
    await bench.pass_time(30)
    assert bench.bodies == [1, 2]
    bench.clock.advance(-back)
    bench.send(bench.now_ms + 500)
    await bench.pass_time(1)
    assert bench.bodies == [1, 2, 4]
    await bench.stop()
    await bench.start()
    bench.send(bench.now_ms + 500)
    await bench.pass_time(1)
    assert bench.bodies == [1, 2, 4, 5]
    await bench.pass_time(back + 60)
    assert bench.bodies == [1, 2, 4, 5, 3]
    await bench.stop()


@on_loop
async def test_a_clock_that_jumps_ahead_loses_nothing(tmp_path: Path) -> None:
    bench = TimerBench(tmp_path / "store")
    await bench.start()
    for due in (1000, 5000, 60 * DAY * 1000):
        bench.send(bench.now_ms + due)
    await bench.pass_time(2)
    bench.clock.advance(30 * DAY)
    bench.send(bench.now_ms + 700)
    await bench.pass_time(1)
    assert bench.bodies == [1, 2, 4]
    await bench.pass_time(30 * DAY)
    assert bench.bodies == [1, 2, 4, 3]
    await bench.stop()


@on_loop
async def test_a_store_that_takes_nothing_delays_but_loses_nothing(tmp_path: Path) -> None:
    bench = TimerBench(tmp_path / "store")
    await bench.start()
    bench.send(bench.now_ms + 100)
    await bench.settle()
    bench.store.health.refuse(LOG_FILES, "no room")
    bench.clock.advance(1)
    for _ in range(3):
        with pytest.raises(Exception, match="no room"):
            await bench.settle()
    bench.store.health.allow(LOG_FILES)
    await bench.settle()

    assert bench.bodies == [1]
    await bench.stop()


class FullDisk(HastyDisk):
    """The disk has no room for timer logs."""

    is_full = False

    def write(self, descriptor: int, data: bytes | bytearray | memoryview, at: int) -> None:
        if self.is_full:
            raise OSError(28, "No space left on device")
        super().write(descriptor, data, at)


@on_loop
async def test_a_full_disk_delays_but_loses_nothing(tmp_path: Path) -> None:
    disk = FullDisk()
    bench = TimerBench(tmp_path / "store")
    await bench.start(disk)
    bench.send(bench.now_ms + 100)
    await bench.settle()
    disk.is_full = True
    bench.send(bench.now_ms + 200)
    with pytest.raises(OSError, match="No space"):
        await bench.settle()
    disk.is_full = False
    await bench.pass_time(1)

    assert bench.bodies == [1, 2]
    await bench.stop()


@on_loop
async def test_what_follows_a_message_is_appended_once_whatever_crashes(tmp_path: Path) -> None:
    bench = TimerBench(tmp_path / "store")

    def again(copy: RecordDraft, properties: dict[str, str]) -> list[RecordDraft]:
        due = int(properties["TIMER_OUT_MS"]) + 1000
        kept = {"UNIQ_KEY": properties["UNIQ_KEY"]}
        return [bench.timers.schedule(copy, kept, due), copy]

    await bench.start(continuations=(again,))
    bench.send(bench.now_ms + 1000)
    await bench.pass_time(3.5)
    await bench.crash()
    await bench.start(continuations=(again,))
    await bench.pass_time(2)

    assert len(bench.waiting()) == 6
    assert len(bench.bodies) == 5
    await bench.stop()


@on_loop
async def test_what_the_store_takes_back_is_delivered_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = TimerBench(tmp_path / "store")
    await bench.start()
    told: list[Callable[[int | StoreUnwritable], None]] = []
    monkeypatch.setattr(bench.durability, "when_durable", lambda _, tell: told.append(tell))
    bench.send(bench.now_ms + 100)
    await bench.pass_time(1)
    told.pop()(ResponseCode.FLUSH_DISK_TIMEOUT)  # the callback is registered again
    await bench.pass_time(60)
    reached = bench.timers._parts.due_queue.cursor * 1000  # type: ignore[union-attr]
    assert reached < bench.now_ms - 50_000
    told.pop()(StoreUnwritable("the disk fails"))
    await bench.pass_time(1)
    assert bench.bodies == [1, 1]  # the first delivery was lost with the flush
    told.pop()(ResponseCode.SUCCESS)
    await bench.pass_time(1)

    assert told == []
    assert bench.timers._parts.due_queue.cursor * 1000 > bench.now_ms - 3000  # type: ignore[union-attr]
    await bench.stop()


@pytest.mark.parametrize("back", [1, 30, 300])
@on_loop
async def test_a_clock_that_is_set_back_repeats_nothing_at_the_next_masters(
    tmp_path: Path, back: int
) -> None:
    bench = TimerBench(tmp_path / "store")
    await bench.start()
    for due in (100, 5000, 300_000, 320_000, 400_000):
        bench.send(bench.now_ms + due)
    await bench.pass_time(330)
    bench.clock.advance(-back)
    bench.send(bench.now_ms + 500)
    bench.send(bench.now_ms + 2_500)
    await bench.pass_time(5)
    for _ in range(2):  # two masters after each other
        bench.timers.save()
        checkpoint = bench.timers.last_checkpoint()
        assert checkpoint is not None
        await bench.stop()
        await bench.start(before=lambda timers, found=checkpoint: timers.adopt(found))  # type: ignore[misc]
        await bench.pass_time(back / 2)

    await bench.pass_time(back + 400)
    assert bench.bodies == [1, 2, 3, 4, 6, 7, 5]
    await bench.stop()


@on_loop
async def test_replicas_keep_their_checkpoint_while_timers_may_be_late_from_before_a_crash(
    tmp_path: Path,
) -> None:
    bench = TimerBench(tmp_path / "store")
    await bench.start()
    bench.send(bench.now_ms + HOUR * 1000)
    await bench.settle()
    bench.timers.save()
    first = bench.timers.last_checkpoint()
    assert first is not None
    for _ in range(10):
        bench.send(bench.now_ms + 1000)
    bench.clock.advance(30)  # nobody has read them meanwhile
    bench.timers._parts.due_queue.advance(bench.now_ms)  # type: ignore[union-attr]
    bench.store.health.refuse(DISK_SPACE, "no room")
    await bench.timers.feed()
    await bench.timers._save_now()
    await bench.crash()
    await bench.start()
    bench.timers.save()
    assert bench.timers.last_checkpoint() is None  # it would say that they are delivered
    await bench.stop()

    await bench.start(before=lambda timers: timers.adopt(first))
    await bench.pass_time(30)
    assert bench.bodies == list(range(2, 12))
    bench.timers.save()
    assert bench.timers.last_checkpoint() is not None
    await bench.stop()


@on_loop
async def test_a_slave_keeps_files_until_its_master_has_carried_what_waits_in_them(
    tmp_path: Path,
) -> None:
    bench = TimerBench(tmp_path / "store", log_size=4096)
    await bench.start()
    bench.send(bench.now_ms + HOUR * 1000)
    while len(bench.store.log.files) < 3:
        bench.intake.append(draft("T", b"x" * 500, queue_id=1))
    await bench.pass_time(10)
    bench.timers.save()
    before = bench.timers.last_checkpoint()
    end = bench.store.log.files[0].end
    assert before is not None
    retention, timers = bench.store.retention, bench.timers
    assert not retention.may_go(end)
    await bench.settle()
    await bench.pass_time(10)
    assert retention.may_go(end)
    bench.timers.save()
    after = bench.timers.last_checkpoint()
    assert after is not None
    await timers.stop()
    assert not retention.may_go(end)  # a former master

    for checkpoint, may_go in ((before, False), (after, True)):
        timers.adopt(checkpoint)
        timers.start_as_slave()
        assert retention.may_go(end) is may_go
    timers.adopt(replace(before, recovery_point=None))  # RocketMQ does not say
    timers.start_as_slave()
    assert retention.may_go(end)
    bench._end()
    bench.store.close()
