"""What users have made at a cluster, and how large it is: topics, groups, settings, figures.

The documents have the shape of RocketMQ's exportMetadata, exportConfigs and exportMetrics.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from bolide.admin.brokers import Brokers
from bolide.admin.clients import Clients
from bolide.admin.groups import Groups
from bolide.admin.servers import MASTER, Servers
from bolide.admin.topics import Topics
from bolide.admin.traffic import IN, messages_of_day
from bolide.errors import BolideError
from bolide.model.names import (
    DEAD_LETTER_PREFIX,
    HALF_TOPIC,
    PARK_PREFIX,
    RETRY_PREFIX,
    SCHEDULE_TOPIC,
    SYSTEM_GROUP_PREFIX,
    SYSTEM_TOPIC_PREFIX,
    SYSTEM_TOPICS,
    TOOLS_GROUP,
)
from bolide.protocol import fastjson
from bolide.protocol.bodies.groups import GroupConfig
from bolide.protocol.bodies.routes import TopicList
from bolide.protocol.bodies.topics import TopicConfig
from bolide.protocol.codes import RequestCode
from bolide.protocol.refusals import ServerError
from bolide.version import ROCKETMQ_VERSION_NAME, version_name

CONFIG_KEYS = (
    "brokerClusterName", "brokerId", "brokerName", "brokerRole", "fileReservedTime",
    "filterServerNums", "flushDiskType", "maxMessageSize", "messageDelayLevel",
    "msgTraceTopicName", "slaveReadEnable", "traceOn", "traceTopicEnable", "useTLS",
    "autoCreateTopicEnable", "autoCreateSubscriptionGroup",
)  # fmt: skip
"""The settings that exportConfigs writes; they hold no secrets."""

_PREDEFINED_GROUPS = frozenset({
    TOOLS_GROUP, "DEFAULT_CONSUMER", "DEFAULT_PRODUCER", "SCHEDULE_CONSUMER", "FILTERSRV_CONSUMER",
    "__MONITOR_CONSUMER", "CLIENT_INNER_PRODUCER", "SELF_TEST_P_GROUP", "SELF_TEST_C_GROUP",
    "CID_ONS-HTTP-PROXY", "CID_ONSAPI_PULL", "CID_ONSAPI_PERMISSION", "CID_ONSAPI_OWNER",
})  # fmt: skip
_SPECIAL = (RETRY_PREFIX, DEAD_LETTER_PREFIX, PARK_PREFIX)

Document = dict[str, Any]


class Exports:
    """Reads what exports hold from brokers, of Bolide or of RocketMQ."""

    def __init__(self, servers: Servers) -> None:
        self._servers = servers
        self._topics = Topics(servers)
        self._groups = Groups(servers)
        self._brokers = Brokers(servers)
        self._clients = Clients(servers)

    async def topics(self, address: str, *, special: bool = False) -> dict[str, TopicConfig]:
        """The topics that users have made on a broker, by name.

        Args:
            special: also retry, dead-letter and park topics, which groups bring with them.
        """
        code = RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER
        system = set((await self._servers.fetch(address, code, TopicList)).topic_list)
        table = (await self._topics.configs(address)).topic_config_table
        return {
            name: config
            for name, config in sorted(table.items())
            if name not in system | SYSTEM_TOPICS
            and not name.startswith(SYSTEM_TOPIC_PREFIX)
            and (special or not name.startswith(_SPECIAL))
        }

    async def groups(self, address: str) -> dict[str, GroupConfig]:
        """The consumer groups that users have made on a broker, by name."""
        table = (await self._groups.configs(address)).subscription_group_table
        return {
            name: config
            for name, config in sorted(table.items())
            if name not in _PREDEFINED_GROUPS and not name.startswith(SYSTEM_GROUP_PREFIX)
        }

    async def configs(self, address: str) -> dict[str, str]:
        """The settings of a broker that a cluster of the same kind needs."""
        settings = await self._brokers.config(address)
        return {key: settings[key] for key in CONFIG_KEYS if key in settings}

    async def metrics(self, address: str) -> Document:
        """The size, the rates and the clients of a broker."""
        figures = await self._brokers.runtime(address)
        settings = await self._brokers.config(address)
        groups = await self.groups(address)
        return {
            "runtimeEnv": {
                "cpuNum": settings.get("clientCallbackExecutorThreads"),
                "totalMemKBytes": figures.get("totalMemKBytes"),
            },
            "runtimeQuota": {
                "diskRatio": {
                    name: figures.get(name)
                    for name in ("commitLogDiskRatio", "consumeQueueDiskRatio")
                },
                "tps": await self._rates(address, figures),
                "oneDayNum": await self._day(address, figures),
                "messageAverageSize": figures.get("putMessageAverageSize"),
                "topicSize": len(await self.topics(address)),
                "groupSize": len(groups),
            },
            "runtimeVersion": {
                "rocketmqVersion": ROCKETMQ_VERSION_NAME,
                "clientInfo": await self._client_versions(address, groups),
            },
        }

    async def masters(self, cluster: str) -> dict[str, str]:
        """The addresses of the masters of a cluster, by broker name; raises ClusterNotFound."""
        return {
            each.broker_name: each.broker_addrs[MASTER]
            for each in await self._servers.brokers_of(cluster)
            if MASTER in each.broker_addrs
        }

    async def _rates(self, address: str, figures: Mapping[str, str]) -> dict[str, float]:
        transferred = figures.get("getTransferredTps", figures.get("getTransferedTps", ""))
        return {
            "normalInTps": _first_number(figures.get("putTps", "")),
            "normalOutTps": _first_number(transferred),
            "transInTps": (await self._received(address, HALF_TOPIC))[0],
            "scheduleInTps": (await self._received(address, SCHEDULE_TOPIC))[0],
        }

    async def _day(self, address: str, figures: Mapping[str, str]) -> dict[str, int]:
        """Messages of yesterday; of the last day for transactions and delayed messages."""

        def yesterday(kind: str) -> int:
            today = _first_number(figures.get(f"{kind}TotalTodayMorning", ""))
            return int(today - _first_number(figures.get(f"{kind}TotalYesterdayMorning", "")))

        return {
            "normalOneDayInNum": yesterday("msgPut"),
            "normalOneDayOutNum": yesterday("msgGet"),
            "transOneDayInNum": (await self._received(address, HALF_TOPIC))[1],
            "scheduleOneDayInNum": (await self._received(address, SCHEDULE_TOPIC))[1],
        }

    async def _received(self, address: str, topic: str) -> tuple[float, int]:
        """The rate of the last minute, and the messages of the last day, of a topic."""
        try:
            stats = await self._brokers.stats(address, IN, topic)
        except ServerError:  # nothing was counted
            return 0.0, 0
        return stats.stats_minute.tps if stats.stats_minute else 0.0, messages_of_day(stats)

    async def _client_versions(self, address: str, groups: Iterable[str]) -> list[str]:
        found = set()
        for group in groups:
            try:
                members = (await self._clients.consumers(group, address)).connection_set
            except BolideError:  # nobody of the group is connected
                continue
            found |= {f"{each.language}%{version_name(each.version)}" for each in members}
        return sorted(found)


def merged_topics(tables: Iterable[Mapping[str, TopicConfig]]) -> dict[str, TopicConfig]:
    """The topics of several brokers; their queues are added up."""
    merged: dict[str, TopicConfig] = {}
    for table in tables:
        for name, config in table.items():
            old = merged.get(name)
            merged[name] = (
                config
                if old is None
                else msgspec.structs.replace(
                    config,
                    read_queue_nums=old.read_queue_nums + config.read_queue_nums,
                    write_queue_nums=old.write_queue_nums + config.write_queue_nums,
                )
            )
    return merged


def merged_groups(tables: Iterable[Mapping[str, GroupConfig]]) -> dict[str, GroupConfig]:
    """The groups of several brokers; their retry queues are added up."""
    merged: dict[str, GroupConfig] = {}
    for table in tables:
        for name, config in table.items():
            old = merged.get(name)
            merged[name] = (
                config
                if old is None
                else msgspec.structs.replace(
                    config, retry_queue_nums=old.retry_queue_nums + config.retry_queue_nums
                )
            )
    return merged


def totals(metrics: Iterable[Document]) -> Document:
    """The sums over brokers, under RocketMQ's names."""
    tps: dict[str, float] = dict.fromkeys(
        ("totalNormalInTps", "totalNormalOutTps", "totalTransInTps", "totalScheduleInTps"), 0.0
    )
    day: dict[str, int] = {}
    for each in metrics:
        for name, rate in each["runtimeQuota"]["tps"].items():
            tps[f"total{name[0].upper()}{name[1:]}"] += rate
        for name, count in each["runtimeQuota"]["oneDayNum"].items():
            day[name] = day.get(name, 0) + count
    return {"totalTps": tps, "totalOneDayNum": day}


def plain(value: object) -> Any:
    """A document of structs as plain values, with the names of the wire."""
    return msgspec.json.decode(fastjson.encode(value, standard=True))


def _first_number(text: str) -> float:
    try:
        return float((text.split() or ["0"])[0])
    except ValueError:
        return 0.0
