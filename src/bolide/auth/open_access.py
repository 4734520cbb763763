"""Access of a server without access control: nobody is identified, so the peer's address decides.

Everybody may send, read and register. Requests that administer are taken over the loopback
interface only. The address is that of the socket: a connection to another address of the same
machine counts as remote.
"""

import logging

from bolide.auth.access import Identity, OpenAccess, is_loopback
from bolide.auth.request_purposes import PURPOSES, Purpose
from bolide.logs import ThrottledLog
from bolide.protocol.codes import RequestCode
from bolide.protocol.frame import Frame
from bolide.protocol.refusals import NoPermission

log = logging.getLogger(__name__)


class LocalAdministration(OpenAccess):
    """Takes requests that administer from this machine only."""

    def __init__(self) -> None:
        super().__init__()
        self._refusals = ThrottledLog(log)

    def check(self, request: Frame, peer: str) -> Identity:
        if PURPOSES.get(request.code) is Purpose.ADMINISTRATION and not is_loopback(peer):
            name = RequestCode(request.code).name
            self._refusals.warning(
                name, "refused %s from %s: it is not on this machine", name, peer
            )
            raise NoPermission(
                f"{name} from {peer} is refused: without access control,"
                " requests that administer are taken over loopback only. On its machine, name the"
                " server as 127.0.0.1; from elsewhere, turn on access control, or set"
                " allowRemoteAdmin=true in the file of the server"
            )
        return Identity(None, peer)
