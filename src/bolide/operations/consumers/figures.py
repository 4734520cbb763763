"""The live figures of one consumer group: members, offsets and lag, as its brokers tell them."""

import asyncio
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from bolide.admin.errors import GroupOffline
from bolide.errors import BolideError
from bolide.model.message_queue import MessageQueue
from bolide.model.names import dead_letter_topic, is_retry_topic
from bolide.operations.cluster import Cluster
from bolide.operations.consumers.directory import Broker, Directory, KnownGroup, answers
from bolide.operations.views import Failure
from bolide.protocol.bodies.consumers import Connection, ConsumerConnections
from bolide.protocol.bodies.heartbeat import ConsumeType, MessageModel
from bolide.protocol.bodies.offsets import QueueTimeSpan
from bolide.protocol.bodies.stats import ConsumeStats, QueueProgress
from bolide.protocol.bodies.topics import TopicStats
from bolide.protocol.refusals import ConsumerNotOnline, GroupNotFound, TopicNotFound

_SECONDS = 3.0
"""How long the figures of a group are shared by those who look at it."""
_MAX_DELAYS = 8
"""Topics of a row whose delay is asked for; the ones with the most lag."""


class ConsumerKind(StrEnum):
    """How members get messages."""

    PUSH = "push"
    """The client library calls a handler; it asks the broker itself."""
    PULL = "pull"
    POP = "pop"


class ConsumerModel(StrEnum):
    """Whether members share the messages or each gets all."""

    CLUSTERING = "clustering"
    BROADCASTING = "broadcasting"
    LITE = "lite"


_KINDS = {
    ConsumeType.CONSUME_PASSIVELY: ConsumerKind.PUSH,
    ConsumeType.CONSUME_ACTIVELY: ConsumerKind.PULL,
    ConsumeType.CONSUME_POP: ConsumerKind.POP,
}
_MODELS = {
    MessageModel.CLUSTERING: ConsumerModel.CLUSTERING,
    MessageModel.BROADCASTING: ConsumerModel.BROADCASTING,
    MessageModel.LITE_SELECTIVE: ConsumerModel.LITE,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveGroup:
    """What the brokers of a group tell now."""

    group: KnownGroup
    asked: list[Broker]
    connections: Mapping[str, ConsumerConnections]
    """By name of the broker; a broker without members of the group is missing."""
    members_known: bool
    """Whether all brokers told their members."""
    progress: Mapping[MessageQueue, QueueProgress]
    """Of the queues in which an offset is committed."""
    progress_known: bool
    """Whether all brokers told their offsets."""
    uncommitted: Mapping[MessageQueue, int]
    """The ends of queues that it consumes, or will, without an offset so far."""
    tps: float | None
    failures: list[Failure] = field(default_factory=list)

    @property
    def members(self) -> list[Connection]:
        """Each connected client once, by its id."""
        found = {
            each.client_id or "": each
            for part in self.connections.values()
            for each in part.connection_set
        }
        return [found[client_id] for client_id in sorted(found)]

    @property
    def client_count(self) -> int | None:
        return len(self.members) if self.members_known else None

    @property
    def kind(self) -> ConsumerKind | None:
        for part in self.connections.values():
            if part.consume_type is not None:
                return _KINDS[part.consume_type]
        return None

    @property
    def model(self) -> ConsumerModel | None:
        for part in self.connections.values():
            if part.message_model is not None:
                return _MODELS[part.message_model]
        return None

    @property
    def lag(self) -> int | None:
        """Messages not consumed, without those to be retried; None if unknown.

        Groups that broadcast keep their offsets at their members, where no broker knows them.
        """
        return self._sum(queue for queue in self.progress if not is_retry_topic(queue.topic))

    @property
    def retrying(self) -> int | None:
        """Failed messages that wait in retry topics for their next delivery."""
        if not self.progress_known:
            return None
        lags = (lag_in(at) for q, at in self.progress.items() if is_retry_topic(q.topic))
        return sum(lags)

    def lag_of_topic(self, topic: str) -> int | None:
        return self._sum(queue for queue in self.progress if queue.topic == topic)

    @property
    def topics(self) -> list[str]:
        """The topics in which it has offsets or will have, without retry topics."""
        queues = (*self.progress, *self.uncommitted)
        return sorted({queue.topic for queue in queues if not is_retry_topic(queue.topic)})

    def _sum(self, queues: Iterable[MessageQueue]) -> int | None:
        lags = [lag_in(self.progress[queue]) for queue in queues]
        is_known = self.progress_known and self.model is not ConsumerModel.BROADCASTING
        return sum(lags) if lags and is_known else None


def lag_in(progress: QueueProgress) -> int:
    return max(progress.broker_offset - progress.consumer_offset, 0)


async def read_live(cluster: Cluster, directory: Directory, group: KnownGroup) -> LiveGroup:
    """Ask the brokers of a group; what they do not tell is unknown, and among the failures."""
    return await cluster.shared(
        f"consumers:live:{group.name}", lambda: _read(cluster, directory, group), seconds=_SECONDS
    )


async def _read(cluster: Cluster, directory: Directory, group: KnownGroup) -> LiveGroup:
    asked = directory.brokers_of(group)
    (stats, stats_failures), (connections, connection_failures) = await asyncio.gather(
        answers(asked, lambda at: _progress(cluster, at, group.name)),
        answers(asked, lambda at: _connections(cluster, at, group.name)),
    )
    queues = {q: at for part in stats.values() for q, at in part.offset_table.items()}
    silent = {each.server for each in stats_failures}
    others = [each for each in connection_failures if each.server not in silent]
    # Brokers that did not tell their groups may know more of this one.
    unlisted = [each for each in directory.failures if each.server not in stats]
    return LiveGroup(
        group=group,
        asked=asked,
        connections={name: each for name, each in connections.items() if each is not None},
        members_known=not connection_failures and not unlisted,
        progress={q: at for q, at in sorted(queues.items()) if at.consumer_offset >= 0},
        progress_known=not stats_failures and not unlisted,
        uncommitted={
            q: at.broker_offset for q, at in sorted(queues.items()) if at.consumer_offset < 0
        },
        tps=None if stats_failures else sum(each.consume_tps for each in stats.values()),
        failures=_distinct([*stats_failures, *others, *unlisted]),
    )


def _distinct(failures: Iterable[Failure]) -> list[Failure]:
    return [*{each.server: each for each in failures}.values()]


async def _progress(cluster: Cluster, broker: Broker, group: str) -> ConsumeStats:
    try:
        return await cluster.admin.offsets.progress_at(broker.address, group)
    except (GroupNotFound, TopicNotFound, ConsumerNotOnline):
        return ConsumeStats()


async def _connections(cluster: Cluster, broker: Broker, group: str) -> ConsumerConnections | None:
    try:
        return await cluster.admin.clients.consumers(group, broker.address)
    except (GroupOffline, GroupNotFound):
        return None


async def dead_letters_of(
    cluster: Cluster, directory: Directory, group: KnownGroup
) -> tuple[int | None, list[Failure]]:
    """Messages in its topic of dead letters; None if a broker of it does not answer."""
    if not group.has_dead_letters:
        return None if directory.missing else 0, []
    topic = dead_letter_topic(group.name)

    async def count(broker: Broker) -> int:
        try:
            stats = await cluster.admin.topics.stats_at(broker.address, topic)
        except TopicNotFound:
            return 0
        return stored_in(stats)

    async def count_all() -> tuple[int | None, list[Failure]]:
        counts, failures = await answers(directory.brokers_of(group), count)
        return None if failures or directory.missing else sum(counts.values()), failures

    return await cluster.shared(f"consumers:dead:{group.name}", count_all, seconds=_SECONDS)


def stored_in(stats: TopicStats) -> int:
    return sum(end.max_offset - end.min_offset for end in stats.offset_table.values())


async def spans_of(
    cluster: Cluster, asked: Iterable[Broker], group: str, topic: str
) -> tuple[dict[MessageQueue, QueueTimeSpan], list[Failure]]:
    """Store times in the queues of a topic as the group has consumed them."""

    async def ask(broker: Broker) -> list[QueueTimeSpan]:
        try:
            return await cluster.admin.offsets.time_spans_at(broker.address, group, topic)
        except TopicNotFound:
            return []

    async def ask_all() -> tuple[dict[MessageQueue, QueueTimeSpan], list[Failure]]:
        found, failures = await answers(asked, ask)
        spans = {each.message_queue: each for part in found.values() for each in part}
        return spans, failures

    return await cluster.shared(f"consumers:spans:{group}:{topic}", ask_all, seconds=_SECONDS)


async def delay_of(cluster: Cluster, live: LiveGroup) -> float | None:
    """Age in seconds of the oldest message that a group has not consumed; 0 without lag."""
    if live.lag is None:
        return None
    by_topic: defaultdict[str, int] = defaultdict(int)
    for queue, at in live.progress.items():
        if not is_retry_topic(queue.topic):
            by_topic[queue.topic] += lag_in(at)
    behind = sorted((topic for topic, lag in by_topic.items() if lag), key=lambda t: -by_topic[t])
    delays: list[float | None] = [0.0]
    for topic in behind[:_MAX_DELAYS]:
        try:
            spans, failures = await spans_of(cluster, live.asked, live.group.name, topic)
        except BolideError:
            return None
        if failures:
            return None
        queues = [q for q, at in live.progress.items() if q.topic == topic and lag_in(at)]
        delays += [delay_in(live.progress[queue], spans.get(queue)) for queue in queues]
    known = [each for each in delays if each is not None]
    return max(known) if len(known) == len(delays) else None


def delay_in(progress: QueueProgress, span: QueueTimeSpan | None) -> float | None:
    """Age in seconds of the oldest message of a queue that was not consumed; 0 without lag."""
    if lag_in(progress) == 0:
        return 0.0
    if span is None or span.delay_time <= 0:
        return None
    age = span.delay_time / 1000
    return age if age < time.time() - _CLOCK_SLACK else None


_CLOCK_SLACK = 86_400.0
"""A delay that reaches back to 1970 means that the broker did not find the message's time."""
