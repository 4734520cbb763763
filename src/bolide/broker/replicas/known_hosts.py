"""Which hosts may speak as controller, NameServer, master or slave without access control.

Some requests make a broker follow another master, change its role, or hand out all of its
metadata. With access control the gate has decided about them: the servers of a cluster sign. On
an open broker the address of the connection decides. It must be loopback, or one that the settings
of this broker, or its controllers, name for the role that the sender speaks in.
"""

import asyncio
import logging
import socket
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address

from bolide.logs import ThrottledLog
from bolide.protocol.codes import RequestCode
from bolide.protocol.refusals import NoPermission
from bolide.remoting.address import host_of, is_loopback_host

log = logging.getLogger(__name__)

_RESOLVED_FOR = 10.0
"""Seconds for which the addresses of a host name are kept."""


@dataclass(frozen=True, slots=True)
class Speaker:
    """A role that requests are sent in.

    Attributes:
        title: with its article, for messages.
        advice: what to set so that such a host is known.
        hosts: returns `host:port` or hosts, by name or address, that have the role.
        admits: admits further hosts by their IP address.
    """

    title: str
    advice: str
    hosts: Callable[[], Iterable[str]] = tuple
    admits: Callable[[str], bool] = lambda _: False


class KnownHosts:
    """Refuses requests of strangers; belongs to one event loop.

    Args:
        is_open: whether there is no access control; if there is, everything is admitted.
    """

    def __init__(self, *, is_open: bool, clock: Callable[[], float] = time.monotonic) -> None:
        self._is_open = is_open
        self._clock = clock
        self._resolved: dict[str, tuple[float, frozenset[str]]] = {}
        self._refusals = ThrottledLog(log)

    async def require(self, code: int, peer: str, speaker: Speaker) -> None:
        """Check that the peer of a connection may send a request.

        Raises:
            NoPermission: its host is none of those that may speak in this role.
        """
        host = _plain(host_of(peer))
        if not self._is_open or is_loopback_host(host) or speaker.admits(host):
            return
        for known in set(map(host_of, speaker.hosts())):
            if host in await self._addresses(known):
                return
        name = RequestCode(code).name
        self._refusals.warning(
            name, "refused %s from %s: it is not %s that this broker knows", name, peer,
            speaker.title,
        )  # fmt: skip
        raise NoPermission(
            f"{name} from {peer} is refused: its host is not {speaker.title} that this broker"
            f" knows. {speaker.advice}, or turn on access control"
        )

    async def _addresses(self, host: str) -> frozenset[str]:
        """All addresses of a host; none while its name cannot be resolved."""
        try:
            return frozenset((str(ip_address(_plain(host))),))
        except ValueError:
            pass
        at, found = self._resolved.get(host, (-_RESOLVED_FOR, frozenset[str]()))
        if self._clock() - at >= _RESOLVED_FOR:
            try:
                loop = asyncio.get_running_loop()
                told = await loop.getaddrinfo(host, None, type=socket.SOCK_STREAM)
                found = frozenset(_plain(str(each[4][0])) for each in told)
            except OSError as exc:
                log.debug("cannot resolve %s: %s", host, exc)
                found = frozenset()
            self._resolved[host] = self._clock(), found
        return found


def _plain(host: str) -> str:
    """An address without scope, and as IPv4 if it is one inside IPv6; other texts as they are."""
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return host
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return str(mapped or address)
