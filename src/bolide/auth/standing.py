"""What a server says about the permissions of a user: the requests WHO_AM_I and CAN_I."""

from typing import NamedTuple, Protocol, runtime_checkable

from bolide.auth.access import Access, Identity, is_loopback
from bolide.auth.open_access import LocalAdministration
from bolide.protocol.codes import RequestCode
from bolide.protocol.header import NoHeader
from bolide.protocol.headers.access import CanIHeader, CanIReply, WhoAmIReply
from bolide.protocol.refusals import InvalidParameter
from bolide.remoting.dispatch import Reply, Request, handles

NONE = "none"


class Standing(NamedTuple):
    """How access control sees an identity."""

    access_control: str
    """The kind: "none", "ACL 1.0" or "ACL 2.0"."""
    is_super: bool
    """Whether it may do everything."""


class Question(NamedTuple):
    """Whether a user may do one of the actions on a resource, from an address."""

    username: str | None
    resource: str
    actions: str
    """One or several, separated by commas."""
    source: str | None


@runtime_checkable
class Explaining(Protocol):
    """An `Access` that can explain its decisions."""

    def standing(self, identity: Identity) -> Standing: ...

    def answer(self, identity: Identity, question: Question) -> str | None:
        """Say why something is not allowed; None if it is.

        Raises:
            NoPermission: the identity may not ask about this user.
            InvalidParameter: the question is malformed.
        """
        ...


def may_administer(access: Access, peer: str) -> bool:
    """Whether a server without accounts takes requests that administer from a peer."""
    return not isinstance(access, LocalAdministration) or is_loopback(peer)


class StandingHandlers:
    """Serve both requests, on a broker or a NameServer."""

    def __init__(self, access: Access) -> None:
        self._access = access

    @handles(NoHeader, RequestCode.BOLIDE_WHO_AM_I)
    def who_am_i(self, request: Request[NoHeader]) -> Reply:
        identity = self._access.check(request.frame, request.connection.peer)
        standing = Standing(NONE, is_super=may_administer(self._access, identity.peer))
        if isinstance(self._access, Explaining):
            standing = self._access.standing(identity)
        return Reply(
            header=WhoAmIReply(
                access_key=identity.access_key,
                peer=identity.peer,
                access_control=standing.access_control,
                is_super=standing.is_super,
            )
        )

    @handles(CanIHeader, RequestCode.BOLIDE_CAN_I)
    def can_i(self, request: Request[CanIHeader]) -> Reply:
        asked = request.header
        identity = self._access.check(request.frame, request.connection.peer)
        if not isinstance(self._access, Explaining):
            raise InvalidParameter(
                "this server has no users and policies; authenticationEnabled=true turns them on"
            )
        question = Question(asked.username, asked.resource, asked.actions, asked.source_ip)
        reason = self._access.answer(identity, question)
        return Reply(header=CanIReply(allowed=reason is None, reason=reason))
