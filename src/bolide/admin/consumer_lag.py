"""Consumer lag: how far each consumer group is behind the end of its queues."""

from dataclasses import dataclass

from bolide.admin.clients import Clients
from bolide.admin.groups import group_of
from bolide.admin.offsets import Offsets
from bolide.admin.servers import Servers, gather_by_key
from bolide.admin.topics import Topics
from bolide.errors import BolideError
from bolide.model.names import RETRY_PREFIX
from bolide.protocol.bodies.consumers import ConsumerConnections
from bolide.protocol.bodies.heartbeat import ConsumeType, MessageModel
from bolide.protocol.bodies.stats import ConsumeStats
from bolide.remoting.errors import RemotingError


@dataclass(frozen=True, slots=True)
class GroupLag:
    """The clients, rate and lag of one group; None for unknown values."""

    group: str
    clients: int | None
    """None if a broker that knows them did not answer."""
    version: int | None
    """The oldest version among the clients."""
    consume_type: ConsumeType | None
    message_model: MessageModel | None
    tps: float | None
    lag: int | None
    """None if a broker of the group did not answer."""


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
        return [*(await gather_by_key(sorted(groups), self.of)).values()]

    async def of(self, group: str) -> GroupLag:
        """One group; brokers that do not know the group count as zero."""
        stats = await self._stats(group)
        clients = await self._connections(group)
        versions = [each.version for each in clients.connection_set] if clients else []
        return GroupLag(
            group=group,
            clients=len(versions) if clients else None,
            version=min(versions, default=None),
            consume_type=clients.consume_type if clients else None,
            message_model=clients.message_model if clients else None,
            tps=stats.consume_tps if stats else None,
            lag=lag_of(stats) if stats else None,
        )

    async def _stats(self, group: str) -> ConsumeStats | None:
        try:
            return await self._offsets.progress(group)
        except RemotingError:
            return None
        except BolideError:
            return ConsumeStats()

    async def _connections(self, group: str) -> ConsumerConnections | None:
        try:
            return await self._clients.consumers(group)
        except RemotingError:
            return None
        except BolideError:
            return ConsumerConnections()
