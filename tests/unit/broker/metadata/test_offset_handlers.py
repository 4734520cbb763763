"""Offset requests, over a real connection."""

import os
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from bolide.broker.metadata.offset_handlers import OffsetHandlers
from bolide.protocol import fastjson
from bolide.protocol.bodies.heartbeat import ConsumerGroup, Heartbeat, Subscription
from bolide.protocol.bodies.offsets import CorrectionOffsets
from bolide.protocol.bodies.topics import TopicConfig
from bolide.protocol.codes import RequestCode
from bolide.protocol.header import Header
from bolide.protocol.headers.offsets import (
    Boundary,
    CloneOffsetsHeader,
    CommitOffsetHeader,
    CorrectionOffsetHeader,
    MaxOffsetHeader,
    OffsetReply,
    QueryOffsetHeader,
    QueueHeader,
    SearchOffsetHeader,
    StoreTimeReply,
)
from bolide.protocol.refusals import GroupNotFound, InvalidParameter, QueryNotFound, TopicNotFound
from bolide.store.config import StoreConfig
from bolide.store.memory_store import MemoryStore
from bolide.store.message_store import MessageStore
from tests.support.aio import on_loop
from tests.support.broker_tables import BrokerTables, Caller, served
from tests.support.store import draft, small_config


def serving(
    tables: BrokerTables, store: MemoryStore | MessageStore | None = None
) -> AbstractAsyncContextManager[Caller]:
    handlers = OffsetHandlers(
        store=store or tables.store,
        offsets=tables.offsets,
        groups=tables.groups,
        topics=tables.topics,
        clients=tables.clients,
    )
    return served(tables, handlers)


async def offset_of(caller: Caller, code: RequestCode, header: Header) -> int:
    return OffsetReply.from_fields((await caller.call(code, header)).fields).offset


async def query(caller: Caller, *, zero: bool | None = None, queue_id: int = 0) -> int:
    header = QueryOffsetHeader(
        consumer_group="g", topic="T", queue_id=queue_id, set_zero_if_not_found=zero
    )
    return await offset_of(caller, RequestCode.QUERY_CONSUMER_OFFSET, header)


# ---- queries


@on_loop
async def test_a_group_resumes_at_its_committed_offset(tables: BrokerTables) -> None:
    tables.offsets.commit("g", "T", 0, 42)
    async with serving(tables) as caller:
        assert await query(caller) == 42


@on_loop
async def test_a_new_group_begins_a_young_queue_at_zero(tables: BrokerTables) -> None:
    tables.store.append(draft("T"))
    async with serving(tables) as caller:
        assert await query(caller) == await query(caller, zero=True) == 0
        with pytest.raises(QueryNotFound, match="do not set to zero"):
            await query(caller, zero=False)
        with pytest.raises(QueryNotFound, match="maybe this group consumer boot first"):
            await query(caller, queue_id=1)


@on_loop
async def test_a_queue_without_its_first_message_is_not_recent(tables: BrokerTables) -> None:
    tables.store.append(draft("T"))
    second = tables.store.append(draft("T"))
    tables.store.trim(second.physical_offset)
    async with serving(tables) as caller:
        with pytest.raises(QueryNotFound):
            await query(caller)


@on_loop
async def test_a_queue_whose_first_message_left_memory_is_not_recent(tables: BrokerTables) -> None:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    with MemoryStore(StoreConfig(memory_ratio=1000 / memory)) as store:
        for _ in range(2):
            store.append(draft("T", b"x" * 2000))
        async with serving(tables, store) as caller:
            with pytest.raises(QueryNotFound):
                await query(caller)


@on_loop
async def test_a_store_of_files_is_young_as_well_after_a_restart(
    tables: BrokerTables, tmp_path: Path
) -> None:
    config = small_config(tmp_path / "store")
    with MessageStore(config, background=False) as store:
        store.append(draft("T"))
    with MessageStore(config, background=False) as store:
        async with serving(tables, store) as caller:
            assert await query(caller) == 0


@on_loop
async def test_a_pending_reset_is_where_a_group_goes_on(tables: BrokerTables) -> None:
    tables.offsets.commit("g", "T", 0, 42)
    tables.offsets.reset("g", "T", {0: 7})
    async with serving(tables) as caller:
        assert await query(caller) == 7


# ---- committing


async def commit(
    caller: Caller, offset: int, *, group: str = "g", topic: str = "T", queue_id: int = 0
) -> str | None:
    header = CommitOffsetHeader(group, topic, queue_id, offset)
    return (await caller.call(RequestCode.UPDATE_CONSUMER_OFFSET, header)).remark


@pytest.fixture
def known(tables: BrokerTables) -> BrokerTables:
    """Tables with group g and topic T of four queues."""

    @on_loop
    async def create() -> None:
        topic = TopicConfig(topic_name="T", read_queue_nums=2, write_queue_nums=4)
        await tables.topics.update(topic)

    create()
    tables.groups.require("g")
    return tables


@on_loop
async def test_a_commit_is_stored(known: BrokerTables) -> None:
    async with serving(known) as caller:
        assert await commit(caller, 5) is None
        assert await commit(caller, 6, queue_id=3) is None
        assert known.offsets.of("g", "T") == {0: 5, 3: 6}


@on_loop
async def test_commits_for_nothing_known_are_refused(known: BrokerTables) -> None:
    async with serving(known) as caller:
        with pytest.raises(GroupNotFound, match="Group other not exist"):
            await commit(caller, 5, group="other")
        with pytest.raises(TopicNotFound, match=r"topic\[U\] not exist"):
            await commit(caller, 5, topic="U")
        with pytest.raises(InvalidParameter, match="T has no queue 4: its queues are 0 to 3"):
            await commit(caller, 5, queue_id=4)
        with pytest.raises(InvalidParameter, match="no queue -1"):
            await commit(caller, 5, queue_id=-1)
        with pytest.raises(InvalidParameter, match="offset -1 cannot be committed"):
            await commit(caller, -1)
        assert known.offsets.of("g", "T") == {}
        assert "other" not in known.groups


@on_loop
async def test_a_queue_that_a_topic_had_before_is_still_consumed(known: BrokerTables) -> None:
    known.store.append(draft("T", queue_id=7))
    async with serving(known) as caller:
        await commit(caller, 1, queue_id=7)
        assert known.offsets.of("g", "T") == {7: 1}


@on_loop
async def test_commits_do_not_count_while_a_reset_is_pending(known: BrokerTables) -> None:
    known.offsets.reset("g", "T", {0: 2})
    async with serving(known) as caller:
        assert await commit(caller, 9) == "Offset has been previously reset"
        assert await query(caller) == 2


# ---- bounds of a queue


@on_loop
async def test_bounds_and_first_store_time_of_a_queue_are_returned(tables: BrokerTables) -> None:
    first = tables.store.append(draft("T"))
    for _ in range(2):
        tables.clock.advance(1)
        second = tables.store.append(draft("T"))
    async with serving(tables) as caller:
        assert await offset_of(caller, RequestCode.GET_MIN_OFFSET, QueueHeader("T", 0)) == 0
        asked = MaxOffsetHeader(topic="T", queue_id=0)
        assert await offset_of(caller, RequestCode.GET_MAX_OFFSET, asked) == 3
        answer = await caller.call(RequestCode.GET_EARLIEST_MSG_STORETIME, QueueHeader("T", 0))
        assert StoreTimeReply.from_fields(answer.fields).timestamp == first.store_timestamp
        tables.store.trim(second.physical_offset)
        assert await offset_of(caller, RequestCode.GET_MIN_OFFSET, QueueHeader("T", 0)) == 2


@on_loop
async def test_a_queue_that_is_not_there_is_empty(tables: BrokerTables) -> None:
    async with serving(tables) as caller:
        assert await offset_of(caller, RequestCode.GET_MIN_OFFSET, QueueHeader("T", 9)) == 0
        asked = MaxOffsetHeader(topic="T", queue_id=-1)
        assert await offset_of(caller, RequestCode.GET_MAX_OFFSET, asked) == 0
        answer = await caller.call(RequestCode.GET_EARLIEST_MSG_STORETIME, QueueHeader("T", 0))
        assert answer.fields == {"timestamp": "-1"}


@on_loop
async def test_an_offset_is_found_by_time(tables: BrokerTables) -> None:
    start = int(tables.clock.now * 1000)
    for _ in range(3):
        tables.store.append(draft("T"))
        tables.store.append(draft("T"))
        tables.clock.advance(1)
    async with serving(tables) as caller:

        async def search(timestamp: int, boundary: Boundary) -> int:
            header = SearchOffsetHeader(
                topic="T", queue_id=0, timestamp=timestamp, boundary_type=boundary
            )
            return await offset_of(caller, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header)

        assert await search(start + 1000, Boundary.LOWER) == 2
        assert await search(start + 1000, Boundary.UPPER) == 3
        assert await search(start + 99_000, Boundary.LOWER) == 6
        assert await search(0, Boundary.LOWER) == 0


# ---- for administrators


async def corrections(caller: Caller, compared: str, left_out: str | None) -> dict[int, int]:
    header = CorrectionOffsetHeader(filter_groups=left_out, compare_group=compared, topic="T")
    answer = await caller.call(RequestCode.QUERY_CORRECTION_OFFSET, header)
    return fastjson.decode(answer.body, CorrectionOffsets).correction_offsets


@on_loop
async def test_the_lowest_offset_of_all_groups_is_returned_by_queue(tables: BrokerTables) -> None:
    for group, offsets in {"a": (5, 9), "b": (7, 3), "c": (1, 1)}.items():
        for queue_id, offset in enumerate(offsets):
            tables.offsets.commit(group, "T", queue_id, offset)
    async with serving(tables) as caller:
        assert await corrections(caller, "none", None) == {0: 1, 1: 1}
        assert await corrections(caller, "none", "c,x") == {0: 5, 1: 3}
        assert await corrections(caller, "c", "c") == {0: 2**63 - 1, 1: 2**63 - 1}
        assert await corrections(caller, "a", "c") == {0: 5, 1: 3}
    assert tables.offsets.of("c", "T") == {0: 1, 1: 1}


@on_loop
async def test_offsets_below_the_beginning_of_a_queue_do_not_count(tables: BrokerTables) -> None:
    tables.store.append(draft("T"))
    tables.store.trim(tables.store.append(draft("T")).physical_offset)
    tables.offsets.commit("a", "T", 0, 0)
    tables.offsets.commit("b", "T", 0, 2)
    async with serving(tables) as caller:
        assert await corrections(caller, "none", None) == {0: 2}


@on_loop
async def test_offsets_are_cloned_for_one_topic_or_for_all(tables: BrokerTables) -> None:
    for topic in ("T", "U", "gone"):
        tables.offsets.commit("g", topic, 0, 5)
    await tables.topics.update_all(TopicConfig(topic_name=name) for name in ("T", "U"))
    async with serving(tables) as caller:
        one = CloneOffsetsHeader(src_group="g", dest_group="one", topic="T")
        await caller.call(RequestCode.CLONE_GROUP_OFFSET, one)
        everything = CloneOffsetsHeader(src_group="g", dest_group="every", topic=" ")
        await caller.call(RequestCode.CLONE_GROUP_OFFSET, everything)
    assert tables.offsets.topics_of("one") == {"T"}
    assert tables.offsets.topics_of("every") == {"T", "U"}
    assert tables.offsets.find("every", "U", 0) == 5


@on_loop
async def test_only_subscribed_topics_of_an_online_group_are_cloned(
    tables: BrokerTables,
) -> None:
    tables.groups.require("g")
    await tables.topics.update_all(TopicConfig(topic_name=name) for name in ("T", "U"))
    for topic in ("T", "U"):
        tables.offsets.commit("g", topic, 0, 5)
    data = ConsumerGroup(group_name="g", subscription_data_set=[Subscription(topic="T")])
    beat = Heartbeat(client_id="a", consumer_data_set=[data])
    async with serving(tables) as caller:
        await caller.call(RequestCode.GET_MIN_OFFSET, QueueHeader("T", 0))
        tables.clients.heartbeat(beat, caller.connection, "JAVA", 479)
        online = CloneOffsetsHeader(src_group="g", dest_group="online")
        await caller.call(RequestCode.CLONE_GROUP_OFFSET, online)
        offline = CloneOffsetsHeader(src_group="g", dest_group="offline", offline=True)
        await caller.call(RequestCode.CLONE_GROUP_OFFSET, offline)
    assert tables.offsets.topics_of("online") == {"T"}
    assert tables.offsets.topics_of("offline") == {"T", "U"}
