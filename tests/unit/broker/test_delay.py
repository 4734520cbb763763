"""Delayed messages: never early, none lost, in order within a level."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bolide.broker import delay as module
from bolide.broker.consume.long_polling import LongPolling
from bolide.broker.delay import DelayScheduler, NotYet
from bolide.broker.produce.addressing import delayed
from bolide.broker.produce.durability import Durability
from bolide.broker.produce.intake import Intake
from bolide.config import ConfigCell
from bolide.protocol.record import RecordDraft
from bolide.protocol.refusals import ServerError
from bolide.store.config import FlushMode, StoreConfig, delay_levels
from bolide.store.errors import StoreUnwritable
from bolide.store.flusher import Flushed, Listener
from bolide.store.health import LOG_FILES
from bolide.store.memory_store import MemoryStore
from bolide.store.reading import ReadLimits
from bolide.store.tables import DELAY_OFFSETS, DelayOffsets, Table
from tests.support.aio import on_loop, until
from tests.support.clock import FakeClock
from tests.support.store import STORE_HOST, draft, record_of

LEVELS = "1s 5s 20s"
SECONDS = (0, 1, 5, 20)
SCHEDULE = "SCHEDULE_TOPIC_XXXX"
MAGIC, BODY_LENGTH = 4, 84
"""Positions in a record."""
ALL = ReadLimits(max_count=10_000, max_size=2**30, max_scanned=10_000)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests use a fake clock, so the scheduler's real sleeps must be short."""
    monkeypatch.setattr(module, "_LONGEST_SLEEP", 0.001)
    monkeypatch.setattr(module, "_AFTER_FAILURE", 0.001)


class HeldStore(MemoryStore):
    """A store whose flushes the test completes."""

    def on_flushed(self, listener: Listener) -> None:
        self.tell = listener


class Bench:
    """A store with delayed messages; each new scheduler simulates a restart."""

    def __init__(self, directory: Path, mode: FlushMode = FlushMode.ASYNC) -> None:
        self.directory = directory
        self.clock = FakeClock(1_700_000_000.0)
        self.config = ConfigCell(
            StoreConfig(
                root=directory,
                flush_mode=mode,
                message_delay_level=LEVELS,
                sync_flush_timeout=0.05,
            )
        )
        self.store = HeldStore(self.config, clock=self.clock)
        self.store.__enter__()
        self.sent = 0

    def send(self, level: int, **given: str) -> bytes:
        body = f"{self.sent}/{level}".encode()
        self.sent += 1
        self.append(delayed(draft("T", body, queue_id=3), given, level))
        return body

    def append(self, message: RecordDraft) -> None:
        self.store.append(message)

    def places(self) -> list[int]:
        return [place for place, _ in self.store.log.items()]

    def damage(self, place: int, at: int) -> None:
        """Damage four bytes of the record at a physical offset."""
        record = bytearray(dict(self.store.log.items())[place])
        record[at : at + 4] = b"\x7f\xff\xff\xff"
        self.store.log._records[place] = bytes(record)

    @asynccontextmanager
    async def scheduling(
        self, levels: str = LEVELS, *, elsewhere: module.Elsewhere | None = None, **given: Any
    ) -> AsyncIterator[DelayScheduler]:
        durability = Durability(self.store, self.config)
        long_polling = LongPolling()
        intake = Intake(self.store, durability, long_polling)
        durability.on_progress.add(intake.wake_up_to)
        for part in (durability, long_polling, intake):
            part.start()
        table = Table(self.directory, DELAY_OFFSETS)
        table.load()
        scheduler = DelayScheduler(
            self.store,
            intake,
            durability,
            table,
            delays=delay_levels(levels),
            store_host=STORE_HOST,
            now=self.clock,
            **given,
        )
        running = asyncio.create_task(scheduler.run(elsewhere))
        try:
            yield scheduler
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            intake.stop()
            durability.stop()

    def delivered(self) -> list[bytes]:
        found = self.store.read("T", 3, 0, ALL)
        return [bytes(record_of(data).body) for data in found.records]

    async def delivers(self, *bodies: bytes) -> None:
        """Wait until these bodies are delivered, and a little longer for unexpected ones."""
        await until(lambda: len(self.delivered()) >= len(bodies), within=2.0)
        await asyncio.sleep(0.005)
        assert self.delivered() == list(bodies)


# ---- delivery times

STEPS = st.lists(
    st.tuples(st.integers(1, 3), st.just(0.0))
    | st.tuples(st.just(0), st.floats(0.0, 8.0).map(lambda seconds: round(seconds, 3))),
    max_size=12,
)


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(steps=STEPS)
def test_every_message_is_delivered_on_time_and_none_early(
    tmp_path: Path, steps: list[tuple[int, float]]
) -> None:
    @on_loop
    async def scenario() -> None:
        bench = Bench(tmp_path)
        due: dict[bytes, int] = {}
        async with bench.scheduling():
            for level, seconds in steps:
                if level:
                    stored = int(bench.clock.now * 1000)
                    due[bench.send(level)] = stored + SECONDS[level] * 1000
                bench.clock.advance(seconds)
                now = int(bench.clock.now * 1000)
                expected = {body for body, time in due.items() if time <= now}
                await until(lambda: expected <= set(bench.delivered()), within=2.0)  # noqa: B023
                await asyncio.sleep(0.003)
                assert sorted(bench.delivered()) == sorted(expected)
        _check_order(bench.delivered())

    scenario()


def _check_order(bodies: list[bytes]) -> None:
    for level in (b"1", b"2", b"3"):
        numbers = [int(body.split(b"/")[0]) for body in bodies if body.endswith(b"/" + level)]
        assert numbers == sorted(numbers)


@on_loop
async def test_a_message_is_due_to_the_millisecond(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    message = bench.send(1)
    async with bench.scheduling():
        bench.clock.advance(0.9995)
        await asyncio.sleep(0.02)
        assert bench.delivered() == []
        bench.clock.advance(0.001)
        await bench.delivers(message)


@on_loop
async def test_a_due_message_waits_for_an_earlier_one_that_is_not_due(tmp_path: Path) -> None:
    """Otherwise the later message would be skipped. This occurs when the clock is set back."""
    bench = Bench(tmp_path)
    first = bench.send(3)
    bench.clock.advance(-5.0)
    second = bench.send(3)
    async with bench.scheduling():
        bench.clock.advance(21.0)
        await asyncio.sleep(0.02)
        assert bench.delivered() == []
        bench.clock.advance(4.0)
        await bench.delivers(first, second)


# ---- delivered messages


@on_loop
async def test_a_message_is_delivered_unchanged(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.send(1, TAGS="a", UNIQ_KEY="id")
    (before,) = bench.store.read(SCHEDULE, 0, 0, ALL).records
    async with bench.scheduling():
        bench.clock.advance(1.0)
        await bench.delivers(b"0/1")
    waiting = record_of(before)
    (after,) = bench.store.read("T", 3, 0, ALL).records
    record = record_of(after)
    assert (record.topic, record.queue_id, record.queue_offset) == ("T", 3, 0)
    assert record.decode_properties() == {
        "TAGS": "a", "UNIQ_KEY": "id", "DELAY": "1", "REAL_TOPIC": "T", "REAL_QID": "3",
    }  # fmt: skip
    assert record.born_timestamp == waiting.born_timestamp
    assert record.born_host == waiting.born_host
    assert record.store_timestamp == waiting.store_timestamp + 1000


@on_loop
async def test_tags_are_filtered_again_where_a_message_comes_out(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.send(1, TAGS="a")
    async with bench.scheduling():
        bench.clock.advance(1.0)
        await bench.delivers(b"0/1")
    queue = bench.store.find_queue("T", 3)
    assert queue is not None
    (unit,) = queue.read(0, 1)
    assert unit.tags_code == 97


@pytest.mark.parametrize(
    "properties",
    [
        b"DELAY\x011\x02",
        b"DELAY\x011\x02REAL_TOPIC\x01T\x02",
        b"DELAY\x011\x02REAL_TOPIC\x01T\x02REAL_QID\x01-1\x02",
        b"DELAY\x011\x02REAL_TOPIC\x01T\x02REAL_QID\x01x\x02",
        b"DELAY\x011\x02REAL_TOPIC\x01RMQ_SYS_TRANS_HALF_TOPIC\x02REAL_QID\x010\x02",
        b"DELAY\x011\x02REAL_TOPIC\x01../T\x02REAL_QID\x010\x02",
    ],
)
@on_loop
async def test_a_message_without_a_valid_topic_is_dropped(
    tmp_path: Path, properties: bytes
) -> None:
    bench = Bench(tmp_path)
    bench.append(draft(SCHEDULE)._replace(properties=properties))
    good = bench.send(1)
    async with bench.scheduling():
        bench.clock.advance(1.0)
        await bench.delivers(good)
    assert bench.store.topics() == {SCHEDULE, "T"}


@on_loop
async def test_a_damaged_message_is_skipped_and_logged_and_the_rest_is_delivered(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bench = Bench(tmp_path)
    first, _, _, last = (bench.send(1) for _ in range(4))
    damaged = bench.places()[1:3]
    for place in damaged:
        bench.damage(place, BODY_LENGTH)
    bench.clock.advance(1.0)
    async with bench.scheduling() as scheduler:
        await bench.delivers(first, last)
        assert scheduler.progress()[1] == (4, 4)
    logged = [record.getMessage() for record in caplog.records if record.name == module.log.name]
    assert len(logged) == 2
    assert all(
        f"damaged delayed message at {place}:" in text
        for place, text in zip(damaged, logged, strict=True)
    )


@on_loop
async def test_a_batch_of_damaged_messages_does_not_stop_a_level(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    for _ in range(70):
        bench.send(1)
    for place in bench.places():
        bench.damage(place, MAGIC)
    good = bench.send(1)
    bench.clock.advance(1.0)
    async with bench.scheduling():
        await bench.delivers(good)


@on_loop
async def test_a_level_with_a_backlog_does_not_keep_the_others_waiting(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    backlog = [bench.send(1) for _ in range(1000)]
    other = bench.send(2)
    bench.clock.advance(5.0)
    async with bench.scheduling():
        await until(lambda: len(bench.delivered()) == 1001)
    order = bench.delivered()
    assert order.index(other) <= 64
    assert [body for body in order if body != other] == backlog


@on_loop
async def test_messages_further_ahead_than_their_delay_are_due(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    message = bench.send(3)
    async with bench.scheduling("1s 2s 3s"):
        await bench.delivers(message)


@on_loop
async def test_a_level_that_waits_does_not_hold_up_the_others(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.send(3)
    quick = [bench.send(1) for _ in range(200)]
    async with bench.scheduling() as scheduler:
        bench.clock.advance(1.0)
        await bench.delivers(*quick)
        assert scheduler.progress() == {1: (200, 200), 2: (0, 0), 3: (0, 1)}


# ---- restarts


@on_loop
async def test_a_level_waits_until_it_is_known_whether_a_message_was_delivered(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bench = Bench(tmp_path)
    first, unknown, gone, other = (bench.send(level) for level in (1, 1, 1, 2))
    reading = True

    def is_delivered(message: RecordDraft, _place: int) -> bool:
        if reading and message.body == unknown:
            raise NotYet
        return message.body == gone

    async with bench.scheduling(is_delivered=is_delivered):
        bench.clock.advance(6)
        await bench.delivers(first, other)
        reading = False
        await bench.delivers(first, other, unknown)
    assert not caplog.records


@on_loop
async def test_delivery_resumes_after_a_restart(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    first = bench.send(1)
    async with bench.scheduling() as scheduler:
        bench.clock.advance(1.0)
        await bench.delivers(first)
        await asyncio.to_thread(scheduler.save)
    second = bench.send(1)
    bench.clock.advance(1.0)
    async with bench.scheduling():
        await bench.delivers(first, second)


@on_loop
async def test_after_a_crash_deliveries_since_the_last_save_are_repeated(
    tmp_path: Path,
) -> None:
    bench = Bench(tmp_path)
    message = bench.send(1)
    bench.clock.advance(1.0)
    for times in (1, 2):
        async with bench.scheduling():
            await bench.delivers(*[message] * times)


@on_loop
async def test_offsets_are_saved_only_after_delivered_messages_are_flushed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(tmp_path)
    message = bench.send(1)
    async with bench.scheduling() as scheduler:
        bench.clock.advance(1.0)
        await bench.delivers(message)
        monkeypatch.setattr(bench.store, "flush", lambda: False)
        scheduler.save()
        assert not (tmp_path / "delayOffset.json").exists()
        monkeypatch.undo()
        scheduler.save()
        assert (tmp_path / "delayOffset.json").exists()


@on_loop
async def test_progress_is_saved_by_one_thread_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(tmp_path)
    message = bench.send(1)
    second_came = threading.Event()
    inside: list[bool] = []

    def flush() -> bool:
        inside.append(True)
        if len(inside) == 1:
            second_came.wait(0.1)
        else:
            second_came.set()
        return True

    monkeypatch.setattr(bench.store, "flush", flush)
    async with bench.scheduling() as scheduler:
        bench.clock.advance(1.0)
        await bench.delivers(message)
        await asyncio.gather(*(asyncio.to_thread(scheduler.save) for _ in range(2)))
    assert inside == [True], "the second one finds all saved"


@on_loop
async def test_delivery_continues_after_deleted_files(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.send(1)
    bench.send(1)
    kept = bench.send(1)
    records = bench.store.log.items()
    bench.store.trim(records[2][0])
    bench.clock.advance(1.0)
    async with bench.scheduling():
        await bench.delivers(kept)


@on_loop
async def test_offsets_of_another_store_are_corrected(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    (tmp_path / "delayOffset.json").write_text('{"offsetTable":{1:50}}')
    bench.send(1)
    bench.clock.advance(1.0)
    async with bench.scheduling() as scheduler:
        await until(lambda: scheduler.progress()[1] == (1, 1))
        message = bench.send(1)
        bench.clock.advance(1.0)
        await bench.delivers(message)


# ---- disk failures


@on_loop
async def test_messages_wait_for_an_unwritable_store_and_that_is_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bench = Bench(tmp_path)
    messages = [bench.send(1), bench.send(1)]
    bench.clock.advance(1.0)
    bench.store.health.refuse(LOG_FILES, "the disk is full")
    async with bench.scheduling():
        await asyncio.sleep(0.02)
        assert bench.delivered() == []
        bench.store.health.allow(LOG_FILES)
        await bench.delivers(*messages)
    logged = [record for record in caplog.records if record.name == module.log.name]
    assert len(logged) == 1


@on_loop
async def test_a_message_that_the_store_will_not_have_waits_and_the_other_levels_go_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bench = Bench(tmp_path)
    large = bench.send(1)
    small = b"2"
    bench.append(delayed(draft("T", small, queue_id=3), {}, 2))
    before = bench.config.value
    bench.config.apply({"maxMessageSize": "1"})
    bench.clock.advance(5.0)
    async with bench.scheduling():
        await bench.delivers(small)
        assert (
            "delivery of delay level 1 is stuck at queue offset 0: body of 3 bytes" in caplog.text
        )
        assert caplog.text.count("raise maxMessageSize again") == 1
        bench.config.apply({"maxMessageSize": str(before.max_message_size)})
        await bench.delivers(small, large)


@on_loop
async def test_a_message_that_the_store_discards_is_delivered_again(tmp_path: Path) -> None:
    bench = Bench(tmp_path, FlushMode.SYNC)
    first, second = bench.send(1), bench.send(1)
    bench.clock.advance(1.0)
    async with bench.scheduling() as scheduler:
        await bench.delivers(first, second)
        position = _start_of(bench, second)
        bench.store.tell(Flushed(position, StoreUnwritable("the disk fails"), 1))
        await bench.delivers(first, second, second)
        assert scheduler.progress()[1] == (2, 2)


@on_loop
async def test_a_message_that_the_store_discards_late_is_delivered_again(tmp_path: Path) -> None:
    bench = Bench(tmp_path, FlushMode.SYNC)
    message = bench.send(1)
    bench.clock.advance(1.0)
    async with bench.scheduling():
        await bench.delivers(message)
        await asyncio.sleep(0.2)  # longer than a send waits
        bench.store.tell(Flushed(0, StoreUnwritable("the disk fails"), 1))
        await bench.delivers(message, message)


def _start_of(bench: Bench, body: bytes) -> int:
    records = [record_of(data) for data in bench.store.read("T", 3, 0, ALL).records]
    return next(record.physical_offset for record in records if bytes(record.body) == body)


# ---- without a master


@on_loop
async def test_an_acting_master_delivers_elsewhere_and_counts_what_was_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_AFTER_REFUSAL", 0.001)
    bench = Bench(tmp_path)
    sent = [bench.send(1) for _ in range(3)]
    bench.clock.advance(60.0)
    got: list[bytes] = []
    is_full = True

    async def take(draft: RecordDraft) -> None:
        if is_full and bytes(draft.body) == sent[1]:
            raise ServerError("full")
        got.append(bytes(draft.body))

    async with bench.scheduling(elsewhere=take) as scheduler:
        await until(lambda: len(got) >= 2)
        await asyncio.sleep(0.02)
        assert scheduler.progress()[1] == (1, 3)
        is_full = False
        await until(lambda: scheduler.progress()[1] == (3, 3))
        assert got == [sent[0], sent[2], sent[1]]
        assert bench.delivered() == []

        scheduler.adopt(DelayOffsets(offset_table={1: 2, 2: 5}))
        assert scheduler.table().offset_table == {1: 3, 2: 5}
        scheduler.adopt(DelayOffsets(offset_table={1: 3}))
        scheduler.adopt(DelayOffsets(offset_table={1: 0}))
        assert scheduler.table().offset_table == {1: 0}


@on_loop
async def test_a_master_adopts_progress_that_is_ahead_and_within_its_log(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    for _ in range(3):
        bench.send(1)
    async with bench.scheduling() as scheduler:
        assert scheduler.take_ahead(DelayOffsets(offset_table={1: 9, 2: 4})) == 1
        assert scheduler.progress()[1] == (3, 3)
        assert scheduler.take_ahead(DelayOffsets(offset_table={1: 1})) == 0
        bench.clock.advance(60.0)
        await bench.delivers()
