"""All topics of a cluster with their settings, from one request to each broker.

Lists filter, sort and count in this table; it is shared by all pages for some seconds.
"""

import asyncio
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum

from bolide.admin.servers import address_of, gather_by_key
from bolide.errors import BolideError
from bolide.model.names import (
    PARK_PREFIX,
    PIPELINE_TOPIC,
    READ,
    WRITE,
    is_dead_letter_topic,
    is_internal,
    is_reserved,
    is_retry_topic,
    reply_topic,
)
from bolide.operations.cluster import Cluster
from bolide.operations.servers.missing import missing_from
from bolide.operations.views import Failure, failure_of
from bolide.protocol.bodies.routes import ClusterInfo
from bolide.protocol.bodies.topics import MappedTopicConfigTable, TopicConfig
from bolide.protocol.refusals import NoPermission

MESSAGE_TYPE = "message.type"
TABLE_SECONDS = 5.0
"""How long the table is shared; every change through an operation drops it."""


class TopicKind(StrEnum):
    """What a topic is for: its message type, or whose it is."""

    NORMAL = "normal"
    FIFO = "fifo"
    DELAY = "delay"
    TRANSACTION = "transaction"
    PRIORITY = "priority"
    MIXED = "mixed"
    LITE = "lite"
    UNSPECIFIED = "unspecified"
    RETRY = "retry"
    """The messages that a group consumes again."""
    DEAD_LETTER = "dead_letter"
    """The messages that a group gave up."""
    PARKED = "parked"
    """The messages that a group's ordered consumers set aside; Bolide's own."""
    SYSTEM = "system"
    """Of the brokers."""


OF_USERS = frozenset(TopicKind) - {
    TopicKind.RETRY,
    TopicKind.DEAD_LETTER,
    TopicKind.PARKED,
    TopicKind.SYSTEM,
}


class TopicPermission(StrEnum):
    """What clients may do with a topic."""

    READ_WRITE = "read_write"
    READ = "read"
    WRITE = "write"
    NONE = "none"
    DIFFERS = "differs"
    """Not the same on all brokers; only in views."""

    @property
    def bits(self) -> int:
        return _BITS[self]

    @classmethod
    def of(cls, perm: int) -> "TopicPermission":
        return _BY_BITS[perm & (READ | WRITE)]


_BITS = {
    TopicPermission.READ_WRITE: READ | WRITE,
    TopicPermission.READ: READ,
    TopicPermission.WRITE: WRITE,
    TopicPermission.NONE: 0,
}
_BY_BITS = {bits: each for each, bits in _BITS.items()}


@dataclass(frozen=True, slots=True)
class TopicEntry:
    """A topic, and its settings by the name of the broker."""

    name: str
    kind: TopicKind
    configs: Mapping[str, TopicConfig]
    """Empty if no broker told of it, but a NameServer did."""

    @property
    def read_queues(self) -> int | None:
        return _sum(each.read_queue_nums for each in self.configs.values())

    @property
    def write_queues(self) -> int | None:
        return _sum(each.write_queue_nums for each in self.configs.values())

    @property
    def permission(self) -> TopicPermission | None:
        found = {TopicPermission.of(each.perm) for each in self.configs.values()}
        if not found:
            return None
        return found.pop() if len(found) == 1 else TopicPermission.DIFFERS


def _sum(counts: Iterable[int]) -> int | None:
    found = [*counts]
    return sum(found) if found else None


@dataclass(frozen=True, slots=True)
class TopicTable:
    """All topics by name, sorted."""

    topics: Mapping[str, TopicEntry]
    failures: list[Failure] = field(default_factory=list)
    """Brokers that did not answer; a topic may be there, too."""
    missing: list[Failure] = field(default_factory=list)
    """Brokers that are away; they may have more topics, and messages of these."""

    @property
    def gaps(self) -> list[Failure]:
        """Why the table may lack something."""
        return [*self.failures, *self.missing]


async def topic_table(cluster: Cluster) -> TopicTable:
    """The table of now, or of some seconds ago."""
    return await cluster.shared("topics table", lambda: _read(cluster), seconds=TABLE_SECONDS)


async def _read(cluster: Cluster) -> TopicTable:
    admin, failures = cluster.admin, list[Failure]()
    info, names = await asyncio.gather(admin.clusters.info(), admin.topics.names())
    addresses = {
        name: address_of(route)
        for name, route in sorted(info.broker_addr_table.items())
        if route.broker_addrs
    }

    async def configs(broker: str) -> MappedTopicConfigTable:
        try:
            return await admin.topics.configs(addresses[broker])
        except NoPermission:  # users with few rights see what the NameServer tells them
            return MappedTopicConfigTable()
        except BolideError as error:
            failures.append(failure_of(addresses[broker], error))
            return MappedTopicConfigTable()

    tables = await gather_by_key(addresses, configs)
    system = await system_topics(cluster)
    by_topic: dict[str, dict[str, TopicConfig]] = {name: {} for name in names}
    for broker, table in tables.items():
        for name, config in table.topic_config_table.items():
            by_topic.setdefault(name, {})[broker] = config
    return TopicTable(
        {
            name: TopicEntry(name, kind_of(name, system, configs_of.values()), configs_of)
            for name, configs_of in sorted(by_topic.items())
        },
        failures,
        missing_from(cluster, info),
    )


async def system_topics(cluster: Cluster) -> Collection[str]:
    """Names of the topics of the brokers, as the servers tell them."""
    return await cluster.shared("system topics", lambda: _system_topics(cluster), seconds=60)


async def _system_topics(cluster: Cluster) -> Collection[str]:
    found: set[str] = set()
    info = await cluster.admin.clusters.info()
    found |= _own_topics(info)
    with suppress(BolideError):  # the rules for names tell most of them
        found.update(await cluster.admin.topics.system())
    for _, route in sorted(info.broker_addr_table.items()):
        try:
            found.update(await cluster.admin.topics.system_at(address_of(route)))
        except (BolideError, ValueError):
            continue
        break  # they have the same but for their names, which are known
    return found


def _own_topics(info: ClusterInfo) -> set[str]:
    clusters = {*info.cluster_addr_table}
    return clusters | {*info.broker_addr_table} | {reply_topic(name) for name in clusters}


def kind_of(
    topic: str, system: Collection[str] = (), configs: Iterable[TopicConfig] = ()
) -> TopicKind:
    """The kind of a topic by its name and the message type that its settings have."""
    if is_retry_topic(topic):
        return TopicKind.RETRY
    if is_dead_letter_topic(topic):
        return TopicKind.DEAD_LETTER
    if topic.startswith(PARK_PREFIX):
        return TopicKind.PARKED
    if topic in system or is_internal(topic) or is_reserved(topic) or topic == PIPELINE_TOPIC:
        return TopicKind.SYSTEM
    given = next((m for each in configs if (m := each.attributes.get(MESSAGE_TYPE))), None)
    if given is None:
        return TopicKind.NORMAL  # RocketMQ's default
    return _BY_TYPE.get(given, TopicKind.UNSPECIFIED)


_BY_TYPE = {each.name: each for each in OF_USERS}
