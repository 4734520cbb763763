"""Clusters and brokers: membership, settings, statistics, clean-up, filter functions."""

from collections.abc import Iterable, Mapping

from bolide import properties
from bolide.admin.servers import Servers, gather_by_key
from bolide.protocol import fastjson
from bolide.protocol.bodies.consumers import ProducerTable
from bolide.protocol.bodies.controller import ReplicasTable
from bolide.protocol.bodies.filters import (
    FilterFunction,
    FilterFunctionState,
    FilterFunctionStates,
)
from bolide.protocol.bodies.replication import HaStatus
from bolide.protocol.bodies.routes import BrokerRoute, ClusterInfo, KvTable
from bolide.protocol.bodies.stats import BrokerConsumeStats, BrokerStats
from bolide.protocol.codes import RequestCode
from bolide.protocol.headers.filters import FilterFunctionHeader
from bolide.protocol.headers.runtime import BrokerConsumeStatsHeader, StatsHeader

_SCAN_TIMEOUT = 15.0
"""Seconds for requests that scan all queues of a broker."""
_FUNCTION_TIMEOUT = 60.0
"""Seconds for an update, during which a broker may start its first filter process."""


class Clusters:
    """Clusters and their brokers, as registered with the NameServers."""

    def __init__(self, servers: Servers) -> None:
        self._servers = servers

    async def info(self) -> ClusterInfo:
        return await self._servers.info()

    async def masters(self, cluster: str) -> list[str]:
        """Addresses of the masters; raises ClusterNotFound."""
        return await self._servers.masters_of(cluster)

    async def members(self, cluster: str) -> list[str]:
        """Addresses of masters and slaves."""
        return await self._servers.members_of(cluster)

    async def brokers(self, cluster: str) -> list[BrokerRoute]:
        return await self._servers.brokers_of(cluster)

    async def broker_at(self, address: str) -> BrokerRoute:
        """Raises BrokerUnknown."""
        return await self._servers.broker_at(address)

    async def address_of(self, broker_name: str) -> str:
        """The address of the master, otherwise of a slave; raises BrokerUnknown."""
        return await self._servers.address_of(broker_name)


class Brokers:
    """Single brokers, by address: settings, statistics, clean-up."""

    def __init__(self, servers: Servers) -> None:
        self._servers = servers

    async def config(self, address: str) -> dict[str, str]:
        """All settings, as text."""
        reply = await self._servers.call(address, RequestCode.GET_BROKER_CONFIG)
        return properties.parse(reply.body.decode())

    async def update_config(self, address: str, changes: Mapping[str, str]) -> None:
        """Change settings; the broker saves them in its configuration file.

        Raises:
            NoPermission: a setting cannot be changed at run time.
            InvalidParameter: a value is invalid.
        """
        body = properties.render(changes).encode()
        await self._servers.call(address, RequestCode.UPDATE_BROKER_CONFIG, body=body)

    async def runtime(self, address: str) -> dict[str, str]:
        """Runtime information: totals, rates and offsets, under RocketMQ's names."""
        code = RequestCode.GET_BROKER_RUNTIME_INFO
        return (await self._servers.fetch(address, code, KvTable)).table

    async def stats(self, address: str, name: str, key: str) -> BrokerStats:
        """One statistic by minute, hour and day, such as `TOPIC_PUT_NUMS` of a topic.

        Raises:
            ServerError: the broker has no statistic of that name and key.
        """
        header = StatsHeader(name, key)
        return await self._servers.fetch(
            address, RequestCode.VIEW_BROKER_STATS_DATA, BrokerStats, header
        )

    async def consume_stats(self, address: str, *, ordered: bool = False) -> BrokerConsumeStats:
        """The consumer lag of all groups in all topics, or only in ordered ones."""
        header = BrokerConsumeStatsHeader(ordered)
        code = RequestCode.GET_BROKER_CONSUME_STATS
        return await self._servers.fetch(
            address, code, BrokerConsumeStats, header, within=_SCAN_TIMEOUT
        )

    async def producers(self, address: str) -> ProducerTable:
        """All connected producers, by group."""
        return await self._servers.fetch(address, RequestCode.GET_ALL_PRODUCER_INFO, ProducerTable)

    async def ha_status(self, address: str) -> HaStatus:
        """Replication status: the lag of the slaves of a master, or of this slave."""
        return await self._servers.fetch(address, RequestCode.GET_BROKER_HA_STATUS, HaStatus)

    async def sync_states(self, controller: str, broker_names: Iterable[str]) -> ReplicasTable:
        """The replicas of broker groups and which of them are in sync, from a controller."""
        code, body = RequestCode.CONTROLLER_GET_SYNC_STATE_DATA, fastjson.encode([*broker_names])
        reply = await self._servers.call(controller, code, body=body)
        return fastjson.decode(reply.body or b"{}", ReplicasTable)

    async def clean_expired_queues(self, address: str) -> None:
        """Delete consume queue files whose messages have been deleted."""
        code = RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE
        await self._servers.call(address, code, within=_SCAN_TIMEOUT)

    async def clean_unused_topics(self, address: str) -> None:
        """Delete the queues of topics that no longer exist on the broker."""
        await self._servers.call(address, RequestCode.CLEAN_UNUSED_TOPIC, within=_SCAN_TIMEOUT)

    async def delete_expired_log(self, address: str) -> None:
        """Delete commit log files older than the retention time."""
        await self._servers.call(
            address, RequestCode.DELETE_EXPIRED_COMMITLOG, within=_SCAN_TIMEOUT
        )


class FilterFunctions:
    """Python filter functions of Bolide brokers, stored per broker; RocketMQ has none."""

    def __init__(self, servers: Servers) -> None:
        self._servers = servers

    async def update(self, address: str, name: str, source: str) -> None:
        """Register or replace a function on one broker; the source defines `accept`."""
        await self._servers.call(
            address,
            RequestCode.BOLIDE_UPDATE_FILTER_FUNCTION,
            FilterFunctionHeader(name),
            body=source.encode(),
            within=_FUNCTION_TIMEOUT,
        )

    async def delete(self, address: str, name: str) -> None:
        """Delete a function from one broker; groups that use it then receive no messages."""
        header = FilterFunctionHeader(name)
        await self._servers.call(address, RequestCode.BOLIDE_DELETE_FILTER_FUNCTION, header)

    async def source(self, address: str, name: str) -> str:
        """The source of a function; raises QueryNotFound."""
        header, code = FilterFunctionHeader(name), RequestCode.BOLIDE_GET_FILTER_FUNCTION
        return (await self._servers.fetch(address, code, FilterFunction, header)).source

    async def states(self, addresses: Iterable[str]) -> dict[str, list[FilterFunctionState]]:
        """The functions of brokers with their counters, by broker address."""
        code = RequestCode.BOLIDE_LIST_FILTER_FUNCTIONS
        found = await gather_by_key(
            addresses, lambda address: self._servers.fetch(address, code, FilterFunctionStates)
        )
        return {address: states.functions for address, states in found.items()}
