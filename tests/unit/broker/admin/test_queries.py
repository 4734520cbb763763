"""Look-ups of messages by key and offset, and of queue entries."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
import pytest

from bolide.broker.admin import queries
from bolide.broker.admin.queries import QueryHandlers
from bolide.model.properties import PropertyName
from bolide.protocol import fastjson
from bolide.protocol.bodies.groups import GroupConfig
from bolide.protocol.bodies.heartbeat import Heartbeat
from bolide.protocol.bodies.queues import ConsumeQueueSlice
from bolide.protocol.codes import RequestCode
from bolide.protocol.headers.query import (
    ConsumeQueueHeader,
    QueryMessageHeader,
    QueryMessageReply,
    ViewMessageHeader,
)
from bolide.protocol.record import Record, read_record
from bolide.protocol.refusals import InvalidParameter, QueryNotFound, ServerError
from bolide.store.message_store import MessageStore
from tests.support.aio import on_loop
from tests.support.broker_tables import BrokerTables, Caller, served
from tests.support.store import body_of, draft, small_config

FOREVER = 2**63 - 1


@asynccontextmanager
async def asked(tables: BrokerTables) -> AsyncIterator[Caller]:
    handlers = QueryHandlers(
        store=tables.store, clients=tables.clients, filters=tables.filters.table
    )
    async with served(tables, handlers) as caller:
        yield caller


def wanted(key: str, max_num: int = 32, *, by_unique_key: bool = False) -> QueryMessageHeader:
    return QueryMessageHeader(
        topic="T", key=key, max_num=max_num, begin_timestamp=0, end_timestamp=FOREVER,
        by_unique_key=by_unique_key,
    )  # fmt: skip


def bodies_of(data: bytes) -> list[bytes]:
    """Bodies of concatenated records."""
    found = []
    while data:
        record = read_record(data)
        assert isinstance(record, Record)
        found.append(bytes(record.body))
        data = data[record.size :]
    return found


def put(tables: BrokerTables, *bodies: bytes, **properties: str) -> list[int]:
    """Store messages; returns their physical offsets."""
    places = []
    for body in bodies:
        places.append(tables.store.append(draft("T", body, properties=properties)).physical_offset)
        tables.clock.advance(1)
    return places


@on_loop
async def test_messages_are_found_by_key_newest_first(tables: BrokerTables) -> None:
    put(tables, b"1", b"2", KEYS="k1 k2")
    put(tables, b"3", KEYS="k3")
    async with asked(tables) as caller:
        found = await caller.call(RequestCode.QUERY_MESSAGE, wanted("k2"))
    assert bodies_of(found.body) == [b"2", b"1"]
    QueryMessageReply.from_fields(found.fields)


@on_loop
async def test_messages_are_found_by_tags_and_not_mistaken_for_keys(tables: BrokerTables) -> None:
    put(tables, b"1", b"2", TAGS="paid", KEYS="k")
    put(tables, b"3", KEYS="paid")
    async with asked(tables) as caller:

        async def found(key: str, index_type: str | None) -> list[bytes]:
            question = msgspec.structs.replace(wanted(key), index_type=index_type)
            return bodies_of((await caller.call(RequestCode.QUERY_MESSAGE, question)).body)

        assert await found("paid", "T") == [b"2", b"1"]
        assert await found("paid", "K") == await found("paid", None) == [b"3"]
        assert await found("k", "U") == [b"2", b"1"]
        with pytest.raises(QueryNotFound):
            await found("k", "T")


@on_loop
async def test_a_query_returns_at_most_the_requested_number(tables: BrokerTables) -> None:
    put(tables, b"1", b"2", b"3", KEYS="k")
    async with asked(tables) as caller:
        found = await caller.call(RequestCode.QUERY_MESSAGE, wanted("k", 2))
    assert bodies_of(found.body) == [b"3", b"2"]


@on_loop
async def test_a_query_by_unique_key_is_limited_by_the_setting_only(
    tables: BrokerTables,
) -> None:
    put(tables, b"1", b"2", b"3", **{PropertyName.UNIQUE_ID: "AC11"})
    tables.store.config.apply({"defaultQueryMaxNum": "2"})
    async with asked(tables) as caller:
        question = wanted("AC11", 1, by_unique_key=True)
        found = await caller.call(RequestCode.QUERY_MESSAGE, question)
    assert bodies_of(found.body) == [b"3", b"2"]


@on_loop
async def test_times_bound_a_query(tables: BrokerTables) -> None:
    put(tables, b"1", b"2", b"3", KEYS="k")  # at 1000, 1001 and 1002 s
    question = QueryMessageHeader(
        topic="T", key="k", max_num=9, begin_timestamp=1_001_000, end_timestamp=1_001_999
    )
    async with asked(tables) as caller:
        found = await caller.call(RequestCode.QUERY_MESSAGE, question)
    assert bodies_of(found.body) == [b"2"]


@on_loop
async def test_nothing_found_is_said_so(tables: BrokerTables) -> None:
    put(tables, b"1", KEYS="k")
    async with asked(tables) as caller:
        with pytest.raises(QueryNotFound):
            await caller.call(RequestCode.QUERY_MESSAGE, wanted("other"))
        with pytest.raises(InvalidParameter, match="maxNum=0"):
            await caller.call(RequestCode.QUERY_MESSAGE, wanted("k", 0))


@on_loop
async def test_a_reply_holds_as_many_messages_as_fit_into_a_frame(
    tables: BrokerTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tables, b"1" * 100, b"2" * 100, b"3" * 100, KEYS="k")
    monkeypatch.setattr(queries, "_MAX_BYTES", 450)
    async with asked(tables) as caller:
        found = await caller.call(RequestCode.QUERY_MESSAGE, wanted("k"))
        assert bodies_of(found.body) == [b"3" * 100, b"2" * 100]
        monkeypatch.setattr(queries, "_MAX_BYTES", 1)
        found = await caller.call(RequestCode.QUERY_MESSAGE, wanted("k"))
    assert bodies_of(found.body) == [b"3" * 100]


@on_loop
async def test_the_reply_contains_the_end_of_the_index(tables: BrokerTables) -> None:
    config = small_config(tables.directory / "store")
    with MessageStore(config, clock=tables.clock, background=False) as store:
        place = store.append(draft("T", properties={"KEYS": "k"})).physical_offset
        handlers = QueryHandlers(store=store, clients=tables.clients, filters=tables.filters.table)
        async with served(tables, handlers) as caller:
            found = await caller.call(RequestCode.QUERY_MESSAGE, wanted("k"))
    assert QueryMessageReply.from_fields(found.fields) == QueryMessageReply(1_000_000, place)


@on_loop
async def test_a_message_is_viewed_by_its_place(tables: BrokerTables) -> None:
    _, place = put(tables, b"1", b"2")
    async with asked(tables) as caller:
        found = await caller.call(RequestCode.VIEW_MESSAGE_BY_ID, ViewMessageHeader(offset=place))
    assert body_of(found.body) == b"2"


@pytest.mark.parametrize("offset", [-1, -(2**63), 1, 4095, 10**6, 2**63 - 1])
@on_loop
async def test_a_place_without_a_message_is_answered_not_crashed_on(
    tables: BrokerTables, offset: int
) -> None:
    config = small_config(tables.directory / "store")
    with MessageStore(config, clock=tables.clock, background=False) as store:
        store.append(draft("T"))
        async with served(
            tables, QueryHandlers(store=store, clients=tables.clients, filters=tables.filters.table)
        ) as caller:
            with pytest.raises(ServerError, match=f"can not find message by the offset, {offset}"):
                await caller.call(RequestCode.VIEW_MESSAGE_BY_ID, ViewMessageHeader(offset=offset))


def queue_header(index: int, count: int, group: str | None = None) -> ConsumeQueueHeader:
    return ConsumeQueueHeader(topic="T", queue_id=0, index=index, count=count, consumer_group=group)


@on_loop
async def test_entries_of_a_queue_are_shown(tables: BrokerTables) -> None:
    places = put(tables, b"1", b"2", b"3", TAGS="A")
    async with asked(tables) as caller:
        found = await caller.call(RequestCode.QUERY_CONSUME_QUEUE, queue_header(1, 9))
    shown = fastjson.decode(found.body, ConsumeQueueSlice)
    assert (shown.min_queue_index, shown.max_queue_index) == (0, 3)
    assert shown.queue_data is not None
    assert [each.physic_offset for each in shown.queue_data] == places[1:]
    assert {each.tags_code for each in shown.queue_data} == {ord("A")}


@pytest.mark.parametrize("index", [-1, 3, 99])
@on_loop
async def test_missing_entries_are_reported_with_the_range(
    tables: BrokerTables, index: int
) -> None:
    put(tables, b"1", b"2", b"3")
    async with asked(tables) as caller:
        found = await caller.call(RequestCode.QUERY_CONSUME_QUEUE, queue_header(index, 9))
    shown = fastjson.decode(found.body, ConsumeQueueSlice)
    assert (shown.queue_data, shown.max_queue_index) == ([], 3)
    assert found.remark == f"Index {index} of 0@T is not exist!"


@on_loop
async def test_a_queue_that_is_not_there_is_refused(tables: BrokerTables) -> None:
    async with asked(tables) as caller:
        with pytest.raises(ServerError, match="0@T is not exist!"):
            await caller.call(RequestCode.QUERY_CONSUME_QUEUE, queue_header(0, 1))


@on_loop
async def test_entries_are_shown_with_the_subscription_of_a_group(tables: BrokerTables) -> None:
    put(tables, b"1")
    await tables.groups.update(GroupConfig(group_name="g"))
    async with asked(tables) as caller:
        question = queue_header(0, 1, "g")
        found = await caller.call(RequestCode.QUERY_CONSUME_QUEUE, question)
        shown = fastjson.decode(found.body, ConsumeQueueSlice)
        assert (shown.subscription_data, shown.filter_data) == (None, "g@T is not online!")
        beat = fastjson.decode(HEARTBEAT, Heartbeat)
        tables.clients.heartbeat(beat, caller.connection, "JAVA", 400)
        found = await caller.call(RequestCode.QUERY_CONSUME_QUEUE, question)
    subscription = fastjson.decode(found.body, ConsumeQueueSlice).subscription_data
    assert subscription is not None
    assert subscription.sub_string == "A || B"


HEARTBEAT = b"""{"clientID": "c1", "consumerDataSet": [{"groupName": "g", "subscriptionDataSet": [
    {"topic": "T", "subString": "A || B"}]}]}"""
