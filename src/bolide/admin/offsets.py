"""Offsets: the bounds of queues, the committed offsets of groups, and their reset."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import msgspec

from bolide import properties
from bolide.admin.errors import GroupUnknown, NoOffsets
from bolide.admin.logical_queues import logical_progress, logical_queues
from bolide.admin.servers import OnFailure, Servers, gather_answers, gather_by_key, gather_reachable
from bolide.errors import BolideError
from bolide.protocol.bodies.message_queue import MessageQueue
from bolide.protocol.bodies.offsets import (
    ConsumerStatus,
    ConsumeTimeSpans,
    QueueTimeSpan,
    ResetOffsets,
)
from bolide.protocol.bodies.stats import ConsumeStats, QueueProgress
from bolide.protocol.bodies.topics import TopicOffset, TopicStats
from bolide.protocol.codes import RequestCode
from bolide.protocol.headers.groups import ConsumeStatsHeader, TopicGroupHeader
from bolide.protocol.headers.offsets import (
    Boundary,
    CloneOffsetsHeader,
    CommitOffsetHeader,
    ConsumerStatusHeader,
    MaxOffsetHeader,
    OffsetReply,
    QueryOffsetHeader,
    QueueHeader,
    ResetOffsetHeader,
    SearchOffsetHeader,
    StoreTimeReply,
)
from bolide.protocol.headers.topics import TopicHeader
from bolide.protocol.refusals import QueryNotFound, Refusal
from bolide.protocol.static_topics.addressing import physical_fields

AT_END = -1
"""As a timestamp: the end of the queue."""

_SLOW_TIMEOUT = 15.0


@dataclass(frozen=True, slots=True)
class Rollback:
    """The result of a reset for one queue."""

    queue: MessageQueue
    broker_offset: int
    consumer_offset: int
    timestamp_offset: int
    """The offset of the requested time."""
    reset_offset: int
    """The committed offset after the reset."""


@dataclass(frozen=True, slots=True)
class OffsetMove:
    """A change of the committed offset of a group in one queue, before it is made."""

    queue: MessageQueue
    min_offset: int
    max_offset: int
    before: int | None
    """None if the group has not committed an offset in this queue."""
    after: int

    @property
    def redelivered(self) -> int:
        """The number of stored messages that will be delivered again."""
        return 0 if self.before is None else max(self.before - max(self.after, self.min_offset), 0)

    @property
    def skipped(self) -> int:
        """The number of stored messages that will never be delivered."""
        begin = max(self.before or 0, self.min_offset)
        return 0 if self.before is None else max(self.after - begin, 0)


class Offsets:
    """Offsets in the queues of a cluster; times are milliseconds since 1970."""

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

    async def commit(self, address: str, group: str, queue: MessageQueue, offset: int) -> None:
        """Commit an offset for a group; a connected consumer overwrites it with its own."""
        header = CommitOffsetHeader(group, queue.topic, queue.queue_id, offset)
        fields = physical_fields(header, queue.broker_name)
        await self._servers.call(address, RequestCode.UPDATE_CONSUMER_OFFSET, fields)

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
        return await self._servers.fetch(address, code, ConsumeStats, header, within=_SLOW_TIMEOUT)

    async def reset_by_time(
        self,
        group: str,
        topic: str,
        timestamp: int,
        *,
        force: bool = True,
        cluster: str | None = None,
    ) -> dict[MessageQueue, int]:
        """Reset a group and its running consumers to a time; without `force` only backwards.

        Args:
            group: the consumer group.
            topic: the topic; queues of a static topic are its physical ones.
            timestamp: the time, or AT_END.
            force: False leaves queues alone that would move forwards.
            cluster: only the brokers of this cluster.

        Raises:
            ConsumerNotOnline: the broker resets offsets only through connected consumers, and
                none is connected; use `reset_stopped`.
        """
        header = ResetOffsetHeader(
            topic=topic, group=group, timestamp=timestamp, is_force=force, offset=-1
        )
        moved: dict[MessageQueue, int] = {}
        for address in (await self._servers.addresses_of(topic, cluster)).values():
            if not force and await self._resets_itself(address):
                moved |= await self._reset_backwards(address, header)
            else:
                moved |= await self._reset(address, header)
        return moved

    async def _resets_itself(self, address: str) -> bool:
        """Whether the broker moves the offsets itself, and then forwards too, as since 5.0."""
        try:
            reply = await self._servers.call(address, RequestCode.GET_BROKER_CONFIG)
        except Refusal:
            return False
        settings = properties.parse(reply.body.decode())
        return settings.get("useServerSideResetOffset", "").lower() == "true"

    async def _reset_backwards(
        self, address: str, header: ResetOffsetHeader
    ) -> dict[MessageQueue, int]:
        moves = await self._moves_at(
            address, header.group, header.topic, header.timestamp, force=False
        )
        for each in moves:
            if each.before is not None and each.after < each.before:
                one = msgspec.structs.replace(
                    header, queue_id=each.queue.queue_id, offset=each.after
                )
                await self._reset(address, one)
        return {each.queue: each.after for each in moves}

    async def plan_reset(
        self,
        group: str,
        topic: str,
        timestamp: int,
        *,
        force: bool = True,
        cluster: str | None = None,
    ) -> list[OffsetMove]:
        """What `reset_by_time` and `reset_stopped` would do, queue by queue."""
        addresses = (await self._servers.addresses_of(topic, cluster)).values()
        found = await gather_by_key(
            addresses,
            lambda address: self._moves_at(address, group, topic, timestamp, force=force),
        )
        return [move for moves in found.values() for move in moves]

    async def _moves_at(
        self, address: str, group: str, topic: str, timestamp: int, *, force: bool
    ) -> list[OffsetMove]:
        ends, known = await self._ends_and_progress(address, group, topic)

        async def move(queue: MessageQueue) -> OffsetMove:
            bounds = ends[queue]
            after = bounds.max_offset
            if timestamp != AT_END:
                after = await self.search_at(address, queue, timestamp)
            before = known[queue].consumer_offset if queue in known else None
            if before is not None and not force:
                after = min(after, before)
            return OffsetMove(queue, bounds.min_offset, bounds.max_offset, before, after)

        return [*(await gather_by_key(sorted(ends), move)).values()]

    async def _ends_and_progress(
        self, address: str, group: str, topic: str
    ) -> tuple[dict[MessageQueue, TopicOffset], dict[MessageQueue, QueueProgress]]:
        """The bounds of the queues of a topic on one broker, and the offsets of a group there."""
        code = RequestCode.GET_TOPIC_STATS_INFO
        ends = await self._servers.fetch(address, code, TopicStats, TopicHeader(topic))
        stats = await self.progress_at(address, group)
        known = {q: at for q, at in stats.offset_table.items() if at.consumer_offset >= 0}
        return ends.offset_table, known

    async def reset_stopped(
        self,
        group: str,
        topic: str,
        timestamp: int,
        *,
        force: bool = True,
        cluster: str | None = None,
    ) -> list[Rollback]:
        """Reset a group without running consumers, by committing offsets."""
        moved = []
        for address in (await self._servers.addresses_of(topic, cluster)).values():
            for queue, progress in (await self._progress_in(address, group, topic)).items():
                moved.append(
                    await self._roll_back(address, group, (queue, progress), timestamp, force)
                )
        return moved

    async def plan_queue_reset(
        self, address: str, group: str, queue: MessageQueue, offset: int
    ) -> OffsetMove:
        """What `reset_queue` would do."""
        ends, known = await self._ends_and_progress(address, group, queue.topic)
        for each, bounds in ends.items():
            if each.queue_id == queue.queue_id:
                before = known[each].consumer_offset if each in known else None
                return OffsetMove(each, bounds.min_offset, bounds.max_offset, before, offset)
        return OffsetMove(queue, 0, 0, None, offset)

    async def reset_queue(self, address: str, group: str, queue: MessageQueue, offset: int) -> None:
        """Reset a group and its running consumer to an offset in one queue."""
        await self.commit(address, group, queue, offset)
        header = ResetOffsetHeader(
            topic=queue.topic,
            group=group,
            queue_id=queue.queue_id,
            offset=offset,
            timestamp=0,
            is_force=True,
        )
        await self._reset(address, header)

    async def clone(
        self, source: str, target: str, topic: str | None = None, *, offline: bool = False
    ) -> None:
        """Copy the committed offsets of one group to another, in one topic or in all."""
        header = CloneOffsetsHeader(
            src_group=source, dest_group=target, topic=topic, offline=offline
        )
        for address in (await self._servers.addresses_of_group(source)).values():
            await self._servers.call(address, RequestCode.CLONE_GROUP_OFFSET, header)

    async def plan_copy(self, source: str, target: str, topic: str) -> dict[str, list[OffsetMove]]:
        """What it does to a group to get the offsets of another one, by address of the broker.

        Raises:
            NoOffsets: the source has not consumed the topic.
        """
        plan = {}
        for address in (await self._servers.addresses_of(topic)).values():
            ends, known = await self._ends_and_progress(address, target, topic)
            stats = await self.progress_at(address, source)
            plan[address] = [
                OffsetMove(
                    queue,
                    bounds.min_offset,
                    bounds.max_offset,
                    known[queue].consumer_offset if queue in known else None,
                    stats.offset_table[queue].consumer_offset,
                )
                for queue, bounds in sorted(ends.items())
                if queue in stats.offset_table and stats.offset_table[queue].consumer_offset >= 0
            ]
        if not any(plan.values()):
            raise NoOffsets(source, topic)
        return plan

    async def commit_moves(self, group: str, plan: Mapping[str, Iterable[OffsetMove]]) -> None:
        """Commit planned offsets; running consumers of the group overwrite them."""
        for address, moves in plan.items():
            for each in moves:
                await self.commit(address, group, each.queue, each.after)

    async def status(
        self, group: str, topic: str, client_id: str | None = None
    ) -> dict[str, dict[MessageQueue, int]]:
        """The current offsets of running consumers in a topic, by client id."""
        header = ConsumerStatusHeader(topic=topic, group=group, client_addr=client_id or "")
        code = RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS
        address, *_ = (await self._servers.addresses_of(topic)).values()
        found = await self._servers.fetch(
            address, code, ConsumerStatus, header, within=_SLOW_TIMEOUT
        )
        return found.consumer_table

    async def time_spans(self, group: str, topic: str) -> list[QueueTimeSpan]:
        """Store times of the oldest, the newest and the last consumed message of each queue."""
        header, code = TopicGroupHeader(topic, group), RequestCode.QUERY_CONSUME_TIME_SPAN
        found = await gather_by_key(
            (await self._servers.addresses_of(topic)).values(),
            lambda at: self._servers.fetch(at, code, ConsumeTimeSpans, header),
        )
        return [span for part in found.values() for span in part.consume_time_span_set]

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

    async def _reset(self, address: str, header: ResetOffsetHeader) -> dict[MessageQueue, int]:
        code = RequestCode.INVOKE_BROKER_TO_RESET_OFFSET
        found = await self._servers.fetch(address, code, ResetOffsets, header, within=_SLOW_TIMEOUT)
        return found.offset_table

    async def _progress_in(
        self, address: str, group: str, topic: str
    ) -> dict[MessageQueue, QueueProgress]:
        """Progress in one topic on one broker; a group without offsets starts at the beginning."""
        stats = await self.progress_at(address, group)
        known = {queue: each for queue, each in stats.offset_table.items() if queue.topic == topic}
        if known:
            return dict(sorted(known.items()))
        code = RequestCode.GET_TOPIC_STATS_INFO
        ends = await self._servers.fetch(address, code, TopicStats, TopicHeader(topic))
        return dict(_beginnings(ends))

    async def _roll_back(
        self,
        address: str,
        group: str,
        position: tuple[MessageQueue, QueueProgress],
        timestamp: int,
        force: bool,
    ) -> Rollback:
        queue, progress = position
        target = (
            progress.broker_offset
            if timestamp == AT_END
            else await self.search_at(address, queue, timestamp)
        )
        moves = force or target <= progress.consumer_offset
        if moves:
            await self.commit(address, group, queue, target)
        now = target if moves else progress.consumer_offset
        return Rollback(queue, progress.broker_offset, progress.consumer_offset, target, now)


def _beginnings(stats: TopicStats) -> Iterable[tuple[MessageQueue, QueueProgress]]:
    for queue, ends in sorted(stats.offset_table.items()):
        yield (
            queue,
            QueueProgress(broker_offset=ends.max_offset, consumer_offset=ends.min_offset),
        )
