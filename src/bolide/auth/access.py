"""What a gate asks: `Access` names the identity behind a request and decides what it may do.

Here are also the access of a server without access control, the gate of a server that has no fast
path, and the second check of requests that name a message by its place in the log.
"""

import asyncio
import logging
from typing import Any, NamedTuple, Protocol, runtime_checkable

from bolide.auth.request_purposes import PURPOSES, Purpose
from bolide.events import Listeners
from bolide.logs import ThrottledLog
from bolide.model.names import is_internal
from bolide.model.properties import PropertyName
from bolide.protocol.codes import RequestCode
from bolide.protocol.frame import Frame
from bolide.protocol.record import Record
from bolide.protocol.refusals import NoPermission
from bolide.remoting.address import is_loopback_host, split_address
from bolide.remoting.connection import Connection
from bolide.remoting.dispatch import Request

log = logging.getLogger(__name__)


class Identity(NamedTuple):
    """Who sends a request."""

    access_key: str | None
    """Whose account decides; None if nothing but the peer is known."""
    peer: str
    """`host:port` of the connection."""
    is_verified: bool = False
    """Whether the request has the signature of the access key. White lists of ACL 1.0 need none, so
    that the key is only what the peer claims."""

    def __str__(self) -> str:
        return f"{self.name or 'anonymous'} at {self.peer}"

    @property
    def name(self) -> str | None:
        """The access key for records, with a mark if anybody could have sent it."""
        if self.access_key is None or self.is_verified:
            return self.access_key
        return f"{self.access_key} (not verified)"


class Access(Protocol):
    """Access control of one server; belongs to its event loop."""

    on_changed: Listeners[[]]
    """Decisions made so far may no longer hold."""
    verifies_identity: bool
    """Whether `check` knows who sends a request; what runs code of users is refused otherwise."""

    def check(self, request: Frame, peer: str) -> Identity:
        """Say who sends a request that may be served.

        The decision depends on the request's code and target, on the address of the peer and, if
        `secret_of` returns one, on the signature. So it holds for further requests of the same
        kind, to the same target, of the same identity, until `on_changed` is called.

        Raises:
            NoPermission: it may not be served; the remark names who, what and why.
        """
        ...

    def secret_of(self, identity: Identity) -> bytes | None:
        """The secret that signs the requests of an identity; None if they need no signature."""
        ...

    def may_bring_code(self, identity: Identity) -> bool:
        """Whether an identity may send code that the server runs.

        Only an administrator whose signature was verified may, whatever white lists say.
        """
        ...

    def may_send(self, identity: Identity, topic: str) -> bool:
        """Whether somebody whom `check` has identified may send to a topic now."""
        ...

    async def run(self) -> None:
        """Follow changes, of files for example, until cancelled."""
        ...


class OpenAccess:
    """Everybody may do everything, as with `allowRemoteAdmin=true`."""

    verifies_identity = False

    def __init__(self) -> None:
        self.on_changed: Listeners[[]] = Listeners()

    def check(self, request: Frame, peer: str) -> Identity:
        return Identity(None, peer)

    def secret_of(self, identity: Identity) -> bytes | None:
        return None

    def may_bring_code(self, identity: Identity) -> bool:
        return False  # nobody is identified

    def may_send(self, identity: Identity, topic: str) -> bool:
        return True

    async def run(self) -> None:
        await asyncio.Event().wait()  # nothing changes


class LocalAdministration(OpenAccess):
    """Everybody may send, read and register; only this machine may administer.

    Nobody is identified, so the address of the socket decides: a connection to another address of
    this machine than that of loopback counts as remote.
    """

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


def is_loopback(peer: str) -> bool:
    """Whether a peer, `host:port`, is on this machine and used the loopback interface."""
    try:
        return is_loopback_host(split_address(peer)[0])
    except ValueError:
        return False


class AccessGate:
    """Admits what `Access` allows; a `remoting.dispatch.Gate` without hooks and fast path."""

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


@runtime_checkable
class ChecksFoundMessages(Protocol):
    """An `Access` that decides by topics."""

    def check_found(self, request: Frame, peer: str, topic: str) -> None:
        """Raises NoPermission if the sender may not have a message of this topic."""
        ...


class FoundMessageCheck:
    """What handlers call when they have found a message that a request names by its offset.

    The gate cannot know its topic: without this check a user who may consume one topic could read
    any message.
    """

    def __init__(self, access: Access | None = None) -> None:
        self._access = access

    def __call__(self, request: Request[Any], record: Record) -> None:
        """Raises NoPermission."""
        if isinstance(self._access, ChecksFoundMessages):
            topic = topic_of_found(record)
            self._access.check_found(request.frame, request.connection.peer, topic)


def topic_of_found(record: Record) -> str:
    """The topic that a message was sent to.

    A delayed message or a half message is stored under another one, an internal topic.
    """
    if not is_internal(record.topic):
        return record.topic
    return record.decode_properties().get(PropertyName.REAL_TOPIC) or record.topic
