"""Pull requests: admission, reads, replies and long polling."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from bolide.broker.consume import long_polling as long_polling_module
from bolide.broker.gate import Hooks
from bolide.protocol.bodies.groups import GroupConfig
from bolide.protocol.bodies.heartbeat import (
    ConsumerGroup,
    Heartbeat,
    MessageModel,
    Subscription,
)
from bolide.protocol.bodies.topics import TopicConfig
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.frame import Frame
from bolide.protocol.headers.pull import PullHeader, PullReply
from bolide.protocol.record import iter_records
from bolide.remoting.calls import ConnectionLimits
from bolide.store.errors import NotInMemory
from bolide.store.memory_store import MemoryLog, MemoryStore
from bolide.store.reading import ReadResult
from tests.support.aio import on_loop, until
from tests.support.broker import COMMIT, SUBSCRIBED, SUSPEND, pull_header
from tests.support.broker_core import BrokerCore, Peer, PreparingFastPath
from tests.support.store import draft

NOTHING, AGAIN, MOVED = (
    ResponseCode.PULL_NOT_FOUND,
    ResponseCode.PULL_RETRY_IMMEDIATELY,
    ResponseCode.PULL_OFFSET_MOVED,
)
WAITS = {"sys_flag": SUBSCRIBED | SUSPEND, "suspend_timeout_millis": 60_000}


@pytest.fixture(autouse=True)
def long_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make turns long, so that a busy machine does not end one within a test."""
    monkeypatch.setattr(long_polling_module, "_TURN", 60.0)


@pytest.fixture(params=["by plans", "by handlers"], autouse=True)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run every test with the fast path as well."""
    if request.param == "by handlers":
        monkeypatch.setattr(PreparingFastPath, "serve", lambda _, data, position, *rest: position)


@asynccontextmanager
async def core_in(directory: Path, *topics: TopicConfig, **given: Any) -> AsyncIterator[BrokerCore]:
    core = BrokerCore(directory, *topics, **given)
    try:
        yield core
    finally:
        await core.stop()


async def pull(core: BrokerCore, queue_offset: int = 0, **given: Any) -> Frame:
    return await core.connect().call(
        RequestCode.PULL_MESSAGE, pull_header(queue_offset=queue_offset, **given)
    )


def wait(core: BrokerCore, queue_offset: int = 0, **given: Any) -> tuple[Peer, int]:
    """Send a pull that is held; returns its client and opaque number."""
    peer = core.connect()
    header = pull_header(queue_offset=queue_offset, **WAITS | given)
    return peer, peer.ask(RequestCode.PULL_MESSAGE, header)


def store(core: BrokerCore, *bodies: bytes, tags: str = "", queue_id: int = 0) -> None:
    for body in bodies:
        properties = {"TAGS": tags} if tags else {}
        core.intake.append(draft("T", body, properties=properties, queue_id=queue_id))


def bodies(frame: Frame | None) -> list[bytes]:
    assert frame is not None
    return [bytes(record.body) for record in iter_records(frame.body)]


def position(frame: Frame | None) -> tuple[int, int, int]:
    """Next, min and max offset of a reply."""
    assert frame is not None
    header = PullReply.from_fields(frame.fields)
    return header.next_begin_offset, header.min_offset, header.max_offset


# ---- every status


@on_loop
async def test_messages_are_found_as_the_log_holds_them(tmp_path: Path) -> None:
    async with core_in(tmp_path) as core:
        store(core, b"a", b"b", b"c")
        answer = await pull(core, 1)
        assert (answer.code, answer.remark) == (ResponseCode.SUCCESS, "FOUND")
        assert answer.body == b"".join(record for _, record in core.log[1:])
        assert position(answer) == (3, 0, 3)


@pytest.mark.parametrize(
    ("topic", "offset", "code", "status", "goes_on_at"),
    [
        pytest.param("T", 3, NOTHING, "OFFSET_OVERFLOW_ONE", (3, 1, 3), id="at the end"),
        pytest.param("T", 4, MOVED, "OFFSET_OVERFLOW_BADLY", (3, 1, 3), id="behind the end"),
        pytest.param("T", 2**62, MOVED, "OFFSET_OVERFLOW_BADLY", (3, 1, 3), id="far behind it"),
        pytest.param("T", 0, MOVED, "OFFSET_TOO_SMALL", (1, 1, 3), id="before the beginning"),
        pytest.param("T", -1, MOVED, "OFFSET_TOO_SMALL", (1, 1, 3), id="below zero"),
        pytest.param("Empty", 0, NOTHING, "NO_MATCHED_LOGIC_QUEUE", (0, 0, 0), id="no queue yet"),
        pytest.param("Empty", 5, MOVED, "NO_MATCHED_LOGIC_QUEUE", (0, 0, 0), id="no such offset"),
    ],
)
@on_loop
async def test_where_nothing_is_found_the_answer_says_why_and_where_to_go_on(
    tmp_path: Path,
    topic: str,
    offset: int,
    code: ResponseCode,
    status: str,
    goes_on_at: tuple[int, int, int],
) -> None:
    async with core_in(tmp_path, TopicConfig(topic_name="Empty")) as core:
        store(core, b"gone", b"b", b"c")
        core.store.trim(core.log[1][0])
        answer = await pull(core, offset, topic=topic)
        assert (answer.code, answer.remark, answer.body) == (code, status, b"")
        assert position(answer) == goes_on_at


@on_loop
async def test_a_filter_that_matches_nothing_moves_the_position_past_what_is_not_wanted(
    tmp_path: Path,
) -> None:
    async with core_in(tmp_path) as core:
        store(core, b"a", b"b", tags="A")
        answer = await pull(core, subscription="B")
        assert (answer.code, answer.remark) == (AGAIN, "NO_MATCHED_MESSAGE")
        assert position(answer) == (2, 0, 2)
        store(core, b"c", tags="B")
        assert bodies(await pull(core, subscription="B||C")) == [b"c"]


@pytest.mark.parametrize(("asked", "count"), [(1, 1), (3, 3), (100, 10), (0, 1), (-5, 1)])
@on_loop
async def test_as_many_messages_come_as_were_asked_for(
    tmp_path: Path, asked: int, count: int
) -> None:
    async with core_in(tmp_path) as core:
        store(core, *[b"x"] * 10)
        assert len(bodies(await pull(core, max_msg_nums=asked))) == count


@on_loop
async def test_a_pull_is_limited_by_our_own_limits(tmp_path: Path) -> None:
    async with core_in(tmp_path) as core:
        store(core, *[bytes(1000)] * 1100)
        found = await pull(core, max_msg_nums=5000)
        assert 900 < len(bodies(found)) < 1024, "a MiB at most"
        core.cell.apply({"maxPullCount": "7"})
        assert len(bodies(await pull(core, max_msg_nums=5000))) == 7
        core.cell.apply({"maxPullCount": "1024", "maxPullBytes": "2500"})
        assert len(bodies(await pull(core, max_msg_nums=5000))) == 2
        assert len(bodies(await pull(core, max_msg_nums=5000, max_msg_bytes=1))) == 1


@on_loop
async def test_a_pull_is_limited_by_rocketmqs_limits_where_these_are_given(tmp_path: Path) -> None:
    async with core_in(tmp_path) as core:
        store(core, *[b"x"] * 100)
        assert len(bodies(await pull(core, max_msg_nums=100))) == 100
        core.cell.apply({"transferLimitsGiven": "true"})
        assert len(bodies(await pull(core, max_msg_nums=100))) == 32


# ---- who may


REFUSED = [
    pytest.param({"topic": "None"}, ResponseCode.TOPIC_NOT_EXIST, "apply first", id="no topic"),
    pytest.param({"topic": "Write"}, ResponseCode.NO_PERMISSION, "the topic[Write]", id="perm"),
    pytest.param({"queue_id": 4}, ResponseCode.INVALID_PARAMETER, "queueId[4] is", id="queue"),
    pytest.param({"queue_id": -1}, ResponseCode.INVALID_PARAMETER, "queueId[-1] is", id="below"),
    pytest.param(
        {"consumer_group": "closed"}, ResponseCode.NO_PERMISSION, "group no permission", id="group"
    ),
    pytest.param(
        {"consumer_group": "a b"}, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "illegal", id="name"
    ),
    pytest.param(
        {"subscription": "||"}, ResponseCode.SUBSCRIPTION_PARSE_FAILED, "parse", id="expression"
    ),
    pytest.param(
        {"expression_type": "SQL92", "subscription": "a >"},
        ResponseCode.SUBSCRIPTION_PARSE_FAILED, "'a >' ends too early", id="SQL92",
    ),
    pytest.param(
        {"expression_type": "XPATH", "subscription": "a"}, ResponseCode.SYSTEM_ERROR, "by XPATH",
        id="type",
    ),
    pytest.param(
        {"expression_type": "FILTER", "subscription": "f"}, ResponseCode.SYSTEM_ERROR,
        "filterServerNums", id="function",
    ),
    pytest.param(
        {"sys_flag": 0}, ResponseCode.SUBSCRIPTION_NOT_EXIST, "has sent a heartbeat", id="unknown"
    ),
]  # fmt: skip


@pytest.mark.parametrize(("given", "code", "remark"), REFUSED)
@on_loop
async def test_a_bad_pull_is_refused_with_the_reason(
    tmp_path: Path, given: dict[str, Any], code: ResponseCode, remark: str
) -> None:
    async with core_in(tmp_path, TopicConfig(topic_name="Write", perm=2)) as core:
        await core.tables.groups.update(GroupConfig(group_name="closed", consume_enable=False))
        answer = await pull(core, **given)
        assert answer.code == code
        assert remark in (answer.remark or "")


@on_loop
async def test_a_broker_that_may_not_be_read_refuses_pulls(tmp_path: Path) -> None:
    async with core_in(tmp_path, broker_permission=2) as core:
        answer = await pull(core)
        assert answer.code == ResponseCode.NO_PERMISSION
        assert "the broker[10.0.0.1] pulling message is forbidden" in (answer.remark or "")


@on_loop
async def test_lite_pulls_can_be_switched_off(tmp_path: Path) -> None:
    async with core_in(tmp_path) as core:
        peer = core.connect()
        code = RequestCode.LITE_PULL_MESSAGE
        assert (await peer.call(code, pull_header())).code == NOTHING
        core.cell.apply({"litePullMessageEnable": "false"})
        assert (await peer.call(code, pull_header())).code == ResponseCode.NO_PERMISSION
        assert (await pull(core)).code == NOTHING


# ---- subscriptions of heartbeats


def heartbeat(
    tags: str = "*",
    version: int = 1,
    model: MessageModel = MessageModel.CLUSTERING,
    topic: str = "T",
) -> Heartbeat:
    return Heartbeat(
        client_id="client-1",
        consumer_data_set=[
            ConsumerGroup(
                group_name="readers",
                message_model=model,
                subscription_data_set=[
                    Subscription(topic=topic, sub_string=tags, sub_version=version)
                ],
            )
        ],
    )


def beat(core: BrokerCore, peer: Peer, data: Heartbeat) -> None:
    core.tables.groups.require("readers")
    core.tables.clients.heartbeat(data, peer.connection, "JAVA", 399)


async def subscribed_pull(core: BrokerCore, data: Heartbeat, **given: Any) -> Frame:
    peer = core.connect()
    beat(core, peer, data)
    header = pull_header(**{"sys_flag": 0, "sub_version": 1} | given)
    return await peer.call(RequestCode.PULL_MESSAGE, header)


@on_loop
async def test_a_pull_without_a_subscription_of_its_own_uses_that_of_the_heartbeat(
    tmp_path: Path,
) -> None:
    async with core_in(tmp_path) as core:
        store(core, b"a", tags="A")
        store(core, b"b", tags="B")
        assert bodies(await subscribed_pull(core, heartbeat("B"))) == [b"b"]


@pytest.mark.parametrize(
    ("data", "given", "code"),
    [
        (heartbeat(topic="Other"), {}, ResponseCode.SUBSCRIPTION_NOT_EXIST),
        (heartbeat(version=1), {"sub_version": 2}, ResponseCode.SUBSCRIPTION_NOT_LATEST),
        (heartbeat(version=3), {"sub_version": 2}, NOTHING),
        (heartbeat(model=MessageModel.BROADCASTING), {}, ResponseCode.NO_PERMISSION),
        (heartbeat(), {}, NOTHING),
    ],
)
@on_loop
async def test_what_the_heartbeats_said_decides_whether_a_pull_may_go_on(
    tmp_path: Path, data: Heartbeat, given: dict[str, int], code: ResponseCode
) -> None:
    async with core_in(tmp_path) as core:
        config = GroupConfig(group_name="readers", consume_broadcast_enable=False)
        await core.tables.groups.update(config)
        assert (await subscribed_pull(core, data, **given)).code == code


@on_loop
async def test_a_group_can_be_forbidden_to_read_a_topic(tmp_path: Path) -> None:
    async with core_in(tmp_path) as core:
        await core.tables.groups.set_forbidden("readers", "T", readable=False)
        answer = await subscribed_pull(core, heartbeat())
        assert answer.code == ResponseCode.NO_PERMISSION
        assert "is forbidden for topic[T]" in (answer.remark or "")


@on_loop
async def test_pull_consumers_that_nobody_knows_can_be_rejected(tmp_path: Path) -> None:
    async with core_in(tmp_path, reject_pull_consumer_enable=True) as core:
        answer = await pull(core)
        assert answer.code == ResponseCode.SUBSCRIPTION_NOT_EXIST
        assert "rejectPullConsumerEnable" in (answer.remark or "")
        assert (await pull(core, consumer_group="TOOLS_CONSUMER")).code == NOTHING
        assert (await subscribed_pull(core, heartbeat())).code == NOTHING


# ---- offsets that ride along


@pytest.mark.parametrize(
    ("flag", "offset", "committed"), [(COMMIT, 2, 2), (0, 2, None), (COMMIT, -1, None)]
)
@on_loop
async def test_an_offset_rides_on_a_pull_if_its_flag_says_so(
    tmp_path: Path, flag: int, offset: int, committed: int | None
) -> None:
    async with core_in(tmp_path) as core:
        await pull(core, sys_flag=SUBSCRIBED | flag, commit_offset=offset)
        assert core.tables.offsets.find("readers", "T", 0) == committed


@on_loop
async def test_a_pull_that_is_refused_commits_nothing(tmp_path: Path) -> None:
    async with core_in(tmp_path) as core:
        await pull(core, sys_flag=COMMIT, commit_offset=2)
        assert core.tables.offsets.find("readers", "T", 0) is None


@on_loop
async def test_a_reset_is_told_once_and_what_rides_along_is_of_the_time_before(
    tmp_path: Path,
) -> None:
    async with core_in(tmp_path) as core:
        store(core, b"a", b"b")
        core.tables.offsets.reset("readers", "T", {0: 1})
        given = {"sys_flag": SUBSCRIBED | COMMIT, "commit_offset": 2}
        answer = await pull(core, 2, **given)
        assert (answer.code, answer.remark) == (MOVED, "OFFSET_RESET")
        assert position(answer) == (1, 0, 2)
        assert core.tables.offsets.find("readers", "T", 0) == 1
        assert bodies(await pull(core, 1)) == [b"b"]


# ---- waiting


@on_loop
async def test_a_pull_waits_for_the_next_message_and_gets_it(tmp_path: Path) -> None:
    async with core_in(tmp_path) as core:
        store(core, b"old")
        peer, number = wait(core, 1)
        await asyncio.sleep(0.01)
        assert peer.answer(number) is None
        store(core, b"another queue", queue_id=1)
        await asyncio.sleep(0.01)
        assert peer.answer(number) is None
        store(core, b"new")
        await asyncio.sleep(0)
        assert bodies(peer.answer(number)) == [b"new"]
        assert len(core.long_polling) == 0
        assert peer.connection.is_idle


@on_loop
async def test_a_pull_of_a_queue_that_is_not_there_yet_waits_too(tmp_path: Path) -> None:
    async with core_in(tmp_path) as core:
        peer, number = wait(core)
        store(core, b"first")
        await asyncio.sleep(0)
        assert bodies(peer.answer(number)) == [b"first"]


@on_loop
async def test_many_may_wait_for_one_queue_and_all_get_the_message(tmp_path: Path) -> None:
    async with core_in(tmp_path) as core:
        waiting = [wait(core) for _ in range(50)]
        assert len(core.long_polling) == 50
        store(core, b"for all")
        await asyncio.sleep(0)
        for peer, number in waiting:
            assert bodies(peer.answer(number)) == [b"for all"]


@on_loop
async def test_when_the_time_is_up_the_answer_is_that_there_is_nothing(tmp_path: Path) -> None:
    async with core_in(tmp_path) as core:
        store(core, b"old")
        peer, number = wait(core, 1, suspend_timeout_millis=20)
        await until(lambda: peer.answer(number))
        answer = peer.answer(number)
        assert answer is not None
        assert (answer.code, position(answer)) == (NOTHING, (1, 0, 1))


@on_loop
async def test_nobody_waits_longer_than_the_broker_lets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bolide.broker.consume.pull.MAX_WAIT", 0.02)
    async with core_in(tmp_path) as core:
        peer, number = wait(core, suspend_timeout_millis=2**62)
        await until(lambda: peer.answer(number))


@on_loop
async def test_who_waits_while_permissions_change_is_told_to_ask_again(tmp_path: Path) -> None:
    async with core_in(tmp_path) as core:
        peer, number = wait(core)
        core.long_polling.revoke_all()
        answer = peer.answer(number)
        assert answer is not None
        assert (answer.code, answer.body) == (NOTHING, b"")


@on_loop
async def test_without_long_polling_it_waits_as_long_as_the_broker_says(tmp_path: Path) -> None:
    async with core_in(tmp_path, long_polling_enable=False, short_polling_time=0.02) as core:
        peer, number = wait(core)
        await until(lambda: peer.answer(number), within=2.0)


@pytest.mark.parametrize("flag", [SUBSCRIBED, SUBSCRIBED | SUSPEND])
@on_loop
async def test_an_offset_that_is_wrong_does_not_wait(tmp_path: Path, flag: int) -> None:
    async with core_in(tmp_path) as core:
        store(core, b"old")
        answer = await pull(core, 7, sys_flag=flag, suspend_timeout_millis=60_000)
        assert answer.code == MOVED


@on_loop
async def test_messages_that_are_not_wanted_wake_nobody_and_the_position_moves_past_them(
    tmp_path: Path,
) -> None:
    async with core_in(tmp_path) as core:
        peer, number = wait(core, subscription="B", suspend_timeout_millis=150)
        store(core, b"a", b"a", tags="A")
        await asyncio.sleep(0.01)
        assert peer.answer(number) is None
        await until(lambda: peer.answer(number))
        answer = peer.answer(number)
        assert answer is not None
        assert (answer.code, position(answer)) == (AGAIN, (2, 0, 2))


@on_loop
async def test_the_one_wanted_message_behind_many_others_is_not_slept_over(tmp_path: Path) -> None:
    async with core_in(tmp_path) as core:
        peer, number = wait(core, subscription="B")
        store(core, *[b"a"] * 1000, tags="A")
        store(core, b"b", tags="B")
        await asyncio.sleep(0)
        answer = peer.answer(number)
        assert answer is not None, "or it would come a minute late"
        next_offset, _, _ = position(answer)
        assert answer.code == AGAIN
        assert bodies(await pull(core, next_offset, subscription="B")) == [b"b"]


@on_loop
async def test_a_reset_is_told_to_those_who_wait(tmp_path: Path) -> None:
    async with core_in(tmp_path) as core:
        store(core, b"a", b"b")
        peer, number = wait(core, 2)
        core.tables.offsets.reset("readers", "T", {0: 0})
        answer = peer.answer(number)
        assert answer is not None
        assert (answer.code, position(answer)) == (MOVED, (0, 0, 2))


@on_loop
async def test_who_is_gone_is_not_waited_for(tmp_path: Path) -> None:
    async with core_in(tmp_path) as core:
        peer, _ = wait(core)
        peer.connection.abort()
        await peer.connection.wait_closed()
        assert len(core.long_polling) == 0


@on_loop
async def test_at_the_end_all_who_wait_are_answered(tmp_path: Path) -> None:
    async with core_in(tmp_path) as core:
        peer, number = wait(core)
        core.long_polling.stop()
        answer = peer.answer(number)
        assert answer is not None
        assert answer.code == NOTHING
        late, number = wait(core)
        assert late.answer(number) is not None


# ---- waiting of those who do not read


def deaf(core: BrokerCore, count: int, **given: Any) -> tuple[Peer, list[int]]:
    """A client with several waiting pulls and a write buffer smaller than one reply."""
    peer = core.connect(limits=ConnectionLimits(write_high_water=1000))
    header = pull_header(queue_offset=0, **WAITS | given)
    return peer, [peer.ask(RequestCode.PULL_MESSAGE, header) for _ in range(count)]


def answered(peer: Peer, numbers: list[int]) -> list[int]:
    return [number for number in numbers if peer.answer(number)]


@on_loop
async def test_who_does_not_read_is_answered_as_far_as_there_is_room_and_goes_on_when_it_reads(
    tmp_path: Path,
) -> None:
    async with core_in(tmp_path) as core:
        peer, numbers = deaf(core, 4)
        store(core, bytes(2000))
        for count in range(1, 4):
            await asyncio.sleep(0)
            assert len(answered(peer, numbers)) == count
            assert (peer.connection.is_blocked, len(core.long_polling)) == (True, 4 - count)
            store(core, b"more")  # must not unblock the client
            await asyncio.sleep(0)
            assert len(answered(peer, numbers)) == count
            peer.transport.drain()
        await asyncio.sleep(0)
        assert answered(peer, numbers) == numbers
        assert all(bodies(peer.answer(number))[0] == bytes(2000) for number in numbers)


@on_loop
async def test_others_are_answered_while_one_does_not_read(tmp_path: Path) -> None:
    async with core_in(tmp_path) as core:
        deaf(core, 4)
        peer, number = wait(core)
        store(core, bytes(2000))
        await asyncio.sleep(0)
        assert bodies(peer.answer(number)) == [bytes(2000)]


@pytest.mark.parametrize(
    ("tags", "code", "goes_on_at"), [("*", NOTHING, (0, 0, 2)), ("B", AGAIN, (1, 0, 2))]
)
@on_loop
async def test_when_the_time_is_up_who_does_not_read_gets_a_small_answer_and_no_messages(
    tmp_path: Path, tags: str, code: ResponseCode, goes_on_at: tuple[int, int, int]
) -> None:
    async with core_in(tmp_path) as core:
        peer, (number,) = deaf(core, 1, suspend_timeout_millis=150, subscription=tags)
        if tags != "*":
            store(core, b"not wanted", tags="A")
            await asyncio.sleep(0)
        peer.connection.pause_writing()
        store(core, *[b"wanted"] * (2 if tags == "*" else 1), tags="B")
        await until(lambda: peer.answer(number))
        answer = peer.answer(number)
        assert answer is not None
        assert (answer.code, answer.body, position(answer)) == (code, b"", goes_on_at)
        assert len(core.long_polling) == 0


@on_loop
async def test_a_reset_is_told_to_who_does_not_read_when_its_time_is_up(tmp_path: Path) -> None:
    async with core_in(tmp_path) as core:
        peer, (number,) = deaf(core, 1)
        peer.connection.pause_writing()
        core.tables.offsets.reset("readers", "T", {0: 0})
        assert peer.answer(number) is None
        core.long_polling.stop()
        answer = peer.answer(number)
        assert answer is not None
        assert (answer.code, answer.remark) == (MOVED, "OFFSET_RESET")


# ---- what is not in memory


class ColdLog(MemoryLog):
    def read_block(
        self, physical_offset: int, least: int, most: int, *, may_block: bool
    ) -> memoryview | None:
        if not may_block:
            raise NotInMemory("somewhere", 0)
        return super().read_block(physical_offset, least, most, may_block=may_block)


class ColdStore(MemoryStore):
    """A store in which every read needs the disk."""

    def __init__(self) -> None:
        super().__init__()
        self.log = ColdLog(self.config.value.commit_log_file_size)

    def read(self, *args: Any, may_block: bool = True, **given: Any) -> ReadResult:
        if not may_block:
            raise NotInMemory("somewhere", 0)
        return super().read(*args, **given)


@on_loop
async def test_what_is_on_the_disk_only_is_read_on_a_thread(tmp_path: Path) -> None:
    async with core_in(tmp_path, store=ColdStore()) as core:
        store(core, b"a")
        assert bodies(await pull(core)) == [b"a"]
        assert (await pull(core, 1)).code == NOTHING


@on_loop
async def test_a_thread_that_fails_is_told_to_the_client(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, may_block: bool, **__: object) -> None:
        raise NotInMemory("x", 0) if not may_block else OSError(5, "Input/output error")

    async with core_in(tmp_path) as core:
        monkeypatch.setattr(core.store, "read", fail)
        answer = await pull(core)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "Input/output error" in (answer.remark or "")


# ---- what else an answer says, and who hears of it


@on_loop
async def test_a_group_that_is_far_behind_is_sent_to_a_slave(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with core_in(tmp_path) as core:
        store(core, b"a", b"b")
        monkeypatch.setattr("bolide.broker.consume.pull._MEMORY", 1)
        suggested = []
        for enabled in ("false", "true"):
            core.cell.apply({"slaveReadEnable": enabled})
            answer = await pull(core, max_msg_nums=1)
            suggested.append(PullReply.from_fields(answer.fields).suggest_which_broker_id)
        assert suggested == [0, 1]


class Watcher:
    def __init__(self) -> None:
        self.seen: list[tuple[str, int]] = []

    def after_pull(self, peer: str, header: PullHeader, count: int, size: int) -> None:
        self.seen.append((header.topic, count))


@on_loop
async def test_a_consume_hook_sees_every_delivery(tmp_path: Path) -> None:
    hook = Watcher()
    async with core_in(tmp_path, hooks=Hooks(consume=(hook,))) as core:
        store(core, b"a", b"b")
        await pull(core)
        wait(core, 2)
        store(core, b"c")
        await asyncio.sleep(0)
    assert hook.seen == [("T", 2), ("T", 1)]
