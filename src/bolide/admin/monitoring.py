"""What is wrong with connected consumer groups: backlog, and members that do not get on.

The checks are RocketMQ's (`MonitorService`): messages that are not consumed, by topic; members that
subscribe differently; queues that a member does not consume or cannot lock.
"""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from bolide.admin.consumer_lag import real_failures
from bolide.admin.consumer_status import ConsumerStatuses, GroupStatus
from bolide.admin.errors import GroupOffline, GroupUnknown
from bolide.admin.groups import group_of
from bolide.admin.offsets import Offsets
from bolide.admin.servers import Servers, ask_failed_no_more, gather_by_key
from bolide.admin.topics import Topics
from bolide.errors import BolideError
from bolide.model.names import RETRY_PREFIX
from bolide.protocol.bodies.message_queue import MessageQueue
from bolide.protocol.bodies.stats import ConsumeStats, QueueProgress
from bolide.protocol.bodies.topics import TopicStats


@dataclass(frozen=True, slots=True)
class Backlog:
    """What a group has not consumed of one topic.

    Attributes:
        longest: the messages in the queue that has most.
        delay: milliseconds between the newest message of a queue and the last consumed one.
    """

    group: str
    topic: str
    total: int
    longest: int
    delay: int


@dataclass(frozen=True, slots=True)
class GroupReport:
    """The state of one group.

    Attributes:
        status: None if it is not known.
        failures: why its state, its backlog or a delay is not known, or not all of it.
    """

    group: str
    status: GroupStatus | None
    backlogs: tuple[Backlog, ...] = ()
    failures: tuple[BolideError, ...] = ()


class Monitoring:
    """Reports on all groups that have a retry topic, which the first consumer creates."""

    def __init__(self, servers: Servers) -> None:
        self._topics = Topics(servers)
        self._offsets = Offsets(servers)
        self._statuses = ConsumerStatuses(servers)

    async def round(self) -> list[GroupReport]:
        """All groups that have members now, sorted by name."""
        topics = await self._topics.names()
        groups = {group_of(topic) for topic in topics if topic.startswith(RETRY_PREFIX)}
        with ask_failed_no_more():
            found = await gather_by_key(sorted(groups), self.report)
        return [report for report in found.values() if report is not None]

    async def report(self, group: str) -> GroupReport | None:
        """One group; None if nobody of the group is connected."""
        try:
            status = await self._statuses.of(group)
        except (GroupOffline, GroupUnknown):  # as most groups are that were used once
            return None
        except BolideError as exc:
            return GroupReport(group, None, failures=(exc,))
        try:
            stats, failures = await self._offsets.progress_and_failures(group)
        except BolideError as exc:
            return GroupReport(group, status, failures=(exc,))
        failures = real_failures(failures)
        backlogs = [] if stats is None else await self._backlogs(group, stats, failures)
        return GroupReport(group, status, tuple(backlogs), tuple(failures))

    async def _backlogs(
        self, group: str, stats: ConsumeStats, failures: list[BolideError]
    ) -> list[Backlog]:
        table = stats.offset_table
        by_topic: defaultdict[str, dict[MessageQueue, QueueProgress]] = defaultdict(dict)
        for queue, progress in table.items():
            by_topic[queue.topic][queue] = progress
        return [
            backlog(group, topic, queues, await self._stats(topic, failures))
            for topic, queues in sorted(by_topic.items())
        ]

    async def _stats(self, topic: str, failures: list[BolideError]) -> TopicStats:
        try:
            return await self._topics.stats(topic)
        except BolideError as exc:  # without its bounds the delay is not known
            failures.append(exc)
            return TopicStats()


def backlog(
    group: str, topic: str, queues: Mapping[MessageQueue, QueueProgress], stats: TopicStats
) -> Backlog:
    lags = [each.broker_offset - each.consumer_offset for each in queues.values()]
    delays = [
        stats.offset_table[queue].last_update_timestamp - progress.last_timestamp
        for queue, progress in queues.items()
        if progress.last_timestamp > 0 and queue in stats.offset_table
    ]
    return Backlog(
        group,
        topic,
        total=sum(lag for lag in lags if lag > 0),
        longest=max([0, *lags]),
        delay=max([0, *delays]),
    )
