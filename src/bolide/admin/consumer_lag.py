"""Consumer lag: how far each consumer group is behind the end of its queues."""

from collections.abc import Awaitable, Iterable
from dataclasses import dataclass, field
from typing import TypeVar

from bolide.admin.clients import Clients
from bolide.admin.errors import GroupOffline, GroupUnknown
from bolide.admin.groups import group_of
from bolide.admin.offsets import Offsets
from bolide.admin.servers import Servers, ask_failed_no_more, gather_by_key
from bolide.admin.topics import Topics
from bolide.errors import BolideError
from bolide.model.names import RETRY_PREFIX
from bolide.protocol.bodies.heartbeat import ConsumeType, MessageModel
from bolide.protocol.bodies.stats import ConsumeStats
from bolide.protocol.refusals import ConsumerNotOnline, GroupNotFound, TopicNotFound

T = TypeVar("T")

_NOTHING_THERE = (GroupUnknown, GroupOffline, GroupNotFound, TopicNotFound, ConsumerNotOnline)


@dataclass(frozen=True, slots=True)
class GroupLag:
    """The clients, rate and lag of one group; None for unknown values."""

    group: str
    clients: int | None
    """None if a broker that may know of more did not answer."""
    version: int | None
    """The oldest version among the clients that are known."""
    consume_type: ConsumeType | None
    message_model: MessageModel | None
    tps: float | None
    lag: int | None
    """None if a broker of the group did not answer."""
    least_clients: int | None = None
    """How many clients the others told of, if a broker did not answer."""
    least_lag: int | None = None
    """The sum of what the others told, if a broker did not answer."""
    failures: tuple[BolideError, ...] = field(default=(), compare=False)
    """Why something is not known."""


def real_failures(failures: Iterable[BolideError]) -> list[BolideError]:
    """Without those of brokers that have nothing of a group, which is an answer, too."""
    return [each for each in failures if not isinstance(each, _NOTHING_THERE)]


def lag_of(stats: ConsumeStats) -> int:
    """The number of messages that the group has not consumed yet."""
    return sum(q.broker_offset - q.consumer_offset for q in stats.offset_table.values())


def inflight_of(stats: ConsumeStats) -> int:
    """The number of messages delivered but not committed; RocketMQ 4.9 does not report it."""
    return sum(q.pull_offset - q.consumer_offset for q in stats.offset_table.values())


class ConsumerLag:
    """The lag of all groups that have a retry topic, which the first consumer creates."""

    def __init__(self, servers: Servers) -> None:
        self._topics = Topics(servers)
        self._clients = Clients(servers)
        self._offsets = Offsets(servers)

    async def of_all(self) -> list[GroupLag]:
        """All groups, sorted by name."""
        topics = await self._topics.names()
        groups = {group_of(topic) for topic in topics if topic.startswith(RETRY_PREFIX)}
        with ask_failed_no_more():
            return [*(await gather_by_key(sorted(groups), self.of)).values()]

    async def of(self, group: str) -> GroupLag:
        """One group; brokers that do not know the group count as zero."""
        stats, stats_failures = await _known(self._offsets.progress_and_failures(group))
        clients, client_failures = await _known(self._clients.consumers_and_failures(group))
        versions = [each.version for each in clients.connection_set] if clients else []
        if stats is None and not stats_failures:
            stats = ConsumeStats()
        lag = None if stats is None else lag_of(stats)
        return GroupLag(
            group=group,
            clients=None if client_failures else len(versions),
            version=min(versions, default=None),
            consume_type=clients.consume_type if clients else None,
            message_model=clients.message_model if clients else None,
            tps=None if stats is None or stats_failures else stats.consume_tps,
            lag=None if stats_failures else lag,
            least_clients=len(versions) if client_failures and versions else None,
            least_lag=lag if stats_failures else None,
            failures=(*stats_failures, *client_failures),
        )


async def _known(
    answers: Awaitable[tuple[T | None, list[BolideError]]],
) -> tuple[T | None, list[BolideError]]:
    """The answers, with the failures that mean more than that there is nothing."""
    try:
        found, failures = await answers
    except BolideError as exc:
        found, failures = None, [exc]
    return found, real_failures(failures)
