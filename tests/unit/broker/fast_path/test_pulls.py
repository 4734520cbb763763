"""Pulls on the fast path: served by plans, with the same bytes that the handlers would write."""

import asyncio
import logging
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bolide.broker.consume import long_polling as long_polling_module
from bolide.broker.filters.sql import compile_sql
from bolide.broker.filters.subscriptions import SQL92
from bolide.protocol.bodies.groups import GroupConfig
from bolide.protocol.bodies.heartbeat import ConsumerGroup, Heartbeat, MessageModel, Subscription
from bolide.protocol.bodies.topics import TopicConfig
from bolide.protocol.codes import RequestCode
from bolide.protocol.frame import HeaderEncoding
from bolide.protocol.headers.pull import PullHeader
from bolide.remoting import connection as connection_module
from bolide.store import consume_queue
from bolide.store.config import FlushMode, StoreConfig
from bolide.store.errors import NotInMemory
from bolide.store.memory_store import MemoryQueue
from bolide.store.message_store import MessageStore
from tests.support.aio import on_loop, until
from tests.support.broker import COMMIT, SUBSCRIBED, SUSPEND, pull_header
from tests.support.broker_core import BrokerCore, Peer, PreparingFastPath
from tests.support.store import draft
from tests.support.wire import request_bytes, response_of

PULL, LITE = RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE


@pytest.fixture(autouse=True)
def long_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (connection_module, long_polling_module):
        monkeypatch.setattr(module, "_TURN", 60.0)


@asynccontextmanager
async def core_in(directory: Path, **given: Any) -> AsyncIterator[BrokerCore]:
    core = BrokerCore(directory, TopicConfig(topic_name="Other"), **given)
    for number in range(40):
        core.intake.append(draft(body=b"%d" % number, properties={"TAGS": "AB"[number % 2]}))
    try:
        yield core
    finally:
        await core.stop()


def request(
    opaque: int = 1,
    code: RequestCode = PULL,
    encoding: HeaderEncoding = HeaderEncoding.JSON,
    **given: Any,
) -> bytes:
    fields = pull_header(**given).to_fields()
    return request_bytes(code, fields, opaque=opaque, encoding=encoding)


def ahead(core: BrokerCore, peer: Peer, data: bytes) -> bytes | None:
    """The reply of the fast path to a pull that was prepared; None if it falls through."""
    PreparingFastPath(core).prepare_pull(data, 0, peer.connection)
    sender = core.plans.of(peer.connection)
    stop, reply, reason = core.fast_path.pulls.serve(data, 0, peer.connection, sender)
    assert stop == (0 if reason else len(data))
    return None if reason else bytes(reply)


def open_plans(core: BrokerCore) -> int:
    """How many plans for pulls there are."""
    senders = core.plans._by_sender.values()
    return sum(plan.is_open for sender in senders for plan in sender.pulls.values())


def both_ways(core: BrokerCore, data: bytes) -> bytes:
    """The reply to a request, which is the same by plan and by handler."""
    written = []
    for peer in (core.connect(), core.connect(fast=False)):
        peer.receive(data)
        written.append(peer.written)
    assert written[0] == written[1]
    return written[0]


# ---- what plans answer


@pytest.mark.parametrize("encoding", HeaderEncoding)
@pytest.mark.parametrize("code", [PULL, LITE])
@pytest.mark.parametrize(
    "given",
    [
        {},
        {"queue_offset": 39},
        {"max_msg_nums": 100},
        {"max_msg_nums": -1},
        {"max_msg_bytes": 300},
        {"subscription": "A"},
        {"subscription": "A||C", "queue_offset": 7, "max_msg_nums": 3},
        {"subscription": "C"},
        {"queue_offset": 40},
        {"sys_flag": SUBSCRIBED | COMMIT, "commit_offset": 12},
        {"sys_flag": SUBSCRIBED | SUSPEND},
        {"expression_type": None},
        {"proxy_froward_client_id": 'quoted "name" \\ ü'},
        {"expression_type": "SQL92", "subscription": "TAGS = 'B'"},
        {"expression_type": "SQL92", "subscription": "TAGS > 1 OR b IS NULL"},
        {"expression_type": "SQL92", "subscription": "TAGS CONTAINS 'A'", "max_msg_bytes": 500},
        {"expression_type": "SQL92", "subscription": "TAGS IN ('A', 'C')", "max_msg_nums": 3},
    ],
)
@on_loop
async def test_a_plan_answers_as_the_handlers_do(
    tmp_path: Path, given: dict[str, Any], code: RequestCode, encoding: HeaderEncoding
) -> None:
    async with core_in(tmp_path) as core:
        if given.get("expression_type") == SQL92:
            compile_sql(given["subscription"])
        peer = core.connect()
        for opaque in (1, -7):
            data = request(opaque, code, encoding, **given)
            assert ahead(core, peer, data), "there is a plan for it"
            assert response_of(both_ways(core, data)).opaque == opaque
        assert len(core.plans.of(peer.connection).pulls) == 1


@pytest.mark.parametrize(
    "given",
    [
        {"queue_offset": 41},
        {"queue_offset": -1},
        {"topic": "None"},
        {"topic": "Other"},
        {"queue_id": 9},
        {"consumer_group": "a b"},
        {"subscription": "||"},
        {"expression_type": "SQL92", "subscription": "a >"},
        {"sys_flag": 0},
    ],
)
@pytest.mark.parametrize("encoding", HeaderEncoding)
@on_loop
async def test_what_is_unusual_falls_through(
    tmp_path: Path, given: dict[str, Any], encoding: HeaderEncoding
) -> None:
    async with core_in(tmp_path) as core:
        data = request(encoding=encoding, **given)
        assert ahead(core, core.connect(), data) is None
        both_ways(core, data)


@pytest.mark.parametrize("arrives", [True, False])
@on_loop
async def test_a_pull_with_a_binary_header_that_waits_is_answered_in_kind(
    tmp_path: Path, arrives: bool
) -> None:
    async with core_in(tmp_path) as core:
        waits: dict[str, Any] = {"queue_offset": 40, "sys_flag": SUBSCRIBED | SUSPEND}
        peers = core.connect(), core.connect(fast=False)
        for peer in peers:
            patience: dict[str, Any] = {"suspend_timeout_millis": 60_000 if arrives else 1}
            peer.receive(request(5, encoding=HeaderEncoding.ROCKETMQ, **waits, **patience))
        assert [peer.written for peer in peers] == [b"", b""]
        if arrives:
            core.intake.append(draft(body=b"new"))
        await until(lambda: all(peer.written for peer in peers))
        first, second = (peer.written for peer in peers)
        assert first == second
        answer = response_of(first)
        assert (answer.encoding, answer.opaque) == (HeaderEncoding.ROCKETMQ, 5)
        assert (b"new" in answer.body) == arrives


@pytest.mark.parametrize("size", [4, 7, 9, 30, 60, -1])
@on_loop
async def test_a_part_of_a_pull_with_a_binary_header_is_left_alone(
    tmp_path: Path, size: int
) -> None:
    async with core_in(tmp_path) as core:
        data = request(encoding=HeaderEncoding.ROCKETMQ)
        assert core.fast_path.serve(data[:size], 0, core.connect().connection, inf) == 0


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"queueOffset":"0"', b'"queueOffset":"0","queueOffset":"5"'),
        (b'"queueOffset":"0"', b'"a\\"queueOffset":"0"'),
        (b'"opaque":1', b'"a\\"opaque":1'),
        (b'"opaque":1', b'"opaque":1,"opaque":2'),
        (b'"flag":0', b'"flag":2'),
        (b'"flag":0', b'"flag":1'),
        (b'"code":11', b'"code":10'),
        (b'"version"', b"version"),
    ],
)
@on_loop
async def test_numbers_that_are_not_what_they_look_like_make_no_plan(
    tmp_path: Path, old: bytes, new: bytes
) -> None:
    async with core_in(tmp_path) as core:
        text = request()[8:].replace(old, new)
        data = struct.pack(">II", 4 + len(text), len(text)) + text
        assert new in data
        assert ahead(core, core.connect(), data) is None
        assert open_plans(core) == 0


@on_loop
async def test_an_offset_that_rides_along_is_noted(tmp_path: Path) -> None:
    async with core_in(tmp_path) as core:
        peer = core.connect()
        for commit, noted in ((12, 12), (-1, 12), (3, 3)):
            data = request(sys_flag=SUBSCRIBED | COMMIT, commit_offset=commit)
            assert ahead(core, peer, data)
            assert core.tables.offsets.find("readers", "T", 0) == noted
        assert ahead(core, peer, request(commit_offset=20))
        assert core.tables.offsets.find("readers", "T", 0) == 3
        assert core.tables.offsets.find_pulled("readers", "T", 0) == 32


@on_loop
async def test_what_plans_deliver_counts(tmp_path: Path) -> None:
    figures = []
    for fast in (True, False):
        async with core_in(tmp_path) as core:
            peer = core.connect(fast=fast)
            peer.receive(request())
            peer.receive(request(subscription="C"))
            peer.receive(request(queue_offset=40))
            statistics = core.statistics
            behind = statistics.view("GROUP_GET_FALL_SIZE", "0@T@readers")
            figures.append((statistics.totals, behind))
            assert bool(open_plans(core)) == fast
    assert figures[0] == figures[1]
    assert (figures[0][0].got, figures[0][0].found, figures[0][0].missed) == (32, 1, 2)


@on_loop
async def test_plans_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bolide.broker.fast_path.plans.MAX_PLANS", 3)
    async with core_in(tmp_path) as core:
        for number in range(10):
            assert ahead(core, core.connect(), request(max_msg_nums=number))
            assert open_plans(core) <= 3


@on_loop
async def test_what_is_not_in_memory_falls_through(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise NotInMemory("somewhere", 0)

    async with core_in(tmp_path) as core:
        assert ahead(core, core.connect(), request())
        monkeypatch.setattr(core.store.log, "read_block", refuse)
        assert ahead(core, core.connect(), request(2)) is None


@on_loop
async def test_what_is_not_confirmed_is_not_delivered_however_much_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = MessageStore(StoreConfig(root=tmp_path / "files"), background=False)
    async with core_in(tmp_path, store=store) as core:
        store.log.confirmed = store.log.end
        for _ in range(3):
            for _ in range(1000):
                core.intake.append(draft())
            store.maintenance.run()
        assert store.max_offset("T", 0) == 40
        for offset in (0, 39):
            assert b'"maxOffset":"40"' in both_ways(core, request(queue_offset=offset))
        assert ahead(core, core.connect(), request(queue_offset=39)) is not None
        for offset in (40, 41, 100, 2000):
            data = both_ways(core, request(queue_offset=offset))
            assert response_of(data).code != 0

        def refuse(*_: object, **__: object) -> None:
            raise NotInMemory("somewhere", 0)

        monkeypatch.setattr(consume_queue, "read_at", refuse)
        assert ahead(core, core.connect(), request(queue_offset=39)) is None


@pytest.mark.parametrize("first", [0, 500], ids=["whole", "the first units are gone"])
@on_loop
async def test_who_is_far_behind_gets_all_messages_out_of_blocks_of_units(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: int
) -> None:
    read = MemoryQueue.units

    def units(queue: MemoryQueue, offset: int, count: int, may_block: bool = True) -> bytearray:
        return read(queue, offset, count, may_block) if offset >= first else bytearray()

    monkeypatch.setattr("bolide.broker.fast_path.pulls._MAX_BLOCKS", 1)
    monkeypatch.setattr(MemoryQueue, "units", units)
    async with core_in(tmp_path) as core:
        for number in range(40, 3000):
            core.intake.append(draft(body=b"%d" % number))
        core.store.trim(core.log[first][0])
        for offset in [*range(first, 1600, 32), *range(first + 320, 3000, 32)]:
            data = request(queue_offset=offset)
            assert ahead(core, core.connect(), data)
            both_ways(core, data)


@on_loop
async def test_an_expression_gets_a_plan_when_it_is_compiled(tmp_path: Path) -> None:
    async with core_in(tmp_path) as core:
        data = request(expression_type=SQL92, subscription=f"TAGS = '{tmp_path}'")
        assert ahead(core, core.connect(), data) is None
        compile_sql(f"TAGS = '{tmp_path}'")
        assert ahead(core, core.connect(), data)


@on_loop
async def test_a_plan_looks_at_fewer_messages_where_the_filter_is_slow(tmp_path: Path) -> None:
    expression = " OR ".join(["a=1"] * 60)
    compile_sql(expression)
    async with core_in(tmp_path) as core:
        for _ in range(200):
            core.intake.append(draft())
        data = request(expression_type=SQL92, subscription=expression, max_msg_nums=1)
        assert ahead(core, core.connect(), data)
        reached = int((response_of(both_ways(core, data)).fields or {})["nextBeginOffset"])
        assert 0 < reached < 200


# ---- changes that void plans


def heartbeat(
    tags: str = "*",
    version: int = 1,
    *,
    model: MessageModel = MessageModel.CLUSTERING,
    topic: str = "T",
) -> Heartbeat:
    return heartbeat_of(Subscription(topic=topic, sub_string=tags, sub_version=version), model)


def heartbeat_of(wanted: Subscription, model: MessageModel = MessageModel.CLUSTERING) -> Heartbeat:
    group = ConsumerGroup(group_name="readers", message_model=model, subscription_data_set=[wanted])
    return Heartbeat(client_id="client-1", consumer_data_set=[group])


class Scene(NamedTuple):
    """A broker and a consumer that pulls by what its heartbeat said."""

    core: BrokerCore
    peer: Peer

    def beat(self, data: Heartbeat) -> None:
        self.core.tables.clients.heartbeat(data, self.peer.connection, "JAVA", 399)


class Hook:
    def after_pull(self, peer: str, header: PullHeader, count: int, size: int) -> None: ...


async def _topic(scene: Scene, **given: Any) -> None:
    await scene.core.topics.update(TopicConfig(topic_name="T", **given))


async def _group(scene: Scene, **given: Any) -> None:
    await scene.core.tables.groups.update(GroupConfig(group_name="readers", **given))


async def _broadcast(scene: Scene) -> None:
    await _group(scene, consume_broadcast_enable=False)
    scene.beat(heartbeat(model=MessageModel.BROADCASTING))


async def _forbid(scene: Scene) -> None:
    await scene.core.tables.groups.set_forbidden("readers", "T", readable=False)


async def _delete(scene: Scene) -> None:
    await scene.core.topics.delete("T")


async def _settings(scene: Scene, **given: str) -> None:
    scene.core.cell.apply(given)


async def _beat(scene: Scene, *given: Any, **more: Any) -> None:
    scene.beat(heartbeat(*given, **more))


async def _leave(scene: Scene) -> None:
    scene.core.tables.clients.unregister("client-1", None, "readers", scene.peer.connection)


async def _suggest(scene: Scene) -> None:
    await _settings(scene, slaveReadEnable="true")
    await _group(scene, broker_id=5)


async def _reset(scene: Scene) -> None:
    scene.core.tables.offsets.reset("readers", "T", {0: 17})


async def _expire(scene: Scene) -> None:
    scene.core.expiring.is_new("T", "")
    await scene.core.expiring.add("T")
    scene.core.intake.append(draft(properties={"BOLIDE_EXPIRES_AT": "1"}))


async def _hook(scene: Scene) -> None:
    scene.core.hooks.consume = (Hook(),)


CHANGES: dict[str, Callable[[Scene], Awaitable[None]]] = {
    "the topic cannot be read": lambda scene: _topic(scene, perm=2),
    "the topic has no such queue": lambda scene: _topic(scene, read_queue_nums=0),
    "the topic has another flag": lambda scene: _topic(scene, topic_sys_flag=2),
    "the topic is gone": _delete,
    "the group may not consume": lambda scene: _group(scene, consume_enable=False),
    "the group has another flag": lambda scene: _group(scene, group_sys_flag=3),
    "the group may not broadcast": _broadcast,
    "the group may not read the topic": _forbid,
    "other tags": lambda scene: _beat(scene, "B", 2),
    "other topics": lambda scene: _beat(scene, topic="Other"),
    "nobody is there any more": _leave,
    "the broker cannot be read": lambda scene: _settings(scene, brokerPermission="2"),
    "fewer at once": lambda scene: _settings(scene, maxPullCount="3"),
    "a replica is suggested": _suggest,
    "a reset": _reset,
}


@pytest.mark.parametrize("name", CHANGES)
@on_loop
async def test_a_change_takes_effect_at_once(tmp_path: Path, name: str) -> None:
    data = request(sys_flag=0, sub_version=1, max_msg_nums=8)
    answers = []
    for fast in (True, False):
        async with core_in(tmp_path / str(fast)) as core:
            peer = core.connect(fast=fast)
            scene = Scene(core, peer)
            core.tables.groups.require("readers")
            scene.beat(heartbeat())
            peer.receive(data)
            before = peer.written
            assert bool(open_plans(core)) == fast
            await CHANGES[name](scene)
            peer.receive(data)
            answers.append((before, peer.written[len(before) :]))
    assert answers[0] == answers[1]
    assert answers[0][0] != answers[0][1], "or nothing has changed"


@on_loop
async def test_a_plan_lets_go_of_a_queue_that_the_store_removed(tmp_path: Path) -> None:
    async with core_in(tmp_path) as core:
        header = response_of(both_ways(core, request())).fields
        assert header is not None and header["maxOffset"] == "40"
        core.store.remove_topic("T")  # the table of topics says nothing of it
        assert ahead(core, core.connect(), request(2)) is None
        core.intake.append(draft(body=b"new"))
        header = response_of(both_ways(core, request(3))).fields
        assert header is not None and header["maxOffset"] == "1"
        assert ahead(core, core.connect(), request(4))


@on_loop
async def test_another_expression_of_a_group_is_heeded_at_once(tmp_path: Path) -> None:
    data = request(sys_flag=0, sub_version=1, expression_type=SQL92, max_msg_nums=8)
    async with core_in(tmp_path) as core:
        scene = Scene(core, core.connect())
        core.tables.groups.require("readers")
        answers = []
        for version, text in ((1, "TAGS = 'A'"), (2, "TAGS = 'B'")):
            compile_sql(text)
            wanted = Subscription(
                topic="T", sub_string=text, sub_version=version, expression_type=SQL92
            )
            if version == 1:
                scene.beat(heartbeat_of(wanted))
            # What clients said is known before what they filter by: that may have to be compiled.
            core.tables.filters.table.register("readers", [wanted])
            assert ahead(core, scene.peer, data)
            answers.append(both_ways(core, data))
        assert answers[0] != answers[1]


@pytest.mark.parametrize("change", [_expire, _hook])
@on_loop
async def test_what_plans_cannot_do_voids_them(
    tmp_path: Path, change: Callable[[Scene], Awaitable[None]]
) -> None:
    async with core_in(tmp_path) as core:
        peer = core.connect()
        assert ahead(core, peer, request())
        await change(Scene(core, peer))
        assert ahead(core, peer, request()) is None


@on_loop
async def test_plans_of_other_groups_stay_and_heartbeats_without_news_void_none(
    tmp_path: Path,
) -> None:
    async with core_in(tmp_path) as core:
        scene = Scene(core, core.connect())
        core.tables.groups.require("readers")
        core.tables.groups.require("others")
        scene.beat(heartbeat())
        assert ahead(core, scene.peer, request(sys_flag=0, sub_version=1))
        assert ahead(core, scene.peer, request(consumer_group="others"))
        scene.beat(heartbeat())
        assert open_plans(core) == 2
        scene.beat(heartbeat("B", 2))
        assert open_plans(core) == 1


@pytest.mark.parametrize(("count", "is_served"), [(512, True), (513, False)])
@on_loop
async def test_a_group_that_wants_very_many_tags_has_no_plans(
    tmp_path: Path, count: int, is_served: bool
) -> None:
    """What its heartbeat says may be large, and is kept once; plans are many."""
    tags = "||".join(["B", *(f"tag-{number}" for number in range(count - 1))])
    async with core_in(tmp_path) as core:
        scene = Scene(core, core.connect())
        core.tables.groups.require("readers")
        scene.beat(heartbeat(tags))
        data = request(sys_flag=0, sub_version=1, max_msg_nums=8)
        assert bool(ahead(core, scene.peer, data)) is is_served
        assert open_plans(core) == is_served
        assert int((response_of(both_ways(core, data)).fields or {})["nextBeginOffset"]) == 16


# ---- waiting


@on_loop
async def test_a_pull_that_waits_heeds_what_changes_meanwhile(tmp_path: Path) -> None:
    async with core_in(tmp_path) as core:
        peer = core.connect()
        waits: dict[str, Any] = {"sys_flag": SUBSCRIBED | SUSPEND, "suspend_timeout_millis": 60_000}
        peer.receive(request(5, queue_offset=40, **waits))
        assert len(core.long_polling) == 1
        core.cell.apply({"maxPullCount": "2"})
        for number in range(3):
            core.intake.append(draft(body=b"new %d" % number))
        await until(lambda: peer.written)
        found = response_of(peer.written)
        assert (found.opaque, found.body.count(b"new")) == (5, 2)
        assert peer.connection.is_idle


# ---- any course of things, both ways

QUICK = ["other tags", "other topics", "nobody is there any more", "fewer at once", "a reset"]
"""Changes that are not saved at once."""
TOPICS = st.sampled_from(["T", "T", "T", "Other", "None"])
PULLS = st.builds(
    lambda topic, offset, tags, flag, count, size, opaque, code: request_bytes(
        code,
        pull_header(
            topic, offset, sys_flag=flag, subscription=tags, suspend_timeout_millis=60_000,
            commit_offset=offset - 1, max_msg_nums=count, max_msg_bytes=size, sub_version=1,
        ).to_fields(),
        opaque=opaque,
    ),
    TOPICS,
    st.integers(-1, 14),
    st.sampled_from(["*", "A", "A||B", "C", "||"]),
    st.sampled_from([0, SUBSCRIBED, SUBSCRIBED | SUSPEND, SUBSCRIBED | COMMIT, 7, 3]),
    st.sampled_from([1, 3, 32]),
    st.sampled_from([None, None, 1, 400]),
    st.integers(1, 9),
    st.sampled_from([PULL, PULL, LITE]),
)  # fmt: skip
STEPS = (
    PULLS
    | PULLS
    | st.tuples(st.just("append"), TOPICS.filter("None".__ne__), st.sampled_from(["A", "B", ""]))
    | st.sampled_from([*QUICK, "a heartbeat", "a look"])
)


async def course(steps: list[Any], directory: Path, mode: FlushMode, *, fast: bool) -> list[Any]:
    core = BrokerCore(directory, TopicConfig(topic_name="Other"), mode=mode)
    core.tables.groups.require("readers")
    scene = Scene(core, core.connect(fast=fast))
    for step in steps:
        if isinstance(step, bytes):
            scene.peer.receive(step)
        elif step[0] == "append":
            core.intake.append(draft(step[1], properties={"TAGS": step[2]} if step[2] else {}))
        elif step == "a look":
            core.long_polling.arrived_in("T", [0])
        else:
            await CHANGES.get(step, _beat)(scene)
        for _ in range(3):
            await asyncio.sleep(0)
    waiting = len(core.long_polling)
    core.long_polling.stop()
    await asyncio.sleep(0)
    offsets, statistics = core.tables.offsets, core.statistics
    behind = statistics.view("GROUP_GET_FALL_SIZE", "0@T@readers")
    seen = [scene.peer.written, waiting, offsets.of("readers", "T"), statistics.totals, behind]
    seen += [offsets.find_pulled("readers", topic, 0) for topic in ("T", "Other")]
    scene.peer.connection.abort()
    await asyncio.sleep(0)
    await core.stop()
    return seen


@pytest.fixture
def quiet() -> Iterator[None]:
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("mode", FlushMode)
@settings(suppress_health_check=list(HealthCheck), deadline=None, max_examples=60)
@given(steps=st.lists(STEPS, min_size=2, max_size=20))
def test_any_sequence_of_events_has_the_same_outcome_both_ways(
    tmp_path: Path, mode: FlushMode, steps: list[Any]
) -> None:
    async def both() -> tuple[list[Any], list[Any]]:
        ordinary = await course(steps, tmp_path, mode, fast=False)
        return ordinary, await course(steps, tmp_path, mode, fast=True)

    ordinary, quick = asyncio.run(both())
    assert quick == ordinary
