"""The health of a cluster: what was checked, what is wrong, and what mends it; NameServers;
versions."""

import platform
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from bolide.admin.servers import gather_by_key
from bolide.doctor import Finding, Report, examine
from bolide.doctor.findings import KINDS, in_order
from bolide.errors import BolideError
from bolide.operations.cluster import Cluster
from bolide.operations.declaration import read
from bolide.operations.servers.members import MemberState, Product, members_of
from bolide.operations.servers.replication import ControllerMember, list_controllers
from bolide.operations.views import Failure, failure_of, now_ms, reason_of
from bolide.version import ROCKETMQ_VERSION_NAME, __version__, version_name

_FRESH = 30.0
_QUICK = 5.0
_SHOWN_NAMES = 20
_SILENT_IF_FINE = {
    "broker-registered", "broker-identity", "broker-address-loopback", "broker-permission",
    "settings", "pending-settings", "ha-port", "spark",
}  # fmt: skip
"""Checks that find nothing if all is in order; the others say so if there is something to check."""


class CheckState(StrEnum):
    """Worst first."""

    ERROR = "error"
    WARNING = "warning"
    UNKNOWN = "unknown"
    """It could not be checked."""
    NOTE = "note"
    OK = "ok"
    NOT_CHECKED = "not checked"
    """There is nothing to check: the cluster has no such part."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckFinding:
    """What one check found at one place."""

    check: str
    state: CheckState
    where: str
    """The server, topic or group."""
    what: str
    """What was seen."""
    why: str = ""
    """Why it matters; empty if nothing is wrong."""
    advice: str = ""
    """A command that mends it, or that shows more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One line of the checklist."""

    id: str
    """It does not change between versions."""
    title: str
    """What is in order if nothing is found."""
    state: CheckState
    """The worst of its findings."""
    findings: list[CheckFinding]


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """The whole checklist, worst first."""

    state: CheckState
    """The worst of all."""
    counts: dict[str, int]
    """Findings by state."""
    checks: list[Check]
    examined_ms: int
    """Milliseconds since 1970."""
    seconds: float
    """How long it took."""
    is_reachable: bool
    """Whether a NameServer answered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NameServerState:
    """One NameServer, and what it knows otherwise than the others."""

    address: str
    answers: bool
    seconds: float | None = None
    """How long its answer took."""
    reason: str = ""
    brokers: int | None = None
    topics: int | None = None
    lacks_brokers: list[str] = field(default_factory=list)
    """Brokers that another one knows, as name, id and address."""
    lacks_topics: list[str] = field(default_factory=list)
    """At most 20."""
    lacked_topics: int = 0
    product: Product | None = None
    protocol_version: str | None = None
    agrees: bool | None = None
    """Whether it knows everything that the others know; None if it does not answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NameServerList:
    name_servers: list[NameServerState]
    agree: bool | None
    """Whether all that answer know the same; None if fewer than two answer."""
    failures: list[Failure] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerVersion:
    """The version of one server."""

    kind: str
    """broker, namesrv, controller, or console."""
    name: str
    address: str
    product: Product | None
    """None if it does not answer."""
    version: str | None
    """Of the product, if it tells it."""
    protocol_version: str | None
    """The version of RocketMQ that it is, or speaks as."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Versions:
    servers: list[ServerVersion]
    is_mixed: bool
    """Whether the brokers differ, as during an upgrade."""
    python: str
    """Of this process."""
    failures: list[Failure] = field(default_factory=list)


@read("/health")
async def show_health(cluster: Cluster, *, again: bool = False) -> Health:
    """Examine the cluster: NameServers, brokers, replicas, topics, groups, settings, and the
    machine of this process.

    Nothing is changed. An examination takes some seconds; its result is kept for 30 s, unless
    `again` is set. Each check has a state, and each finding says where, what was seen, why it
    matters and what mends it. What was checked and is in order is listed as `ok`.
    """
    if again:
        cluster.forget("health/examined")
    return await cluster.shared("health/examined", lambda: _examine(cluster), seconds=_FRESH)


@read("/nameservers")
async def list_name_servers(cluster: Cluster) -> NameServerList:
    """List the NameServers: whether each answers, and whether all know the same.

    NameServers do not talk to each other: which brokers and topics a client finds depends on the
    one that it asks. Right after a change differences are a matter of seconds.
    """
    return await cluster.shared(
        "health/nameservers", lambda: _name_servers(cluster), seconds=_QUICK
    )


@read("/versions")
async def list_versions(cluster: Cluster) -> Versions:
    """List the versions of all servers and of this process."""
    return await cluster.shared("health/versions", lambda: _versions(cluster), seconds=_QUICK)


# ---- the checklist


async def _examine(cluster: Cluster) -> Health:
    return checklist(await examine(cluster.admin), now_ms())


def checklist(report: Report, examined_ms: int) -> Health:
    """One line for each kind of check, worst first."""
    by_kind: dict[str, list[Finding]] = {}
    for each in report.findings:
        by_kind.setdefault(each.id, []).append(each)
    fine = _SILENT_IF_FINE if report.is_reachable else {"spark"}
    if "replicas-in-sync" in by_kind:  # only a leader tells of replicas
        fine = fine | {"controller-reachable"}
    checks = [
        _check(kind, title, by_kind.get(kind, []), kind in fine) for kind, title in KINDS.items()
    ]
    order = list(CheckState)
    checks.sort(key=lambda each: order.index(each.state))
    return Health(
        state=checks[0].state,
        counts={str(severity): count for severity, count in report.counts.items()},
        checks=checks,
        examined_ms=examined_ms,
        seconds=report.seconds,
        is_reachable=report.is_reachable,
    )


def _check(kind: str, title: str, found: Sequence[Finding], is_fine: bool) -> Check:
    findings = [
        CheckFinding(
            check=kind,
            state=CheckState(each.severity),
            where=each.subject,
            what=each.measured,
            why=each.why,
            advice=each.command,
        )
        for each in in_order(found)
    ]
    nothing = CheckState.OK if is_fine else CheckState.NOT_CHECKED
    state = findings[0].state if findings else nothing
    return Check(id=kind, title=title, state=state, findings=findings)


# ---- NameServers


async def _name_servers(cluster: Cluster) -> NameServerList:
    servers = cluster.admin.name_servers
    brokers: dict[str, set[str]] = {}
    topics: dict[str, set[str]] = {}
    failures: list[Failure] = []

    async def ask(address: str) -> NameServerState:
        begun = time.monotonic()
        try:
            info = await servers.cluster_info_at(address)
        except BolideError as error:
            failures.append(failure_of(address, error))
            return NameServerState(address=address, answers=False, reason=reason_of(error))
        took = time.monotonic() - begun
        brokers[address] = {
            f"{name} {broker_id} {at}"
            for name, route in info.broker_addr_table.items()
            for broker_id, at in route.broker_addrs.items()
        }
        try:
            topics[address] = set(await servers.topics_at(address))
        except BolideError as error:
            failures.append(failure_of(address, error))
        product = version = None
        try:
            peer = await servers.peer(address)
        except BolideError:  # settings may be for administrators only
            pass
        else:
            product = Product.BOLIDE if peer.is_ours else Product.ROCKETMQ
            version = version_name(peer.version)
        return NameServerState(
            address=address,
            answers=True,
            seconds=round(took, 6),
            product=product,
            protocol_version=version,
        )

    states = await gather_by_key(servers.require_addresses(), ask)
    all_brokers = set[str]().union(*brokers.values())
    all_topics = set[str]().union(*topics.values())
    found = [
        _compared(state, brokers.get(at), topics.get(at), all_brokers, all_topics)
        for at, state in states.items()
    ]
    answering = [each for each in found if each.answers]
    agree = all(each.agrees for each in answering) if len(answering) > 1 else None
    return NameServerList(name_servers=found, agree=agree, failures=failures)


def _compared(
    state: NameServerState,
    brokers: set[str] | None,
    topics: set[str] | None,
    all_brokers: set[str],
    all_topics: set[str],
) -> NameServerState:
    lacks_topics = sorted(all_topics - topics) if topics is not None else []
    lacks_brokers = sorted(all_brokers - brokers) if brokers is not None else []
    return NameServerState(
        address=state.address,
        answers=state.answers,
        seconds=state.seconds,
        reason=state.reason,
        brokers=len(brokers) if brokers is not None else None,
        topics=len(topics) if topics is not None else None,
        lacks_brokers=lacks_brokers,
        lacks_topics=lacks_topics[:_SHOWN_NAMES],
        lacked_topics=len(lacks_topics),
        product=state.product,
        protocol_version=state.protocol_version,
        agrees=not lacks_brokers and not lacks_topics if state.answers else None,
    )


# ---- versions


async def _versions(cluster: Cluster) -> Versions:
    members = await members_of(cluster)
    name_servers = await list_name_servers.function(cluster)
    controllers = await list_controllers.function(cluster)
    brokers = [
        ServerVersion(
            kind="broker",
            name=f"{each.name} ({each.id})",
            address=each.address,
            product=each.product if each.state is MemberState.UP else None,
            version=each.version if each.state is MemberState.UP else None,
            protocol_version=each.protocol_version if each.state is MemberState.UP else None,
        )
        for each in members.brokers
    ]
    asked: list[tuple[str, NameServerState | ControllerMember]] = [
        *(("namesrv", each) for each in name_servers.name_servers),
        *(("controller", each) for each in controllers.controllers),
    ]
    told = {(each.product, each.version) for each in brokers if each.version}
    return Versions(
        servers=[
            *brokers,
            *(
                ServerVersion(
                    kind=kind,
                    name=kind,
                    address=each.address,
                    product=each.product,
                    version=each.protocol_version if each.product is Product.ROCKETMQ else None,
                    protocol_version=each.protocol_version,
                )
                for kind, each in asked
            ),
            ServerVersion(
                kind="console",
                name="console",
                address="",
                product=Product.BOLIDE,
                version=__version__,
                protocol_version=ROCKETMQ_VERSION_NAME,
            ),
        ],
        is_mixed=len(told) > 1,
        python=platform.python_version(),
        failures=[*members.failures, *name_servers.failures, *controllers.failures],
    )
