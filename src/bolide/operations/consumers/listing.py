"""Consumer groups: the list of all, one group, and its queues."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from bolide.model.message_queue import MessageQueue
from bolide.model.names import is_retry_topic
from bolide.operations.cluster import Cluster
from bolide.operations.consumers.directory import Directory, KnownGroup, read_directory
from bolide.operations.consumers.figures import (
    ConsumerKind,
    ConsumerModel,
    LiveGroup,
    dead_letters_of,
    delay_in,
    delay_of,
    lag_in,
    read_live,
    spans_of,
)
from bolide.operations.consumers.members import MemberReports, read_reports
from bolide.operations.consumers.warnings import GroupWarning, warnings_of
from bolide.operations.declaration import read
from bolide.operations.errors import BadInput
from bolide.operations.history import GroupFigures, Measure, Range, Series
from bolide.operations.views import Failure, Page, page_of, unknown_last
from bolide.operations.visibility import sees_all, visible_groups
from bolide.protocol.bodies.offsets import QueueTimeSpan


class GroupFilter(StrEnum):
    """Which groups a list shows."""

    ALL = "all"
    LAGGING = "lagging"
    """Those with lag in the latest sample of the history."""
    ONLINE = "online"
    """Those with members in the latest sample."""
    OFFLINE = "offline"
    PAUSED = "paused"
    DEAD_LETTERS = "dead_letters"
    """Those with a topic of dead letters, unless the latest sample found it empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRow:
    """A consumer group in the list, with live figures; None is unknown."""

    name: str
    is_system: bool
    brokers: list[str]
    """Names of the brokers that have settings for it."""
    kind: ConsumerKind | None = None
    """None without members."""
    model: ConsumerModel | None = None
    is_ordered: bool | None = None
    """Whether its settings ask for ordered delivery of pops; how push members consume is told by
    each of them."""
    is_paused: bool | None = None
    """Whether no broker lets it consume; None if it has no settings."""
    clients: int | None = None
    lag: int | None = None
    """Messages not consumed, without those to retry; None also before it has committed anything,
    and for groups that broadcast."""
    delay_seconds: float | None = None
    """Age of the oldest message that is not consumed; 0 without lag."""
    tps: float | None = None
    """Messages delivered per second, in the last minute."""
    retrying: int | None = None
    """Failed messages that wait in its retry topics."""
    dead_letters: int | None = None
    warnings: list[GroupWarning] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupTopic:
    """A topic that a group consumes."""

    topic: str
    lag: int | None
    queues: int
    forbidden_at: list[str] = field(default_factory=list)
    """Brokers where the group may not read the topic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDetail:
    """One consumer group."""

    row: GroupRow
    """As in the list, except that members tell whether they consume in order."""
    topics: list[GroupTopic]
    """Without its retry topics."""
    failures: list[Failure] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupQueue:
    """A queue that a group consumes."""

    topic: str
    broker: str
    queue_id: int
    owner: str | None
    """Id of the member that has it; empty if no member says so, None if not all members tell."""
    owner_address: str | None
    end_offset: int
    """The offset of the next message to be stored."""
    committed_offset: int | None
    """The next message to consume; None if nothing is committed yet."""
    lag: int | None
    in_flight: int | None
    """Delivered, but not committed; RocketMQ before 5.0 tells 0."""
    consumed_ms: int | None
    """When the last consumed message was stored."""
    delay_seconds: float | None
    """Age of the oldest message that is not consumed; 0 without lag."""
    is_retry: bool
    """Whether it is a queue of the group's retry topic."""


_MOST_CHECKED = 200
"""Groups for which a user with limited rights is checked; with more, figures do not sort."""
_SORTS = ("name", "lag", "delay", "tps", "clients", "dead_letters")
_QUEUE_KEYS: dict[str, Callable[[GroupQueue], Any]] = {
    "queue": lambda each: (each.topic, each.broker, each.queue_id),
    "lag": lambda each: each.lag,
    "delay": lambda each: each.delay_seconds,
    "owner": lambda each: each.owner,
    "end_offset": lambda each: each.end_offset,
    "committed_offset": lambda each: each.committed_offset,
}


@read("/groups")
async def list_groups(  # noqa: PLR0913  options of a list
    cluster: Cluster,
    *,
    search: str = "",
    show: GroupFilter = GroupFilter.ALL,
    with_system: bool = False,
    sort: str = "name",
    descending: bool = False,
    page: int = 1,
    size: int = 50,
) -> Page[GroupRow]:
    """List consumer groups: those with settings, with offsets, or with members.

    The figures of the groups on the page are asked of the brokers now. Sorting by a figure, and
    `show` by one, take the latest sample of the history for all groups; groups that were not
    sampled come last. Groups of the brokers themselves are left out without `with_system`.

    `sort` is name, lag, delay, tps, clients or dead_letters.
    """
    if sort not in _SORTS:
        raise BadInput("sort", f"use one of {', '.join(_SORTS)}")
    directory = await read_directory(cluster)
    sampled = await _sampled(cluster, directory)
    wanted = search.strip().lower()
    chosen = [
        group
        for group in directory.groups.values()
        if wanted in group.name.lower()
        and (with_system or not group.is_system)
        and _is_shown(group, show, sampled.get(group.name))
    ]
    chosen.sort(key=lambda group: group.name)
    if sort == "name":
        chosen.sort(key=lambda group: group.name, reverse=descending)
    else:

        def figure(group: KnownGroup) -> Any:
            return _sampled_value(sampled.get(group.name), sort)

        chosen.sort(key=unknown_last(figure, descending=descending), reverse=descending)
    cut = page_of(chosen, page=page, size=size)
    rows = await asyncio.gather(*(_row(cluster, directory, group) for group in cut.items))
    failures = {each.server: each for each in directory.failures}
    for _, found in rows:
        failures |= {each.server: each for each in found}
    return Page(
        items=[row for row, _ in rows],
        total=cut.total,
        page=cut.page,
        size=cut.size,
        failures=[*failures.values()],
    )


@read("/groups/{group}")
async def describe_group(cluster: Cluster, *, group: str) -> GroupDetail:
    """Show one consumer group: members, lag, topics, and what is wrong with it.

    Members are asked for their subscriptions through their brokers, which takes some seconds if
    one does not answer.
    """
    directory = await read_directory(cluster)
    known = directory.group(group)
    live, reports = await asyncio.gather(
        read_live(cluster, directory, known), read_reports(cluster, directory, known)
    )
    row, failures = await _row(cluster, directory, known, reports=reports)
    return GroupDetail(
        row=row,
        topics=[
            GroupTopic(
                topic=topic,
                lag=live.lag_of_topic(topic),
                queues=sum(q.topic == topic for q in (*live.progress, *live.uncommitted)),
                forbidden_at=sorted(at for at, names in known.forbidden.items() if topic in names),
            )
            for topic in sorted({*live.topics, *reports.topics, *_forbidden_topics(known)})
        ],
        failures=failures,
    )


@read("/groups/{group}/queues")
async def list_queues(  # noqa: PLR0913  options of a list
    cluster: Cluster,
    *,
    group: str,
    topic: str = "",
    search: str = "",
    sort: str = "queue",
    descending: bool = False,
    page: int = 1,
    size: int = 100,
) -> Page[GroupQueue]:
    """List the queues of a group with offsets, lag and the member that has each.

    `topic` leaves one topic, `search` those topics and brokers with this in their name. `sort` is
    queue, lag, delay, owner, end_offset or committed_offset.
    """
    if sort not in _QUEUE_KEYS:
        raise BadInput("sort", f"use one of {', '.join(_QUEUE_KEYS)}")
    directory = await read_directory(cluster)
    known = directory.group(group)
    live, reports = await asyncio.gather(
        read_live(cluster, directory, known), read_reports(cluster, directory, known)
    )
    wanted = search.strip().lower()

    def is_shown(queue: MessageQueue) -> bool:
        if topic and queue.topic != topic:
            return False
        return wanted in queue.topic.lower() or wanted in queue.broker_name.lower()

    topics = sorted({queue.topic for queue in live.progress if is_shown(queue)})
    answers = await asyncio.gather(*(spans_of(cluster, live.asked, group, name) for name in topics))
    spans = {queue: span for found, _ in answers for queue, span in found.items()}
    queues = [
        _queue(queue, live, reports, spans.get(queue))
        for queue in (*live.progress, *live.uncommitted)
        if is_shown(queue)
    ]
    key = unknown_last(_QUEUE_KEYS[sort], descending=descending)
    queues.sort(key=key, reverse=descending)
    failures = {each.server: each for each in live.failures}
    failures |= {each.server: each for _, found in answers for each in found}
    failures |= {each.server: each for each in reports.failures}
    return page_of(queues, page=page, size=size, failures=failures.values())


@read("/groups/{group}/trend")
async def show_trend(cluster: Cluster, *, group: str, over: Range = Range.HOUR) -> list[Series]:
    """How the lag, the delay and the rate of a group went over time, as the history sampled them.

    A point is null where nothing was sampled. Without a console that samples there is no series.
    """
    if cluster.history is None or not await visible_groups(cluster, [group]):
        return []
    found = []
    for measure in (Measure.GROUP_LAG, Measure.GROUP_DELAY, Measure.GROUP_RATE_OUT):
        found += await cluster.history.series(measure, [group], over=over)
    return found


async def _sampled(cluster: Cluster, directory: Directory) -> Mapping[str, GroupFigures]:
    """The latest sample of all groups, by name; empty where nothing is sampled."""
    if cluster.history is None:
        return {}
    figures = cluster.history.group_figures()
    names = figures.keys() & directory.groups.keys()
    if not await sees_all(cluster):
        if len(names) > _MOST_CHECKED:
            return {}
        names = {*await visible_groups(cluster, names)}
    return {name: figures[name] for name in names}


async def _row(
    cluster: Cluster,
    directory: Directory,
    group: KnownGroup,
    *,
    reports: MemberReports | None = None,
) -> tuple[GroupRow, list[Failure]]:
    live, (dead, dead_failures) = await asyncio.gather(
        read_live(cluster, directory, group), dead_letters_of(cluster, directory, group)
    )
    delay = await delay_of(cluster, live)
    ordered = any(each.consume_message_orderly for each in group.configs.values())
    row = GroupRow(
        name=group.name,
        is_system=group.is_system,
        brokers=sorted(group.configs),
        kind=live.kind,
        model=live.model,
        is_ordered=reports.is_ordered if reports else (True if ordered else None),
        is_paused=group.is_paused,
        clients=live.client_count,
        lag=live.lag,
        delay_seconds=delay,
        tps=live.tps,
        retrying=live.retrying,
        dead_letters=dead,
        warnings=warnings_of(group, live, dead, reports),
    )
    failures = {each.server: each for each in (*dead_failures, *live.failures)}
    if reports is not None:
        failures |= {each.server: each for each in reports.failures}
    return row, [*failures.values()]


def _queue(
    queue: MessageQueue, live: LiveGroup, reports: MemberReports, span: QueueTimeSpan | None
) -> GroupQueue:
    at = live.progress.get(queue)
    owner = reports.owners.get(queue)
    silent = None if reports.failures or not live.members_known else ""
    return GroupQueue(
        topic=queue.topic,
        broker=queue.broker_name,
        queue_id=queue.queue_id,
        owner=silent if owner is None else owner.client_id,
        owner_address=silent if owner is None else owner.address,
        end_offset=at.broker_offset if at else live.uncommitted[queue],
        committed_offset=None if at is None else at.consumer_offset,
        lag=None if at is None else lag_in(at),
        in_flight=None if at is None else max(at.pull_offset - at.consumer_offset, 0),
        consumed_ms=at.last_timestamp if at and at.last_timestamp > 0 else None,
        delay_seconds=None if at is None else delay_in(at, span),
        is_retry=is_retry_topic(queue.topic),
    )


def _forbidden_topics(group: KnownGroup) -> set[str]:
    return {topic for names in group.forbidden.values() for topic in names}


def _is_shown(group: KnownGroup, show: GroupFilter, sampled: GroupFigures | None) -> bool:
    if show is GroupFilter.PAUSED:
        return any(not each.consume_enable for each in group.configs.values())
    if show is GroupFilter.DEAD_LETTERS:
        return group.has_dead_letters and (sampled is None or sampled.dead_letters != 0)
    if show is GroupFilter.LAGGING:
        return bool(sampled and sampled.lag)
    if show is GroupFilter.ONLINE:
        return bool(sampled and sampled.members)
    if show is GroupFilter.OFFLINE:
        return bool(sampled and sampled.members == 0)
    return True


def _sampled_value(sampled: GroupFigures | None, sort: str) -> Any:
    if sampled is None:
        return None
    return {
        "lag": sampled.lag,
        "delay": sampled.delay,
        "tps": sampled.rate_out,
        "clients": sampled.members,
        "dead_letters": sampled.dead_letters,
    }[sort]
