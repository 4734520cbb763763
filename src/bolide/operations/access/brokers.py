"""The access control of each broker: which kind it has, and changes at one broker after the other.

Every broker has users or accounts of its own, though all of a cluster should have the same: views
tell where they differ, and changes go to all masters.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple, TypeVar

from bolide.errors import BolideError
from bolide.operations.cluster import Cluster
from bolide.operations.declaration import read
from bolide.operations.errors import NotSupported
from bolide.operations.views import Failure, failure_of
from bolide.protocol.bodies.routes import BrokerRoute
from bolide.protocol.headers.access import WhoAmIReply
from bolide.protocol.refusals import NoPermission, RequestCodeNotSupported

T = TypeVar("T")

SHARED = "access."
"""Shared answers about access control have keys that begin so."""
TURN_ON = (
    "access control is off at these brokers: authenticationEnabled=true and"
    " authorizationEnabled=true in the broker's file turn on users and policies (ACL 2.0)"
)
_FRESH_SECONDS = 5.0
_MAX_CONCURRENT = 16
_MASTER = 0


class AccessKind(StrEnum):
    """How a broker controls access."""

    OFF = "off"
    """Everybody who reaches the port may use it."""
    USERS = "users"
    """ACL 2.0: users and policies; RocketMQ 5.3 and newer."""
    ACCOUNTS = "accounts"
    """ACL 1.0: accounts of plain_acl.yml; RocketMQ 4.9 to 5.2."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerAccess:
    """The access control of one broker."""

    broker: str
    address: str
    cluster: str
    kind: AccessKind | None = None
    """None: the broker does not tell whom it takes us for."""
    decides: bool | None = None
    """Whether policies decide; false: each user may do everything."""
    user: str | None = None
    """Whom the broker takes the console for; None if it does not tell, or knows no users."""
    power: str = ""
    """What that user may do, in words that follow its name; Bolide's brokers tell it."""
    is_super: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessOverview:
    """The access control of the cluster."""

    kind: AccessKind | None = None
    """That of all brokers; None if they differ or do not tell."""
    identity: str | None = None
    """The user or access key that requests to the brokers are signed with."""
    hint: str = ""
    """What to do, if access control is off or differs."""
    brokers: list[BrokerAccess] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class AppliedChange:
    """At which brokers a change was made."""

    brokers: list[str]
    failures: list[Failure] = field(default_factory=list)


class Site(NamedTuple):
    """The master of a broker group."""

    broker: str
    address: str
    cluster: str


@read("/access-control")
async def access_overview(cluster: Cluster) -> AccessOverview:
    """Tell whether and how the brokers control access, and as whom they see the console.

    `hint` says how to turn access control on if it is off.
    """

    async def fetch() -> AccessOverview:
        sites, failures = await masters(cluster)
        found, more = await ask_each(sites, lambda site: _access_of(cluster, site))
        brokers = list(found.values())
        kinds = {each.kind for each in brokers}
        kind = kinds.pop() if len(kinds) == 1 else None
        return AccessOverview(
            kind=kind,
            identity=cluster.identity.access_key,
            hint=_hint(kind, {each.kind for each in brokers}),
            brokers=brokers,
            failures=[*failures, *more],
        )

    return await cluster.shared(f"{SHARED}overview", fetch, seconds=_FRESH_SECONDS)


def _hint(kind: AccessKind | None, kinds: set[AccessKind | None]) -> str:
    if kind is AccessKind.OFF:
        return TURN_ON
    if len(kinds) > 1:
        return "the brokers control access in different ways: give them the same settings"
    return ""


async def require_kind(cluster: Cluster, kind: AccessKind) -> list[Site]:
    """The brokers that control access so.

    Raises:
        NotSupported: none does; the text says how it is turned on.
    """
    overview = await access_overview.function(cluster)
    sites = [
        Site(each.broker, each.address, each.cluster)
        for each in overview.brokers
        # A broker that refuses to tell has access control of a kind that we learn by asking.
        if each.kind in {kind, None}
    ]
    if sites:
        return sites
    if any(each.kind not in {None, AccessKind.OFF} for each in overview.brokers):
        other = "accounts (ACL 1.0)" if kind is AccessKind.USERS else "users and policies (ACL 2.0)"
        raise NotSupported(f"the brokers of this cluster control access by {other}")
    if not overview.brokers and overview.failures:
        failure = overview.failures[0]
        raise NotSupported(
            f"{failure.server} does not tell how it controls access: {failure.reason}"
        )
    raise NotSupported(TURN_ON)


async def masters(cluster: Cluster) -> tuple[list[Site], list[Failure]]:
    """The masters of all broker groups, by name; groups without one are failures."""
    info = await cluster.admin.clusters.info()
    sites: list[Site] = []
    failures: list[Failure] = []
    for name, route in sorted(info.broker_addr_table.items()):
        address = _master_of(route)
        if address is None:
            failures.append(Failure(server=name, reason="it has no master"))
        else:
            sites.append(Site(name, address, route.cluster or ""))
    return sites, failures


def _master_of(route: BrokerRoute) -> str | None:
    return route.broker_addrs.get(_MASTER)


async def ask_each(
    sites: list[Site], ask: Callable[[Site], Awaitable[T]]
) -> tuple[dict[Site, T], list[Failure]]:
    """The answers of all brokers that answer."""
    limit = asyncio.Semaphore(_MAX_CONCURRENT)
    failures: dict[Site, Failure] = {}

    async def one(site: Site) -> tuple[Site, T] | None:
        async with limit:
            try:
                return site, await ask(site)
            except BolideError as error:
                failures[site] = failure_of(site.broker, error)
                return None

    found = await asyncio.gather(*map(one, sites))
    known = dict(each for each in found if each is not None)
    return known, [failures[site] for site in sites if site in failures]


async def apply_to_each(
    cluster: Cluster, sites: list[Site], act: Callable[[str], Awaitable[object]]
) -> AppliedChange:
    """Change one broker after the other.

    Raises:
        BolideError: the first failure, if no broker was changed.
    """
    done: list[str] = []
    failures: list[Failure] = []
    first: BolideError | None = None
    for site in sites:
        try:
            await act(site.address)
        except BolideError as error:
            first = first or error
            failures.append(failure_of(site.broker, error))
        else:
            done.append(site.broker)
    cluster.forget(SHARED)
    if first is not None and not done:
        raise first
    return AppliedChange(brokers=done, failures=failures)


async def _access_of(cluster: Cluster, site: Site) -> BrokerAccess:
    told = await _who_am_i(cluster, site)
    try:
        settings = await cluster.admin.brokers.config(site.address)
    except NoPermission:  # so that access control is on
        settings = {}
    kind = _kind_told(told) or _kind_set(settings)
    return BrokerAccess(
        broker=site.broker,
        address=site.address,
        cluster=site.cluster,
        kind=kind,
        decides=_is_on(settings, "authorizationEnabled") if kind is AccessKind.USERS else None,
        user=None if told is None else told.access_key,
        power="" if told is None else told.power,
        is_super=None if told is None else told.is_super,
    )


async def _who_am_i(cluster: Cluster, site: Site) -> WhoAmIReply | None:
    """None if the broker does not tell: only Bolide's do."""
    try:
        return await cluster.admin.permissions.who_am_i(site.address)
    except RequestCodeNotSupported:
        return None


def _kind_told(told: WhoAmIReply | None) -> AccessKind | None:
    if told is None:
        return None
    kinds = {"none": AccessKind.OFF, "ACL 1.0": AccessKind.ACCOUNTS, "ACL 2.0": AccessKind.USERS}
    return kinds.get(told.access_control)


def _kind_set(settings: Mapping[str, str]) -> AccessKind | None:
    if not settings:
        return None
    if _is_on(settings, "authenticationEnabled"):
        return AccessKind.USERS
    if _is_on(settings, "aclEnable"):
        return AccessKind.ACCOUNTS
    return AccessKind.OFF


def _is_on(settings: Mapping[str, str], key: str) -> bool:
    return settings.get(key, "false").strip().lower() == "true"
