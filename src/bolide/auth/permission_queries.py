"""What a server says about the permissions of a user: the requests WHO_AM_I and CAN_I."""

from typing import NamedTuple, Protocol, Self, runtime_checkable

from bolide.auth.access import Access, Identity, LocalAdministration, is_loopback
from bolide.auth.policies.decisions import parsed_address
from bolide.auth.policies.model import Action, BadPolicy, Pattern, Resource
from bolide.protocol.codes import RequestCode
from bolide.protocol.header import NoHeader
from bolide.protocol.headers.access import CanIHeader, CanIReply, WhoAmIReply
from bolide.protocol.refusals import InvalidParameter
from bolide.remoting.dispatch import Reply, Request, handles

NONE = "none"


class Privileges(NamedTuple):
    """How access control sees an identity."""

    access_control: str
    """The kind: "none", "ACL 1.0" or "ACL 2.0"."""
    is_super: bool
    """Whether it may do everything; without access control, whether it may administer."""
    power: str
    """What it may do, in words that follow its name."""


class Question(NamedTuple):
    """Whether a user may do all of the actions with a resource, from an address."""

    username: str | None
    """None: the one who asks."""
    resource: Resource
    actions: tuple[Action, ...]
    source: str | None
    """None: the address of the one who asks."""

    @classmethod
    def of(cls, header: CanIHeader) -> Self:
        """Raises InvalidParameter if a part of the question cannot be read."""
        try:
            resource = Resource.parse(header.resource)
            actions = tuple(map(Action.parse, header.actions.split(",")))
        except BadPolicy as exc:
            raise InvalidParameter(str(exc)) from exc
        if resource.pattern is not Pattern.LITERAL:
            raise InvalidParameter(
                f"{resource} stands for several resources, of which policies may decide"
                " differently: name one of them"
            )
        if Action.ALL in actions:
            actions = tuple(each for each in Action if each is not Action.ALL)
        source = (header.source_ip or "").strip() or None
        if source is not None and parsed_address(source) is None:
            raise InvalidParameter(f"{source!r} is not an IP address")
        return cls(header.username, resource, actions, source)


class Answer(NamedTuple):
    """The answer to a question."""

    allowed: bool
    reason: str | None = None
    """Why not; or, if more than permissions allow it, what does."""


@runtime_checkable
class Explaining(Protocol):
    """An `Access` that can explain its decisions."""

    def privileges(self, identity: Identity) -> Privileges: ...

    def answer(self, identity: Identity, question: Question) -> Answer:
        """Say what `check` would decide about requests that do this.

        Raises:
            NoPermission: the identity may not ask about this user.
            InvalidParameter: access control does not decide about such resources.
        """
        ...


def may_administer(access: Access, peer: str) -> bool:
    """Whether a server without accounts takes requests that administer from a peer."""
    return not isinstance(access, LocalAdministration) or is_loopback(peer)


class PermissionQueryHandlers:
    """Serve both requests, on a broker or a NameServer."""

    def __init__(self, access: Access) -> None:
        self._access = access

    @handles(NoHeader, RequestCode.BOLIDE_WHO_AM_I)
    def who_am_i(self, request: Request[NoHeader]) -> Reply:
        identity = self._access.check(request.frame, request.connection.peer)
        access = self._access
        privileges = (
            access.privileges(identity)
            if isinstance(access, Explaining)
            else open_privileges(access, identity.peer)
        )
        return Reply(
            header=WhoAmIReply(
                access_key=identity.access_key,
                peer=identity.peer,
                access_control=privileges.access_control,
                is_super=privileges.is_super,
                power=privileges.power,
            )
        )

    @handles(CanIHeader, RequestCode.BOLIDE_CAN_I)
    def can_i(self, request: Request[CanIHeader]) -> Reply:
        identity = self._access.check(request.frame, request.connection.peer)
        if not isinstance(self._access, Explaining):
            raise InvalidParameter(
                "this server has no users and policies; authenticationEnabled=true turns them on"
            )
        answer = self._access.answer(identity, Question.of(request.header))
        return Reply(header=CanIReply(allowed=answer.allowed, reason=answer.reason))


def open_privileges(access: Access, peer: str) -> Privileges:
    if not may_administer(access, peer):
        return Privileges(NONE, False, "may send and receive, but not administer")
    everybody = "everybody on this machine" if is_loopback(peer) else "everybody"
    return Privileges(NONE, True, f"may administer, as {everybody}")
