"""Which consumer groups a cluster has, and what is known of all of them at once.

A group exists if a broker has settings for it, if it has committed offsets, or if it has a retry
topic, which its first member creates. These lists take two requests per broker, and are shared by
all who look; the figures of one group take more, and are asked for the groups on a page only.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from bolide.admin.servers import address_of
from bolide.errors import BolideError
from bolide.model.names import (
    ALLOWED_NAME,
    DEAD_LETTER_PREFIX,
    MAX_SYSTEM_TOPIC_LENGTH,
    READ,
    RETRY_PREFIX,
    is_system_group,
    retrying_group,
)
from bolide.operations.cluster import Cluster
from bolide.operations.errors import BadInput, NotFound, Unknown
from bolide.operations.servers.missing import missing_from
from bolide.operations.views import Failure, failure_of
from bolide.protocol.bodies.groups import GroupConfig, GroupConfigTable

T = TypeVar("T")

_SECONDS = 5.0
"""How long the list of groups is shared."""
_OFFSETS_SECONDS = 60.0
"""How long the groups with offsets are: the table is long, and groups without settings are rare."""
_MAX_CONCURRENT = 16
_MAX_LENGTH = MAX_SYSTEM_TOPIC_LENGTH - len(RETRY_PREFIX)
"""Of the name of a group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Broker:
    """A broker group, and the address to ask: its master's, or a slave's if it has none."""

    name: str
    address: str
    cluster: str


@dataclass(slots=True, kw_only=True)
class KnownGroup:
    """What the lists tell of one group."""

    name: str
    configs: dict[str, GroupConfig] = field(default_factory=dict)
    """By name of the broker."""
    offsets_at: set[str] = field(default_factory=set)
    """Names of the brokers where it has offsets."""
    forbidden: dict[str, set[str]] = field(default_factory=dict)
    """Topics that it may not read, by name of the broker."""
    retry_topics: list[str] = field(default_factory=list)
    has_dead_letters: bool = False
    """Whether it has a topic of dead letters; the topic can be empty."""

    @property
    def is_system(self) -> bool:
        return is_system_group(self.name)

    @property
    def is_paused(self) -> bool | None:
        """Whether no broker lets it consume; None if no broker has settings for it."""
        if not self.configs:
            return None
        return not any(each.consume_enable for each in self.configs.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Directory:
    """All groups and brokers."""

    groups: Mapping[str, KnownGroup]
    brokers: Mapping[str, Broker]
    failures: list[Failure] = field(default_factory=list)
    """Brokers that did not answer, and those that are missing."""
    missing: list[Failure] = field(default_factory=list)
    """Brokers that are away: no NameServer knows what topics they have."""

    def group(self, name: str) -> KnownGroup:
        """Raises NotFound, or Unknown with the servers that may know it but do not answer."""
        if name in self.groups:
            return self.groups[name]
        silent = "; ".join(f"{each.server}: {each.reason}" for each in self.failures)
        if silent:
            text = f"it is unknown whether there is a consumer group {name!r}: no broker that"
            raise Unknown(f"{text} answers knows it ({silent})")
        raise NotFound(f"no broker knows the consumer group {name!r}")

    def brokers_of(self, group: KnownGroup) -> list[Broker]:
        """The brokers that can tell of a group; all of them, if none is known to have it."""
        names = {*group.configs, *group.offsets_at} & self.brokers.keys()
        return [self.brokers[name] for name in sorted(names or self.brokers)]

    def chosen(self, names: list[str] | None, default: Iterable[str]) -> list[Broker]:
        """The brokers with these names, or the default ones; raises BadInput."""
        for name in names or ():
            if name not in self.brokers:
                known = ", ".join(sorted(self.brokers)) or "none"
                raise BadInput("brokers", f"there is no broker {name!r}; there are: {known}")
        return [self.brokers[name] for name in sorted({*(names or default)} & self.brokers.keys())]


async def read_directory(cluster: Cluster) -> Directory:
    """The groups of a cluster, not older than some seconds.

    Raises:
        BolideError: no NameServer answers.
    """
    return await cluster.shared("consumers:directory", lambda: _read(cluster), seconds=_SECONDS)


def forget_directory(cluster: Cluster) -> None:
    cluster.forget("consumers:")


def check_group_name(group: str) -> None:
    """Raises BadInput for a name that brokers refuse."""
    if not group:
        raise BadInput("group", "enter a name")
    if not ALLOWED_NAME.fullmatch(group):
        raise BadInput("group", "use only letters, digits, _, -, % and |")
    if len(group) > _MAX_LENGTH:
        raise BadInput("group", f"use at most {_MAX_LENGTH} characters")


async def answers(
    brokers: Iterable[Broker], ask: Callable[[Broker], Awaitable[T]]
) -> tuple[dict[str, T], list[Failure]]:
    """What each broker answered, by name, and the failures of the others."""
    limit = asyncio.Semaphore(_MAX_CONCURRENT)
    found: dict[str, T] = {}
    failures: list[Failure] = []

    async def one(broker: Broker) -> None:
        async with limit:
            try:
                found[broker.name] = await ask(broker)
            except BolideError as error:
                failures.append(failure_of(broker.name, error))

    async with asyncio.TaskGroup() as tasks:
        for broker in brokers:
            tasks.create_task(one(broker))
    return dict(sorted(found.items())), sorted(failures, key=lambda each: each.server)


async def _read(cluster: Cluster) -> Directory:
    info, topics = await asyncio.gather(cluster.admin.clusters.info(), cluster.admin.topics.names())
    brokers = {
        name: Broker(name=name, address=address_of(each), cluster=each.cluster or "")
        for name, each in sorted(info.broker_addr_table.items())
        if each.broker_addrs
    }
    (tables, failures), (offsets, offset_failures) = await asyncio.gather(
        answers(brokers.values(), lambda at: cluster.admin.groups.configs(at.address)),
        answers(brokers.values(), lambda at: _groups_with_offsets(cluster, at)),
    )
    groups: dict[str, KnownGroup] = {}
    for broker, table in tables.items():
        _add_table(groups, broker, table)
    for broker, names in offsets.items():
        for name in names:
            _of(groups, name).offsets_at.add(broker)
    _add_topics(groups, topics)
    unasked = {each.server for each in failures}
    failures += [each for each in offset_failures if each.server not in unasked]
    missing = missing_from(cluster, info)
    failures += missing
    return Directory(groups=groups, brokers=brokers, failures=failures, missing=missing)


async def _groups_with_offsets(cluster: Cluster, broker: Broker) -> set[str]:
    return await cluster.shared(
        f"offset-groups:{broker.address}",
        lambda: cluster.admin.offsets.groups_with_offsets_at(broker.address),
        seconds=_OFFSETS_SECONDS,
    )


def _of(groups: dict[str, KnownGroup], name: str) -> KnownGroup:
    return groups.setdefault(name, KnownGroup(name=name))


def _add_table(groups: dict[str, KnownGroup], broker: str, table: GroupConfigTable) -> None:
    for name, config in table.subscription_group_table.items():
        _of(groups, name).configs[broker] = config
    for name, topics in table.forbidden_table.items():
        unread = {topic for topic, bits in topics.items() if bits > 0 and bits & READ}
        if unread and name in groups:
            groups[name].forbidden[broker] = unread


def _add_topics(groups: dict[str, KnownGroup], topics: Iterable[str]) -> None:
    """Retry topics make a group known, unless POP made them: those have the topic in the name."""
    names = frozenset(topics)
    for topic in sorted(name for name in names if name.startswith(RETRY_PREFIX)):
        name = retrying_group(topic)
        owner = name if name in groups else _owner_of_pop_topic(groups, name, names)
        _of(groups, owner or name).retry_topics.append(topic)
    for topic in names:
        name = topic.removeprefix(DEAD_LETTER_PREFIX)
        if name != topic and name in groups:
            groups[name].has_dead_letters = True


def _owner_of_pop_topic(
    groups: Mapping[str, KnownGroup], name: str, topics: frozenset[str]
) -> str | None:
    """The group in `group_topic`, as POP's older rule names retry topics; both may have `_`."""
    at = name.rfind("_")
    while at > 0:
        if name[:at] in groups and name[at + 1 :] in topics:
            return name[:at]
        at = name.rfind("_", 0, at)
    return None


async def in_turn(
    brokers: Iterable[Broker], act: Callable[[Broker], Awaitable[None]]
) -> tuple[list[str], list[Failure]]:
    """Change one broker after the other, whatever becomes of the others.

    Returns:
        The names of those that did it, and why others did not.

    Raises:
        BolideError: none did it.
    """
    done: list[str] = []
    errors: list[tuple[str, BolideError]] = []
    for broker in brokers:
        try:
            await act(broker)
        except BolideError as error:
            errors.append((broker.name, error))
        else:
            done.append(broker.name)
    if errors and not done:
        raise errors[0][1]
    return done, [failure_of(name, error) for name, error in errors]
