"""What a gate asks: `Access` names the identity behind a request and decides what it may do."""

import asyncio
from typing import NamedTuple, Protocol

from bolide.events import Listeners
from bolide.protocol.frame import Frame
from bolide.remoting.address import is_loopback_host, split_address


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


def is_loopback(peer: str) -> bool:
    """Whether a peer, `host:port`, is on this machine and used the loopback interface."""
    try:
        return is_loopback_host(split_address(peer)[0])
    except ValueError:
        return False
