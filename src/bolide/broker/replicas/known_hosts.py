"""Which hosts may speak as controller, NameServer, master or slave without access control.

Some requests make a broker follow another master, change its role, or hand out all of its
metadata. With access control the gate has decided about them: the servers of a cluster sign. On
an open broker the address of the connection decides. It must be loopback, or one that the settings
of this broker, or its controllers, name for the role that the sender speaks in.
"""

import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from bolide.logs import ThrottledLog
from bolide.protocol.codes import RequestCode
from bolide.protocol.refusals import NoPermission
from bolide.remoting.address import host_of, is_loopback_host
from bolide.remoting.host_names import HostNames, plain_host

log = logging.getLogger(__name__)


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
        self._names = HostNames(clock)
        self._refusals = ThrottledLog(log)

    async def require(self, code: int, peer: str, speaker: Speaker) -> None:
        """Check that the peer of a connection may send a request.

        Raises:
            NoPermission: its host is none of those that may speak in this role.
        """
        host = plain_host(host_of(peer))
        if not self._is_open or is_loopback_host(host) or speaker.admits(host):
            return
        for known in set(map(host_of, speaker.hosts())):
            if host in await self._names.addresses(known):
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
