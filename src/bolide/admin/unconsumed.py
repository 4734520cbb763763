"""What the groups at a broker have not consumed."""

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass

from bolide.admin.brokers import Brokers
from bolide.admin.clients import Clients
from bolide.admin.errors import GroupOffline
from bolide.admin.offsets import Offsets
from bolide.admin.servers import Servers, gather_by_key
from bolide.admin.topics import Topics
from bolide.model.names import RETRY_PREFIX, SYSTEM_GROUP_PREFIX, TOOLS_GROUP, retrying_group
from bolide.protocol.bodies.consumers import ConsumerConnections
from bolide.protocol.bodies.heartbeat import MessageModel
from bolide.protocol.bodies.message_queue import MessageQueue
from bolide.protocol.bodies.topics import TopicOffset
from bolide.protocol.refusals import Refusal, TopicNotFound

Pair = tuple[str, str]
"""A group, and a topic."""
Bounds = dict[int, TopicOffset]
"""The first and the next offset of the queues of a topic, by number."""


@dataclass(frozen=True, slots=True)
class Backlog:
    """How many messages of a topic a group has not consumed, and how many members it has."""

    group: str
    topic: str
    count: int
    members: int


class Unconsumed:
    """Compares the offsets of groups with the ends of all queues of one broker.

    Brokers list the offsets in queues that producers may write; the others are asked one by one.
    """

    def __init__(
        self, servers: Servers, address: str, broker_name: str, ignored_groups: frozenset[str]
    ) -> None:
        self._address = address
        self._broker_name = broker_name
        self._ignored = ignored_groups
        self._topics = Topics(servers)
        self._brokers = Brokers(servers)
        self._offsets = Offsets(servers)
        self._clients = Clients(servers)

    async def bounds(self, topic: str) -> Bounds | None:
        """The bounds of the queues of a topic by number; None if it was deleted meanwhile."""
        try:
            stats = await self._topics.stats_at(self._address, topic)
        except TopicNotFound:
            return None
        return {queue.queue_id: each for queue, each in stats.offset_table.items()}

    async def look(
        self, ends: Mapping[str, Bounds], groups: Mapping[str, list[str]], unknown: list[str]
    ) -> list[Backlog]:
        """What groups have not consumed of what they have begun to consume.

        Args:
            ends: the bounds of the topics of users and of the retry topics that have messages.
            groups: the groups of the topics of users that have messages.
            unknown: gets what the broker does not tell.
        """
        pairs = await self._listed()
        pairs |= await self._unlisted(pairs, groups, unknown)
        full = await self._with_internal(ends, {topic for _, topic in pairs})
        offsets = await gather_by_key(
            pairs, lambda pair: self._with_others(pair, pairs[pair], full[pair[1]])
        )
        late = {pair: each for pair, each in offsets.items() if left(each, full[pair[1]])}
        late |= self._unread_retries(ends, {topic for _, topic in pairs})
        bounds = await gather_by_key({topic for _, topic in late}, self.bounds)
        lags = {
            (group, topic): lag
            for (group, topic), offsets in late.items()
            if (lag := left(offsets, bounds[topic] or {})) > 0
        }
        members = await gather_by_key(
            {group for group, _ in lags}, lambda group: self._members(group, unknown)
        )
        return [
            Backlog(group, topic, count, _count(members[group]))
            for (group, topic), count in sorted(lags.items())
        ]

    async def _listed(self) -> dict[Pair, dict[int, int]]:
        """The offsets of the groups of users, in the queues that producers may write."""
        stats = await self._brokers.consume_stats(self._address)
        found: dict[Pair, dict[int, int]] = {}
        for groups in stats.consume_stats_list:
            for group, parts in groups.items():
                if not self._counts(group):
                    continue
                for part in parts:
                    for queue, progress in part.offset_table.items():
                        offsets = found.setdefault((group, queue.topic), {})
                        offsets[queue.queue_id] = progress.consumer_offset
        return found

    async def _unlisted(
        self, listed: Container[Pair], groups_of: Mapping[str, list[str]], unknown: list[str]
    ) -> dict[Pair, dict[int, int]]:
        """Topics that a connected group subscribes to, and has committed nothing of yet."""
        pairs = [
            (group, topic)
            for topic, groups in groups_of.items()
            for group in groups
            if self._counts(group) and (group, topic) not in listed
        ]
        members = await gather_by_key(
            {group for group, _ in pairs}, lambda group: self._members(group, unknown)
        )
        return {
            (group, topic): {}
            for group, topic in pairs
            if (found := members[group]) is not None
            if found.message_model is not MessageModel.BROADCASTING
            if not found.subscription_table or topic in found.subscription_table
        }

    def _counts(self, group: str) -> bool:
        return not _is_system_group(group) and group not in self._ignored

    async def _with_internal(
        self, known: Mapping[str, Bounds], topics: Iterable[str]
    ) -> dict[str, Bounds]:
        """The known bounds, and those of other topics, as of internal ones."""
        others = await gather_by_key([each for each in topics if each not in known], self.bounds)
        return dict(known) | {topic: bounds or {} for topic, bounds in others.items()}

    async def _with_others(
        self, pair: Pair, listed: dict[int, int], bounds: Bounds
    ) -> dict[int, int]:
        """The listed offsets, and those of queues that are only read, which brokers do not list."""
        group, topic = pair
        offsets = dict(listed)
        for number, each in bounds.items():
            if number not in listed and each.max_offset > each.min_offset:
                queue = MessageQueue(topic, self._broker_name, number)
                offsets[number] = await self._offsets.find_committed(group, queue) or 0
        return offsets

    def _unread_retries(
        self, topics: Iterable[str], known: Container[str]
    ) -> dict[Pair, dict[int, int]]:
        """Retry topics of which their group has consumed nothing yet."""
        return {
            (group, name): {}
            for name in topics
            if name.startswith(RETRY_PREFIX) and name not in known
            if self._counts(group := retrying_group(name))
        }

    async def _members(self, group: str, unknown: list[str]) -> ConsumerConnections | None:
        """The connected members of a group; None if nobody is."""
        try:
            return await self._clients.consumers(group, self._address)
        except GroupOffline:
            return None
        except Refusal as exc:
            unknown.append(f"the members of group {group}: {exc}")
            return None


def left(offsets: dict[int, int], bounds: Bounds) -> int:
    """Messages that are stored and not consumed; those that retention has deleted do not count."""
    return sum(
        max(each.max_offset - max(offsets.get(number, 0), each.min_offset), 0)
        for number, each in bounds.items()
    )


def delivered_delays(figures: dict[str, str]) -> dict[int, int]:
    """Delivered delayed messages by the queue of the level; RocketMQ 4.9 lists few levels."""
    found = {}
    for key, text in figures.items():
        name, _, level = key.partition("_")
        delivered = text.partition(",")[0]
        if name == "scheduleMessageOffset" and level.isdecimal() and delivered.isdecimal():
            found[int(level) - 1] = int(delivered)
    return found


def _count(members: ConsumerConnections | None) -> int:
    return 0 if members is None else len(members.connection_set)


def _is_system_group(group: str) -> bool:
    return group == TOOLS_GROUP or group.startswith(SYSTEM_GROUP_PREFIX)
