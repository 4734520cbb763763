"""Clusters and brokers: membership, settings, statistics, upkeep, cold reads, filters."""

from collections.abc import Iterable, Mapping

from bolide import properties
from bolide.admin.errors import BrokerUnknown
from bolide.admin.servers import Peer, Servers, gather_by_key
from bolide.protocol import fastjson
from bolide.protocol.bodies.consumers import ColdReadInfo, ProducerTable
from bolide.protocol.bodies.data_version import DataVersion
from bolide.protocol.bodies.filters import (
    FilterFunction,
    FilterFunctionState,
    FilterFunctionStates,
)
from bolide.protocol.bodies.replication import EpochCache, HaStatus, TimerMetrics
from bolide.protocol.bodies.routes import BrokerRoute, ClusterInfo, KvTable
from bolide.protocol.bodies.stats import BrokerConsumeStats, BrokerStats
from bolide.protocol.codes import RequestCode
from bolide.protocol.headers.filters import FilterFunctionHeader
from bolide.protocol.headers.replication import ResetFlushOffsetHeader
from bolide.protocol.headers.runtime import (
    AddBrokerHeader,
    BrokerConfigReply,
    BrokerConsumeStatsHeader,
    ReadAheadHeader,
    RemoveBrokerHeader,
    StatsHeader,
    TimerEngineHeader,
)

_SCAN_TIMEOUT = 15.0
"""Seconds for requests that scan all queues of a broker."""
_EXPORT_TIMEOUT = 30.0
_CONTAINER_TIMEOUT = 60.0
"""Seconds in which a container starts or stops a broker."""
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

    async def members_of_group(self, broker_name: str) -> list[str]:
        """Addresses of the master and the slaves of a broker group; raises BrokerUnknown."""
        table = (await self._servers.info()).broker_addr_table
        if broker_name not in table:
            raise BrokerUnknown(broker_name, table)
        return [address for _, address in sorted(table[broker_name].broker_addrs.items())]

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

    async def config_version(self, address: str) -> DataVersion:
        """The version of the settings: its counter is the number of updates by requests since the
        broker started."""
        reply = await self._servers.call(address, RequestCode.GET_BROKER_CONFIG)
        return fastjson.decode(
            BrokerConfigReply.from_fields(reply.fields).version.encode(), DataVersion
        )

    async def version(self, address: str) -> int:
        """The number of the version of RocketMQ (`MQVersion`) that the broker is, or speaks as.

        Every answer has it. The request is one that every broker answers from its first moment;
        Java's have no runtime figures in their first second.
        """
        code = RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER
        return (await self._servers.call(address, code)).version

    async def peer(self, address: str) -> Peer:
        """The version of a broker, and whether it is one of Bolide."""
        return await self._servers.peer(address, RequestCode.GET_BROKER_CONFIG)

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

    async def consume_stats(
        self, address: str, *, ordered: bool = False, within: float = _SCAN_TIMEOUT
    ) -> BrokerConsumeStats:
        """The consumer lag of all groups in all topics, or only in ordered ones."""
        header = BrokerConsumeStatsHeader(ordered)
        code = RequestCode.GET_BROKER_CONSUME_STATS
        return await self._servers.fetch(address, code, BrokerConsumeStats, header, within=within)

    async def producers(self, address: str) -> ProducerTable:
        """All connected producers, by group."""
        return await self._servers.fetch(address, RequestCode.GET_ALL_PRODUCER_INFO, ProducerTable)

    async def ha_status(self, address: str) -> HaStatus:
        """Replication status: the lag of the slaves of a master, or of this slave."""
        return await self._servers.fetch(address, RequestCode.GET_BROKER_HA_STATUS, HaStatus)

    async def epochs(self, address: str) -> EpochCache:
        """Which master wrote which range of the log, for brokers that controllers elect.

        Raises:
            ServerError: the broker has no controllers.
        """
        return await self._servers.fetch(address, RequestCode.GET_BROKER_EPOCH_CACHE, EpochCache)

    async def reset_flush_offset(self, address: str, offset: int) -> None:
        """Set the position up to which a slave takes the log of its master as flushed."""
        header = ResetFlushOffsetHeader(offset)
        await self._servers.call(address, RequestCode.RESET_MASTER_FLUSH_OFFSET, header)

    async def timer_metrics(self, address: str) -> TimerMetrics:
        """How many messages wait for their delivery time, by topic; RocketMQ has it since 5.0."""
        return await self._servers.fetch(address, RequestCode.GET_TIMER_METRICS, TimerMetrics)

    async def set_read_ahead(self, address: str, mode: int) -> str:
        """Whether the system reads the log ahead: 0 yes, 1 no; returns the broker's remark."""
        header = ReadAheadHeader(mode)
        reply = await self._servers.call(address, RequestCode.SET_COMMITLOG_READ_MODE, header)
        return reply.remark or ""

    async def switch_timer_engine(self, address: str, engine: str) -> None:
        """Have a broker of RocketMQ 5.5 keep its timers in RocksDB (R) or in files (F)."""
        header = TimerEngineHeader(engine)
        await self._servers.call(address, RequestCode.SWITCH_TIMER_ENGINE, header)

    async def export_pop_records(self, address: str) -> None:
        """Have a broker of RocketMQ write the pop records of its RocksDB to its revive topic."""
        await self._servers.call(address, RequestCode.POP_ROLLBACK, within=_EXPORT_TIMEOUT)

    async def add_to_container(self, container: str, config_path: str) -> None:
        """Start a broker in a broker container of RocketMQ.

        Args:
            config_path: path of the broker's configuration file on that machine.
        """
        header = AddBrokerHeader(config_path)
        await self._servers.call(
            container, RequestCode.ADD_BROKER, header, within=_CONTAINER_TIMEOUT
        )

    async def remove_from_container(
        self, container: str, cluster: str, broker_name: str, broker_id: int
    ) -> None:
        """Stop a broker in a broker container of RocketMQ."""
        header = RemoveBrokerHeader(broker_name, cluster, broker_id)
        await self._servers.call(
            container, RequestCode.REMOVE_BROKER, header, within=_CONTAINER_TIMEOUT
        )

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


class ColdReads:
    """Limits for groups that read much from the disk; RocketMQ has them since 5.2."""

    def __init__(self, servers: Servers) -> None:
        self._servers = servers

    async def info(self, address: str) -> ColdReadInfo:
        """What groups have read from the disk in this window, and their limits."""
        code = RequestCode.GET_COLD_DATA_FLOW_CTR_INFO
        return await self._servers.fetch(address, code, ColdReadInfo)

    async def set_threshold(self, address: str, group: str, threshold: int | str) -> None:
        """Limit the bytes that a group may read from the disk in each window.

        Raises:
            InvalidParameter: the threshold is not a number of bytes.
        """
        body = properties.render({group: str(threshold)}).encode()
        code = RequestCode.UPDATE_COLD_DATA_FLOW_CTR_CONFIG
        await self._servers.call(address, code, body=body)

    async def remove_threshold(self, address: str, group: str) -> None:
        """Have the limit of the broker count for the group again."""
        code = RequestCode.REMOVE_COLD_DATA_FLOW_CTR_CONFIG
        await self._servers.call(address, code, body=group.encode())


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
