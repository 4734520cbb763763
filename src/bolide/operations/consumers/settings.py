"""Create, change and pause consumer groups."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

import msgspec

from bolide.operations.cluster import Cluster
from bolide.operations.consumers.directory import (
    Broker,
    check_group_name,
    forget_directory,
    in_turn,
    read_directory,
)
from bolide.operations.consumers.options import (
    GroupSettings,
    RetryDelays,
    changed,
    check_settings,
    retry_policy,
    settings_view,
    with_removals,
)
from bolide.operations.declaration import change, read
from bolide.operations.errors import BadInput, Conflict, NotFound, NotSupported
from bolide.operations.views import Failure
from bolide.protocol.bodies.groups import GroupConfig
from bolide.protocol.refusals import RequestCodeNotSupported


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingChange:
    """A setting that would have another value."""

    broker: str
    name: str
    before: str
    after: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupChanged:
    """Where a group was created, changed or deleted."""

    group: str
    brokers: list[str]
    topics: list[str] = field(default_factory=list)
    """Topics that were deleted."""
    failures: list[Failure] = field(default_factory=list)
    """Brokers that did not do it; repeat it for them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicAccess:
    """Whether a group may read a topic, by broker."""

    group: str
    topic: str
    readable: dict[str, bool]
    failures: list[Failure] = field(default_factory=list)


async def settings_of(cluster: Cluster, *, group: str) -> list[GroupSettings]:
    """The settings of a group by broker, read now."""
    forget_directory(cluster)
    directory = await read_directory(cluster)
    configs = directory.group(group).configs
    return [settings_view(broker, config) for broker, config in sorted(configs.items())]


@read("/groups/{group}/settings")
async def show_settings(cluster: Cluster, *, group: str) -> list[GroupSettings]:
    """Show the settings of a group at each broker that has it."""
    return await settings_of(cluster, group=group)


@change("POST", "/groups", target="group {group}", state=settings_of)
async def create_group(  # noqa: PLR0913  the settings of a group
    cluster: Cluster,
    *,
    group: str,
    brokers: list[str] | None = None,
    can_consume: bool = True,
    can_start_at_min: bool = True,
    can_broadcast: bool = True,
    is_ordered: bool = False,
    retry_queues: int = 1,
    max_retries: int = 16,
    retry_delays: RetryDelays | None = None,
    consume_timeout_minutes: int = 15,
    notifies_members: bool = True,
    attributes: dict[str, str] | None = None,
) -> GroupChanged:
    """Create a consumer group, by default on all brokers.

    Brokers that create groups by themselves do so for the first member; others refuse members of
    groups that were not created.
    """
    check_group_name(group)
    wanted = GroupConfig(
        group_name=group,
        consume_enable=can_consume,
        consume_from_min_enable=can_start_at_min,
        consume_broadcast_enable=can_broadcast,
        consume_message_orderly=is_ordered,
        retry_queue_nums=retry_queues,
        retry_max_times=max_retries,
        group_retry_policy=retry_policy(retry_delays or RetryDelays()),
        consume_timeout_minute=consume_timeout_minutes,
        notify_consumer_ids_changed_enable=notifies_members,
        attributes=attributes or {},
    )
    check_settings(wanted)
    forget_directory(cluster)
    directory = await read_directory(cluster)
    chosen = directory.chosen(brokers, directory.brokers)
    known = directory.groups.get(group)
    taken = sorted({each.name for each in chosen} & known.configs.keys()) if known else []
    if taken:
        raise Conflict(f"group {group!r} exists on {', '.join(taken)}: change it instead")
    return await _update(cluster, group, [(broker, wanted) for broker in chosen])


async def plan_change(  # noqa: PLR0913  the settings of a group
    cluster: Cluster,
    *,
    group: str,
    brokers: list[str] | None = None,
    can_consume: bool | None = None,
    can_start_at_min: bool | None = None,
    can_broadcast: bool | None = None,
    is_ordered: bool | None = None,
    retry_queues: int | None = None,
    max_retries: int | None = None,
    retry_delays: RetryDelays | None = None,
    consume_timeout_minutes: int | None = None,
    notifies_members: bool | None = None,
    broker_id: int | None = None,
    slow_broker_id: int | None = None,
    attributes: dict[str, str | None] | None = None,
) -> list[SettingChange]:
    """The settings that would have other values; takes what `change_group` takes."""
    wanted = dict(locals())
    for name in ("cluster", "group", "brokers"):
        del wanted[name]
    changes = await _changes(cluster, group, brokers, wanted)
    return [
        SettingChange(broker=broker.name, name=name, before=_text(old), after=_text(new[name]))
        for broker, before, after in changes
        for new in [asdict(settings_view(broker.name, after))]
        for name, old in asdict(settings_view(broker.name, before)).items()
        if old != new[name]
    ]


@change("PATCH", "/groups/{group}", target="group {group}", preview=plan_change, state=settings_of)
async def change_group(  # noqa: PLR0913  the settings of a group
    cluster: Cluster,
    *,
    group: str,
    brokers: list[str] | None = None,
    can_consume: bool | None = None,
    can_start_at_min: bool | None = None,
    can_broadcast: bool | None = None,
    is_ordered: bool | None = None,
    retry_queues: int | None = None,
    max_retries: int | None = None,
    retry_delays: RetryDelays | None = None,
    consume_timeout_minutes: int | None = None,
    notifies_members: bool | None = None,
    broker_id: int | None = None,
    slow_broker_id: int | None = None,
    attributes: dict[str, str | None] | None = None,
) -> GroupChanged:
    """Change settings of a group, by default on all brokers that have it.

    What is left out stays as it is, on each broker. `attributes` are changes: a name with null is
    removed. It takes effect at once.
    """
    wanted = dict(locals())
    for name in ("cluster", "group", "brokers"):
        del wanted[name]
    changes = await _changes(cluster, group, brokers, wanted)
    return await _update(
        cluster,
        group,
        [(broker, with_removals(before, after)) for broker, before, after in changes],
    )


@change("POST", "/groups/{group}/pause", target="group {group}", state=settings_of)
async def pause_group(
    cluster: Cluster, *, group: str, brokers: list[str] | None = None
) -> GroupChanged:
    """Stop a group from consuming, until `resume_group`.

    The brokers refuse its pulls and pops; members stay connected, log the refusals, and finish what
    they have fetched. Messages and offsets are kept, and the lag grows. `brokers` pauses it on
    some brokers only.
    """
    changes = await _changes(cluster, group, brokers, {"can_consume": False})
    return await _update(
        cluster, group, [(at, with_removals(old, new)) for at, old, new in changes]
    )


@change("POST", "/groups/{group}/resume", target="group {group}", state=settings_of)
async def resume_group(
    cluster: Cluster, *, group: str, brokers: list[str] | None = None
) -> GroupChanged:
    """Let a paused group consume again; it goes on where it stopped."""
    changes = await _changes(cluster, group, brokers, {"can_consume": True})
    return await _update(
        cluster, group, [(at, with_removals(old, new)) for at, old, new in changes]
    )


async def access_of(cluster: Cluster, *, group: str, topic: str) -> TopicAccess:
    """Whether the group may read the topic, at each broker that has the group."""
    forget_directory(cluster)
    known = (await read_directory(cluster)).group(group)
    return TopicAccess(
        group=group,
        topic=topic,
        readable={
            broker: topic not in known.forbidden.get(broker, ()) for broker in sorted(known.configs)
        },
    )


@change(
    "PUT",
    "/groups/{group}/topics/{topic}/access",
    target="group {group}, topic {topic}",
    state=access_of,
)
async def set_topic_access(
    cluster: Cluster, *, group: str, topic: str, readable: bool, brokers: list[str] | None = None
) -> TopicAccess:
    """Forbid a group to read one topic, or allow it again; the group's other topics go on."""
    forget_directory(cluster)
    directory = await read_directory(cluster)
    known = directory.group(group)
    answers: dict[str, bool] = {}

    async def forbid(broker: Broker) -> None:
        groups = cluster.admin.groups
        told = await groups.forbid(broker.address, group, topic, readable=readable)
        answers[broker.name] = bool(told.readable)
        if readable:  # RocketMQ's brokers then allow all topics of the group
            for other in sorted(known.forbidden.get(broker.name, set()) - {topic}):
                await groups.forbid(broker.address, group, other, readable=False)

    try:
        _, failures = await in_turn(directory.chosen(brokers, known.configs), forbid)
    except RequestCodeNotSupported as error:
        raise NotSupported(f"the brokers cannot forbid single topics: {error}") from error
    return TopicAccess(group=group, topic=topic, readable=answers, failures=failures)


async def _update(
    cluster: Cluster, group: str, configs: list[tuple[Broker, GroupConfig]]
) -> GroupChanged:
    by_name = {broker.name: config for broker, config in configs}

    async def update(broker: Broker) -> None:
        await cluster.admin.groups.update(broker.address, by_name[broker.name])

    done, failures = await in_turn([broker for broker, _ in configs], update)
    return GroupChanged(group=group, brokers=done, failures=failures)


async def _changes(
    cluster: Cluster, group: str, brokers: list[str] | None, wanted: Mapping[str, object]
) -> list[tuple[Broker, GroupConfig, GroupConfig]]:
    """The settings of each broker, before and after."""
    forget_directory(cluster)
    directory = await read_directory(cluster)
    known = directory.group(group)
    if not known.configs:
        raise NotFound(f"no broker has settings for group {group!r}: create it first")
    found = []
    for broker in directory.chosen(brokers, known.configs):
        before = known.configs.get(broker.name)
        if before is None:
            raise BadInput("brokers", f"{broker.name} has no group {group!r}: create it there")
        after = changed(before, wanted)
        check_settings(after)
        found.append((broker, before, after))
    return found


def _text(value: object) -> str:
    if isinstance(value, dict):  # without what is left out
        value = {name: each for name, each in value.items() if each is not None}
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
