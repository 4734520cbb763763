"""The gate: the one place where a request is let through or refused, whichever way it is served.

The dispatcher asks the gate about every request before its handler sees it. The fast path serves
only what a prepared plan covers, and a plan is made when gate and handler have admitted a request
of the same identity, kind and target. So the decision of `Access` must depend on these alone; when
its decisions change it calls `on_changed`, which voids all plans. The plans of those who sign have
their secret, by which each further request is verified; a request whose signature is missing or
wrong falls through to the gate. Hooks see every single request: while there is one, requests of its
kind are not prepared.
"""

from dataclasses import dataclass
from typing import NamedTuple, Protocol

from bolide.auth.access import Access, FoundMessageCheck, Identity, OpenAccess
from bolide.events import Listeners
from bolide.protocol.frame import Frame
from bolide.protocol.headers.pull import PullHeader
from bolide.protocol.headers.send import SendHeader
from bolide.protocol.refusals import NoPermission, ServiceNotAvailable
from bolide.protocol.signature import ACCESS_KEY
from bolide.remoting.connection import Connection
from bolide.remoting.dispatch import Reply

MAX_ACCESS_KEY = 128
"""Characters of an access key that plans are made for: they are kept in memory."""


class RequestHook(Protocol):
    """Sees every request before and after it is handled."""

    def before(self, peer: str, request: Frame) -> None:
        """May raise a Refusal: no handler sees the request then."""
        ...

    def after(self, peer: str, request: Frame, response: Frame) -> None: ...


class SendHook(Protocol):
    """Sees every send."""

    def before_send(self, peer: str, header: SendHeader, body: bytes) -> None:
        """May raise a Refusal: the message is not stored then."""
        ...

    def after_send(self, peer: str, header: SendHeader, reply: Reply) -> None: ...


class ConsumeHook(Protocol):
    """Sees every delivery."""

    def after_pull(self, peer: str, header: PullHeader, count: int, size: int) -> None: ...


@dataclass(slots=True)
class Hooks:
    """All hooks of a broker."""

    send: tuple[SendHook, ...] = ()
    consume: tuple[ConsumeHook, ...] = ()
    request: tuple[RequestHook, ...] = ()


class Gate:
    """Decides about every request; the broker's `remoting.dispatch.Gate`."""

    def __init__(self, hooks: Hooks | None = None, access: Access | None = None) -> None:
        self.hooks = hooks or Hooks()
        self.on_revoked: Listeners[[]] = Listeners()
        """Decisions made so far no longer hold."""
        self.access: Access = access or OpenAccess()
        self.access.on_changed.add(self.on_revoked)
        self.on_denied: Listeners[[Frame, str, NoPermission]] = Listeners()
        """Access control refused a request of a peer."""
        self.check_found = FoundMessageCheck(self.access)
        """Decides about a message that a request names by its offset."""

    def admit(self, request: Frame, connection: Connection) -> None:
        """Raises Refusal if the request may not be served."""
        try:
            self.identify(request, connection)
        except NoPermission as exc:
            self.on_denied(request, connection.peer, exc)
            raise
        for hook in self.hooks.request:
            hook.before(connection.peer, request)

    def identify(self, request: Frame, connection: Connection) -> Identity:
        """Say who sends a request. Raises NoPermission if access control does not allow it."""
        return self.access.check(request, connection.peer)

    def completed(self, request: Frame, response: Frame, connection: Connection) -> None:
        for hook in self.hooks.request:
            hook.after(connection.peer, request, response)

    @property
    def keeps_requests(self) -> bool:
        """Whether `completed` needs the whole request."""
        return bool(self.hooks.request)

    @property
    def watches_sends(self) -> bool:
        """Whether a hook sees every send, so that none may be prepared."""
        return bool(self.hooks.send or self.hooks.request)

    @property
    def watches_pulls(self) -> bool:
        """Whether a hook sees every pull, so that none may be prepared."""
        return bool(self.hooks.consume or self.hooks.request)

    def prepared_for(self, request: Frame, connection: Connection) -> "Presented | None":
        """Whose further requests may be served as this one; None if nobody's.

        It asks again: what was decided when the request arrived may have changed since.
        """
        try:
            identity = self.identify(request, connection)
        except NoPermission:
            return None
        access_key = access_key_of(request)
        if access_key is not None and not _is_preparable(access_key):
            return None
        secret = self.access.secret_of(identity)
        if secret is not None and (access_key is None or access_key != identity.access_key):
            return None
        return Presented(access_key, secret)


class Presented(NamedTuple):
    """What further requests must present to be served as one that was let through."""

    access_key: str | None
    """The same access key, or none."""
    secret: bytes | None
    """With which they are signed; None if they need no signature."""


def access_key_of(request: Frame) -> str | None:
    """The access key that a request presents, if any."""
    return request.fields.get(ACCESS_KEY) if request.fields else None


def _is_preparable(access_key: str) -> bool:
    """Whether compiled code can read an access key; it is kept in memory, too."""
    return access_key.isascii() and len(access_key) <= MAX_ACCESS_KEY


class BetweenTerms:
    """The gate of a broker that changes its role: every request is refused, and soon repeated."""

    keeps_requests = False

    def admit(self, request: Frame, connection: Connection) -> None:
        raise ServiceNotAvailable("service not available now: this broker changes its role")

    def completed(self, request: Frame, response: Frame, connection: Connection) -> None:
        """No hook sees these requests."""
