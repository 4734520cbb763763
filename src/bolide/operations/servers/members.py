"""The brokers of a cluster: what they are, whether they answer, how busy and how full they are.

A broker that stops in order unregisters, so that NameServers no longer speak of it. This module
remembers the brokers that this process has seen, and lists those that are missing as stopped.
"""

import asyncio
import re
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import StrEnum

from bolide.admin.servers import MASTER, gather_by_key
from bolide.errors import BolideError
from bolide.model.names import WRITE
from bolide.operations.cluster import Cluster
from bolide.operations.declaration import change, read
from bolide.operations.errors import Conflict, NotFound
from bolide.operations.views import Failure, failure_of, reason_of
from bolide.protocol.bodies.routes import BrokerRoute, ClusterInfo
from bolide.remoting.errors import RemotingError

_FRESH = 2.0
_PATIENCE, _SHORT_PATIENCE = 3.0, 0.7
"""Seconds to wait for a broker, and for one that did not answer the last time."""
_WATCHED = 20.0
_REMEMBERED_MS = 24 * 3600 * 1000
_MAX_REMEMBERED = 1000
_SIZE = re.compile(r"([\d.]+) ?([KMGTPE]?)i?B")
_POWERS = {unit: power for power, unit in enumerate(" KMGTPE")}


class MemberState(StrEnum):
    """Whether a broker is there."""

    UP = "up"
    SILENT = "silent"
    """It is registered, and does not answer."""
    STOPPED = "stopped"
    """It was there since this process began, and is no longer registered."""


class MemberRole(StrEnum):
    """What a broker is in its group."""

    MASTER = "master"
    SLAVE = "slave"
    ACTING_MASTER = "acting master"
    """A slave that delivers, and takes nothing, while its group has no master."""


class Product(StrEnum):
    """Whose software a server is."""

    BOLIDE = "Bolide"
    ROCKETMQ = "RocketMQ"


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerMember:
    """One broker. Of a broker that does not answer, the figures are unknown."""

    cluster: str
    name: str
    """Of its group; a master and its slaves share it."""
    id: int
    """0 is the master of the group."""
    address: str
    role: MemberRole
    state: MemberState
    reason: str = ""
    """Why it does not answer, or what it refused to tell."""
    last_seen_ms: int | None = None
    """When it last answered this process, in milliseconds since 1970."""
    product: Product | None = None
    version: str | None = None
    """Of its product, such as 0.1.0 or V5_5_0."""
    protocol_version: str | None = None
    """The version of RocketMQ that it is, or speaks as."""
    up_since_ms: int | None = None
    """Milliseconds since 1970."""
    in_rate: float | None = None
    """Messages per second from producers, over the last 10 seconds."""
    out_rate: float | None = None
    """Messages per second to consumers, over the last 10 seconds."""
    in_today: int | None = None
    out_today: int | None = None
    disk_used: float | None = None
    """Share of the fullest of its disks, 0 to 1."""
    disk_total: int | None = None
    """Bytes."""
    disk_free: int | None = None
    log_end: int | None = None
    """Bytes that its log has ever had."""
    lag: int | None = None
    """Bytes of the log of its master that a slave lacks; None for masters."""
    replicas: int | None = None
    """Slaves that are connected to it, for masters with slaves."""
    takes_messages: bool | None = None
    """Whether routes send producers to it; False while it is drained. None for slaves."""
    oldest_message_ms: int | None = None
    """Milliseconds since 1970."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Members:
    """All brokers, by cluster, name and id; those that are gone at their places."""

    brokers: list[BrokerMember]
    clusters: list[str]
    failures: list[Failure] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingRequests:
    """Requests of one kind that wait in a broker."""

    kind: str
    count: int
    oldest: float
    """Seconds that the oldest one has waited."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerDetail:
    """A broker with everything that it tells of itself."""

    member: BrokerMember
    siblings: list[BrokerMember]
    """The other brokers of its group."""
    waiting: list[WaitingRequests] = field(default_factory=list)
    unflushed: str | None = None
    """How much of its log is not on the disk yet, as it says it."""
    undispatched: int | None = None
    """Bytes of its log that are not in the queues yet."""
    in_rates: list[float] | None = None
    """Over 10, 60 and 600 seconds."""
    out_rates: list[float] | None = None
    log_begin: int | None = None
    figures: dict[str, str] = field(default_factory=dict)
    """All its runtime figures under RocketMQ's names, as texts."""


@read("/cluster/brokers")
async def list_brokers(cluster: Cluster) -> Members:
    """List all brokers with their state, load and disk.

    A broker that is registered and does not answer is `silent`; one that has answered this process
    and is no longer registered is `stopped`, for a day. Rates are those of the last 10 seconds.
    Brokers of RocketMQ count rates after their first minute.
    """
    return await members_of(cluster)


@read("/cluster/brokers/{broker_name}/{broker_id}")
async def show_broker(cluster: Cluster, *, broker_name: str, broker_id: int) -> BrokerDetail:
    """Show one broker with all its runtime figures.

    Raises NotFound if no broker of that name and id is registered, or was seen.
    """
    members = (await members_of(cluster)).brokers
    group = [each for each in members if each.name == broker_name]
    found = [each for each in group if each.id == broker_id]
    if not found:
        known = ", ".join(f"{each.name} {each.id}" for each in group or members) or "none"
        raise NotFound(f"there is no broker {broker_name} with id {broker_id}; known are {known}")
    member = min(found, key=lambda each: each.state is MemberState.STOPPED)
    siblings = [each for each in group if each is not member]
    if member.state is not MemberState.UP:
        return BrokerDetail(member=member, siblings=siblings)
    try:
        figures = await cluster.admin.brokers.runtime(member.address)
    except BolideError as error:
        return BrokerDetail(member=replace(member, reason=reason_of(error)), siblings=siblings)
    return BrokerDetail(
        member=member,
        siblings=siblings,
        waiting=_waiting(figures),
        unflushed=figures.get("remainHowManyDataToFlush"),
        undispatched=_whole(figures.get("dispatchBehindBytes")),
        in_rates=_rates(figures, "putTps"),
        out_rates=_rates(figures, "getTransferredTps", "getTransferedTps"),
        log_begin=_whole(figures.get("commitLogMinOffset")),
        figures=dict(sorted(figures.items())),
    )


@change("DELETE", "/cluster/stopped/{address}", target="broker {address}")
async def forget_stopped(cluster: Cluster, *, address: str) -> BrokerMember:
    """Take a stopped broker off the list: it will not come back.

    Nothing is changed in the cluster. Raises NotFound if no stopped broker has that address, and
    Conflict if it is registered.
    """
    members = (await members_of(cluster)).brokers
    found = next((each for each in members if each.address == address), None)
    if found is None:
        raise NotFound(f"no broker with the address {address} was seen")
    if found.state is not MemberState.STOPPED:
        raise Conflict(f"{found.name} at {address} is registered: it would be listed again")
    _seen_by(cluster).pop((found.name, address), None)
    if cluster.history is not None:
        cluster.history.forget_broker(address)
    cluster.forget("missing brokers")
    return found


async def members_of(cluster: Cluster) -> Members:
    """The brokers as they were at most two seconds ago."""
    return await cluster.shared("cluster/members", lambda: _members(cluster), seconds=_FRESH)


async def watch_members(cluster: Cluster) -> None:
    """See who is there now and then until cancelled, so that who leaves is known to have been."""
    while True:
        with suppress(BolideError):  # no NameServer answers: nobody is seen
            await members_of(cluster)
        await asyncio.sleep(_WATCHED)


# ---- what was seen


def seen_brokers(cluster: Cluster) -> list[tuple[str, str]]:
    """Name and address of the brokers that this process has seen in the last day."""
    return [*_seen_by(cluster)]


_Seen = dict[tuple[str, str], BrokerMember]
"""By name and address."""

_seen: dict[str, _Seen] = {}
"""By NameServers: whoever asks, the brokers are the same."""


_silent: set[str] = set()
"""Addresses of brokers that did not answer the last time."""


def _seen_by(cluster: Cluster) -> _Seen:
    return _seen.setdefault(cluster.name_servers, {})


def _stopped(seen: _Seen, present: Iterable[BrokerMember], now_ms: int) -> list[BrokerMember]:
    """Remember who is present, and return who no longer is."""
    here = {(each.name, each.address): each for each in present}
    for key, each in here.items():
        if each.state is MemberState.UP:
            seen[key] = each
    for key in [
        key for key, each in seen.items() if now_ms - (each.last_seen_ms or 0) > _REMEMBERED_MS
    ]:
        del seen[key]
    while len(seen) > _MAX_REMEMBERED:
        del seen[next(iter(seen))]
    # An elected master is registered as 0, and with its own id as a slave: the address tells.
    return [
        BrokerMember(
            cluster=each.cluster,
            name=each.name,
            id=each.id,
            address=each.address,
            role=each.role,
            state=MemberState.STOPPED,
            last_seen_ms=each.last_seen_ms,
            product=each.product,
            version=each.version,
            protocol_version=each.protocol_version,
        )
        for key, each in seen.items()
        if key not in here
    ]


# ---- collecting


async def _members(cluster: Cluster, now: Callable[[], float] = time.time) -> Members:
    info = await cluster.admin.clusters.info()
    places = list(_places(info))
    failures: list[Failure] = []

    async def ask(place: BrokerMember) -> BrokerMember:
        seconds = _SHORT_PATIENCE if place.address in _silent else _PATIENCE
        try:
            async with asyncio.timeout(seconds):
                figures = await cluster.admin.brokers.runtime(place.address)
        except (RemotingError, TimeoutError) as error:
            _silent.add(place.address)
            is_late = isinstance(error, TimeoutError)
            reason = f"no answer within {seconds:g} s" if is_late else reason_of(error)
            failures.append(Failure(server=place.address, reason=reason))
            known = _seen_by(cluster).get((place.name, place.address))
            last_seen_ms = known.last_seen_ms if known else None
            return replace(
                place, state=MemberState.SILENT, reason=reason, last_seen_ms=last_seen_ms
            )
        except BolideError as error:  # it answers, and refuses
            _silent.discard(place.address)
            failures.append(failure_of(place.address, error))
            return replace(place, reason=reason_of(error), last_seen_ms=int(now() * 1000))
        _silent.discard(place.address)
        return replace(_with_figures(place, figures), last_seen_ms=int(now() * 1000))

    answers = await gather_by_key(places, ask)
    present = _with_lags([*answers.values()])
    present = await _with_permissions(cluster, present)
    present = await _with_replicas(cluster, present)
    gone = _stopped(_seen_by(cluster), present, int(now() * 1000))
    return Members(
        brokers=sorted([*present, *gone], key=lambda each: (each.cluster, each.name, each.id)),
        clusters=sorted({*info.cluster_addr_table, *(each.cluster for each in gone)}),
        failures=failures,
    )


def _places(info: ClusterInfo) -> Iterable[BrokerMember]:
    for name, route in info.broker_addr_table.items():
        for broker_id, address in route.broker_addrs.items():
            yield BrokerMember(
                cluster=route.cluster or _cluster_of(name, info),
                name=name,
                id=broker_id,
                address=address,
                role=_role(route, broker_id),
                state=MemberState.UP,
            )


def _cluster_of(name: str, info: ClusterInfo) -> str:
    return next((key for key, names in info.cluster_addr_table.items() if name in names), "")


def _role(route: BrokerRoute, broker_id: int) -> MemberRole:
    if broker_id == MASTER:
        return MemberRole.MASTER
    acts = route.enable_acting_master and MASTER not in route.broker_addrs
    is_first = broker_id == min(route.broker_addrs)
    return MemberRole.ACTING_MASTER if acts and is_first else MemberRole.SLAVE


def _with_figures(place: BrokerMember, figures: Mapping[str, str]) -> BrokerMember:
    own = figures.get("bolideVersion")
    announced = figures.get("brokerVersionDesc")
    total, free = _capacity(figures.get("commitLogDirCapacity", ""))
    return replace(
        place,
        product=Product.BOLIDE if own else Product.ROCKETMQ,
        version=own or announced,
        protocol_version=announced,
        up_since_ms=_moment(figures.get("bootTimestamp")),
        in_rate=_first(_rates(figures, "putTps")),
        out_rate=_first(_rates(figures, "getTransferredTps", "getTransferedTps")),
        in_today=_today(figures, "Put"),
        out_today=_today(figures, "Get"),
        disk_used=_disk_used(figures),
        disk_total=total,
        disk_free=free,
        log_end=_whole(figures.get("commitLogMaxOffset")),
        oldest_message_ms=_moment(figures.get("earliestMessageTimeStamp")),
    )


def _with_lags(members: list[BrokerMember]) -> list[BrokerMember]:
    ends = {each.name: each.log_end for each in members if each.id == MASTER}

    def lag(member: BrokerMember) -> int | None:
        end = ends.get(member.name)
        if member.id == MASTER or end is None or member.log_end is None:
            return None
        return max(end - member.log_end, 0)  # they were asked at slightly different moments

    return [replace(each, lag=lag(each)) for each in members]


async def _with_permissions(cluster: Cluster, members: list[BrokerMember]) -> list[BrokerMember]:
    """Whether routes send producers to each master.

    Every broker registers a topic of its own name, whose permission changes with all others when
    the write permission is taken from the broker.
    """

    async def ask(name: str) -> bool | None:
        try:
            route = await cluster.admin.topics.route(name)
        except BolideError:  # not every broker has the topic
            return None
        own = [each for each in route.queue_datas if each.broker_name == name]
        return bool(own[0].perm & WRITE) if own else None

    masters = {each.name for each in members if each.id == MASTER}
    takes = await gather_by_key(sorted(masters), ask)
    return [
        replace(each, takes_messages=takes[each.name]) if each.id == MASTER else each
        for each in members
    ]


async def _with_replicas(cluster: Cluster, members: list[BrokerMember]) -> list[BrokerMember]:
    led = {each.name for each in members if each.id != MASTER}

    async def count(member: BrokerMember) -> int | None:
        try:
            status = await cluster.admin.brokers.ha_status(member.address)
        except BolideError:  # RocketMQ before 5.0 does not tell
            return None
        return len(status.ha_connection_info)

    asked = [
        each
        for each in members
        if each.id == MASTER and each.name in led and each.state is MemberState.UP
    ]
    counts = await gather_by_key(asked, count)
    return [replace(each, replicas=counts.get(each)) for each in members]


# ---- figures


def _first(rates: list[float] | None) -> float | None:
    return rates[0] if rates else None


def _rates(figures: Mapping[str, str], *keys: str) -> list[float] | None:
    """Rates over 10, 60 and 600 seconds; RocketMQ 4.9 misspells a key."""
    for key in keys:
        try:
            found = [float(word) for word in figures[key].split()]
        except (KeyError, ValueError):
            continue
        if found:
            return found
    return None


def _whole(text: str | None) -> int | None:
    try:
        return int(text) if text is not None else None
    except ValueError:
        return None


def _moment(text: str | None) -> int | None:
    """Milliseconds since 1970; brokers say 0 or less, or the largest number, for none."""
    found = _whole(text)
    return found if found is not None and 0 < found < 2**53 else None


def _today(figures: Mapping[str, str], kind: str) -> int | None:
    now = _whole(figures.get(f"msg{kind}TotalTodayNow"))
    morning = _whole(figures.get(f"msg{kind}TotalTodayMorning"))
    return None if now is None or morning is None else max(now - morning, 0)


def _disk_used(figures: Mapping[str, str]) -> float | None:
    found = []
    for key in ("commitLogDiskRatio", "consumeQueueDiskRatio"):
        try:
            found.append(float(figures[key]))
        except (KeyError, ValueError):
            continue
    known = [each for each in found if each >= 0]
    return max(known) if known else None


def _capacity(text: str) -> tuple[int | None, int | None]:
    """Bytes in all and free, of `Total : 93.6 GiB, Free : 3.2 GiB.`"""
    sizes = [int(float(n) * 1024 ** _POWERS[unit or " "]) for n, unit in _SIZE.findall(text)]
    return (sizes[0], sizes[1]) if len(sizes) > 1 else (None, None)


def _waiting(figures: Mapping[str, str]) -> list[WaitingRequests]:
    found = []
    for key, text in sorted(figures.items()):
        kind, end, rest = key.partition("ThreadPoolQueueSize")
        count = _whole(text)
        if not end or rest or count is None:
            continue
        oldest = _whole(figures.get(f"{kind}ThreadPoolQueueHeadWaitTimeMills")) or 0
        found.append(WaitingRequests(kind=kind, count=count, oldest=oldest / 1000))
    return found
