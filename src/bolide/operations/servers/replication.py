"""How far replicas are, which controllers elect masters, and the election of another master."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from bolide.admin.servers import MASTER, gather_by_key
from bolide.errors import BolideError
from bolide.operations.cluster import Cluster
from bolide.operations.declaration import Role, change, read
from bolide.operations.errors import BadInput, Conflict, NotFound, NotSupported
from bolide.operations.servers.members import (
    BrokerMember,
    MemberRole,
    MemberState,
    Product,
    members_of,
)
from bolide.operations.views import Failure, failure_of, reason_of
from bolide.protocol.bodies.controller import Replica, Replicas
from bolide.protocol.bodies.replication import EpochCache, HaStatus
from bolide.protocol.refusals import Refusal
from bolide.version import version_name

_FRESH = 2.0
_ADDRESSES_FRESH = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochRange:
    """A part of the log that was written while one broker was master."""

    epoch: int
    begin: int
    end: int | None
    """None while it is written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMember:
    """A member of a broker group, as it is registered or as the controllers know it."""

    id: int
    """That of the controllers if there are some, otherwise that of the registration."""
    address: str
    role: MemberRole
    state: MemberState | None
    """None if the controllers know it, and it is not registered."""
    alive: bool | None = None
    """Whether the controllers hear of it."""
    in_sync: bool | None = None
    """Whether it has every acknowledged message: a member of the sync-state set, or as its master
    tells."""
    log_end: int | None = None
    lag: int | None = None
    """Bytes that it lacks; None for the master."""
    copied_per_second: int | None = None
    """Bytes, as a slave tells."""
    epochs: list[EpochRange] | None = None
    """None without controllers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaLink:
    """A slave that is connected to its master, as the master sees it."""

    address: str
    """From where it is connected."""
    acknowledged: int
    behind: int
    """Bytes."""
    in_sync: bool
    bytes_per_second: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupReplication:
    """The replication of one broker group."""

    cluster: str
    broker_name: str
    master: str | None
    """Address; None if there is no master."""
    log_end: int | None
    members: list[GroupMember]
    links: list[ReplicaLink] | None
    """None if the master does not tell, as RocketMQ before 5.0."""
    has_controllers: bool
    master_epoch: int | None = None
    sync_state_set_epoch: int | None = None
    failures: list[Failure] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerMember:
    """One controller."""

    address: str
    answers: bool
    leads: bool = False
    leader: str | None = None
    """The address of the controller that leads, as this one says it."""
    reason: str = ""
    product: Product | None = None
    protocol_version: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ElectedGroup:
    """A broker group whose master the controllers elect."""

    cluster: str
    broker_name: str
    master_id: int | None
    """None if there is no master."""
    master_address: str | None
    master_epoch: int
    sync_state_set_epoch: int
    members: list[GroupMember]


@dataclass(frozen=True, slots=True, kw_only=True)
class Controllers:
    """The controllers that the brokers name; none of both if the cluster has none."""

    controllers: list[ControllerMember]
    groups: list[ElectedGroup]
    failures: list[Failure] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class ElectionEffect:
    """What an election does."""

    broker_name: str
    master_id: int | None
    master_address: str | None
    new_master_id: int
    new_master_address: str | None
    alive: bool
    in_sync: bool
    loses_messages: bool
    """The new master lacks acknowledged messages, or may: they are lost."""
    note: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ElectionResult:
    master_id: int | None
    master_address: str | None
    master_epoch: int | None


@read("/cluster/groups/{broker_name}/replication")
async def show_replication(cluster: Cluster, *, broker_name: str) -> GroupReplication:
    """Show how far each member of a broker group has copied the log of its master.

    With controllers, also who is in the sync-state set, and which master wrote which part of the
    log. A lag of a few writes is normal.
    """
    key = f"cluster/replication/{broker_name}"
    return await cluster.shared(key, lambda: _replication(cluster, broker_name), seconds=_FRESH)


@read("/cluster/controllers")
async def list_controllers(cluster: Cluster) -> Controllers:
    """List the controllers, which of them leads, and the groups whose masters they elect."""
    return await cluster.shared("cluster/controllers", lambda: _look(cluster), seconds=_FRESH)


async def preview_election(cluster: Cluster, *, broker_name: str, broker_id: int) -> ElectionEffect:
    group, wanted = await _candidate(cluster, broker_name, broker_id)
    in_sync = bool(wanted.in_sync)
    lost = "" if in_sync else "; acknowledged messages that it lacks are lost"
    return ElectionEffect(
        broker_name=broker_name,
        master_id=group.master_id,
        master_address=group.master_address,
        new_master_id=broker_id,
        new_master_address=wanted.address,
        alive=bool(wanted.alive),
        in_sync=in_sync,
        loses_messages=not in_sync,
        note=f"{broker_name} refuses messages for a moment{lost}",
    )


async def _group_state(cluster: Cluster, *, broker_name: str) -> ElectedGroup | None:
    cluster.forget("cluster/controllers")
    groups = (await list_controllers.function(cluster)).groups
    return next((each for each in groups if each.broker_name == broker_name), None)


@change(
    "PUT",
    "/cluster/groups/{broker_name}/master",
    target="broker group {broker_name}",
    role=Role.ADMIN,
    preview=preview_election,
    state=_group_state,
)
async def elect_master(cluster: Cluster, *, broker_name: str, broker_id: int) -> ElectionResult:
    """Make a member of a broker group its master, by the controllers.

    `broker_id` is the member's id at the controllers (`list_controllers`). The group refuses
    messages for a moment. A member outside of the sync-state set lacks messages, which are lost;
    controllers elect it only if no member of the set is alive.
    """
    group, _ = await _candidate(cluster, broker_name, broker_id)
    leading = await _any_controller(cluster)
    elected = await cluster.admin.controllers.elect(leading, group.cluster, broker_name, broker_id)
    return ElectionResult(
        master_id=elected.master.master_broker_id,
        master_address=elected.master.master_address,
        master_epoch=elected.master.master_epoch,
    )


async def _candidate(
    cluster: Cluster, broker_name: str, broker_id: int
) -> tuple[ElectedGroup, GroupMember]:
    found = await _look(cluster)
    if not found.controllers:
        raise NotSupported("the brokers of this cluster have no controllers")
    group = next((each for each in found.groups if each.broker_name == broker_name), None)
    if group is None:
        reasons = "; ".join(f"{each.server}: {each.reason}" for each in found.failures)
        known = ", ".join(each.broker_name for each in found.groups) or "none"
        raise NotFound(
            f"the controllers know no broker group {broker_name}; they know {known}"
            + (f" ({reasons})" if reasons else "")
        )
    wanted = next((each for each in group.members if each.id == broker_id), None)
    if wanted is None:
        known = ", ".join(str(each.id) for each in group.members)
        raise BadInput("broker_id", f"{broker_name} has the members {known}")
    if group.master_id == broker_id:
        raise Conflict(f"member {broker_id} is the master of {broker_name} already")
    return group, wanted


async def _any_controller(cluster: Cluster) -> str:
    found = (await list_controllers.function(cluster)).controllers
    order = sorted(found, key=lambda each: (not each.leads, not each.answers))
    if not order:
        raise NotSupported("the brokers of this cluster have no controllers")
    return order[0].address


# ---- controllers


async def _look(cluster: Cluster) -> Controllers:
    key = "cluster/controller-addresses"
    named, of_group = await cluster.shared(
        key, lambda: _named_controllers(cluster), seconds=_ADDRESSES_FRESH
    )
    if not named:
        return Controllers(controllers=[], groups=[])
    asked = await gather_by_key(named, lambda at: _controller(cluster, at))
    peers = {peer for _, found in asked.values() for peer in found} - asked.keys()
    asked |= await gather_by_key(sorted(peers), lambda at: _controller(cluster, at))
    controllers = [member for member, _ in asked.values()]
    failures = [
        Failure(server=each.address, reason=each.reason) for each in controllers if not each.answers
    ]
    groups: list[ElectedGroup] = []
    order = sorted(controllers, key=lambda each: not each.leads)
    for each in (each for each in order if each.answers):
        try:
            table = await cluster.admin.controllers.sync_state_sets(each.address, sorted(of_group))
        except BolideError as error:
            failures.append(failure_of(each.address, error))
            continue
        members = (await members_of(cluster)).brokers
        groups = [
            _elected_group(name, of_group[name], found, members)
            for name, found in sorted(table.replicas_info_table.items())
            if name in of_group
        ]
        break
    return Controllers(
        controllers=sorted(controllers, key=lambda each: each.address),
        groups=groups,
        failures=failures,
    )


async def _named_controllers(cluster: Cluster) -> tuple[list[str], dict[str, str]]:
    """The controllers that brokers name, and the cluster of each group that has controllers."""

    async def settings(member: BrokerMember) -> dict[str, str]:
        try:
            return await cluster.admin.brokers.config(member.address)
        except BolideError:  # it is listed as silent where brokers are listed
            return {}

    members = (await members_of(cluster)).brokers
    asked = [each for each in members if each.state is MemberState.UP]
    texts = await gather_by_key(asked, settings)
    named: set[str] = set()
    groups: dict[str, str] = {}
    for member, found in texts.items():
        if found.get("enableControllerMode") != "true":
            continue
        groups[member.name] = member.cluster
        parts = found.get("controllerAddr", "").split(";")
        named |= {part.strip() for part in parts if part.strip()}
    known = _known.setdefault(cluster.name_servers, _Known())
    known.addresses = named or known.addresses
    known.groups |= groups
    return sorted(known.addresses), dict(known.groups)


@dataclass(slots=True)
class _Known:
    """What brokers have said to this process: a group that is away now, or amid an election, is
    still one of the controllers."""

    addresses: set[str] = field(default_factory=set)
    groups: dict[str, str] = field(default_factory=dict)
    """The cluster of each group."""


_known: dict[str, _Known] = {}
"""By NameServers."""


async def _controller(cluster: Cluster, address: str) -> tuple[ControllerMember, list[str]]:
    """A controller and the peers that it names."""
    controllers = cluster.admin.controllers
    try:
        found = await controllers.metadata(address)
    except BolideError as error:
        return ControllerMember(address=address, answers=False, reason=reason_of(error)), []
    product = version = None
    try:
        peer = await controllers.peer(address)
    except BolideError:  # settings may be for administrators only
        pass
    else:
        product = Product.BOLIDE if peer.is_ours else Product.ROCKETMQ
        version = version_name(peer.version)
    leader = found.controller_leader_address
    member = ControllerMember(
        address=address,
        answers=True,
        # RocketMQ's JRaft tells the leader only by its address.
        leads=found.is_leader or (leader is not None and leader == address),
        leader=leader,
        product=product,
        protocol_version=version,
    )
    return member, _peers(found.peers)


def _peers(text: str | None) -> list[str]:
    """The addresses of `n0:host:port;n1:host:port`; JRaft's are those of Raft, and have no ids."""
    found = []
    for part in (text or "").split(";"):
        _, _, address = part.partition(":")
        if address.count(":") == 1:
            found.append(address)
    return found


def _elected_group(
    name: str, cluster: str, found: Replicas, members: Iterable[BrokerMember]
) -> ElectedGroup:
    registered = {each.address: each for each in members if each.name == name}
    replicas = [(each, True) for each in found.in_sync_replicas]
    replicas += [(each, False) for each in found.not_in_sync_replicas]
    return ElectedGroup(
        cluster=cluster,
        broker_name=name,
        master_id=found.master_broker_id,
        master_address=found.master_address or None,
        master_epoch=found.master_epoch,
        sync_state_set_epoch=found.sync_state_set_epoch,
        members=sorted(
            (
                _controlled(each, in_sync, found.master_broker_id, registered)
                for each, in_sync in replicas
            ),
            key=lambda each: each.id,
        ),
    )


def _controlled(
    replica: Replica, in_sync: bool, master: int | None, registered: dict[str, BrokerMember]
) -> GroupMember:
    known = registered.get(replica.broker_address or "")
    is_master = replica.broker_id == master
    return GroupMember(
        id=replica.broker_id,
        address=replica.broker_address or "",
        role=MemberRole.MASTER if is_master else MemberRole.SLAVE,
        state=known.state if known else None,
        alive=replica.alive,
        in_sync=in_sync,
        log_end=known.log_end if known else None,
        lag=known.lag if known and not is_master else None,
    )


# ---- replication of one group


async def _replication(cluster: Cluster, broker_name: str) -> GroupReplication:
    everyone = (await members_of(cluster)).brokers
    members = [each for each in everyone if each.name == broker_name]
    if not members:
        known = ", ".join(sorted({each.name for each in everyone})) or "none"
        raise NotFound(f"there is no broker group {broker_name}; known are {known}")
    failures: list[Failure] = []
    present = [each for each in members if each.state is MemberState.UP]
    statuses = await gather_by_key(present, lambda each: _ha_status(cluster, each, failures))
    controllers = await list_controllers.function(cluster)
    group = next((each for each in controllers.groups if each.broker_name == broker_name), None)
    epochs = {}
    if group is not None:
        epochs = await gather_by_key(present, lambda each: _epochs(cluster, each, failures))
    master = next((each for each in present if each.id == MASTER), None)
    status = statuses.get(master) if master else None
    listed = group.members if group else []
    by_address = {each.address: each for each in listed}
    return GroupReplication(
        cluster=members[0].cluster,
        broker_name=broker_name,
        master=master.address if master else None,
        log_end=master.log_end if master else None,
        members=[
            *(
                _member(
                    each,
                    by_address.get(each.address),
                    statuses.get(each),
                    epochs.get(each),
                )
                for each in members
            ),
            *(each for each in listed if each.address not in {m.address for m in members}),
        ],
        links=_links(status) if status else None,
        has_controllers=group is not None,
        master_epoch=group.master_epoch if group else None,
        sync_state_set_epoch=group.sync_state_set_epoch if group else None,
        failures=[*failures, *controllers.failures],
    )


async def _ha_status(
    cluster: Cluster, member: BrokerMember, failures: list[Failure]
) -> HaStatus | None:
    try:
        return await cluster.admin.brokers.ha_status(member.address)
    except BolideError as error:
        failures.append(failure_of(member.address, error))
        return None


async def _epochs(
    cluster: Cluster, member: BrokerMember, failures: list[Failure]
) -> list[EpochRange] | None:
    try:
        found: EpochCache = await cluster.admin.brokers.epochs(member.address)
    except Refusal:  # a broker of the group that has no controllers
        return None
    except BolideError as error:
        failures.append(failure_of(member.address, error))
        return None
    return [
        EpochRange(
            epoch=each.epoch,
            begin=each.start_offset,
            end=each.end_offset if each.end_offset < 2**62 else None,
        )
        for each in found.epoch_list
    ]


def _member(
    member: BrokerMember,
    controlled: GroupMember | None,
    status: HaStatus | None,
    epochs: list[EpochRange] | None,
) -> GroupMember:
    is_master = member.id == MASTER
    speed = None
    if status is not None and not is_master:
        speed = status.ha_client_runtime_info.transferred_byte_in_second
    return GroupMember(
        id=controlled.id if controlled else member.id,
        address=member.address,
        role=member.role,
        state=member.state,
        alive=controlled.alive if controlled else None,
        in_sync=controlled.in_sync if controlled else None,
        log_end=member.log_end,
        lag=member.lag,
        copied_per_second=speed,
        epochs=epochs,
    )


def _links(status: HaStatus) -> list[ReplicaLink]:
    return [
        ReplicaLink(
            address=(each.addr or "").lstrip("/"),
            acknowledged=each.slave_ack_offset,
            behind=each.diff,
            in_sync=each.in_sync,
            bytes_per_second=each.transferred_byte_in_second,
        )
        for each in status.ha_connection_info
    ]
