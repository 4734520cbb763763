"""Parked keys: message keys that the ordered consumers of a group have set aside after a failure.

Consumers of Bolide's client park keys, at brokers of any kind: the keys are in an ordinary topic
per group.
"""

from dataclasses import dataclass, field

from bolide.admin.parked import NotParked, ParkedKeySummary
from bolide.admin.servers import gather_by_key
from bolide.errors import BolideError
from bolide.model.names import PARK_PREFIX
from bolide.operations.cluster import Cluster
from bolide.operations.declaration import change, read
from bolide.operations.errors import BadInput, NotFound
from bolide.operations.servers.missing import missing_brokers
from bolide.operations.views import Failure, Page, failure_of, page_of, reason_of


@dataclass(frozen=True, slots=True, kw_only=True)
class ParkingGroup:
    """The parked keys of a group, by number; None if unknown."""

    group: str
    keys: int | None
    messages: int | None
    since_ms: int | None
    """When the key parked longest was parked; None without any, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParkedKey:
    """A parked key."""

    topic: str
    broker: str
    queue: int
    key: str
    """Empty for messages without a key."""
    messages: int
    since_ms: int
    error: str
    """Why its first message failed."""
    is_resuming: bool
    """It was resumed already: its messages are handled as soon as a consumer runs."""
    first_offset: int
    last_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ParkedPlan:
    """The keys that a change would concern."""

    group: str
    keys: int
    messages: int
    first: list[ParkedKey] = field(default_factory=list)
    """The first 50 of them."""


@read("/parked")
async def list_parking_groups(
    cluster: Cluster, *, search: str = "", page: int = 1, size: int = 50
) -> Page[ParkingGroup]:
    """List the groups that have parked a key at some time, and how many are parked now."""
    names = await cluster.shared("topic names", cluster.admin.topics.names, seconds=3)
    groups = sorted(
        name.removeprefix(PARK_PREFIX)
        for name in names
        if name.startswith(PARK_PREFIX) and search.lower() in name.lower()
    )
    cut = page_of(groups, page=page, size=size)
    failures: list[Failure] = await missing_brokers(cluster)

    async def row(group: str) -> ParkingGroup:
        try:
            found = await _keys(cluster, group)
        except BolideError as error:
            failures.append(failure_of(group, error))
            return ParkingGroup(group=group, keys=None, messages=None, since_ms=None)
        return ParkingGroup(
            group=group,
            keys=len(found),
            messages=sum(each.count for each in found),
            since_ms=min((each.since_ms for each in found), default=None),
        )

    rows = await gather_by_key(cut.items, row)
    return Page(
        items=list(rows.values()),
        total=cut.total,
        page=cut.page,
        size=cut.size,
        failures=failures,
    )


@read("/parked/{group}")
async def list_parked_keys(
    cluster: Cluster,
    *,
    group: str,
    topic: str = "",
    search: str = "",
    page: int = 1,
    size: int = 50,
) -> Page[ParkedKey]:
    """List the parked keys of a group; `search` is a part of a key or of its error."""
    wanted = search.lower()
    found = [
        each
        for each in await _keys(cluster, group)
        if topic in {"", each.queue.topic}
        and (wanted in each.key.lower() or wanted in each.error.lower())
    ]
    cut = page_of(found, page=page, size=size)
    items = [_view(each) for each in cut.items]
    return Page(
        items=items,
        total=cut.total,
        page=cut.page,
        size=cut.size,
        failures=await missing_brokers(cluster),
    )


async def plan_parked(
    cluster: Cluster, *, group: str, key: str | None = None, topic: str = "", every: bool = False
) -> ParkedPlan:
    """The parked keys that `resume_parked` or `dead_letter_parked` would concern."""
    _check_choice(key, every)
    found = await cluster.admin.parked.keys(group, topic=topic or None, key=key)
    if not found:
        raise NotFound(reason_of(NotParked(group, key)))
    return ParkedPlan(
        group=group,
        keys=len(found),
        messages=sum(each.count for each in found),
        first=[_view(each) for each in found[:50]],
    )


@change(
    "POST", "/parked/{group}/resume", target="parked keys {key} of {group}", preview=plan_parked
)
async def resume_parked(
    cluster: Cluster, *, group: str, key: str | None = None, topic: str = "", every: bool = False
) -> ParkedPlan:
    """Resume a parked key, or `every` one.

    Its parked messages are handled in order, then later ones. A consumer of the group that is
    online does that. If a message fails again, its key is parked again. An empty `key` is that of
    the messages without a key. Returns the keys as they were.
    """
    return await _decide(cluster, group, key, topic, every=every, dead=False)


@change(
    "POST",
    "/parked/{group}/dead-letter",
    target="parked keys {key} of {group}",
    preview=plan_parked,
)
async def dead_letter_parked(
    cluster: Cluster, *, group: str, key: str | None = None, topic: str = "", every: bool = False
) -> ParkedPlan:
    """Make dead letters of the parked messages of a key, or of `every` one.

    A consumer of the group that is online does that, and handles later messages of the key as
    usual. Returns the keys as they were.
    """
    return await _decide(cluster, group, key, topic, every=every, dead=True)


async def _decide(
    cluster: Cluster, group: str, key: str | None, topic: str, *, every: bool, dead: bool
) -> ParkedPlan:
    _check_choice(key, every)
    parked = cluster.admin.parked
    act = parked.dead_letter if dead else parked.resume
    try:
        found = await act(group, topic=topic or None, key=key)
    except NotParked as error:
        raise NotFound(reason_of(error)) from error
    return ParkedPlan(
        group=group,
        keys=len(found),
        messages=sum(each.count for each in found),
        first=[_view(each) for each in found[:50]],
    )


async def _keys(cluster: Cluster, group: str) -> list[ParkedKeySummary]:
    return await cluster.shared(
        f"parked {group}", lambda: cluster.admin.parked.keys(group), seconds=3
    )


def _check_choice(key: str | None, every: bool) -> None:
    if (key is None) != every:
        raise BadInput("key", "give either a key or every=true")


def _view(each: ParkedKeySummary) -> ParkedKey:
    return ParkedKey(
        topic=each.queue.topic,
        broker=each.queue.broker_name,
        queue=each.queue.queue_id,
        key=each.key,
        messages=each.count,
        since_ms=each.since_ms,
        error=each.error,
        is_resuming=each.is_resuming,
        first_offset=each.first_offset,
        last_offset=each.last_offset,
    )
