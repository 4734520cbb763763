"""How this process reaches the cluster: TLS, and the VIP channel for the messages that it sends.

RocketMQ's dashboard has both as switches for its own client (useTLS, vipChannelEnabled). The VIP
channel is a second port of each broker, two below the first, that takes sends and no pulls.

Whoever owns the connections of the process plugs in an owner (`own_connections`); without one the
choice is made at the start of the process and only shown.
"""

from dataclasses import dataclass
from typing import Protocol

from bolide.admin import AdminClient
from bolide.broker.settings.config import VIP_PORT_DELTA
from bolide.errors import BolideError
from bolide.operations.cluster import Cluster
from bolide.operations.declaration import Role, change, read
from bolide.operations.errors import Conflict, NotSupported
from bolide.operations.servers.members import MemberState, members_of
from bolide.operations.views import reason_of
from bolide.remoting.address import format_address, split_address
from bolide.remoting.client import ClientConfig, RemotingClient
from bolide.remoting.tls import ClientTls

_PATIENCE = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionChoice:
    """What can be switched."""

    use_tls: bool
    vip_channel: bool


class ConnectionOwner(Protocol):
    """Keeps the choice of this process, and connects anew when it changes."""

    @property
    def choice(self) -> ConnectionChoice: ...

    @property
    def tls(self) -> ClientTls:
        """The settings with which TLS is used if it is on."""
        ...

    async def switch(self, choice: ConnectionChoice) -> None:
        """Keep the choice, and have later operations work on connections that follow it."""
        ...


_owners: list[ConnectionOwner] = []
"""At most one."""


def own_connections(owner: ConnectionOwner | None) -> None:
    """Plug in who owns the connections of this process, or nobody."""
    _owners[:] = [] if owner is None else [owner]


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """How this process reaches the cluster."""

    name_servers: list[str]
    use_tls: bool
    """Whether everything between this process and the servers is encrypted."""
    verifies: bool | None
    """Whether certificates of servers are checked; None without TLS."""
    vip_channel: bool
    """Whether messages that are sent from here go to the port of each broker that is two lower;
    requests of administration never do."""
    is_signed: bool
    """Whether requests carry an identity."""
    can_change: bool
    """Whether this process can switch while it runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """Whether one server answers as it would be reached then."""

    address: str
    answers: bool
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionEffect:
    """What a switch does, tried on connections that are closed again."""

    before: ConnectionChoice
    after: ConnectionChoice
    trials: list[Trial]
    works: bool
    """Whether a NameServer answers, and every port for sends."""


@read("/connection")
async def show_connection(cluster: Cluster) -> Connection:
    """Show how this process reaches the cluster: NameServers, TLS, VIP channel."""
    choice = _choice(cluster)
    tls = _owners[0].tls if _owners and choice.use_tls else cluster.tls
    return Connection(
        name_servers=list(cluster.admin.name_servers.addresses),
        use_tls=choice.use_tls,
        verifies=tls.verify if choice.use_tls and tls is not None else None,
        vip_channel=choice.vip_channel,
        is_signed=cluster.identity.access_key is not None,
        can_change=bool(_owners),
    )


async def preview_connection(
    cluster: Cluster, *, use_tls: bool, vip_channel: bool
) -> ConnectionEffect:
    before = _choice(cluster)
    after = ConnectionChoice(use_tls=use_tls, vip_channel=vip_channel)
    tls = _owner().tls if use_tls else None
    trials = await _tried_name_servers(cluster, tls)
    works = any(each.answers for each in trials)
    if vip_channel and works:
        ports = await _tried_ports(cluster, tls)
        trials += ports
        works = all(each.answers for each in ports)
    return ConnectionEffect(before=before, after=after, trials=trials, works=works)


@change(
    "PUT",
    "/connection",
    target="the connections of the console",
    role=Role.ADMIN,
    preview=preview_connection,
    state=show_connection.function,
)
async def change_connection(cluster: Cluster, *, use_tls: bool, vip_channel: bool) -> Connection:
    """Switch TLS and the VIP channel of this process, for all its users.

    Raises Conflict if no NameServer would answer then, and NotSupported if the process cannot
    switch while it runs.
    """
    owner = _owner()
    effect = await preview_connection(cluster, use_tls=use_tls, vip_channel=vip_channel)
    if not any(each.answers for each in effect.trials):
        reasons = "; ".join(f"{each.address}: {each.reason}" for each in effect.trials)
        raise Conflict(f"nothing was changed, because no NameServer would answer: {reasons}")
    await owner.switch(effect.after)
    return await show_connection.function(cluster)


def vip_address(address: str) -> str:
    """The port of a broker for sends over the VIP channel."""
    host, port = split_address(address)
    return format_address((host, port + VIP_PORT_DELTA))


def _choice(cluster: Cluster) -> ConnectionChoice:
    if _owners:
        return _owners[0].choice
    return ConnectionChoice(use_tls=cluster.tls is not None, vip_channel=cluster.vip_channel)


def _owner() -> ConnectionOwner:
    if not _owners:
        raise NotSupported(
            "this process cannot switch while it runs: start it with --tls, or without"
        )
    return _owners[0]


async def _tried_name_servers(cluster: Cluster, tls: ClientTls | None) -> list[Trial]:
    identity = cluster.identity
    async with AdminClient(
        cluster.admin.name_servers.addresses,
        timeout=_PATIENCE,
        access_key=identity.access_key,
        secret_key=identity.secret_key,
        tls=tls,
    ) as admin:
        trials = []
        for address in admin.name_servers.addresses:
            try:
                await admin.name_servers.cluster_info_at(address)
            except BolideError as error:
                trials.append(Trial(address=address, answers=False, reason=reason_of(error)))
            else:
                trials.append(Trial(address=address, answers=True))
        return trials


async def _tried_ports(cluster: Cluster, tls: ClientTls | None) -> list[Trial]:
    members = (await members_of(cluster)).brokers
    trials = []
    async with RemotingClient(ClientConfig(tls=tls, connect_timeout=_PATIENCE)) as client:
        for member in members:
            if member.id or member.state is not MemberState.UP:
                continue
            address = vip_address(member.address)
            try:
                await client.connect(address)
            except BolideError as error:
                trials.append(Trial(address=address, answers=False, reason=reason_of(error)))
            else:
                trials.append(Trial(address=address, answers=True))
    return trials
