"""How far consumer groups are, asked of the brokers: one row a group and queue."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, NamedTuple

import pyarrow as pa

from bolide.admin.client import AdminClient
from bolide.admin.groups import group_of
from bolide.admin.servers import each
from bolide.arrow.cluster import Connection
from bolide.arrow.schema import TIMESTAMP
from bolide.errors import BolideError
from bolide.model.names import RETRY_PREFIX, SYSTEM_GROUP_PREFIX, TOOLS_GROUP
from bolide.protocol.bodies.stats import ConsumeStats

SCHEMA: Final = pa.schema([
    pa.field("taken", TIMESTAMP),
    pa.field("group_name", pa.string()),
    pa.field("topic", pa.string()),
    pa.field("broker", pa.string()),
    pa.field("queue_id", pa.int32()),
    pa.field("end_offset", pa.int64()),
    pa.field("committed_offset", pa.int64()),
])  # fmt: skip


class Position(NamedTuple):
    """Where a group is in a queue at a time, and where the queue ends."""

    taken: datetime
    group_name: str
    topic: str
    broker: str
    queue_id: int
    end_offset: int
    committed_offset: int


def to_table(positions: Iterable[Position]) -> pa.Table:
    return pa.Table.from_pylist([each._asdict() for each in positions], schema=SCHEMA)


@dataclass(frozen=True, slots=True)
class Sampler:
    """Looks at these groups, or at all that are not the brokers' own if none is named."""

    connection: Connection
    groups: tuple[str, ...] = ()

    async def take(self) -> list[Position]:
        """All positions now, as good as at once.

        Raises:
            BolideError: no name server or no broker answers.
        """
        async with self._admin() as admin:
            taken = datetime.now(UTC)
            asked = [
                (at, group) for at in await _masters(admin) for group in await self._of(admin, at)
            ]
            found = await each(asked, lambda pair: _stats(admin, *pair))
        return [
            position
            for (_, group), stats in found.items()
            for position in _positions(taken, group, stats)
        ]

    def _admin(self) -> AdminClient:
        to = self.connection
        return AdminClient(
            to.name_server,
            timeout=to.call_timeout,
            access_key=to.access_key,
            secret_key=to.secret_key,
            tls=to.tls,
        )

    async def _of(self, admin: AdminClient, address: str) -> Sequence[str]:
        """The groups that a broker knows: set up by hand, or consumers of it came once."""
        if self.groups:
            return self.groups
        known = set((await admin.groups.configs(address)).subscription_group_table)
        topics = (await admin.topics.configs(address)).topic_config_table
        known |= {group_of(topic) for topic in topics if topic.startswith(RETRY_PREFIX)}
        return sorted(group for group in known if not _is_of_brokers(group))


async def _masters(admin: AdminClient) -> list[str]:
    clusters = (await admin.clusters.info()).cluster_addr_table
    found = [await admin.clusters.masters(cluster) for cluster in sorted(clusters)]
    return [address for masters in found for address in masters]


async def _stats(admin: AdminClient, address: str, group: str) -> ConsumeStats:
    try:
        return await admin.offsets.progress_at(address, group)
    except BolideError:  # of this broker the group knows nothing, or it is away: no news
        return ConsumeStats()


def _positions(taken: datetime, group: str, stats: ConsumeStats) -> Iterator[Position]:
    for queue, progress in sorted(stats.offset_table.items()):
        ends = progress.broker_offset, progress.consumer_offset
        yield Position(taken, group, queue.topic, queue.broker_name, queue.queue_id, *ends)


def _is_of_brokers(group: str) -> bool:
    return group.startswith(SYSTEM_GROUP_PREFIX) or group == TOOLS_GROUP
