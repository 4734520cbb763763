"""The gate: the one place where a request is let through or refused, whichever way it is served.

The dispatcher asks the gate about every request before its handler sees it. The fast path serves
only what a prepared plan covers, and a plan is made when gate and handler have admitted a request
of the same identity, kind and target. So the decision of a rule must depend on these alone. A rule
whose decisions change calls `Gate.revoke`, which voids all plans. Hooks see every single request:
while there is one, requests of its kind are not prepared.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from bolide.broker.events import Listeners
from bolide.protocol.frame import Frame
from bolide.protocol.headers.pull import PullHeader
from bolide.protocol.headers.send import SendHeader
from bolide.remoting.connection import Connection
from bolide.remoting.dispatch import Reply

ACCESS_KEY = "AccessKey"
"""The field of a signed request that names its access key."""


class Identity(NamedTuple):
    """Who sends a request: an access key that signs each request, or the peer of a connection."""

    access_key: str | None
    """None: the peer is anonymous."""
    peer: str
    """`host:port` of the connection."""


class Rule(Protocol):
    """A reason to refuse requests, by identity, request code and target."""

    def check(self, identity: Identity, request: Frame) -> None:
        """Raises Refusal if the request may not be served."""
        ...


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

    def __init__(self, hooks: Hooks | None = None, rules: Sequence[Rule] = ()) -> None:
        self.hooks = hooks or Hooks()
        self.on_revoked: Listeners[[]] = Listeners()
        """Decisions made so far no longer hold."""
        self._rules = tuple(rules)

    def admit(self, request: Frame, connection: Connection) -> None:
        """Raises Refusal if the request may not be served."""
        if self._rules:
            identity = identity_of(request, connection)
            for rule in self._rules:
                rule.check(identity, request)
        for hook in self.hooks.request:
            hook.before(connection.peer, request)

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

    def may_prepare(self, request: Frame, connection: Connection) -> bool:
        """Whether the decision about this request holds for the anonymous peer of its connection.

        That about a signed request holds for its access key, whose signature differs each time.
        """
        return identity_of(request, connection).access_key is None

    def replace_rules(self, rules: Sequence[Rule]) -> None:
        """Decide by other rules from now on."""
        self._rules = tuple(rules)
        self.revoke()

    def revoke(self) -> None:
        """Void what was decided so far: the next request of each kind is checked again."""
        self.on_revoked()


def identity_of(request: Frame, connection: Connection) -> Identity:
    access_key = request.fields.get(ACCESS_KEY) if request.fields else None
    return Identity(access_key, connection.peer)
