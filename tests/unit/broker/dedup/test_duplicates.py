"""Keyed messages are stored once, whichever path they take."""

import asyncio
import logging
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bolide.broker.dedup.duplicates import Duplicates
from bolide.broker.dedup.recovery import WindowReader
from bolide.broker.dedup.window import Window, WindowLength
from bolide.broker.delay import NotYet
from bolide.broker.metadata.topic_attributes import has_window
from bolide.kernel import COMPILED
from bolide.model.message import Message
from bolide.protocol.batch import encode_batch
from bolide.protocol.bodies.topics import TopicConfig
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.frame import Frame
from bolide.protocol.headers.send import SendReply
from bolide.protocol.record import RecordDraft
from bolide.store.appending import Appended
from bolide.store.config import FlushMode
from bolide.store.errors import StoreUnwritable
from bolide.store.flusher import Flushed, Listener
from bolide.store.memory_store import MemoryStore
from tests.support.aio import on_loop, until
from tests.support.broker import send_header
from tests.support.broker_core import BrokerCore, Peer
from tests.support.store import draft, record_of

PLAIN = TopicConfig(topic_name="D", read_queue_nums=4, write_queue_nums=4)
ID = "7F00000112345678ABCDEF0000010000"


def topic(length: str = "10m", **given: Any) -> TopicConfig:
    values: dict[str, Any] = {
        "topic_name": "D",
        "read_queue_nums": 4,
        "write_queue_nums": 4,
    } | given
    return TopicConfig(attributes={"dedup.window": length}, **values)


@asynccontextmanager
async def core_in(directory: Path, length: str = "10m", **given: Any) -> AsyncIterator[BrokerCore]:
    core = BrokerCore(directory, topic(length), **given)
    try:
        await core.duplicates.windows.ready("D")
        yield core
    finally:
        await core.stop()


async def send(core: BrokerCore, key: str | None = None, **given: Any) -> Frame:
    """A send with short header names, which the fast path serves."""
    peer: Peer = given.pop("peer", None) or core.connect()
    properties = {"UNIQ_KEY": ID} | given.pop("properties", {})
    if key is not None:
        properties["DEDUP_KEY"] = key
    header = send_header("D", properties=properties, **given).to_short()
    return await peer.call(RequestCode.SEND_MESSAGE_V2, header, b"hello")


async def send_batch(core: BrokerCore, *keys: str | None, **given: Any) -> SendReply:
    return place_of(await batch_frame(core, *keys, **given))


async def batch_frame(core: BrokerCore, *keys: str | None, **given: Any) -> Frame:
    messages = [
        Message("D", b"%d" % number, dedup_key=key or "") for number, key in enumerate(keys)
    ]
    header = send_header("D", batch=True, **given).to_short()
    return await core.connect().call(RequestCode.SEND_BATCH_MESSAGE, header, encode_batch(messages))


def place_of(frame: Frame) -> SendReply:
    assert frame.code == ResponseCode.SUCCESS, frame.remark
    return SendReply.from_fields(frame.fields)


def stored(core: BrokerCore) -> list[tuple[str, int, int]]:
    records = [record_of(data) for _, data in core.log]
    return [(record.topic, record.queue_id, record.queue_offset) for record in records]


# ---- repeats


@on_loop
async def test_a_repeat_is_answered_with_the_first_sends_place(tmp_path: Path) -> None:
    async with core_in(tmp_path) as core:
        peer = core.connect()
        first = place_of(await send(core, "a", peer=peer, queue_id=2))
        assert place_of(await send(core, "b", peer=peer, queue_id=2)).queue_offset == 1
        again = place_of(await send(core, "a", peer=peer, queue_id=2))
        elsewhere = place_of(await send(core, "a", queue_id=2))
        assert (again, elsewhere) == (elsewhere, again)
        assert again == msgspec.structs.replace(first, repeats=1)
        assert stored(core) == [("D", 2, 0), ("D", 2, 1)]
        assert core.statistics.totals.sent == 2


@on_loop
async def test_queues_have_windows_of_their_own(tmp_path: Path) -> None:
    async with core_in(tmp_path) as core:
        for queue_id in (0, 1, 0, 1):
            await send(core, "a", queue_id=queue_id)
        assert stored(core) == [("D", 0, 0), ("D", 1, 0)]


@on_loop
async def test_a_queue_that_the_broker_chooses_is_the_same_for_repeats(tmp_path: Path) -> None:
    async with core_in(tmp_path) as core:
        places = [place_of(await send(core, "a", queue_id=-1)) for _ in range(20)]
        assert len({place.msg_id for place in places}) == len(core.log) == 1


@on_loop
async def test_messages_without_a_key_are_all_taken(tmp_path: Path) -> None:
    async with core_in(tmp_path) as core:
        for _ in range(3):
            assert place_of(await send(core)).repeats is None
        assert len(core.log) == 3
        assert len(core.duplicates.windows) == 0


@on_loop
async def test_other_topics_take_repeats(tmp_path: Path) -> None:
    async with core_in(tmp_path) as core:
        header = send_header("T", properties={"UNIQ_KEY": ID, "DEDUP_KEY": "a"})
        for code, fields in (
            (RequestCode.SEND_MESSAGE, header.to_fields()),
            (RequestCode.SEND_MESSAGE_V2, header.to_short()),
        ):
            place_of(await core.connect().call(code, fields, b"hello"))
        assert len(core.log) == 2


@pytest.mark.skipif(not COMPILED, reason="there is no fast path")
@on_loop
async def test_only_keyed_sends_leave_the_fast_path(tmp_path: Path) -> None:
    async with core_in(tmp_path) as core:
        served = []
        serve = core.fast_path.serve

        def watched(data: bytes, position: int, *rest: Any) -> int:
            end = int(serve(data, position, *rest))
            served.append(end > position)
            return end

        core.fast_path.serve = watched
        await send(core)
        await send(core, "a")
        assert served == [True, False]


# ---- batches


@on_loop
async def test_of_a_batch_the_new_messages_are_stored_and_all_places_told(tmp_path: Path) -> None:
    async with core_in(tmp_path) as core:
        before = await send_batch(core, "a", "b")
        mixed = await send_batch(core, "c", "b", None, "c", "d", "a")
        assert [data for _, _, data in stored(core)] == [0, 1, 2, 3, 4]
        a, b = before.msg_id.split(",")
        ids = mixed.msg_id.split(",")
        assert (ids[1], ids[5], ids[3]) == (b, a, ids[0])
        assert len(set(ids)) == 5
        assert (mixed.queue_offset, mixed.repeats) == (2, 3)
        again = await send_batch(core, "b", "a")
        assert (again.msg_id, again.queue_offset, again.repeats) == (f"{b},{a}", 1, 2)
        assert len(core.log) == core.statistics.totals.sent == 5


@on_loop
async def test_a_key_of_a_whole_batch_is_refused_for_it_would_be_that_of_each(
    tmp_path: Path,
) -> None:
    async with core_in(tmp_path) as core:
        answer = await batch_frame(core, None, None, properties={"DEDUP_KEY": "a"})
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL
        assert "give one to each message" in (answer.remark or "")
        assert not core.log


@on_loop
async def test_a_batch_with_keys_must_name_its_queue(tmp_path: Path) -> None:
    async with core_in(tmp_path) as core:
        answer = await batch_frame(core, "a", None, queue_id=-1)
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL
        assert "a batch must name one" in (answer.remark or "")
        assert place_of(await batch_frame(core, None, None, queue_id=-1)).queue_id in range(4)


# ---- delays


@on_loop
async def test_a_delayed_message_takes_its_key_when_it_is_sent(tmp_path: Path) -> None:
    async with core_in(tmp_path) as core:
        first = place_of(await send(core, "a", properties={"DELAY": "3"}, queue_id=1))
        assert place_of(await send(core, "a", queue_id=1)).msg_id == first.msg_id
        assert [name for name, _, _ in stored(core)] == ["SCHEDULE_TOPIC_XXXX"]
        again = core.new_duplicates()
        again.windows.start()
        await again.windows.ready("D")
        places = again.append("D", 1, [keyed("a", 1)])
        assert (len(places.fresh), len(core.log)) == (0, 1), "it still waits after a restart"
        again.windows.stop()


def delivery(key: str, born: int) -> RecordDraft:
    """A delayed message on its way to its queue."""
    text = f"DEDUP_KEY\x01{key}\x02REAL_TOPIC\x01D\x02REAL_QID\x011\x02"
    return draft("D", queue_id=1)._replace(properties=text.encode(), born_timestamp=born)


@on_loop
async def test_a_delivery_before_a_crash_is_known_and_no_other_message_is_taken_for_it(
    tmp_path: Path,
) -> None:
    async with core_in(tmp_path, "5s") as core:
        core.store.append(delivery("a", born=7))
        again = core.new_duplicates()
        again.windows.start()
        with pytest.raises(NotYet):
            again.is_delivered(delivery("a", born=7), -1)
        assert not again.is_delivered(draft("T"), -1), "other topics need not wait"
        await again.windows.ready("D")
        assert again.is_delivered(delivery("a", born=7), -1)
        assert not again.is_delivered(delivery("a", born=3), -1), "sent when the key was new too"
        assert not again.is_delivered(delivery("b", born=7), -1)
        again.windows.stop()


# ---- windows


@pytest.mark.parametrize(("length", "passes"), [("3", "messages"), ("5s", "time")])
@on_loop
async def test_a_key_outside_the_window_is_new_again(
    tmp_path: Path, length: str, passes: str
) -> None:
    async with core_in(tmp_path, length) as core:
        first = place_of(await send(core, "a"))
        for _ in range(2):
            await send(core)
            core.clock.advance(2.5)
        assert place_of(await send(core, "a")).msg_id == first.msg_id
        core.clock.advance(0.002)
        if passes == "messages":
            await send(core)
        second = place_of(await send(core, "a"))
        assert second.queue_offset == (4 if passes == "messages" else 3)
        assert place_of(await send(core, "a")).msg_id == second.msg_id


@on_loop
async def test_a_bound_on_keys_makes_the_largest_window_forget(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with core_in(tmp_path, dedup_max_keys=10) as core:
        for number in range(9):
            await send(core, f"many-{number}", queue_id=0)
        for number in range(3):
            await send(core, f"few-{number}", queue_id=1)
        assert len(core.duplicates.windows) == 10
        assert "raise it, or make dedup.window smaller" in caplog.text
        assert [record.levelno for record in caplog.records].count(logging.WARNING) == 1
        before = len(core.log)
        for number in range(3):
            await send(core, f"few-{number}", queue_id=1)
        await send(core, "many-8", queue_id=0)
        assert len(core.log) == before
        await send(core, "many-0", queue_id=0)
        assert len(core.log) == before + 1


@on_loop
async def test_keys_out_of_date_give_way_before_any_other(tmp_path: Path) -> None:
    async with core_in(tmp_path, "5s", dedup_max_keys=10) as core:
        for number in range(9):
            await send(core, f"old-{number}", queue_id=0)
        core.clock.advance(6)
        for number in range(10):
            await send(core, f"new-{number}", queue_id=1)
        before = len(core.log)
        for number in range(10):
            await send(core, f"new-{number}", queue_id=1)
        assert len(core.log) == before


@on_loop
async def test_batches_leave_nothing_behind_that_is_out_of_date(tmp_path: Path) -> None:
    async with core_in(tmp_path, "100") as core:
        for batch in range(5):
            await send_batch(core, *(f"{batch}/{number}" for number in range(3000)))
        assert len(core.duplicates.windows) <= 6000


@on_loop
async def test_keys_out_of_date_give_way_to_a_batch_too(tmp_path: Path) -> None:
    async with core_in(tmp_path, "5s", dedup_max_keys=5000) as core:
        await send_batch(core, *(f"old-{number}" for number in range(2500)), queue_id=0)
        core.clock.advance(6)
        kept = [f"kept-{number}" for number in range(2500)]
        await send_batch(core, *kept, queue_id=1)
        await send_batch(core, *(f"new-{number}" for number in range(2400)), queue_id=2)
        again = await send_batch(core, *kept, queue_id=1)
        assert again.repeats == 2500


@on_loop
async def test_the_bound_on_keys_counts_for_all_that_is_read_back(tmp_path: Path) -> None:
    core = BrokerCore(tmp_path, PLAIN, dedup_max_keys=100)
    for queue_id in range(4):
        await send_batch(core, *(f"{number}" for number in range(40)), queue_id=queue_id)
    reader = WindowReader(core.store, now=core.clock.now, max_keys=100, is_stopped=lambda: False)
    windows = reader.read("D", 4, WindowLength(seconds=600), {})
    assert [len(window) for window in windows.values()] == [25] * 4
    await core.topics.update(topic())
    await core.duplicates.windows.ready("D")
    assert len(core.duplicates.windows) == 100
    for queue_id in range(4):
        newest = await send_batch(
            core, *(f"{number}" for number in range(15, 40)), queue_id=queue_id
        )
        assert newest.repeats == 25, "the oldest were forgotten"
    await core.stop()


@on_loop
async def test_a_clock_set_back_does_not_hide_a_key_behind_an_older_one(tmp_path: Path) -> None:
    core = BrokerCore(tmp_path, PLAIN)
    now = core.clock.now
    for at, key in [(-700, "x"), (0, "y"), (0, "z"), (-700, "a"), (-10, "a")]:
        core.clock.now = now + at
        await send(core, key)
    await core.topics.update(topic())
    await core.duplicates.windows.ready("D")
    core.clock.now = now
    assert place_of(await send(core, "a")).queue_offset == 4
    await core.stop()


# ---- attributes come and go


@on_loop
async def test_a_window_set_later_knows_what_was_sent_before(tmp_path: Path) -> None:
    core = BrokerCore(tmp_path, PLAIN)
    for _ in range(2):
        first = place_of(await send(core, "a"))
    await core.topics.update(topic("100"))
    answers = await asyncio.gather(*(send(core, "a") for _ in range(5)))
    assert {place_of(answer).queue_offset for answer in answers} == {0}, "they wait for it"
    assert (first.queue_offset, len(core.log)) == (1, 2)
    assert core.duplicates.windows.covers("D")
    await core.topics.update(PLAIN)
    assert not core.duplicates.windows.covers("D")
    assert len(core.duplicates.windows) == 0
    assert place_of(await send(core, "a")).queue_offset == 2
    await core.stop()


@on_loop
async def test_more_queues_leave_what_is_known(tmp_path: Path) -> None:
    async with core_in(tmp_path) as core:
        await send(core, "a", queue_id=3)
        await core.topics.update(topic(read_queue_nums=8, write_queue_nums=8))
        assert place_of(await send(core, "a", queue_id=3)).repeats == 1
        assert place_of(await send(core, "a", queue_id=7)).repeats is None


class StuckStore(MemoryStore):
    """A store whose reads block until `released` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.released = threading.Event()

    def flush(self) -> bool:
        return self.released.wait(10)


@pytest.mark.parametrize("properties", [{}, {"DELAY": "3"}])
@on_loop
async def test_what_has_no_key_does_not_wait_for_a_window(
    tmp_path: Path, properties: dict[str, str]
) -> None:
    store = StuckStore()
    core = BrokerCore(tmp_path, topic(), store=store)
    assert core.duplicates.windows.is_reading("D")
    header = send_header("D", properties={"UNIQ_KEY": ID} | properties).to_fields()
    async with asyncio.timeout(1):
        place_of(await core.connect().call(RequestCode.SEND_MESSAGE, header, b"the long way"))
    store.released.set()
    await core.stop()


@on_loop
async def test_a_topic_that_is_deleted_takes_nothing_that_waited_for_its_window(
    tmp_path: Path,
) -> None:
    store = StuckStore()
    core = BrokerCore(tmp_path, topic(), store=store)
    waiting = asyncio.ensure_future(send(core, "a"))
    await asyncio.sleep(0.01)
    await core.topics.delete("D")
    store.released.set()
    assert (await waiting).code == ResponseCode.TOPIC_NOT_EXIST
    assert not core.log
    await core.stop()


@on_loop
async def test_topics_are_read_back_one_after_the_other_the_smallest_first(
    tmp_path: Path,
) -> None:
    others = [topic(topic_name=name) for name in ("Large", "None", "Small")]
    core = BrokerCore(tmp_path, *(msgspec.structs.replace(each, attributes={}) for each in others))
    for name, count in (("Large", 30), ("Small", 3)):
        core.store.append_batch([draft(name, queue_id=0) for _ in range(count)])
    readings: list[str] = []
    under_way = 0

    def watched(reader: WindowReader, name: str, *rest: Any) -> dict[int, Window]:
        nonlocal under_way
        under_way += 1
        assert under_way == 1
        readings.append(name)
        try:
            return read(reader, name, *rest)
        finally:
            under_way -= 1

    read = WindowReader.read
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(WindowReader, "read", watched)
        await core.topics.update_all(others)
        for each in others:
            await core.duplicates.windows.ready(each.topic_name)
    assert readings == ["None", "Small", "Large"]
    await core.stop()


@on_loop
async def test_a_topic_that_was_deleted_knows_nothing(tmp_path: Path) -> None:
    async with core_in(tmp_path) as core:
        await send(core, "a")
        await core.topics.delete("D")
        core.store.remove_topic("D")
        await core.topics.update(topic())
        assert place_of(await send(core, "a")).repeats is None


@on_loop
async def test_the_change_of_one_topic_looks_at_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with core_in(tmp_path) as core:
        await core.topics.update(topic(topic_name="E"))
        await core.duplicates.windows.ready("E")
        seen: list[str] = []

        def note(each: TopicConfig) -> bool:
            seen.append(each.topic_name)
            return has_window(each)

        monkeypatch.setattr("bolide.broker.dedup.windows.has_window", note)
        await core.topics.update(PLAIN)
        assert seen == [PLAIN.topic_name]
        assert core.duplicates.windows.covers("E")
        assert not core.duplicates.windows.covers(PLAIN.topic_name)


@on_loop
async def test_a_window_that_nobody_can_read_in_the_file_is_none(tmp_path: Path) -> None:
    core = BrokerCore(tmp_path, topic("for ever"))
    assert not core.duplicates.windows.covers("D")
    await core.stop()


@on_loop
async def test_sends_that_wait_for_a_window_are_refused_when_the_broker_ends(
    tmp_path: Path,
) -> None:
    store = StuckStore()
    core = BrokerCore(tmp_path, topic(), store=store)
    waiting = asyncio.ensure_future(send(core, "a"))
    await until(lambda: core.duplicates.windows.is_reading("D"))
    assert place_of(await send(core)).queue_offset == 0, "what has no key does not wait"
    core.duplicates.windows.stop()
    store.released.set()
    assert (await waiting).code == ResponseCode.SERVICE_NOT_AVAILABLE
    await core.stop()


# ---- the disk


class SlowStore(MemoryStore):
    """A store that reports flushes when the test says so."""

    listener: Listener

    def on_flushed(self, listener: Listener) -> None:
        self.listener = listener


@on_loop
async def test_a_repeat_waits_for_the_disk_as_the_first_does(tmp_path: Path) -> None:
    store = SlowStore()
    async with core_in(tmp_path, mode=FlushMode.SYNC, store=store) as core:
        first, repeat = (asyncio.ensure_future(send(core, "a")) for _ in range(2))
        await asyncio.sleep(0.05)
        assert not first.done()
        assert not repeat.done()
        store.listener(Flushed(store.log.written))
        assert place_of(await repeat).msg_id == place_of(await first).msg_id
        async with asyncio.timeout(1):
            assert place_of(await send(core, "a")).repeats == 1, "what is safe need not wait"


@on_loop
async def test_a_message_that_the_store_takes_back_may_be_sent_again(tmp_path: Path) -> None:
    store = SlowStore()
    async with core_in(tmp_path, mode=FlushMode.SYNC, store=store) as core:
        first, repeat = (asyncio.ensure_future(send(core, "a")) for _ in range(2))
        await until(lambda: core.log)
        await asyncio.sleep(0.01)
        store.listener(Flushed(0, StoreUnwritable("the disk fails"), 1))
        for answer in (await first, await repeat):
            assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert len(core.duplicates.windows) == 0
        again = asyncio.ensure_future(send(core, "a"))
        await until(lambda: len(core.log) == 2)
        store.listener(Flushed(store.log.written))
        assert place_of(await again).repeats is None


# ---- against a model


def keyed(key: str | None, queue_id: int) -> Any:
    properties = b"DEDUP_KEY\x01%s\x02" % key.encode() if key else b""
    return draft("D", queue_id=queue_id)._replace(properties=properties)


KEYS = st.lists(st.sampled_from("abcdef") | st.none(), min_size=1, max_size=4)
STEPS = st.lists(
    st.tuples(st.just("send"), st.integers(0, 1), KEYS)
    | st.tuples(st.just("pass"), st.integers(0, 3), st.just([None]))
    | st.tuples(st.just("restart"), st.just(0), st.just([None])),
    max_size=40,
)


class Model:
    """The content of each queue, and by brute force the part inside the window."""

    def __init__(self, length: str) -> None:
        self.length = length
        self.queues: dict[int, list[tuple[str | None, Appended]]] = {0: [], 1: []}

    def find(self, queue_id: int, key: str, now: float) -> Appended | None:
        held = self.queues[queue_id]
        inside = [
            place
            for each, place in held
            if each == key
            and (
                place.store_timestamp >= (now - 4) * 1000
                if self.length == "4s"
                else place.queue_offset >= len(held) - 5
            )
        ]
        return inside[0] if inside else None

    def check(self, queue_id: int, keys: list[str | None], places: Any, now: float) -> None:
        fresh = iter(places.fresh)
        known = {key: self.find(queue_id, key, now) for key in keys if key}
        for key, place in zip(keys, places.appended, strict=True):
            expected = known.get(key) if key else None
            if expected is None:
                expected = next(fresh)
                self.queues[queue_id].append((key, expected))
                if key:
                    known[key] = expected
            assert place[:3] == expected[:3]
        assert next(fresh, None) is None


@pytest.mark.parametrize("length", ["5", "4s"])
@settings(suppress_health_check=list(HealthCheck), deadline=None, max_examples=60)
@given(steps=STEPS)
def test_any_mix_of_sends_pauses_and_restarts_is_taken_as_the_model_says(
    tmp_path: Path, length: str, steps: list[tuple[str, int, list[str | None]]]
) -> None:
    async def run() -> None:
        model = Model(length)
        async with core_in(tmp_path, length) as core:
            duplicates: Duplicates = core.duplicates
            for what, number, keys in steps:
                if what == "send":
                    drafts = [keyed(key, number) for key in keys]
                    places = duplicates.append("D", number, drafts)
                    model.check(number, keys, places, core.clock.now)
                elif what == "pass":
                    core.clock.advance(number)
                else:
                    duplicates.windows.stop()
                    duplicates = core.new_duplicates()
                    duplicates.windows.start()
                    await duplicates.windows.ready("D")

    asyncio.run(run())
