"""Offsets: the bounds of queues, the committed offsets of groups, and their reset."""

from collections.abc import Iterable

import msgspec

from bolide import properties
from bolide.admin.errors import NoOffsets, OffsetOutOfRange
from bolide.admin.offset_moves import OffsetMove, Rollback, beginnings
from bolide.admin.positions import SLOW_TIMEOUT, Positions
from bolide.admin.servers import change_all, gather_by_key
from bolide.protocol.bodies.groups import GroupConfigTable
from bolide.protocol.bodies.message_queue import MessageQueue
from bolide.protocol.bodies.offsets import ResetOffsets
from bolide.protocol.bodies.stats import QueueProgress
from bolide.protocol.bodies.topics import TopicOffset, TopicStats
from bolide.protocol.codes import RequestCode
from bolide.protocol.headers.offsets import (
    CloneOffsetsHeader,
    CommitOffsetHeader,
    ResetOffsetHeader,
)
from bolide.protocol.headers.topics import TopicHeader
from bolide.protocol.refusals import (
    GroupNotFound,
    NoPermission,
    Refusal,
    RequestCodeNotSupported,
)
from bolide.protocol.static_topics.addressing import physical_fields

AT_END = -1
"""As a timestamp: the end of the queue."""
AT_START = -2
"""As a timestamp of `plan_at`: the oldest message of the queue."""


class Offsets(Positions):
    """Reads and changes offsets in the queues of a cluster."""

    async def commit(self, address: str, group: str, queue: MessageQueue, offset: int) -> None:
        """Commit an offset for a group; a connected consumer overwrites it with its own."""
        header = CommitOffsetHeader(group, queue.topic, queue.queue_id, offset)
        fields = physical_fields(header, queue.broker_name)
        await self._servers.call(address, RequestCode.UPDATE_CONSUMER_OFFSET, fields)

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
        found = await change_all(
            (await self._servers.addresses_of(topic, cluster)).values(),
            lambda address: self.reset_at(address, group, topic, timestamp, force=force),
        )
        return {queue: offset for moved in found.values() for queue, offset in moved.items()}

    async def reset_at(
        self, address: str, group: str, topic: str, timestamp: int, *, force: bool = True
    ) -> dict[MessageQueue, int]:
        """As `reset_by_time`, on one broker."""
        header = ResetOffsetHeader(
            topic=topic, group=group, timestamp=timestamp, is_force=force, offset=-1
        )
        if not force and await self._resets_itself(address):
            return await self._reset_backwards(address, header)
        return await self._reset(address, header)

    async def _resets_itself(self, address: str) -> bool:
        """Whether the broker moves the offsets itself, and then forwards too, as since 5.0."""
        try:
            reply = await self._servers.call(address, RequestCode.GET_BROKER_CONFIG)
        except NoPermission:  # a broker with ACL 2.0, so a new one
            return True
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
        """What `reset_by_time` and `reset_stopped` would do, queue by queue.

        Raises:
            GroupNotFound: a broker does not have the group, and would refuse.
        """

        addresses = (await self._servers.addresses_of(topic, cluster)).values()
        found = await gather_by_key(
            addresses, lambda at: self.plan_at(at, group, topic, timestamp, force=force)
        )
        return [move for moves in found.values() for move in moves]

    async def plan_at(
        self, address: str, group: str, topic: str, timestamp: int, *, force: bool = True
    ) -> list[OffsetMove]:
        """As `plan_reset`, on one broker; `move` does it."""
        await self._require_group(address, group)
        return await self._moves_at(address, group, topic, timestamp, force=force)

    async def _moves_at(
        self, address: str, group: str, topic: str, timestamp: int, *, force: bool
    ) -> list[OffsetMove]:
        ends, known = await self._ends_and_progress(address, group, topic)

        async def move(queue: MessageQueue) -> OffsetMove:
            bounds = ends[queue]
            after = bounds.min_offset if timestamp == AT_START else bounds.max_offset
            if timestamp not in {AT_END, AT_START}:
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
        found = await change_all(
            (await self._servers.addresses_of(topic, cluster)).values(),
            lambda address: self.reset_stopped_at(address, group, topic, timestamp, force=force),
        )
        return [each for moved in found.values() for each in moved]

    async def reset_stopped_at(
        self, address: str, group: str, topic: str, timestamp: int, *, force: bool = True
    ) -> list[Rollback]:
        """As `reset_stopped`, on one broker."""
        return [
            await self._roll_back(address, group, position, timestamp, force)
            for position in (await self._progress_in(address, group, topic)).items()
        ]

    async def plan_queue_reset(
        self, address: str, group: str, queue: MessageQueue, offset: int
    ) -> OffsetMove:
        """What `reset_queue` would do; raises its errors."""
        each, bounds = await self.bounds_at(address, queue)
        _check_offset(bounds, offset)
        await self._require_group(address, group)
        stats = await self.progress_at(address, group)
        at = stats.offset_table.get(each)
        before = None if at is None or at.consumer_offset < 0 else at.consumer_offset
        return OffsetMove(each, bounds.min_offset, bounds.max_offset, before, offset)

    async def reset_queue(self, address: str, group: str, queue: MessageQueue, offset: int) -> None:
        """Reset a group to an offset in one queue.

        A running consumer follows, if the broker resets offsets itself, as since 5.0; otherwise it
        overwrites the offset with its own.

        Raises:
            QueueUnknown: the broker has no such queue.
            OffsetOutOfRange: the queue does not reach that far.
            GroupNotFound: the broker does not have the group.
        """
        _, bounds = await self.bounds_at(address, queue)
        _check_offset(bounds, offset)
        if not await self._resets_itself(address):  # and would reset all queues of the topic
            await self.commit(address, group, queue, offset)
            return
        header = ResetOffsetHeader(
            topic=queue.topic,
            group=group,
            queue_id=queue.queue_id,
            offset=offset,
            timestamp=0,
            is_force=True,
        )
        await self._reset(address, header)

    async def _require_group(self, address: str, group: str) -> None:
        """Raises GroupNotFound where new brokers refuse to move an unknown group."""
        if not await self._resets_itself(address):
            return
        code = RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG
        try:
            table = await self._servers.fetch(address, code, GroupConfigTable)
        except (NoPermission, RequestCodeNotSupported):
            return  # the broker says it when the offset is moved
        if group not in table.subscription_group_table:
            raise GroupNotFound(
                f"broker {address} has no group {group!r}; updateSubGroup creates it"
            )

    async def clone(
        self, source: str, target: str, topic: str | None = None, *, offline: bool = False
    ) -> None:
        """Copy the committed offsets of one group to another, in one topic or in all."""
        header = CloneOffsetsHeader(
            src_group=source, dest_group=target, topic=topic, offline=offline
        )
        await change_all(
            (await self._servers.addresses_of_group(source)).values(),
            lambda at: self._servers.call(at, RequestCode.CLONE_GROUP_OFFSET, header),
        )

    async def plan_copy(self, source: str, target: str, topic: str) -> dict[str, list[OffsetMove]]:
        """What it does to a group to get the offsets of another one, by address of the broker.

        Raises:
            NoOffsets: the source has not consumed the topic.
            GroupNotFound: a broker does not have the target, and would refuse.
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
        for address in plan:
            await self._require_group(address, target)
        return plan

    async def commit_moves(self, address: str, group: str, moves: Iterable[OffsetMove]) -> None:
        """Commit planned offsets on one broker; running consumers of the group overwrite them."""
        for each in moves:
            await self.commit(address, group, each.queue, each.after)

    async def moves_members(self, address: str) -> bool:
        """Whether the broker makes running members go on from an offset that `move` sets.

        Brokers since 5.0 do. With others, members overwrite it: stop them first.
        """
        return await self._resets_itself(address)

    async def move(self, address: str, group: str, moves: Iterable[OffsetMove]) -> None:
        """Make planned moves on one broker, whether or not members are running.

        Raises:
            GroupNotFound: the broker does not have the group.
        """
        wanted = [*moves]
        if not await self._resets_itself(address):
            await self.commit_moves(address, group, wanted)
            return

        async def reset(move: OffsetMove) -> None:
            header = ResetOffsetHeader(
                topic=move.queue.topic,
                group=group,
                queue_id=move.queue.queue_id,
                offset=move.after,
                timestamp=0,
                is_force=True,
            )
            await self._reset(address, header)

        await gather_by_key(wanted, reset)

    async def _reset(self, address: str, header: ResetOffsetHeader) -> dict[MessageQueue, int]:
        code = RequestCode.INVOKE_BROKER_TO_RESET_OFFSET
        found = await self._servers.fetch(address, code, ResetOffsets, header, within=SLOW_TIMEOUT)
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
        return dict(beginnings(ends))

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


def _check_offset(bounds: TopicOffset, offset: int) -> None:
    if not bounds.min_offset <= offset <= bounds.max_offset:
        raise OffsetOutOfRange(offset, bounds.min_offset, bounds.max_offset)
