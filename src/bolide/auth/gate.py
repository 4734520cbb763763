"""The gate of a server that has no hooks and no fast path."""

from bolide.auth.access import Access, Identity
from bolide.events import Listeners
from bolide.protocol.frame import Frame
from bolide.protocol.refusals import NoPermission
from bolide.remoting.connection import Connection


class AccessGate:
    """Admits what `Access` allows; a `remoting.dispatch.Gate`."""

    keeps_requests = False

    def __init__(self, access: Access) -> None:
        self.access = access
        self.on_denied: Listeners[[Frame, str, NoPermission]] = Listeners()
        """Access control refused a request of a peer."""

    def admit(self, request: Frame, connection: Connection) -> None:
        """Raises NoPermission if the request may not be served."""
        try:
            self.identify(request, connection)
        except NoPermission as exc:
            self.on_denied(request, connection.peer, exc)
            raise

    def identify(self, request: Frame, connection: Connection) -> Identity:
        """Say who sends a request. Raises NoPermission if access control does not allow it."""
        return self.access.check(request, connection.peer)

    def completed(self, request: Frame, response: Frame, connection: Connection) -> None:
        pass
