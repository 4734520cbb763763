"""The whole cluster at a glance: rates, backlog, dead letters, disks, and how they went lately."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from bolide.operations.cluster import Cluster
from bolide.operations.declaration import read
from bolide.operations.errors import BadInput, NotSupported
from bolide.operations.history import (
    BrokerFigures,
    History,
    Measure,
    Range,
    Series,
    ask_brokers,
    sum_of_known,
)
from bolide.operations.views import Failure
from bolide.operations.visibility import (
    first_visible_groups,
    first_visible_topics,
    sees_brokers,
    visible_groups,
    visible_topics,
)

MAX_TOP = 50
MAX_SERIES = 50
_OF_TOPICS = frozenset({Measure.TOPIC_RATE_IN})
_OF_GROUPS = frozenset({
    Measure.GROUP_RATE_OUT, Measure.GROUP_LAG, Measure.GROUP_DELAY, Measure.GROUP_DEAD_LETTERS,
})  # fmt: skip
_OF_BROKERS = frozenset({Measure.RATE_IN, Measure.RATE_OUT, Measure.DISK, Measure.CLIENTS})
_SHARED = 1.0
_ASKED_FOR = 3.0
_NO_HISTORY = "nothing samples this cluster: a console does while it runs, ask its HTTP API"


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerLoad:
    """What one broker does now."""

    name: str
    broker_id: int
    """0 for a master."""
    address: str
    cluster: str
    is_up: bool | None
    """None if it was not asked yet."""
    reason: str
    """Why it is not up, or why it tells nothing."""
    series: str
    """The name of its series."""
    rate_in: float | None
    """Messages stored per second, without those of system topics; None for slaves."""
    rate_out: float | None
    """Messages delivered per second, to all groups, over the last seconds."""
    disk: float | None
    """Part of its fullest disk that is in use, 0 to 1."""
    clients: int | None
    """Connected producers and consumers; None for slaves."""
    version: str
    sampled_ms: int
    """When it answered last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    """Figures of now; sums are without the servers in `failures`."""

    brokers: list[BrokerLoad]
    """All that are known, also those that are down."""
    brokers_up: int
    rate_in: float | None
    rate_out: float | None
    backlog: int | None
    """Messages that groups have not consumed, over all groups whose lag is known."""
    backlog_unknown: int
    """Groups whose lag is unknown."""
    dead_letters: int | None
    dead_letters_unknown: int
    """Groups whose dead letters are unknown."""
    disk: float | None
    """Of the fullest disk of all brokers, 0 to 1."""
    disk_broker: str
    """Which broker has that disk."""
    clients: int | None
    """Distinct clients of all masters."""
    topics: int | None
    """Without those of the system; None until all were listed once."""
    groups: int | None
    failures: list[Failure] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class BusyTopic:
    """A topic with many messages per second."""

    topic: str
    rate_in: float | None
    messages: int | None
    """Stored now."""
    last_write_ms: int | None
    sampled_ms: int
    trend: list[float | None]
    """Messages per second over the last hour, oldest first; None is a gap."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaggingGroup:
    """A group with many messages to consume."""

    group: str
    lag: int | None
    delay: float | None
    """Age in seconds of the oldest message that it has not consumed."""
    rate_out: float | None
    """Messages delivered to it per second, over the last minute; brokers tell of some seconds."""
    members: int | None
    """Connected consumers."""
    dead_letters: int | None
    sampled_ms: int
    trend: list[float | None]
    """Lag over the last hour, oldest first; None is a gap."""


@read("/overview")
async def overview(cluster: Cluster) -> Overview:
    """Rates, backlog, dead letters, disks and clients of the whole cluster, now.

    Brokers are asked every two seconds, topics and groups in turn: in a cluster of thousands, their
    part of the figures is minutes old. What is not known is null, and `failures` says why. Without
    a console that samples the cluster, only the brokers are asked, and the rest is not known.
    """
    # Open pages ask every two seconds, and adding up thousands of groups takes milliseconds.
    return await cluster.shared("dashboard overview", lambda: _now(cluster), seconds=_SHARED)


@read("/overview/series")
async def series(
    cluster: Cluster,
    *,
    measure: Measure,
    names: list[str] | None = None,
    over: Range = Range.HOUR,
) -> list[Series]:
    """How figures went over time, up to seven days back: one series per name.

    Without names it is the series of the whole cluster: `rate_in`, `rate_out`, `clients`,
    `backlog` and `dead_letters` have one. `rate_in`, `rate_out`, `disk` and `clients` have one for
    each broker, by the field `series` of the overview. The other measures are of topics or groups,
    by their names. A point is null where nothing was sampled. Names that you may not see are left
    out.
    """
    history = _require_history(cluster)
    wanted = list(dict.fromkeys(names or [""]))
    if len(wanted) > MAX_SERIES:
        raise BadInput("names", f"at most {MAX_SERIES} in one request")
    if measure in _OF_TOPICS:
        wanted = await visible_topics(cluster, _named(measure, wanted, "topics"))
    elif measure in _OF_GROUPS:
        wanted = await visible_groups(cluster, _named(measure, wanted, "groups"))
    else:
        if wanted != [""] and measure not in _OF_BROKERS:
            raise BadInput("names", f"{measure.value} has only the series of the whole cluster")
        if wanted == [""] and measure is Measure.DISK:
            raise BadInput("names", "name the brokers: the disks of a cluster have no sum")
        if not await sees_brokers(cluster):
            return []
    return await history.series(measure, wanted, over=over)


@read("/overview/topics")
async def busy_topics(cluster: Cluster, *, count: int = 10) -> list[BusyTopic]:
    """The topics into which most messages come per second, those that you may see.

    Topics of the system, retries and dead letters are left out, and topics into which nothing comes
    or whose rate is unknown.
    """
    history = _require_history(cluster)
    figures = history.topic_figures()
    known = {
        topic: (found.rate_in, found.last_write_ms or 0)
        for topic, found in figures.items()
        if found.rate_in and history.is_of_users(topic)
    }
    order = sorted(known, key=lambda topic: (*known[topic], topic), reverse=True)
    topics = await first_visible_topics(cluster, order, _checked(count))
    trends = await _trends(history, Measure.TOPIC_RATE_IN, topics)
    return [
        BusyTopic(
            topic=topic,
            rate_in=figures[topic].rate_in,
            messages=figures[topic].messages,
            last_write_ms=figures[topic].last_write_ms,
            sampled_ms=int(figures[topic].sampled * 1000),
            trend=trend,
        )
        for topic, trend in zip(topics, trends, strict=True)
    ]


@read("/overview/groups")
async def lagging_groups(cluster: Cluster, *, count: int = 10) -> list[LaggingGroup]:
    """The groups that have most messages to consume, those that you may see.

    Groups without lag, and those whose lag is unknown, are left out.
    """
    history = _require_history(cluster)
    figures = history.group_figures()
    lags = {group: found.lag for group, found in figures.items() if found.lag}
    order = sorted(lags, key=lambda group: (-lags[group], group))
    groups = await first_visible_groups(cluster, order, _checked(count))
    trends = await _trends(history, Measure.GROUP_LAG, groups)
    return [
        LaggingGroup(
            group=group,
            lag=figures[group].lag,
            delay=figures[group].delay,
            rate_out=figures[group].rate_out,
            members=figures[group].members,
            dead_letters=figures[group].dead_letters,
            sampled_ms=int(figures[group].sampled * 1000),
            trend=trend,
        )
        for group, trend in zip(groups, trends, strict=True)
    ]


async def _now(cluster: Cluster) -> Overview:
    if not await sees_brokers(cluster):
        refused = "your user needs the action Get on the cluster to see figures of all of it"
        return _overview([], _Sums(), [Failure(server=cluster.name_servers, reason=refused)])
    history = cluster.history
    if history is None:
        brokers, failures = await cluster.shared(
            "dashboard brokers", lambda: ask_brokers(cluster.admin), seconds=_ASKED_FOR
        )
        return _overview(brokers, _Sums(), failures)
    return _overview(history.broker_figures(), _sums(history), history.failures())


def _require_history(cluster: Cluster) -> History:
    if cluster.history is None:
        raise NotSupported(_NO_HISTORY)
    return cluster.history


def _checked(count: int) -> int:
    if not 1 <= count <= MAX_TOP:
        raise BadInput("count", f"must be 1 to {MAX_TOP}")
    return count


def _named(measure: Measure, names: Sequence[str], what: str) -> Sequence[str]:
    if names == [""]:
        raise BadInput("names", f"{measure.value} needs the names of {what}")
    return names


async def _trends(
    history: History, measure: Measure, names: Sequence[str]
) -> list[list[float | None]]:
    found = await history.series(measure, names, over=Range.HOUR) if names else []
    return [[point.value for point in each.points] for each in found]


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sums:
    """What the history knows of all topics and groups."""

    backlog: int | None = None
    backlog_unknown: int = 0
    dead_letters: int | None = None
    dead_letters_unknown: int = 0
    clients: int | None = None
    topics: int | None = None
    groups: int | None = None


def _sums(history: History) -> _Sums:
    backlog, dead_letters = history.backlog(), history.dead_letters()
    if not history.is_sampled:
        return _Sums(clients=history.clients())
    return _Sums(
        backlog=_whole(backlog.known),
        backlog_unknown=backlog.unknown,
        dead_letters=_whole(dead_letters.known),
        dead_letters_unknown=dead_letters.unknown,
        clients=history.clients(),
        topics=history.topic_count(),
        groups=history.group_count(),
    )


def _overview(
    brokers: Sequence[BrokerFigures], sums: _Sums, failures: Iterable[Failure]
) -> Overview:
    disks = [(each.disk, each.key) for each in brokers if each.disk is not None]
    disk, disk_broker = max(disks, default=(None, ""))
    masters = [each for each in brokers if each.broker_id == 0]
    return Overview(
        brokers=[_load(each) for each in brokers],
        brokers_up=sum(each.is_up is True for each in brokers),
        rate_in=sum_of_known(each.rate_in for each in masters),
        rate_out=sum_of_known(each.rate_out for each in brokers),
        backlog=sums.backlog,
        backlog_unknown=sums.backlog_unknown,
        dead_letters=sums.dead_letters,
        dead_letters_unknown=sums.dead_letters_unknown,
        disk=disk,
        disk_broker=disk_broker,
        clients=sums.clients,
        topics=sums.topics,
        groups=sums.groups,
        failures=[*failures],
    )


def _load(broker: BrokerFigures) -> BrokerLoad:
    return BrokerLoad(
        name=broker.name,
        broker_id=broker.broker_id,
        address=broker.address,
        cluster=broker.cluster,
        is_up=broker.is_up,
        reason=broker.reason,
        series=broker.key,
        rate_in=broker.rate_in,
        rate_out=broker.rate_out,
        disk=broker.disk,
        clients=broker.clients,
        version=broker.version,
        sampled_ms=int(broker.sampled * 1000),
    )
