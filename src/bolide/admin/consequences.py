"""What a deletion would destroy, read from the cluster before anybody agrees to it."""

from collections.abc import Iterable
from dataclasses import dataclass

from bolide.admin.clients import Clients
from bolide.admin.consumer_lag import lag_of
from bolide.admin.errors import ClusterNotFound, GroupOffline, GroupUnknown
from bolide.admin.groups import Groups
from bolide.admin.offsets import Offsets
from bolide.admin.servers import Servers, gather_by_key
from bolide.admin.topics import Topics
from bolide.model.names import dead_letter_topic, retry_topic
from bolide.protocol.bodies.message_queue import MessageQueue
from bolide.protocol.bodies.topics import TopicOffset, TopicStats
from bolide.protocol.refusals import TopicNotFound
from bolide.protocol.static_topics.addressing import is_logical


@dataclass(frozen=True, slots=True)
class GroupBacklog:
    """A group that consumes a topic, or a topic that a group consumes: who loses how much."""

    group: str
    topic: str
    members: int
    backlog: int


@dataclass(frozen=True, slots=True)
class TopicDeletion:
    """What is lost with a topic."""

    topic: str
    queues: int
    messages: int
    last_write_ms: int
    """0 if nothing was ever written."""
    groups: list[GroupBacklog]


@dataclass(frozen=True, slots=True)
class GroupDeletion:
    """What is lost with a consumer group."""

    group: str
    members: int
    topics: list[GroupBacklog]
    retry_messages: int
    dead_letters: int
    known_on: list[str]
    """Addresses of the brokers that have the group."""


class Consequences:
    """Reads what deletions would destroy."""

    def __init__(self, servers: Servers) -> None:
        self._servers = servers
        self._topics = Topics(servers)
        self._groups = Groups(servers)
        self._offsets = Offsets(servers)
        self._clients = Clients(servers)

    async def of_deleting_topic(self, topic: str, cluster: str) -> TopicDeletion | None:
        """What is lost if a topic is deleted from a cluster; None if the cluster has none of it.

        Raises:
            ClusterNotFound: there is no such cluster.
        """
        await self._servers.brokers_of(cluster)
        stats = await self._stats(topic, cluster)
        if stats is None:
            return None
        addresses = [*(await self._servers.addresses_of(topic, cluster)).values()]
        return await self._topic(topic, stats, await self._topics.groups(topic), addresses)

    async def of_deleting_topic_at(self, topic: str, addresses: Iterable[str]) -> TopicDeletion:
        """What is lost if a topic is deleted from some brokers, all of which have it."""
        targets = [*addresses]
        stats = TopicStats()
        groups: set[str] = set()
        for part in (
            await gather_by_key(targets, lambda at: self._topics.stats_at(at, topic))
        ).values():
            stats.offset_table |= part.offset_table
        for found in (
            await gather_by_key(targets, lambda at: self._topics.groups_at(at, topic))
        ).values():
            groups.update(found.group_list)
        return await self._topic(topic, stats, sorted(groups), targets)

    async def _topic(
        self, topic: str, stats: TopicStats, groups: Iterable[str], addresses: Iterable[str]
    ) -> TopicDeletion:
        targets = [*addresses]
        backlogs = await gather_by_key(groups, lambda group: self._backlog(group, topic, targets))
        physical = _physical(stats)
        return TopicDeletion(
            topic=topic,
            queues=len(physical),
            messages=sum(end.max_offset - end.min_offset for end in physical.values()),
            last_write_ms=max((end.last_update_timestamp for end in physical.values()), default=0),
            groups=[*backlogs.values()],
        )

    async def of_deleting_group(self, group: str, addresses: Iterable[str]) -> GroupDeletion:
        """What is lost if a group is deleted from some brokers."""
        targets = list(addresses)
        configs = await gather_by_key(targets, lambda at: self._groups.find_config(at, group))
        known_on = [address for address, config in configs.items() if config is not None]
        backlogs: dict[str, int] = {}
        for address in targets:
            progress = await self._offsets.progress_at(address, group)
            for queue, at in progress.offset_table.items():
                lag = at.broker_offset - at.consumer_offset
                backlogs[queue.topic] = backlogs.get(queue.topic, 0) + lag
        members = await self._members(group)
        return GroupDeletion(
            group=group,
            members=members,
            topics=[
                GroupBacklog(group, topic, members, backlog)
                for topic, backlog in sorted(backlogs.items())
            ],
            retry_messages=await self._stored(retry_topic(group)),
            dead_letters=await self._stored(dead_letter_topic(group)),
            known_on=known_on,
        )

    async def _backlog(self, group: str, topic: str, addresses: Iterable[str]) -> GroupBacklog:
        found = await gather_by_key(
            addresses, lambda at: self._offsets.progress_at(at, group, topic)
        )
        backlog = sum(map(lag_of, found.values()))
        return GroupBacklog(group, topic, await self._members(group), backlog)

    async def _members(self, group: str) -> int:
        try:
            return len((await self._clients.consumers(group)).connection_set)
        except (GroupOffline, GroupUnknown):
            return 0

    async def _stats(self, topic: str, cluster: str | None = None) -> TopicStats | None:
        try:
            return await self._topics.stats(topic, cluster)
        except (TopicNotFound, ClusterNotFound):  # or the topic is in other clusters
            return None

    async def _stored(self, topic: str) -> int:
        stats = await self._stats(topic)
        if stats is None:
            return 0
        return sum(end.max_offset - end.min_offset for end in _physical(stats).values())


def _physical(stats: TopicStats) -> dict[MessageQueue, TopicOffset]:
    """Without the logical queues of a static topic, whose messages are in physical ones."""
    return {q: end for q, end in stats.offset_table.items() if not is_logical(q.broker_name)}
