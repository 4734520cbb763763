"""Statistics of topics and queues, consumer lag and counters (`AdminBrokerProcessor`).

Message timestamps may have to be read from disk. Handlers therefore read the tables on the event
loop first and compute the reply on a thread.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import NamedTuple

from bolide.broker.background import ADMIN, on_thread
from bolide.broker.metadata.clients import ClientTable
from bolide.broker.metadata.groups import GroupTable
from bolide.broker.metadata.offsets import OffsetTable
from bolide.broker.metadata.queue_mappings import QueueMappings
from bolide.broker.metadata.topics import TopicTable
from bolide.broker.settings.config import BrokerConfig
from bolide.broker.statistics import Statistics
from bolide.config import ConfigCell
from bolide.protocol import fastjson
from bolide.protocol.bodies.message_queue import MessageQueue
from bolide.protocol.bodies.offsets import ConsumeTimeSpans, QueueTimeSpan
from bolide.protocol.bodies.stats import BrokerConsumeStats, ConsumeStats, QueueProgress
from bolide.protocol.bodies.topics import TopicConfig, TopicOffset, TopicStats
from bolide.protocol.codes import RequestCode
from bolide.protocol.headers.groups import ConsumeStatsHeader, TopicGroupHeader
from bolide.protocol.headers.runtime import BrokerConsumeStatsHeader, StatsHeader
from bolide.protocol.headers.topics import TopicHeader
from bolide.protocol.refusals import ServerError
from bolide.remoting.address import format_address
from bolide.remoting.dispatch import Reply, Request, handles
from bolide.store.contract import Store


class Position(NamedTuple):
    """Progress of a group in a queue: the next queue offset to consume and to pull."""

    queue: MessageQueue
    consumed: int = 0
    pulled: int = 0


class StatsHandlers:
    """Reports queue bounds of topics, lag of groups, and counters."""

    def __init__(  # noqa: PLR0913  it reads every table
        self,
        *,
        store: Store,
        topics: TopicTable,
        mappings: QueueMappings,
        groups: GroupTable,
        offsets: OffsetTable,
        clients: ClientTable,
        statistics: Statistics,
        cell: ConfigCell[BrokerConfig],
        now: Callable[[], float] = time.time,
    ) -> None:
        self._store = store
        self._topics = topics
        self._mappings = mappings
        self._groups = groups
        self._offsets = offsets
        self._clients = clients
        self._statistics = statistics
        self._cell = cell
        self._now = now

    @handles(TopicHeader, RequestCode.GET_TOPIC_STATS_INFO)
    async def topic_stats(self, request: Request[TopicHeader]) -> Reply:
        topic = self._topics.require(request.header.topic)
        tps = self._statistics.put_tps(topic.topic_name)

        def compute() -> TopicStats:
            count = max(topic.read_queue_nums, topic.write_queue_nums)
            queues = [self._queue(topic, queue_id) for queue_id in range(count)]
            table = {queue: topic_offset(self._store, queue) for queue in queues}
            return TopicStats(offset_table=table, topic_put_tps=tps)

        return await _reply_from_thread(compute)

    @handles(ConsumeStatsHeader, RequestCode.GET_CONSUME_STATS)
    async def consume_stats(self, request: Request[ConsumeStatsHeader]) -> Reply:
        header = request.header
        group, names = header.consumer_group, self._requested_topics(header)
        topics = [topic for name in names if (topic := self._topics.find(name))]
        tps = sum((self._statistics.get_tps(group, topic.topic_name) for topic in topics), 0.0)

        def compute() -> ConsumeStats:
            positions = [
                position
                for topic in topics
                for position in self._positions(group, topic, topic.read_queue_nums, -1)
            ]
            return self._progress(positions, tps)

        return await _reply_from_thread(compute)

    def _requested_topics(self, header: ConsumeStatsHeader) -> Iterable[str]:
        """The explicit list, if there is one; else topics that online consumers subscribe to."""
        if listed := [name for name in (header.topic_list or "").split(";") if name]:
            return listed
        group = header.consumer_group
        named = [header.topic] if header.topic else sorted(self._offsets.topics_of(group))
        return [name for name in named if self._clients.wants(group, name)]

    @handles(BrokerConsumeStatsHeader, RequestCode.GET_BROKER_CONSUME_STATS)
    async def broker_consume_stats(self, request: Request[BrokerConsumeStatsHeader]) -> Reply:
        consumed = self._consumed_topics(only_order=request.header.is_order)
        groups = [group.group_name for group in self._groups]
        return await _reply_from_thread(lambda: self._broker_stats(groups, consumed))

    def _broker_stats(
        self, groups: list[str], consumed: list[tuple[str, TopicConfig, float]]
    ) -> BrokerConsumeStats:
        config = self._cell.value
        address = format_address((config.broker_ip1, config.listen_port))
        body = BrokerConsumeStats(broker_addr=address)
        by_group = {group: list[ConsumeStats]() for group in groups}
        for group, topic, tps in consumed:
            stats = self._progress(self._positions(group, topic, topic.write_queue_nums), tps)
            by_group[group].append(stats)
            for progress in stats.offset_table.values():
                body.total_diff += progress.broker_offset - progress.consumer_offset
                body.total_inflight_diff += progress.pull_offset - progress.consumer_offset
        body.consume_stats_list = [{group: stats} for group, stats in by_group.items()]
        return body

    def _consumed_topics(self, *, only_order: bool) -> list[tuple[str, TopicConfig, float]]:
        """Groups, the topics they consume, and their rates in messages per second."""
        topics_of: defaultdict[str, list[str]] = defaultdict(list)
        for key in self._offsets.table.offset_table:
            name, _, owner = key.partition("@")
            topics_of[owner].append(name)
        return [
            (group.group_name, topic, self._statistics.get_tps(group.group_name, name))
            for group in self._groups
            for name in topics_of[group.group_name]
            if (topic := self._topics.find(name)) and (topic.order or not only_order)
            if self._clients.wants(group.group_name, name)
        ]

    @handles(TopicGroupHeader, RequestCode.QUERY_CONSUME_TIME_SPAN)
    async def time_spans(self, request: Request[TopicGroupHeader]) -> Reply:
        topic = self._topics.require(request.header.topic)
        group, now = request.header.group, self._now()

        def compute() -> ConsumeTimeSpans:
            positions = self._positions(group, topic, topic.write_queue_nums)
            spans = [time_span(self._store, position, now) for position in positions]
            return ConsumeTimeSpans(consume_time_span_set=spans)

        return await _reply_from_thread(compute)

    @handles(StatsHeader, RequestCode.VIEW_BROKER_STATS_DATA)
    def view(self, request: Request[StatsHeader]) -> Reply:
        name, key = request.header.stats_name, request.header.stats_key
        found = self._statistics.view(name, key)
        if found is None:
            raise ServerError(f"The stats <{name}> <{key}> not exist")
        return Reply(body=fastjson.encode(found))

    # ---- inside

    def _queue(self, topic: TopicConfig, queue_id: int) -> MessageQueue:
        return MessageQueue(topic.topic_name, self._cell.value.broker_name, queue_id)

    def _positions(
        self, group: str, topic: TopicConfig, count: int, missing_in_static: int = 0
    ) -> list[Position]:
        """The group's position in each queue of a topic; 0 where it has none.

        Args:
            missing_in_static: the same for a static topic, where another broker may have it.
        """
        name, offsets = topic.topic_name, self._offsets
        missing = missing_in_static if name in self._mappings else 0
        return [
            Position(
                self._queue(topic, queue_id),
                missing if (offset := offsets.find(group, name, queue_id)) is None else offset,
                offsets.find_pulled(group, name, queue_id) or 0,
            )
            for queue_id in range(count)
        ]

    def _progress(self, positions: list[Position], tps: float) -> ConsumeStats:
        table = {each.queue: queue_progress(self._store, each) for each in positions}
        return ConsumeStats(offset_table=table, consume_tps=tps)


async def _reply_from_thread(compute: Callable[[], object]) -> Reply:
    """Compute and encode a reply on a thread; encoding is slow for topics with many queues."""
    return Reply(body=await on_thread(ADMIN, lambda: fastjson.encode(compute())))


def topic_offset(store: Store, queue: MessageQueue) -> TopicOffset:
    topic, queue_id = queue.topic, queue.queue_id
    end = store.max_offset(topic, queue_id)
    return TopicOffset(
        min_offset=store.min_offset(topic, queue_id),
        max_offset=end,
        last_update_timestamp=max(store.stored_at(topic, queue_id, end - 1), 0),
    )


def queue_progress(store: Store, position: Position) -> QueueProgress:
    """Offsets of a queue; the timestamp is that of the last consumed message, 0 without one."""
    topic, queue_id = position.queue.topic, position.queue.queue_id
    return QueueProgress(
        broker_offset=store.max_offset(topic, queue_id),
        consumer_offset=position.consumed,
        pull_offset=max(position.consumed, position.pulled),
        last_timestamp=max(store.stored_at(topic, queue_id, position.consumed - 1), 0),
    )


def time_span(store: Store, position: Position, now: float) -> QueueTimeSpan:
    """Store times of a queue's first, last and last consumed message, and the delay of the next."""
    topic, queue_id = position.queue.topic, position.queue.queue_id
    end, consumed = store.max_offset(topic, queue_id), position.consumed
    first = store.earliest_time(topic, queue_id)
    last = store.stored_at(topic, queue_id, end - 1)
    last_consumed = store.stored_at(topic, queue_id, consumed - 1) if consumed > 0 else first
    next_stored = store.stored_at(topic, queue_id, consumed) if consumed < end else -1
    return QueueTimeSpan(
        message_queue=position.queue,
        min_time_stamp=first,
        max_time_stamp=last,
        consume_time_stamp=last_consumed,
        delay_time=max(int(now * 1000) - next_stored, 0) if next_stored > 0 else 0,
        min_time_stamp_str=_date(first),
        max_time_stamp_str=_date(last),
        consume_time_stamp_str=_date(last_consumed),
    )


def _date(milliseconds: int) -> str:
    moment = datetime.fromtimestamp(milliseconds / 1000, UTC).astimezone()
    return f"{moment:%Y-%m-%d#%H:%M:%S}:{milliseconds % 1000:03d}"
