"""Who may speak for a broker: its own process on its own host, and administrators."""

import logging
from typing import Any

from bolide.auth.access import Access, is_loopback
from bolide.config import ConfigCell
from bolide.controller.config import ControllerConfig
from bolide.controller.liveness import LiveTable
from bolide.controller.proposals import View
from bolide.logs import ThrottledLog
from bolide.protocol.codes import ResponseCode
from bolide.protocol.headers.controller import RegisterBrokerHeader
from bolide.protocol.refusals import NoPermission, refusal_for
from bolide.remoting.address import host_of
from bolide.remoting.dispatch import Request
from bolide.remoting.host_names import HostNames, plain_host

log = logging.getLogger(__name__)


class OwnBrokers:
    """Keeps a peer without a verified identity from speaking for the brokers of other hosts.

    A broker belongs to the host of its registered address, and to the one from which it registered
    last, which differ behind NAT. Several brokers may be on one host.
    """

    def __init__(
        self, access: Access, config: ConfigCell[ControllerConfig], view: View, live: LiveTable
    ) -> None:
        self._access = access
        self._config = config
        self._view = view
        self._live = live
        self._names = HostNames()
        self._refusals = ThrottledLog(log)

    async def require(self, request: Request[Any], name: str, broker: int) -> None:
        """Raises NoPermission if the broker is known, and is one of another host."""
        group, peer = self._view.groups.get(name), request.connection.peer
        member = None if group is None else group.members.get(broker)
        if member is None or self._is_trusted(peer):
            return
        host, own = plain_host(host_of(peer)), host_of(member.address)
        if host in (member.host, own) or host in await self._names.addresses(own):
            return
        # RocketMQ's brokers read no answer to a heartbeat.
        self._refusals.warning((name, broker), "refused %s as broker %s of %s", peer, broker, name)
        raise NoPermission(
            f"broker {broker} of {name} registered {member.address} from"
            f" {member.host or own}; without access control only its own host may speak for it, not"
            f" {peer}. If it has moved, let an administrator forget it by cleanBrokerMetadata, and"
            " remove its file brokerIdentity; or turn on access control, or set"
            " allowRemoteAdmin=true in the file of the controller"
        )

    async def require_master(self, request: Request[Any], name: str, broker: int) -> None:
        """Raises NoPermission too if the connection is known to be another broker's."""
        await self.require(request, name, broker)
        connection = request.connection
        if self._is_trusted(connection.peer):
            return
        master = self._live.find(name, broker)
        speakers = [each.id for each in self._live.alive(name) if each.connection is connection]
        if speakers and (master is None or master.connection is not connection):
            raise NoPermission(
                f"{connection.peer} is broker {speakers[0]} of {name} and does not speak for"
                f" broker {broker}"
            )

    def require_no_other(self, header: RegisterBrokerHeader) -> None:
        """Raises Refusal while another broker with the same id lives elsewhere."""
        other = self._live.find(header.broker_name, header.broker_id)
        if other is not None and other.address != header.broker_address:
            raise refusal_for(
                ResponseCode.CONTROLLER_BROKER_ID_INVALID,
                f"broker {header.broker_id} of {header.broker_name} lives at {other.address}. If"
                f" that is the one that now registers {header.broker_address}, it is taken when"
                f" nothing was heard from there for {other.timeout:g} s; if this is a copy of its"
                " store, stop one of them, and remove the file brokerIdentity of the copy",
            )

    def require_cluster(self, name: str, cluster: str) -> None:
        """Check that a group is of the cluster that a request names, for which it was permitted.

        Raises:
            Refusal: it is of another one.
        """
        group = self._view.groups.get(name)
        if group is not None and not group.is_removed and cluster and cluster != group.cluster:
            raise refusal_for(
                ResponseCode.CONTROLLER_INVALID_REQUEST,
                f"broker-set {name} is one of cluster {group.cluster}, not of {cluster}",
            )

    def host_of(self, request: Request[Any]) -> str:
        """The host to which a broker that registers belongs from now on."""
        peer = request.connection.peer
        return "" if is_loopback(peer) else plain_host(host_of(peer))

    def require_administrator(self, request: Request[Any], what: str) -> None:
        """Raises NoPermission if nobody is identified and the request is of another machine."""
        peer = request.connection.peer
        if not self._is_trusted(peer):
            raise NoPermission(
                f"{what} from {peer} is refused: without access control, requests that administer"
                " are taken over loopback only"
            )

    def _is_trusted(self, peer: str) -> bool:
        return (
            self._access.verifies_identity
            or self._config.value.allow_remote_admin
            or is_loopback(peer)
        )
