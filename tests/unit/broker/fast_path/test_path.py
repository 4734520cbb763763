"""Which sends the fast path serves, and what it does when it cannot.

`test_handlers_as_reference` compares its replies with those of the handlers.
"""

import asyncio
from math import inf
from pathlib import Path
from typing import Any

import pytest

from bolide.broker.consume.long_polling import CallbackWaiter
from bolide.broker.fast_path.sends import _MAX_MESSAGES
from bolide.broker.gate import Hooks
from bolide.protocol.bodies.topics import TopicConfig, TopicFilterType
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.frame import Frame
from bolide.remoting.calls import ConnectionLimits
from bolide.store.config import FlushMode
from bolide.store.errors import StoreUnwritable
from bolide.store.flusher import Flushed, Listener
from bolide.store.health import LOG_FILES
from bolide.store.memory_store import MemoryStore
from tests.support.aio import on_loop, until
from tests.support.broker import send_header
from tests.support.broker_core import BrokerCore, Peer, PreparingFastPath
from tests.support.wire import request_bytes

NAMED = {"UNIQ_KEY": "7F00000112345678ABCDEF0000010000"}


def plain(topic: str = "T", *, body: bytes = b"hello", opaque: int = 1, **given: Any) -> bytes:
    header = send_header(topic, **{"properties": NAMED} | given)
    code = RequestCode.SEND_MESSAGE_V2
    return request_bytes(code, header.to_short(), body=body, opaque=opaque)


def serves(core: BrokerCore, data: bytes) -> bool:
    """Whether the fast path takes a frame; nothing else sees it."""
    return PreparingFastPath(core).serve(data, 0, core.connect().connection, inf) == len(data)


async def answer_of(peer: Peer, opaque: int = 1) -> Frame:
    await until(lambda: peer.answer(opaque))
    found = peer.answer(opaque)
    assert found is not None
    return found


# ---- which topics


@pytest.mark.parametrize(
    ("topic", "is_served"),
    [
        pytest.param(TopicConfig(topic_name="U"), True, id="an ordinary one"),
        pytest.param(TopicConfig(topic_name="U", perm=2), True, id="one that is only written"),
        pytest.param(TopicConfig(topic_name="U", perm=4), False, id="one that is only read"),
        pytest.param(TopicConfig(topic_name="U", order=True), True, id="an ordered one"),
        pytest.param(
            TopicConfig(topic_name="U", topic_filter_type=TopicFilterType.MULTI_TAG),
            False,
            id="several tags",
        ),
        pytest.param(TopicConfig(topic_name="U", write_queue_nums=1), True, id="fewer to write"),
        pytest.param(
            TopicConfig(topic_name="U", write_queue_nums=1, read_queue_nums=1), False, id="no queue"
        ),
        pytest.param(TopicConfig(topic_name="U" * 127), True, id="the longest name of 4.9"),
        pytest.param(TopicConfig(topic_name="U" * 128), False, id="a name of 5.x"),
        pytest.param(TopicConfig(topic_name="SELF_TEST_TOPIC"), False, id="the broker's own"),
        pytest.param(TopicConfig(topic_name="rmq_sys_REVIVE_LOG_c"), False, id="what it reads"),
        pytest.param(TopicConfig(topic_name="%RETRY%g"), False, id="retries"),
        pytest.param(TopicConfig(topic_name="%DLQ%g"), False, id="dead letters"),
        pytest.param(TopicConfig(topic_name="a.b"), False, id="a name that no topic may have"),
    ],
)
@on_loop
async def test_plain_sends_to_plain_topics_are_served(
    tmp_path: Path, topic: TopicConfig, is_served: bool
) -> None:
    core = BrokerCore(tmp_path, topic)
    assert serves(core, plain(topic.topic_name, queue_id=1)) is is_served
    await core.stop()


@on_loop
async def test_an_unknown_topic_is_for_the_ordinary_way_until_it_is_there(tmp_path: Path) -> None:
    core = BrokerCore(tmp_path)
    assert not serves(core, plain("New"))
    await core.topics.update(TopicConfig(topic_name="New"))
    assert serves(core, plain("New"))
    await core.topics.delete("New")
    assert not serves(core, plain("New"))
    await core.stop()


@on_loop
async def test_a_topic_that_is_closed_for_writing_is_served_no_longer(tmp_path: Path) -> None:
    core = BrokerCore(tmp_path)
    await core.topics.update(TopicConfig(topic_name="T", perm=4))
    assert not serves(core, plain())
    await core.stop()


@on_loop
async def test_a_broker_that_may_not_be_written_to_serves_no_ordered_topics(tmp_path: Path) -> None:
    core = BrokerCore(tmp_path, TopicConfig(topic_name="Order", order=True))
    core.cell.apply({"brokerPermission": "4"})
    assert serves(core, plain("T"))
    assert not serves(core, plain("Order"))
    await core.stop()


@on_loop
async def test_before_the_time_to_accept_sends_nothing_is_served(tmp_path: Path) -> None:
    core = BrokerCore(tmp_path, start_accept_send_request_time_stamp=2_000_000_000.0)
    assert not serves(core, plain())
    peer = core.connect()
    peer.receive(plain())
    assert "unable to service, until 2000000000000" in ((await answer_of(peer)).remark or "")
    await core.stop()


class Watcher:
    """A send hook that sees what there is to see."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def before_send(self, peer: str, header: Any, body: bytes) -> None:
        self.seen.append("before")

    def after_send(self, peer: str, header: Any, reply: Any) -> None:
        self.seen.append("after")


@on_loop
async def test_with_a_send_hook_every_send_takes_the_ordinary_way(tmp_path: Path) -> None:
    hook = Watcher()
    core = BrokerCore(tmp_path, hooks=Hooks(send=(hook,)))
    peer = core.connect()
    peer.receive(plain())
    assert (await answer_of(peer)).code == ResponseCode.SUCCESS
    assert hook.seen == ["before", "after"]
    await core.stop()


@on_loop
async def test_a_send_hook_that_comes_later_sees_every_send_from_then_on(tmp_path: Path) -> None:
    core = BrokerCore(tmp_path)
    assert serves(core, plain())
    core.hooks.send = (Watcher(),)
    assert not serves(core, plain())
    await core.stop()


@on_loop
async def test_changed_settings_stand_in_the_next_answer_and_on_the_next_message(
    tmp_path: Path,
) -> None:
    core = BrokerCore(tmp_path)
    core.cell.apply({"regionId": 'a"%d', "traceOn": "false"})
    peer = core.connect()
    peer.receive(plain())
    fields = (await answer_of(peer)).fields or {}
    assert (fields["MSG_REGION"], fields["TRACE_ON"]) == ('a"%d', "false")
    assert b'MSG_REGION\x01a"%d\x02TRACE_ON\x01false\x02' in core.log[0][1]
    await core.stop()


# ---- what it leaves to the ordinary way


@on_loop
async def test_it_stops_at_what_it_does_not_know_and_is_asked_again_behind_it(
    tmp_path: Path,
) -> None:
    core = BrokerCore(tmp_path)
    peer = core.connect()
    delayed = plain(properties=NAMED | {"DELAY": "1"}, opaque=2)
    data = plain(opaque=1) + delayed + plain(opaque=3)
    alone = core.connect()
    assert PreparingFastPath(core).serve(data, 0, alone.connection, inf) == len(plain(opaque=1))
    assert alone.answer(1)
    peer.receive(data)
    await until(lambda: all(map(peer.answer, (1, 2, 3))))
    topics = [b"SCHEDULE_TOPIC_XXXX" in record for _, record in core.log]
    assert topics == [False, False, True, False], "in the order of arrival"
    await core.stop()


@on_loop
async def test_when_the_time_is_up_it_stops_behind_a_group_of_messages(tmp_path: Path) -> None:
    core = BrokerCore(tmp_path)
    frames = [plain(opaque=number) for number in range(_MAX_MESSAGES + 1)]
    peer = core.connect()
    end = PreparingFastPath(core).serve(b"".join(frames), 0, peer.connection, -inf)
    assert end == sum(map(len, frames[:-1]))
    assert peer.answer(_MAX_MESSAGES - 1)
    assert len(core.log) == _MAX_MESSAGES
    await core.stop()


@on_loop
async def test_half_a_frame_is_left_alone(tmp_path: Path) -> None:
    core = BrokerCore(tmp_path)
    data = plain(opaque=1) + plain(opaque=2)[:-1]
    end = PreparingFastPath(core).serve(data, 0, core.connect().connection, inf)
    assert end == len(plain(opaque=1))
    assert len(core.log) == 1
    await core.stop()


@on_loop
async def test_a_frame_over_the_limit_is_not_served(tmp_path: Path) -> None:
    core = BrokerCore(tmp_path)
    data = plain(body=bytes(500))
    exact = core.connect(limits=ConnectionLimits(max_frame_size=len(data)))
    exact.receive(data)
    assert (await answer_of(exact)).code == ResponseCode.SUCCESS
    tight = core.connect(limits=ConnectionLimits(max_frame_size=len(data) - 1))
    tight.receive(data)
    assert tight.written == b""
    assert tight.transport.is_closing()
    assert len(core.log) == 1
    await core.stop()


@on_loop
async def test_a_message_over_the_limit_is_refused_with_what_to_do(tmp_path: Path) -> None:
    core = BrokerCore(tmp_path)
    core.store_cell.apply({"maxMessageSize": "10"})
    peer = core.connect()
    peer.receive(plain(body=bytes(11)))
    answer = await answer_of(peer)
    assert answer.code == ResponseCode.MESSAGE_ILLEGAL
    assert "raise maxMessageSize" in (answer.remark or "")
    assert (answer.fields or {})["MSG_REGION"] == "DefaultRegion"
    assert core.store.find_queue("T", 0) is None, "nothing is left of it"
    await core.stop()


@on_loop
async def test_a_store_that_takes_nothing_is_told_of_by_code_14(tmp_path: Path) -> None:
    core = BrokerCore(tmp_path)
    core.store.health.refuse(LOG_FILES, "the disk is full")
    peer = core.connect()
    peer.receive(plain(opaque=1) + plain(opaque=2))
    for number in (1, 2):
        answer = await answer_of(peer, number)
        assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert "the disk is full" in (answer.remark or "")
    assert core.statistics.totals.failed == 2
    core.store.health.allow(LOG_FILES)
    peer.receive(plain(opaque=3))
    assert (await answer_of(peer, 3)).code == ResponseCode.SUCCESS
    await core.stop()


@on_loop
async def test_an_error_that_nobody_foresaw_is_answered_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    core = BrokerCore(tmp_path)

    def fail(*_: object, **__: object) -> None:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(core.store, "append", fail)
    monkeypatch.setattr(core.fast_path.sends, "_reserve", fail)
    peer = core.connect()
    peer.receive(plain())
    answer = await answer_of(peer)
    assert (answer.code, "Too many open files" in (answer.remark or "")) == (1, True)
    assert not peer.transport.is_closing()
    await core.stop()


# ---- waiting for the disk


class HeldStore(MemoryStore):
    """A store whose flushes the test tells of."""

    def on_flushed(self, listener: Listener) -> None:
        self.tell = listener


def sync_core(directory: Path, **settings: Any) -> tuple[BrokerCore, HeldStore]:
    store = HeldStore()
    core = BrokerCore(directory, mode=FlushMode.SYNC, store=store, **settings)
    return core, store


@on_loop
async def test_with_sync_flush_the_answer_comes_when_the_disk_has_the_message(
    tmp_path: Path,
) -> None:
    core, store = sync_core(tmp_path)
    peer = core.connect()
    first, second = plain(opaque=1), plain(opaque=2)
    peer.receive(first)
    peer.receive(second)
    await asyncio.sleep(0)
    assert peer.answer(1) is None
    assert not peer.connection.is_idle
    store.tell(Flushed(len(core.log[0][1])))
    assert (await answer_of(peer, 1)).code == ResponseCode.SUCCESS
    assert peer.answer(2) is None
    store.tell(Flushed(store.log.written))
    assert (await answer_of(peer, 2)).code == ResponseCode.SUCCESS
    assert peer.connection.is_idle
    await core.stop()


@on_loop
async def test_a_message_that_is_taken_back_is_refused(tmp_path: Path) -> None:
    core, store = sync_core(tmp_path)
    peer = core.connect()
    peer.receive(plain())
    store.tell(Flushed(0, StoreUnwritable("the disk fails"), 1))
    answer = await answer_of(peer)
    assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert "the disk fails" in (answer.remark or "")
    assert core.statistics.totals.failed == 1
    await core.stop()


@on_loop
async def test_a_flush_that_is_quicker_than_the_end_of_the_burst_wakes_who_waits(
    tmp_path: Path,
) -> None:
    core, store = sync_core(tmp_path)
    asked: list[bool] = []
    core.long_polling.hold(waiter_of(asked), 60)
    core.connect().receive(plain(queue_id=3))
    assert not asked
    core.durability._flushed(Flushed(store.log.written))
    assert asked == [False]
    await core.stop()


@on_loop
async def test_a_disk_that_takes_long_is_told_of_by_code_10_with_all_an_answer_has(
    tmp_path: Path,
) -> None:
    core, _ = sync_core(tmp_path)
    core.store_cell.apply({"syncFlushTimeout": "1"})
    peer = core.connect()
    peer.receive(plain())
    answer = await answer_of(peer)
    assert answer.code == ResponseCode.FLUSH_DISK_TIMEOUT
    assert (answer.fields or {})["queueOffset"] == "0"
    await core.stop()


@on_loop
async def test_a_client_that_is_gone_is_not_answered(tmp_path: Path) -> None:
    core, store = sync_core(tmp_path)
    peer = core.connect()
    peer.receive(plain())
    peer.connection.abort()
    await peer.connection.wait_closed()
    store.tell(Flushed(store.log.written))
    await asyncio.sleep(0.01)
    assert peer.written == b""
    await core.stop()


@on_loop
async def test_sends_under_way_are_counted_and_too_many_are_told_it_is_busy(tmp_path: Path) -> None:
    core, store = sync_core(tmp_path)
    peer = core.connect(limits=ConnectionLimits(max_requests=2))
    for number in (1, 2, 3):
        peer.receive(plain(opaque=number, body=bytes(1000)))
    assert (await answer_of(peer, 3)).code == ResponseCode.SYSTEM_BUSY
    assert peer.connection.held >= 2000
    store.tell(Flushed(store.log.written))
    assert (await answer_of(peer, 2)).code == ResponseCode.SUCCESS
    assert peer.connection.held == 0
    await core.stop()


@on_loop
async def test_who_asks_twice_for_the_end_of_a_connection_is_told_twice(tmp_path: Path) -> None:
    core, store = sync_core(tmp_path)
    peer = core.connect()
    peer.receive(plain())
    ends = [asyncio.create_task(peer.connection.finish()) for _ in range(2)]
    await asyncio.sleep(0.01)
    store.tell(Flushed(store.log.written))
    async with asyncio.timeout(10):
        await asyncio.gather(*ends)
    await core.stop()


@on_loop
async def test_a_connection_that_finishes_waits_for_what_the_disk_has_not(tmp_path: Path) -> None:
    core, store = sync_core(tmp_path)
    peer = core.connect()
    peer.receive(plain())
    finishing = asyncio.create_task(peer.connection.finish())
    await asyncio.sleep(0.01)
    assert not finishing.done()
    store.tell(Flushed(store.log.written))
    await finishing
    assert peer.answer(1) is not None
    await core.stop()


# ---- statistics


@on_loop
async def test_what_was_sent_is_counted_by_queue_when_somebody_looks(tmp_path: Path) -> None:
    core = BrokerCore(tmp_path)
    peer = core.connect()
    peer.receive(plain(queue_id=0, opaque=1) + plain(queue_id=1, opaque=2))
    await answer_of(peer, 2)
    peer.receive(plain(queue_id=1, opaque=3))
    await answer_of(peer, 3)
    statistics = core.statistics
    assert statistics.totals.sent == 3
    statistics.sample()
    for queue_id, count in ((0, 1), (1, 2)):
        stats = statistics.view("QUEUE_PUT_NUMS", f"T@{queue_id}")
        assert stats is not None
        assert stats.stats_minute is not None
        assert stats.stats_minute.sum == count
    await until(lambda: statistics.put_latencies.longest > 0.0)
    await core.stop()


@pytest.mark.parametrize("mode", FlushMode)
@on_loop
async def test_who_waits_is_woken_though_somebody_looks_at_the_statistics_first(
    tmp_path: Path, mode: FlushMode
) -> None:
    core = BrokerCore(tmp_path, mode=mode)
    asked: list[bool] = []
    if mode is FlushMode.ASYNC:
        core.long_polling.hold(waiter_of(asked), 60)
    core.connect().receive(plain(queue_id=3))
    assert core.statistics.totals.sent == 1
    if mode is FlushMode.SYNC:  # it cannot be read yet
        core.long_polling.hold(waiter_of(asked), 60)
    await until(lambda: asked)
    await core.stop()


def waiter_of(asked: list[bool]) -> CallbackWaiter:
    """Waits for queue 3 and notes how it is asked."""

    def retry(is_last: bool) -> bool:
        asked.append(is_last)
        return True

    return CallbackWaiter(("T", 3), retry)
