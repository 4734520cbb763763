"""Requests for topic statistics, consumer lag and counters."""

import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from bolide.broker.admin.topic_stats import StatsHandlers
from bolide.broker.statistics import Statistics
from bolide.protocol import fastjson
from bolide.protocol.bodies.groups import GroupConfig
from bolide.protocol.bodies.heartbeat import ConsumerGroup, Heartbeat, Subscription
from bolide.protocol.bodies.message_queue import MessageQueue
from bolide.protocol.bodies.offsets import ConsumeTimeSpans
from bolide.protocol.bodies.stats import (
    BrokerConsumeStats,
    BrokerStats,
    ConsumeStats,
    QueueProgress,
)
from bolide.protocol.bodies.topics import TopicConfig, TopicOffset, TopicStats
from bolide.protocol.codes import RequestCode
from bolide.protocol.header import Header
from bolide.protocol.headers.groups import ConsumeStatsHeader, TopicGroupHeader
from bolide.protocol.headers.runtime import BrokerConsumeStatsHeader, StatsHeader
from bolide.protocol.headers.topics import TopicHeader
from bolide.protocol.refusals import ServerError, TopicNotFound
from tests.support.aio import on_loop
from tests.support.broker_tables import BrokerTables, Caller, served
from tests.support.store import draft
from tests.support.threads import note_threads

NAME = "broker-a"


@asynccontextmanager
async def asked(tables: BrokerTables) -> AsyncIterator[tuple[Caller, Statistics]]:
    """Topic T with 2 queues: 3 messages of 1000 to 1002 s in queue 0; topic U with 1 queue."""
    await tables.topics.update(TopicConfig(topic_name="T", read_queue_nums=2, write_queue_nums=2))
    await tables.topics.update(TopicConfig(topic_name="U", read_queue_nums=1, write_queue_nums=1))
    await tables.groups.update(GroupConfig(group_name="g"))
    for _ in range(3):
        tables.store.append(draft("T"))
        tables.clock.advance(1)
    statistics = Statistics("DefaultCluster", tables.clock)
    handlers = StatsHandlers(
        store=tables.store,
        topics=tables.topics,
        mappings=tables.mappings,
        groups=tables.groups,
        offsets=tables.offsets,
        clients=tables.clients,
        statistics=statistics,
        cell=tables.cell,
        now=tables.clock,
    )
    async with served(tables, handlers) as caller:
        yield caller, statistics


def queue(queue_id: int, topic: str = "T") -> MessageQueue:
    return MessageQueue(topic, NAME, queue_id)


def subscribe(tables: BrokerTables, caller: Caller, topic: str) -> None:
    beat = Heartbeat(
        client_id="c1",
        consumer_data_set=[
            ConsumerGroup(group_name="g", subscription_data_set=[Subscription(topic=topic)])
        ],
    )
    tables.clients.heartbeat(beat, caller.connection, "JAVA", 400)


@on_loop
async def test_every_queue_of_a_topic_is_shown(tables: BrokerTables) -> None:
    async with asked(tables) as (caller, _):
        found = await caller.call(RequestCode.GET_TOPIC_STATS_INFO, TopicHeader("T"))
    stats = fastjson.decode(found.body, TopicStats)
    assert stats.offset_table == {
        queue(0): TopicOffset(min_offset=0, max_offset=3, last_update_timestamp=1_002_000),
        queue(1): TopicOffset(min_offset=0, max_offset=0, last_update_timestamp=0),
    }


@on_loop
async def test_the_queues_of_a_topic_are_those_written_or_read(tables: BrokerTables) -> None:
    async with asked(tables) as (caller, _):
        shrinking = TopicConfig(topic_name="T", read_queue_nums=4, write_queue_nums=1)
        await tables.topics.update(shrinking)
        found = await caller.call(RequestCode.GET_TOPIC_STATS_INFO, TopicHeader("T"))
    assert len(fastjson.decode(found.body, TopicStats).offset_table) == 4


@on_loop
async def test_the_rate_of_a_topic_is_that_of_the_last_minute(tables: BrokerTables) -> None:
    async with asked(tables) as (caller, statistics):
        statistics.sent("T", 0, 50, 500, 0.001)
        tables.clock.advance(10)
        statistics.sample()
        found = await caller.call(RequestCode.GET_TOPIC_STATS_INFO, TopicHeader("T"))
    assert fastjson.decode(found.body, TopicStats).topic_put_tps == 5.0


@on_loop
async def test_a_topic_that_is_not_there_is_refused(tables: BrokerTables) -> None:
    async with asked(tables) as (caller, _):
        with pytest.raises(TopicNotFound):
            await caller.call(RequestCode.GET_TOPIC_STATS_INFO, TopicHeader("Nowhere"))
        with pytest.raises(TopicNotFound):
            question = TopicGroupHeader("Nowhere", "g")
            await caller.call(RequestCode.QUERY_CONSUME_TIME_SPAN, question)


async def progress_of(caller: Caller, **asked_for: str) -> ConsumeStats:
    question = ConsumeStatsHeader(consumer_group="g", **asked_for)
    found = await caller.call(RequestCode.GET_CONSUME_STATS, question)
    return fastjson.decode(found.body, ConsumeStats)


@on_loop
async def test_consume_stats_contain_consumer_and_broker_offsets(
    tables: BrokerTables,
) -> None:
    async with asked(tables) as (caller, statistics):
        tables.offsets.commit("g", "T", 0, 2)
        tables.offsets.pulled("g", "T", 0, 3)
        statistics.got("g", "T", 0, 20, 200)
        tables.clock.advance(10)
        statistics.sample()
        stats = await progress_of(caller)
    assert stats.offset_table == {
        queue(0): QueueProgress(
            broker_offset=3, consumer_offset=2, pull_offset=3, last_timestamp=1_001_000
        ),
        queue(1): QueueProgress(),
    }
    assert stats.consume_tps == 2.0


@on_loop
async def test_without_a_topic_all_that_the_group_consumes_are_shown(tables: BrokerTables) -> None:
    async with asked(tables) as (caller, _):
        tables.offsets.commit("g", "T", 0, 1)
        tables.offsets.commit("g", "U", 0, 0)
        tables.offsets.commit("g", "Deleted", 0, 0)
        topics = {each.topic for each in (await progress_of(caller)).offset_table}
        only = {each.topic for each in (await progress_of(caller, topic="U")).offset_table}
    assert topics == {"T", "U"}
    assert only == {"U"}


@on_loop
async def test_topics_without_an_online_subscription_are_left_out_unless_listed(
    tables: BrokerTables,
) -> None:
    async with asked(tables) as (caller, _):
        tables.offsets.commit("g", "T", 0, 1)
        tables.offsets.commit("g", "U", 0, 0)
        await progress_of(caller)
        subscribe(tables, caller, "T")
        topics = {each.topic for each in (await progress_of(caller)).offset_table}
        listed = {each.topic for each in (await progress_of(caller, topic_list="U;")).offset_table}
    assert topics == {"T"}
    assert listed == {"U"}


async def behind(caller: Caller, *, is_order: bool = False) -> BrokerConsumeStats:
    question = BrokerConsumeStatsHeader(is_order)
    found = await caller.call(RequestCode.GET_BROKER_CONSUME_STATS, question)
    return fastjson.decode(found.body, BrokerConsumeStats)


@on_loop
async def test_all_groups_are_shown_with_how_far_they_are_behind(tables: BrokerTables) -> None:
    async with asked(tables) as (caller, _):
        await tables.groups.update(GroupConfig(group_name="idle"))
        tables.offsets.commit("g", "T", 0, 1)
        tables.offsets.pulled("g", "T", 0, 2)
        stats = await behind(caller)
    by_group = {name: shown for each in stats.consume_stats_list for name, shown in each.items()}
    assert {name: len(shown) for name, shown in by_group.items()} == {"g": 1, "idle": 0}
    assert by_group["g"][0].offset_table[queue(0)].consumer_offset == 1
    assert (stats.total_diff, stats.total_inflight_diff) == (2, 1)
    assert stats.broker_addr == "10.0.0.1:10911"


@on_loop
async def test_statistics_can_be_limited_to_ordered_topics(tables: BrokerTables) -> None:
    async with asked(tables) as (caller, _):
        await tables.topics.update(TopicConfig(topic_name="Ordered", order=True))
        for topic in ("T", "Ordered", "Deleted"):
            tables.offsets.commit("g", topic, 0, 0)
        (shown,) = [each["g"] for each in (await behind(caller, is_order=True)).consume_stats_list]
    assert {each.topic for stats in shown for each in stats.offset_table} == {"Ordered"}


@on_loop
async def test_time_spans_contain_the_delay_of_a_group(tables: BrokerTables) -> None:
    async with asked(tables) as (caller, _):
        tables.offsets.commit("g", "T", 0, 2)
        tables.clock.now = 1012.5
        found = await caller.call(RequestCode.QUERY_CONSUME_TIME_SPAN, TopicGroupHeader("T", "g"))
    first, second = fastjson.decode(found.body, ConsumeTimeSpans).consume_time_span_set
    assert (first.message_queue, second.message_queue) == (queue(0), queue(1))
    assert (first.min_time_stamp, first.max_time_stamp) == (1_000_000, 1_002_000)
    assert (first.consume_time_stamp, first.delay_time) == (1_001_000, 10_500)
    assert (second.min_time_stamp, second.delay_time) == (-1, 0)
    assert first.min_time_stamp_str is not None
    assert first.min_time_stamp_str.endswith("16:40:000")
    assert "#" in first.min_time_stamp_str


@on_loop
async def test_a_group_that_is_up_to_date_is_not_late(tables: BrokerTables) -> None:
    async with asked(tables) as (caller, _):
        tables.offsets.commit("g", "T", 0, 3)
        found = await caller.call(RequestCode.QUERY_CONSUME_TIME_SPAN, TopicGroupHeader("T", "g"))
    first, *_ = fastjson.decode(found.body, ConsumeTimeSpans).consume_time_span_set
    assert (first.consume_time_stamp, first.delay_time) == (1_002_000, 0)


@on_loop
async def test_counters_are_viewed_by_name_and_key(tables: BrokerTables) -> None:
    async with asked(tables) as (caller, statistics):
        statistics.sent("T", 0, 7, 70, 0.001)
        tables.clock.advance(10)
        statistics.sample()
        question = StatsHeader("TOPIC_PUT_NUMS", "T")
        found = await caller.call(RequestCode.VIEW_BROKER_STATS_DATA, question)
        minute = fastjson.decode(found.body, BrokerStats).stats_minute
        assert minute is not None
        assert (minute.sum, minute.tps) == (7, 0.7)
        with pytest.raises(ServerError, match="The stats <TOPIC_PUT_NUMS> <U> not exist"):
            await caller.call(
                RequestCode.VIEW_BROKER_STATS_DATA, StatsHeader("TOPIC_PUT_NUMS", "U")
            )


@pytest.mark.parametrize(
    ("code", "header"),
    [
        (RequestCode.GET_TOPIC_STATS_INFO, TopicHeader("T")),
        (RequestCode.GET_CONSUME_STATS, ConsumeStatsHeader(consumer_group="g", topic="T")),
        (RequestCode.GET_BROKER_CONSUME_STATS, BrokerConsumeStatsHeader(is_order=False)),
        (RequestCode.QUERY_CONSUME_TIME_SPAN, TopicGroupHeader(topic="T", group="g")),
    ],
)
@on_loop
async def test_large_replies_are_encoded_on_another_thread(
    tables: BrokerTables, monkeypatch: pytest.MonkeyPatch, code: RequestCode, header: Header
) -> None:
    async with asked(tables) as (caller, _):
        threads = note_threads(monkeypatch, fastjson, "encode")
        await caller.call(code, header)
    assert threads
    assert threading.current_thread() not in threads


@on_loop
async def test_an_ipv6_address_is_written_in_brackets(tables: BrokerTables) -> None:
    async with asked(tables.restarted(broker_ip1="2001:db8::1")) as (caller, _):
        found = await caller.call(
            RequestCode.GET_BROKER_CONSUME_STATS, BrokerConsumeStatsHeader(is_order=False)
        )
    stats = fastjson.decode(found.body, BrokerConsumeStats)
    assert stats.broker_addr == "[2001:db8::1]:10911"
