"""What is wrong with consumer groups: backlog, and members that do not get on.

The checks are RocketMQ's (`MonitorService`): messages that are not consumed, by topic; members that
subscribe differently; queues whose messages a member does not get done or cannot lock.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from bolide.admin.clients import Clients
from bolide.admin.groups import group_of
from bolide.admin.offsets import Offsets
from bolide.admin.servers import Servers, gather_by_key
from bolide.admin.topics import Topics
from bolide.errors import BolideError
from bolide.model.names import RETRY_PREFIX
from bolide.protocol.bodies.consumers import RunningConsumer
from bolide.protocol.bodies.message_queue import MessageQueue
from bolide.protocol.bodies.stats import QueueProgress
from bolide.protocol.bodies.topics import TopicStats

STUCK_AFTER = 60.0
"""Seconds without progress after which a queue is reported."""
SETTLED_AFTER = 120.0
"""Seconds after its start from which a member's subscriptions count."""

_STARTED = "PROP_CONSUMER_START_TIMESTAMP"
_ORDERLY = "PROP_CONSUMEORDERLY"


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
        differs: members subscribe differently.
        stuck: what is wrong with queues, by client id.
        failure: why the group could not be looked at.
    """

    group: str
    backlogs: tuple[Backlog, ...] = ()
    differs: bool = False
    stuck: tuple[tuple[str, str], ...] = ()
    failure: BolideError | None = None


class Monitoring:
    """Reports on all groups that have a retry topic, which the first consumer creates."""

    def __init__(self, servers: Servers, now: Callable[[], float] = time.time) -> None:
        self._topics = Topics(servers)
        self._offsets = Offsets(servers)
        self._clients = Clients(servers)
        self._now = now

    async def round(self) -> list[GroupReport]:
        """All groups that have members now, sorted by name."""
        topics = await self._topics.names()
        groups = {group_of(topic) for topic in topics if topic.startswith(RETRY_PREFIX)}
        found = await gather_by_key(sorted(groups), self.report)
        return [report for report in found.values() if report is not None]

    async def report(self, group: str) -> GroupReport | None:
        """One group; None if nobody of the group is connected."""
        try:
            members = (await self._clients.consumers(group)).connection_set
        except BolideError:  # offline, as most groups are that were used once
            return None
        try:
            backlogs = await self._backlogs(group)
        except BolideError as exc:
            return GroupReport(group, failure=exc)
        running = await self._running(group, [each.client_id for each in members if each.client_id])
        return GroupReport(
            group,
            tuple(backlogs),
            differ(running, self._now()),
            tuple(stuck_queues(running, self._now())),
        )

    async def _backlogs(self, group: str) -> list[Backlog]:
        table = (await self._offsets.progress(group)).offset_table
        by_topic: defaultdict[str, dict[MessageQueue, QueueProgress]] = defaultdict(dict)
        for queue, progress in table.items():
            by_topic[queue.topic][queue] = progress
        return [
            backlog(group, topic, queues, await self._stats(topic))
            for topic, queues in sorted(by_topic.items())
        ]

    async def _stats(self, topic: str) -> TopicStats:
        try:
            return await self._topics.stats(topic)
        except BolideError:  # without its bounds the delay is not known
            return TopicStats()

    async def _running(self, group: str, client_ids: list[str]) -> dict[str, RunningConsumer]:
        found = {}
        for client_id in sorted(client_ids):
            try:
                found[client_id] = await self._clients.running(group, client_id)
            except BolideError:  # gone, or too old to answer
                continue
        return found


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


def differ(running: Mapping[str, RunningConsumer], now: float) -> bool:
    """Whether members that have run for a while subscribe differently."""
    settled = [
        {(each.topic, each.sub_string) for each in member.subscription_set}
        for member in running.values()
        if _milliseconds(member, _STARTED) < (now - SETTLED_AFTER) * 1000
    ]
    return any(each != settled[0] for each in settled[1:])


def stuck_queues(running: Mapping[str, RunningConsumer], now: float) -> list[tuple[str, str]]:
    """Client ids, and what is wrong with a queue of theirs, in RocketMQ's words."""
    found = []
    for client_id, member in running.items():
        orderly = member.properties.get(_ORDERLY, "").lower() == "true"
        for queue, held in sorted(member.mq_table.items()):
            name = (
                f"MessageQueue [topic={queue.topic}, brokerName={queue.broker_name}, "
                f"queueId={queue.queue_id}]"
            )
            idle = int(now * 1000) - held.last_consume_timestamp
            if orderly and not held.locked:
                lock = int(now * 1000) - held.last_lock_timestamp
                if lock > STUCK_AFTER * 1000:
                    found.append((client_id, f"{name} can't lock for a while, {lock}ms"))
            elif orderly and held.droped and held.try_unlock_times > 0:
                times = held.try_unlock_times
                found.append((client_id, f"{name} unlock {times} times, still failed"))
            elif not orderly and idle > STUCK_AFTER * 1000 and held.cached_msg_count > 0:
                reason = "can't consume for a while, maybe blocked"
                found.append((client_id, f"{name} {reason}, {idle}ms"))
    return found


def _milliseconds(member: RunningConsumer, name: str) -> float:
    text = member.properties.get(name, "")
    return int(text) if text.isascii() and text.isdecimal() else float("inf")
