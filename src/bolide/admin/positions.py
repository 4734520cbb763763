"""Where queues begin and end, and where consumer groups are in them."""

import re
from collections.abc import Iterable

from bolide.admin.errors import GroupUnknown, QueueUnknown
from bolide.admin.logical_queues import logical_progress, logical_queues
from bolide.admin.servers import (
    OnFailure,
    Servers,
    gather_answers,
    gather_by_key,
    gather_reachable,
)
from bolide.errors import BolideError
from bolide.protocol.bodies.message_queue import MessageQueue
from bolide.protocol.bodies.offsets import (
    ConsumerStatus,
    ConsumeTimeSpans,
    QueueTimeSpan,
)
from bolide.protocol.bodies.stats import ConsumeStats
from bolide.protocol.bodies.topics import TopicOffset, TopicStats
from bolide.protocol.codes import RequestCode
from bolide.protocol.headers.groups import ConsumeStatsHeader, TopicGroupHeader
from bolide.protocol.headers.offsets import (
    Boundary,
    ConsumerStatusHeader,
    MaxOffsetHeader,
    OffsetReply,
    QueryOffsetHeader,
    QueueHeader,
    SearchOffsetHeader,
    StoreTimeReply,
)
from bolide.protocol.headers.topics import TopicHeader
from bolide.protocol.refusals import QueryNotFound
from bolide.protocol.static_topics.addressing import physical_fields

SLOW_TIMEOUT = 15.0
_OFFSET_KEY = re.compile(rb'"[^"\\]*@([^"\\@]+)"\s*:')
"""The name of a member of RocketMQ's table of offsets: topic@group."""


class Positions:
    """Reads offsets in the queues of a cluster; times are milliseconds since 1970."""

    def __init__(self, servers: Servers) -> None:
        self._servers = servers

    async def max(self, queue: MessageQueue) -> int:
        """The offset of the next message to be stored."""
        header = MaxOffsetHeader(topic=queue.topic, queue_id=queue.queue_id)
        return await self._query_offset(queue, RequestCode.GET_MAX_OFFSET, header)

    async def min(self, queue: MessageQueue) -> int:
        """The offset of the oldest message."""
        header = QueueHeader(queue.topic, queue.queue_id)
        return await self._query_offset(queue, RequestCode.GET_MIN_OFFSET, header)

    async def search(
        self, queue: MessageQueue, timestamp: int, boundary: Boundary = Boundary.LOWER
    ) -> int:
        """The first message stored at a time or later; with UPPER, the last one up to it."""
        address = await self._servers.address_of(queue.broker_name)
        return await self.search_at(address, queue, timestamp, boundary)

    async def search_at(
        self,
        address: str,
        queue: MessageQueue,
        timestamp: int,
        boundary: Boundary = Boundary.LOWER,
    ) -> int:
        header = SearchOffsetHeader(
            topic=queue.topic,
            queue_id=queue.queue_id,
            timestamp=timestamp,
            boundary_type=boundary,
        )
        fields = physical_fields(header, queue.broker_name)
        reply = await self._servers.call(address, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, fields)
        return OffsetReply.from_fields(reply.fields).offset

    async def earliest_time(self, queue: MessageQueue) -> int:
        """The store time of the oldest message."""
        address = await self._servers.address_of(queue.broker_name)
        header = QueueHeader(queue.topic, queue.queue_id)
        fields = physical_fields(header, queue.broker_name)
        reply = await self._servers.call(address, RequestCode.GET_EARLIEST_MSG_STORETIME, fields)
        return StoreTimeReply.from_fields(reply.fields).timestamp

    async def find_committed(self, group: str, queue: MessageQueue) -> int | None:
        """The committed offset of the group; None if it has not consumed the queue."""
        header = QueryOffsetHeader(
            consumer_group=group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            set_zero_if_not_found=False,
        )
        try:
            return await self._query_offset(queue, RequestCode.QUERY_CONSUMER_OFFSET, header)
        except QueryNotFound:
            return None

    async def groups_with_offsets_at(self, address: str) -> set[str]:
        """The groups that have committed an offset at one broker."""
        code = RequestCode.GET_ALL_CONSUMER_OFFSET
        reply = await self._servers.call(address, code, within=SLOW_TIMEOUT)
        # The table can have megabytes, and only the names are wanted.
        return {name.decode() for name in _OFFSET_KEY.findall(reply.body or b"")}

    async def progress(
        self,
        group: str,
        topic: str | None = None,
        cluster: str | None = None,
        *,
        on_failure: OnFailure | None = None,
    ) -> ConsumeStats:
        """The offsets of a group in all queues it consumes, or in those of one topic.

        Brokers that cannot be reached are left to `on_failure`, if it is given.
        """
        addresses = (await self._group_addresses(group, topic, cluster)).values()
        found = await gather_reachable(
            addresses, lambda at: self.progress_at(at, group, topic), on_failure
        )
        return await self._merged(found.values())

    async def progress_and_failures(
        self, group: str, topic: str | None = None
    ) -> tuple[ConsumeStats | None, list[BolideError]]:
        """What the brokers tell that do, None if none does, and the failures of the others.

        Raises:
            BolideError: the brokers of the group are not known.
        """
        addresses = (await self._group_addresses(group, topic, None)).values()
        found, failures = await gather_answers(
            addresses, lambda at: self.progress_at(at, group, topic)
        )
        return await self._merged(found.values()) if found else None, failures

    async def _merged(self, parts: Iterable[ConsumeStats]) -> ConsumeStats:
        merged = ConsumeStats()
        for part in parts:
            merged.offset_table |= part.offset_table
            merged.consume_tps += part.consume_tps
        await self._show_logical_queues(merged)
        return merged

    async def _show_logical_queues(self, stats: ConsumeStats) -> None:
        """Replace the physical queues of static topics by the logical ones."""
        topics = sorted({queue.topic for queue in stats.offset_table})
        queues = await logical_queues(self._servers, topics)
        static = {queue.topic for queue in queues}
        progress = logical_progress(queues, stats.offset_table)
        plain = {queue: at for queue, at in stats.offset_table.items() if queue.topic not in static}
        stats.offset_table = plain | progress

    async def progress_at(self, address: str, group: str, topic: str | None = None) -> ConsumeStats:
        header = ConsumeStatsHeader(consumer_group=group, topic=topic)
        code = RequestCode.GET_CONSUME_STATS
        return await self._servers.fetch(address, code, ConsumeStats, header, within=SLOW_TIMEOUT)

    async def bounds_at(
        self, address: str, queue: MessageQueue
    ) -> tuple[MessageQueue, TopicOffset]:
        """The queue with the number of `queue` on one broker, and its ends; raises QueueUnknown."""
        code, header = RequestCode.GET_TOPIC_STATS_INFO, TopicHeader(queue.topic)
        table = (await self._servers.fetch(address, code, TopicStats, header)).offset_table
        for each, bounds in table.items():
            if each.queue_id == queue.queue_id:
                return each, bounds
        raise QueueUnknown(address, queue, (each.queue_id for each in table))

    async def status(
        self, group: str, topic: str, client_id: str | None = None
    ) -> dict[str, dict[MessageQueue, int]]:
        """The current offsets of running consumers in a topic, by client id."""
        header = ConsumerStatusHeader(topic=topic, group=group, client_addr=client_id or "")
        code = RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS
        address, *_ = (await self._servers.addresses_of(topic)).values()
        found = await self._servers.fetch(
            address, code, ConsumerStatus, header, within=SLOW_TIMEOUT
        )
        return found.consumer_table

    async def time_spans(self, group: str, topic: str) -> list[QueueTimeSpan]:
        """Store times of the oldest, the newest and the last consumed message of each queue."""
        found = await gather_by_key(
            (await self._servers.addresses_of(topic)).values(),
            lambda at: self.time_spans_at(at, group, topic),
        )
        return [span for part in found.values() for span in part]

    async def time_spans_at(self, address: str, group: str, topic: str) -> list[QueueTimeSpan]:
        """As `time_spans`, for the queues of one broker."""
        header, code = TopicGroupHeader(topic, group), RequestCode.QUERY_CONSUME_TIME_SPAN
        found = await self._servers.fetch(address, code, ConsumeTimeSpans, header)
        return found.consume_time_span_set

    async def _query_offset(
        self,
        queue: MessageQueue,
        code: RequestCode,
        header: MaxOffsetHeader | QueueHeader | QueryOffsetHeader,
    ) -> int:
        address = await self._servers.address_of(queue.broker_name)
        fields = physical_fields(header, queue.broker_name)
        reply = await self._servers.call(address, code, fields)
        return OffsetReply.from_fields(reply.fields).offset

    async def _group_addresses(
        self, group: str, topic: str | None, cluster: str | None
    ) -> dict[str, str]:
        """The brokers of a group: those of its retry topic, otherwise those of the topic."""
        try:
            return await self._servers.addresses_of_group(group, cluster)
        except GroupUnknown:
            if topic is None:
                raise
        return await self._servers.addresses_of(topic, cluster)
