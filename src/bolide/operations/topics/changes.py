"""Creates and deletes topics; a deletion shows first what is lost."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from bolide.admin.consequences import TopicDeletion
from bolide.admin.servers import gather_by_key
from bolide.errors import BolideError
from bolide.model.message_checks import InvalidMessage, check_topic
from bolide.operations.cluster import Cluster
from bolide.operations.declaration import change, read
from bolide.operations.errors import BadInput, Conflict, NotFound
from bolide.operations.topics.figures import require_route
from bolide.operations.topics.table import (
    MESSAGE_TYPE,
    TopicKind,
    TopicPermission,
    kind_of,
    system_topics,
)
from bolide.operations.views import LIVE, Failure, failure_of
from bolide.protocol.bodies.topics import MAX_QUEUES, TopicConfig
from bolide.protocol.refusals import TopicNotFound

_ATTRIBUTE_NAME = re.compile(r"[A-Za-z0-9._-]+")
_MASTER = 0
_ROUTE_SECONDS = 3.0
"""How long a creation waits for the NameServer to know of the topic."""


class MessageType(StrEnum):
    """Which messages a topic is for (`message.type`); proxies of RocketMQ enforce it."""

    NORMAL = "NORMAL"
    FIFO = "FIFO"
    DELAY = "DELAY"
    TRANSACTION = "TRANSACTION"
    PRIORITY = "PRIORITY"
    MIXED = "MIXED"
    LITE = "LITE"
    UNSPECIFIED = "UNSPECIFIED"


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingChange:
    """One setting of a topic at one broker."""

    broker: str
    setting: str
    before: str | None
    """None if it was not set."""
    after: str | None
    """None if it is removed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDone:
    """Where a topic was created, changed or deleted."""

    topic: str
    brokers: list[str]
    """Names of the brokers; with a slash and its id for a slave."""
    changes: list[SettingChange] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    """Where it was not; run it again for those."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLoss:
    """A group that consumes a topic to be deleted."""

    group: str
    members: int = field(metadata=LIVE)
    backlog: int = field(metadata=LIVE)
    """Messages it has not consumed, and never will."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDeletionImpact:
    """What is lost with a topic."""

    topic: str
    kind: TopicKind
    clusters: list[str]
    queues: int
    messages: int = field(metadata=LIVE)
    last_write_ms: int | None = field(metadata=LIVE)
    """None if nothing was ever written."""
    groups: list[GroupLoss]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSettings:
    """The settings of a topic by broker, for the audit log."""

    brokers: dict[str, dict[str, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterBrokers:
    """A cluster, and the brokers in it that have a master now."""

    cluster: str
    brokers: list[str]


@read("/topic-placement")
async def list_placement(cluster: Cluster) -> list[ClusterBrokers]:
    """List the clusters and brokers that a topic can be created on."""
    info = await cluster.admin.clusters.info()
    table = info.broker_addr_table
    return [
        ClusterBrokers(
            cluster=name,
            brokers=sorted(b for b in brokers if b in table and _MASTER in table[b].broker_addrs),
        )
        for name, brokers in sorted(info.cluster_addr_table.items())
    ]


async def settings_of(cluster: Cluster, *, topic: str) -> TopicSettings:
    configs = await _configs(cluster, topic)
    return TopicSettings(brokers={name: setting_texts(each) for name, each in configs.items()})


@change("POST", "/topics", target="topic {topic}", state=settings_of)
async def create_topic(  # noqa: PLR0913  the settings of a topic
    cluster: Cluster,
    *,
    topic: str,
    clusters: list[str] | None = None,
    brokers: list[str] | None = None,
    read_queues: int = 8,
    write_queues: int = 8,
    permission: TopicPermission = TopicPermission.READ_WRITE,
    message_type: MessageType | None = None,
    is_ordered: bool = False,
    attributes: dict[str, str] | None = None,
) -> TopicDone:
    """Create a topic.

    It is created on the masters of `clusters` and `brokers`, by name; without both, of the only
    cluster. Numbers of queues are those of each broker. `message_type` and other `attributes`, such
    as `cleanup.policy`, need RocketMQ 5 or Bolide. `is_ordered` fixes the number of queues in the
    NameServers. An existing topic is a Conflict: `update_topic` changes it.
    """
    name = await checked_name(cluster, topic)
    queues = (
        checked_queues("read_queues", read_queues),
        checked_queues("write_queues", write_queues),
    )
    wanted = checked_attributes(attributes or {})
    if message_type is not None:
        wanted[MESSAGE_TYPE] = message_type.value
    config = TopicConfig(
        topic_name=name,
        read_queue_nums=queues[0],
        write_queue_nums=queues[1],
        perm=checked_permission(permission),
        order=is_ordered,
        attributes=wanted,
    )
    masters = await _targets(cluster, clusters, brokers)
    silent: dict[str, BolideError] = {}

    async def has(broker: str) -> bool:
        try:
            return await cluster.admin.topics.is_at(masters[broker], name)
        except BolideError as error:
            silent[broker] = error
            return False

    found = await gather_by_key(masters, has)
    if there := [broker for broker, is_there in found.items() if is_there]:
        raise Conflict(f"topic {name!r} exists already at {', '.join(there)}: change it instead")

    async def create(broker: str) -> None:
        if broker in silent:  # it may have the topic
            raise silent[broker]
        await cluster.admin.topics.update(masters[broker], config)

    done, failures = await at_each(masters, create)
    if is_ordered:
        for broker in done:
            await cluster.admin.name_servers.add_order_conf(name, broker, queues[1])
    await _until_routed(cluster, name)
    return TopicDone(topic=name, brokers=done, failures=failures)


async def plan_deletion(
    cluster: Cluster, *, topic: str, clusters: list[str] | None = None
) -> TopicDeletionImpact:
    """What is lost with a topic: its messages, and the backlog of its groups."""
    route = await require_route(cluster, topic)
    await require_changeable(cluster, topic)
    configs = (await _configs(cluster, topic)).values()
    known = sorted({each.cluster or "" for each in route.broker_datas})
    chosen = _checked_clusters(known, clusters)
    found: list[TopicDeletion] = []
    for name in chosen:
        part = await cluster.admin.consequences.of_deleting_topic(topic, name)
        if part is not None:
            found.append(part)
    groups: dict[str, GroupLoss] = {}
    for part in found:
        for each in part.groups:
            so_far = groups[each.group].backlog if each.group in groups else 0
            groups[each.group] = GroupLoss(
                group=each.group, members=each.members, backlog=so_far + max(each.backlog, 0)
            )
    return TopicDeletionImpact(
        topic=topic,
        kind=kind_of(topic, configs=configs),
        clusters=chosen,
        queues=sum(each.queues for each in found),
        messages=sum(each.messages for each in found),
        last_write_ms=max((each.last_write_ms for each in found), default=0) or None,
        groups=[groups[name] for name in sorted(groups)],
    )


@change(
    "DELETE", "/topics/{topic}", target="topic {topic}", preview=plan_deletion, state=settings_of
)
async def delete_topic(
    cluster: Cluster, *, topic: str, clusters: list[str] | None = None
) -> TopicDone:
    """Delete a topic with its messages.

    It is deleted from all brokers of the clusters and from the NameServers; by default in all
    clusters that have it. The preview tells how many messages are lost, and which groups lose them.
    """
    route = await require_route(cluster, topic)
    await require_changeable(cluster, topic)
    known = sorted({each.cluster or "" for each in route.broker_datas})
    chosen = _checked_clusters(known, clusters)
    members: dict[str, str] = {}
    for name in chosen:
        for broker in await cluster.admin.clusters.brokers(name):
            for number, address in sorted(broker.broker_addrs.items()):
                label = (
                    broker.broker_name if number == _MASTER else f"{broker.broker_name}/{number}"
                )
                members[label] = address
    done, failures = await at_each(
        members, lambda label: cluster.admin.topics.delete_at(members[label], topic)
    )
    for server in cluster.admin.name_servers.addresses:
        for name in chosen:
            try:
                await cluster.admin.topics.forget(server, topic, name)
            except BolideError as error:
                failures.append(failure_of(server, error))
    if chosen == known:
        await cluster.admin.name_servers.delete_order_conf(topic)
    return TopicDone(topic=topic, brokers=done, failures=failures)


# Input


async def checked_name(cluster: Cluster, topic: str) -> str:
    name = topic.strip()
    try:
        check_topic(name)
    except InvalidMessage as error:
        raise BadInput("topic", error.reason) from error
    kind = kind_of(name, await system_topics(cluster))
    if kind is TopicKind.SYSTEM:
        raise BadInput("topic", f"{name!r} is a name of the brokers' own topics")
    if kind in {TopicKind.RETRY, TopicKind.DEAD_LETTER, TopicKind.PARKED}:
        raise BadInput("topic", "brokers create the topics of groups when they need them")
    return name


def checked_queues(name: str, count: int) -> int:
    if not 1 <= count <= MAX_QUEUES:
        raise BadInput(name, f"{count} is not from 1 to {MAX_QUEUES}")
    return count


def checked_permission(permission: TopicPermission) -> int:
    if permission is TopicPermission.DIFFERS:
        raise BadInput("permission", "choose what clients may do")
    return permission.bits


def checked_attributes(attributes: Mapping[str, str]) -> dict[str, str]:
    for name, value in attributes.items():
        if not _ATTRIBUTE_NAME.fullmatch(name) or name[0] in "+-":
            raise BadInput("attributes", f"{name!r} is not the name of an attribute")
        if not value or re.search(r"[,=\s]", value):
            raise BadInput("attributes", f"{name}: {value!r} is empty, or has a blank, comma or =")
    return dict(attributes)


def _checked_clusters(known: list[str], chosen: Iterable[str] | None) -> list[str]:
    if not chosen:
        return known
    for name in chosen:
        if name not in known:
            raise BadInput("clusters", f"{name!r} has no such topic; {', '.join(known)} do")
    return sorted({*chosen})


async def _targets(
    cluster: Cluster, clusters: Iterable[str] | None, brokers: Iterable[str] | None
) -> dict[str, str]:
    """The addresses of the masters to create a topic on, by the names of the brokers."""
    info = await cluster.admin.clusters.info()
    chosen = {*(brokers or ())}
    for name in chosen:
        if name not in info.broker_addr_table:
            raise BadInput("brokers", f"there is no broker {name!r}")
    if not clusters and not chosen:
        if len(info.cluster_addr_table) != 1:
            names = ", ".join(sorted(info.cluster_addr_table)) or "none"
            raise BadInput("clusters", f"choose one; there are {names}")
        clusters = info.cluster_addr_table
    for name in clusters or ():
        if name not in info.cluster_addr_table:
            raise BadInput("clusters", f"there is no cluster {name!r}")
        chosen.update(info.cluster_addr_table[name])
    masters = {
        name: info.broker_addr_table[name].broker_addrs[_MASTER]
        for name in sorted(chosen)
        if name in info.broker_addr_table and _MASTER in info.broker_addr_table[name].broker_addrs
    }
    if not masters:
        raise Conflict("no master is registered there now: topics are created on masters")
    return masters


async def require_changeable(cluster: Cluster, topic: str) -> None:
    """Raises BadInput for a topic of the brokers themselves."""
    if kind_of(topic, await system_topics(cluster)) is TopicKind.SYSTEM:
        raise BadInput("topic", f"{topic} belongs to the brokers: it cannot be changed or deleted")


# Servers


def setting_texts(config: TopicConfig) -> dict[str, str]:
    return {
        "read_queues": str(config.read_queue_nums),
        "write_queues": str(config.write_queue_nums),
        "permission": TopicPermission.of(config.perm).value,
        "order": str(config.order).lower(),
        **config.attributes,
    }


async def _configs(cluster: Cluster, topic: str) -> dict[str, TopicConfig]:
    route = await require_route(cluster, topic)
    masters = {
        each.broker_name: each.broker_addrs[_MASTER]
        for each in route.broker_datas
        if _MASTER in each.broker_addrs
    }
    found = await gather_by_key(sorted(masters), lambda at: _find(cluster, masters[at], topic))
    return {name: config for name, config in found.items() if config is not None}


async def _find(cluster: Cluster, address: str, topic: str) -> TopicConfig | None:
    try:
        return await cluster.admin.topics.config(address, topic)
    except TopicNotFound:
        return None


async def at_each(
    names: Iterable[str], act: Callable[[str], Awaitable[object]]
) -> tuple[list[str], list[Failure]]:
    """Act at one broker after the other, whatever becomes of the others.

    Raises:
        BolideError: all of them failed; the first failure.
    """
    done, errors = [], list[tuple[str, BolideError]]()
    for name in names:
        try:
            await act(name)
        except BolideError as error:
            errors.append((name, error))
        else:
            done.append(name)
    if errors and not done:
        raise errors[0][1]
    return done, [failure_of(name, error) for name, error in errors]


async def _until_routed(cluster: Cluster, topic: str) -> None:
    """Wait until clients can find the topic; RocketMQ's brokers register in the background."""
    for _ in range(int(_ROUTE_SECONDS / 0.1)):
        try:
            await require_route(cluster, topic)
        except NotFound:
            await asyncio.sleep(0.1)
        else:
            return
