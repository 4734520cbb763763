"""Single brokers: settings, figures, housekeeping."""

from collections.abc import Mapping

from bolide import properties
from bolide.admin.servers import Servers
from bolide.protocol.bodies.consumers import ProducerTable
from bolide.protocol.bodies.replication import HaStatus
from bolide.protocol.bodies.routes import KvTable
from bolide.protocol.bodies.stats import BrokerConsumeStats, BrokerStats
from bolide.protocol.codes import RequestCode
from bolide.protocol.headers.runtime import BrokerConsumeStatsHeader, StatsHeader

_PATIENCE = 15.0
"""Seconds for what walks through all queues of a broker."""


class Brokers:
    """Brokers by address."""

    def __init__(self, servers: Servers) -> None:
        self._servers = servers

    async def config(self, address: str) -> dict[str, str]:
        """Every setting and its value, as texts."""
        reply = await self._servers.ask(address, RequestCode.GET_BROKER_CONFIG)
        return properties.parse(reply.body.decode())

    async def update_config(self, address: str, changes: Mapping[str, str]) -> None:
        """Change settings; the broker keeps them in its file.

        Raises:
            NoPermission: one of them may not be changed so.
            InvalidParameter: a value is none.
        """
        body = properties.render(changes).encode()
        await self._servers.ask(address, RequestCode.UPDATE_BROKER_CONFIG, body=body)

    async def runtime(self, address: str) -> dict[str, str]:
        """Totals, rates, offsets and more by RocketMQ's names."""
        code = RequestCode.GET_BROKER_RUNTIME_INFO
        return (await self._servers.fetch(address, code, KvTable)).table

    async def stats(self, address: str, name: str, key: str) -> BrokerStats:
        """One statistic by minute, hour and day, such as `TOPIC_PUT_NUMS` of a topic.

        Raises:
            ServerError: the broker keeps none of that name and key.
        """
        header = StatsHeader(name, key)
        return await self._servers.fetch(
            address, RequestCode.VIEW_BROKER_STATS_DATA, BrokerStats, header
        )

    async def consume_stats(self, address: str, *, ordered: bool = False) -> BrokerConsumeStats:
        """How far all groups are in all topics, or only in ordered ones."""
        header = BrokerConsumeStatsHeader(ordered)
        code = RequestCode.GET_BROKER_CONSUME_STATS
        return await self._servers.fetch(
            address, code, BrokerConsumeStats, header, within=_PATIENCE
        )

    async def producers(self, address: str) -> ProducerTable:
        """All producers that are connected, by group."""
        return await self._servers.fetch(address, RequestCode.GET_ALL_PRODUCER_INFO, ProducerTable)

    async def ha_status(self, address: str) -> HaStatus:
        """How far the slaves are behind, or how far this slave is."""
        return await self._servers.fetch(address, RequestCode.GET_BROKER_HA_STATUS, HaStatus)

    async def clean_expired_queues(self, address: str) -> None:
        """Delete consume queue files whose messages are gone."""
        code = RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE
        await self._servers.ask(address, code, within=_PATIENCE)

    async def clean_unused_topics(self, address: str) -> None:
        """Delete the queues of topics that the broker has no more."""
        await self._servers.ask(address, RequestCode.CLEAN_UNUSED_TOPIC, within=_PATIENCE)

    async def delete_expired_log(self, address: str) -> None:
        """Delete commit log files that are older than they are kept."""
        await self._servers.ask(address, RequestCode.DELETE_EXPIRED_COMMITLOG, within=_PATIENCE)
