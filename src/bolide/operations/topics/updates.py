"""Changes settings of topics; the preview warns of what that does to producers and consumers."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

import msgspec

from bolide.admin.servers import gather_by_key
from bolide.errors import BolideError
from bolide.model.names import INHERIT, READ, WRITE
from bolide.operations.cluster import Cluster
from bolide.operations.declaration import change
from bolide.operations.errors import BadInput, Conflict, NotSupported
from bolide.operations.topics.changes import (
    MessageType,
    SettingChange,
    TopicDone,
    at_each,
    checked_attributes,
    checked_permission,
    checked_queues,
    require_changeable,
    setting_texts,
    settings_of,
)
from bolide.operations.topics.figures import require_route, stored
from bolide.operations.topics.table import MESSAGE_TYPE, TopicPermission
from bolide.operations.views import LIVE
from bolide.protocol.bodies.topics import TopicConfig

_MASTER = 0


class WarningKind(StrEnum):
    """What a change of a topic may do to its users."""

    WRITE_QUEUES_SHRINK = "write_queues_shrink"
    READ_QUEUES_SHRINK = "read_queues_shrink"
    UNREAD_QUEUES = "unread_queues"
    ORDER_MOVES = "order_moves"
    NO_WRITE = "no_write"
    NO_READ = "no_read"
    TYPE_CHANGES = "type_changes"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicWarning:
    """What a change may do, at one broker."""

    kind: WarningKind
    broker: str
    text: str
    before: int | None = None
    after: int | None = None
    messages: int | None = field(default=None, metadata=LIVE)
    """Stored in the queues that are not read any more; None if unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicUpdatePlan:
    """What an update changes."""

    topic: str
    changes: list[SettingChange]
    warnings: list[TopicWarning]


async def plan_update(  # noqa: PLR0913  the settings of a topic
    cluster: Cluster,
    *,
    topic: str,
    brokers: list[str] | None = None,
    read_queues: int | None = None,
    write_queues: int | None = None,
    permission: TopicPermission | None = None,
    message_type: MessageType | None = None,
    is_ordered: bool | None = None,
    attributes: dict[str, str] | None = None,
    removed_attributes: list[str] | None = None,
) -> TopicUpdatePlan:
    """What `update_topic` would change, and what that may do."""
    wanted = _Wanted.of(
        read_queues, write_queues, permission, message_type, is_ordered, attributes or {},
        removed_attributes or [],
    )  # fmt: skip
    steps = await _steps(cluster, topic, brokers, wanted)
    changes, warnings = [], []
    for step in steps:
        changes += _differences(step)
        warnings += await _warnings(cluster, step)
    return TopicUpdatePlan(topic=topic, changes=changes, warnings=warnings)


@change("PATCH", "/topics/{topic}", target="topic {topic}", preview=plan_update, state=settings_of)
async def update_topic(  # noqa: PLR0913  the settings of a topic
    cluster: Cluster,
    *,
    topic: str,
    brokers: list[str] | None = None,
    read_queues: int | None = None,
    write_queues: int | None = None,
    permission: TopicPermission | None = None,
    message_type: MessageType | None = None,
    is_ordered: bool | None = None,
    attributes: dict[str, str] | None = None,
    removed_attributes: list[str] | None = None,
) -> TopicDone:
    """Change settings of a topic.

    What is not given stays as it is. It is changed on the brokers of these names, by default on all
    that have it. Shrinking the number of queues leaves messages unread or changes the queue of
    ordered messages: the preview warns of it.
    """
    wanted = _Wanted.of(
        read_queues, write_queues, permission, message_type, is_ordered, attributes or {},
        removed_attributes or [],
    )  # fmt: skip
    steps = {each.broker: each for each in await _steps(cluster, topic, brokers, wanted)}
    changed = {name: step for name, step in steps.items() if _differences(step)}
    done, failures = await at_each(changed, lambda name: _apply(cluster, changed[name]))
    return TopicDone(
        topic=topic,
        brokers=done,
        changes=[each for name in done for each in _differences(changed[name])],
        failures=failures,
    )


# Updates


@dataclass(frozen=True, slots=True)
class _Wanted:
    """The settings that an update gives; None stays as it is."""

    read_queues: int | None
    write_queues: int | None
    perm: int | None
    order: bool | None
    attributes: Mapping[str, str]
    removed: frozenset[str]

    @classmethod
    def of(  # noqa: PLR0913, PLR0917  as an update has them
        cls,
        read_queues: int | None,
        write_queues: int | None,
        permission: TopicPermission | None,
        message_type: MessageType | None,
        order: bool | None,
        attributes: Mapping[str, str],
        removed: Iterable[str],
    ) -> "_Wanted":
        wanted = checked_attributes(attributes)
        if message_type is not None:
            wanted[MESSAGE_TYPE] = message_type.value
        if both := wanted.keys() & {*removed}:
            raise BadInput("removed_attributes", f"{', '.join(both)} cannot be set, too")
        return cls(
            None if read_queues is None else checked_queues("read_queues", read_queues),
            None if write_queues is None else checked_queues("write_queues", write_queues),
            None if permission is None else checked_permission(permission),
            order,
            wanted,
            frozenset(removed),
        )

    def applied(self, config: TopicConfig) -> TopicConfig:
        attributes = {k: v for k, v in config.attributes.items() if k not in self.removed}
        perm = config.perm if self.perm is None else self.perm | config.perm & INHERIT
        return msgspec.structs.replace(
            config,
            read_queue_nums=self.read_queues or config.read_queue_nums,
            write_queue_nums=self.write_queues or config.write_queue_nums,
            perm=perm,
            order=config.order if self.order is None else self.order,
            attributes=attributes | dict(self.attributes),
        )


@dataclass(frozen=True, slots=True)
class _Step:
    """The change at one broker."""

    broker: str
    address: str
    before: TopicConfig
    after: TopicConfig


async def _steps(
    cluster: Cluster, topic: str, brokers: list[str] | None, wanted: _Wanted
) -> list[_Step]:
    route = await require_route(cluster, topic)
    if route.topic_queue_mapping_by_broker:
        raise NotSupported(f"{topic} is a static topic: change it with mqadmin updateStaticTopic")
    await require_changeable(cluster, topic)
    masters = {
        each.broker_name: each.broker_addrs[_MASTER]
        for each in sorted(route.broker_datas, key=lambda each: each.broker_name)
        if _MASTER in each.broker_addrs
    }
    for name in brokers or ():
        if name not in masters:
            raise BadInput("brokers", f"{name!r} has no such topic, or no master now")
    chosen = {name: at for name, at in masters.items() if not brokers or name in brokers}
    if not chosen:
        raise Conflict(f"no broker of {topic!r} has a master now: topics are changed on masters")
    configs = await gather_by_key(chosen, lambda at: cluster.admin.topics.config(chosen[at], topic))
    return [
        _Step(name, chosen[name], config, wanted.applied(config))
        for name, config in configs.items()
    ]


async def _apply(cluster: Cluster, step: _Step) -> None:
    old, new = step.before.attributes, step.after.attributes
    changes = {f"+{name}": value for name, value in new.items() if old.get(name) != value}
    changes |= {f"-{name}": "" for name in old if name not in new}
    config = msgspec.structs.replace(step.after, attributes=changes)
    await cluster.admin.topics.update(step.address, config)
    topic, queues = config.topic_name, config.write_queue_nums
    if config.order:
        await cluster.admin.name_servers.add_order_conf(topic, step.broker, queues)
    elif step.before.order:
        await cluster.admin.name_servers.remove_order_conf(topic, [step.broker])


def _differences(step: _Step) -> list[SettingChange]:
    before, after = setting_texts(step.before), setting_texts(step.after)
    return [
        SettingChange(
            broker=step.broker, setting=name, before=before.get(name), after=after.get(name)
        )
        for name in sorted(before.keys() | after.keys())
        if before.get(name) != after.get(name)
    ]


async def _warnings(cluster: Cluster, step: _Step) -> list[TopicWarning]:
    old, new, broker = step.before, step.after, step.broker
    found = []

    def warn(
        kind: WarningKind,
        text: str,
        before: int | None = None,
        after: int | None = None,
        messages: int | None = None,
    ) -> None:
        found.append(
            TopicWarning(
                kind=kind, broker=broker, text=text, before=before, after=after, messages=messages
            )
        )

    written, writes = old.write_queue_nums, new.write_queue_nums
    if writes < written:
        text = f"nothing is sent to {_queues(writes, written)} any more"
        warn(WarningKind.WRITE_QUEUES_SHRINK, text, written, writes)
    if writes != written:
        text = "messages of one sharding key go to another queue: their order may break"
        warn(WarningKind.ORDER_MOVES, text, written, writes)
    read, reads = old.read_queue_nums, new.read_queue_nums
    if reads < read:
        left = await _left_behind(cluster, step)
        text = f"consumers no longer get what is stored in {_queues(reads, read)}"
        warn(WarningKind.READ_QUEUES_SHRINK, text, read, reads, left)
    if reads < writes:
        text = f"nobody gets what is sent to {_queues(reads, writes)}"
        warn(WarningKind.UNREAD_QUEUES, text, writes, reads)
    if old.perm & WRITE and not new.perm & WRITE:
        warn(WarningKind.NO_WRITE, "producers are refused")
    if old.perm & READ and not new.perm & READ:
        warn(WarningKind.NO_READ, "consumers get nothing any more")
    if old.attributes.get(MESSAGE_TYPE, "NORMAL") != new.attributes.get(MESSAGE_TYPE, "NORMAL"):
        text = "proxies refuse messages of another type, and consumers may expect the old one"
        warn(WarningKind.TYPE_CHANGES, text)
    return found


def _queues(first: int, end: int) -> str:
    return f"queue {first}" if end - first == 1 else f"queues {first} to {end - 1}"


async def _left_behind(cluster: Cluster, step: _Step) -> int | None:
    """Messages in the queues that an update takes from consumers."""
    try:
        stats = await cluster.admin.topics.stats_at(step.address, step.before.topic_name)
    except BolideError:
        return None
    reads = step.after.read_queue_nums
    return sum(stored(at) for q, at in stats.offset_table.items() if q.queue_id >= reads)
