"""Requests about users and policies of ACL 2.0 (3001 to 3010), with RocketMQ's answers.

Two answers differ: a password never leaves the broker, so AUTH_GET_USER and AUTH_LIST_USER have an
empty one; and what RocketMQ reads as something else, such as an unknown action, is refused.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TypeVar

from bolide.auth.access import Access
from bolide.auth.policies.access import PolicyAccess
from bolide.auth.policies.metadata import Metadata
from bolide.auth.policies.model import (
    Acl,
    BadPolicy,
    PolicyType,
    Resource,
    User,
    UserStatus,
    UserType,
    checked_username,
    optional,
    parse_subject,
)
from bolide.broker.background import ADMIN, on_thread, read_json
from bolide.protocol import fastjson
from bolide.protocol.bodies import access as wire
from bolide.protocol.codes import RequestCode
from bolide.protocol.headers.access import (
    DeleteAclHeader,
    ListAclsHeader,
    ListUsersHeader,
    SubjectHeader,
    UserHeader,
)
from bolide.protocol.refusals import InvalidParameter, NoPermission, ServerError
from bolide.remoting.dispatch import H, Reply, Request, handles

_MAX_BODY = 256 * 1024
_BLANK_NAME = "The username is blank"
_TWO_NAMES = "the header names {!r}, the body {!r}: both must be the same"

B = TypeVar("B")


class UserHandlers:
    """Serve 3001 to 3005."""

    def __init__(self, access: Access) -> None:
        self._access = access

    @handles(UserHeader, RequestCode.AUTH_CREATE_USER, max_body=_MAX_BODY)
    async def create(self, request: Request[UserHeader]) -> Reply:
        metadata = _metadata(self._access)
        with _as_java():
            name, body = await _named_user(request)
            kind = optional(UserType, body.user_type) or UserType.NORMAL
            if kind is UserType.SUPER and not self._is_super(request):
                raise ServerError("The super user can only be create by super user")
            if not body.password or not body.password.strip():
                raise NoPermission("password can not be blank")
            status = optional(UserStatus, body.user_status) or UserStatus.ENABLE
            await metadata.create_user(User(name, body.password, kind, status))
        return Reply()

    @handles(UserHeader, RequestCode.AUTH_UPDATE_USER, max_body=_MAX_BODY)
    async def update(self, request: Request[UserHeader]) -> Reply:
        metadata = _metadata(self._access)
        refusal = "The super user can only be update by super user"
        with _as_java():
            name, body = await _named_user(request)
            kind = optional(UserType, body.user_type)
            if kind is UserType.SUPER and not self._is_super(request):
                raise ServerError(refusal)
            await metadata.update_user(
                name,
                password=body.password if (body.password or "").strip() else None,
                type=kind,
                status=optional(UserStatus, body.user_status),
                guard=partial(self._protect_super_user, request, refusal),
            )
        return Reply()

    @handles(UserHeader, RequestCode.AUTH_DELETE_USER)
    async def delete(self, request: Request[UserHeader]) -> Reply:
        metadata, name = _metadata(self._access), request.header.username
        if not name.strip():
            raise NoPermission("username can not be blank")
        refusal = "The super user can only be update by super user"  # RocketMQ's words
        guard = partial(self._protect_super_user, request, refusal)
        await metadata.delete_user(name, guard)
        return Reply()

    @handles(UserHeader, RequestCode.AUTH_GET_USER)
    def get(self, request: Request[UserHeader]) -> Reply:
        if not request.header.username.strip():
            raise InvalidParameter(_BLANK_NAME)
        user = _metadata(self._access).users.get(request.header.username)
        return Reply(body=fastjson.encode(user.to_wire()) if user is not None else b"")

    @handles(ListUsersHeader, RequestCode.AUTH_LIST_USER)
    async def list(self, request: Request[ListUsersHeader]) -> Reply:
        wanted = (request.header.filter or "").strip()
        # On a thread: users are never modified, a change replaces the map of them.
        body = await on_thread(ADMIN, _listed_users, _metadata(self._access).users, wanted)
        return Reply(body=body)

    def _is_super(self, request: Request[UserHeader]) -> bool:
        access = _policies(self._access)
        return access.is_super(access.check(request.frame, request.connection.peer))

    def _protect_super_user(self, request: Request[UserHeader], refusal: str, old: User) -> None:
        if old.is_super and not self._is_super(request):
            raise NoPermission(refusal)


class PolicyHandlers:
    """Serve 3006 to 3010."""

    def __init__(self, access: Access) -> None:
        self._access = access

    @handles(
        SubjectHeader, RequestCode.AUTH_CREATE_ACL, RequestCode.AUTH_UPDATE_ACL, max_body=_MAX_BODY
    )
    async def update(self, request: Request[SubjectHeader]) -> Reply:
        metadata = _metadata(self._access)
        body, subject = await _body(request, wire.Acl), request.header.subject
        if not body.policies:
            raise ServerError("The body of acl is null")
        with _as_java():
            acl = Acl.of(body, subject)
            if parse_subject(subject) != acl.username:
                raise InvalidParameter(_TWO_NAMES.format(subject, body.subject))
            await metadata.update_acl(acl)
        return Reply()

    @handles(DeleteAclHeader, RequestCode.AUTH_DELETE_ACL)
    async def delete(self, request: Request[DeleteAclHeader]) -> Reply:
        metadata, header = _metadata(self._access), request.header
        with _as_java():
            kind = optional(PolicyType, header.policy_type)
            # A resource that cannot be read must not mean all of them.
            resource = Resource.parse(header.resource) if header.resource else None
            await metadata.delete_acl(parse_subject(header.subject), kind, resource)
        return Reply()

    @handles(SubjectHeader, RequestCode.AUTH_GET_ACL)
    def get(self, request: Request[SubjectHeader]) -> Reply:
        metadata = _metadata(self._access)
        with _as_java():
            name = metadata.require_user(parse_subject(request.header.subject)).username
        acl = metadata.acls.get(name)
        body = acl.to_wire() if acl is not None else None
        return Reply(body=fastjson.encode(body) if body is not None else b"")

    @handles(ListAclsHeader, RequestCode.AUTH_LIST_ACL)
    async def list(self, request: Request[ListAclsHeader]) -> Reply:
        subject = (request.header.subject_filter or "").strip()
        resource = (request.header.resource_filter or "").strip()
        acls = _metadata(self._access).acls
        return Reply(body=await on_thread(ADMIN, _listed_acls, acls, subject, resource))


def _policies(access: Access) -> PolicyAccess:
    if not isinstance(access, PolicyAccess):
        raise ServerError(
            "this broker has no users and policies: set authenticationEnabled=true and"
            " initAuthenticationUser, then restart it"
        )
    return access


def _metadata(access: Access) -> Metadata:
    return _policies(access).metadata


def _listed_users(users: Mapping[str, User], wanted: str) -> bytes:
    found = [users[name].to_wire() for name in sorted(users) if wanted in name]
    return fastjson.encode(found) if found else b""


def _listed_acls(acls: Mapping[str, Acl], subject: str, resource: str) -> bytes:
    found = [
        body
        for name in sorted(acls)
        if subject in acls[name].subject and (body := acls[name].to_wire(resource)) is not None
    ]
    return fastjson.encode(found) if found else b""


async def _named_user(request: Request[UserHeader]) -> tuple[str, wire.User]:
    """The name in the header, and the user in the body.

    Raises:
        InvalidParameter: there is no name, or there are two.
        BadPolicy: the name is blank or cannot be printed.
    """
    name = request.header.username
    if not name:
        raise InvalidParameter(_BLANK_NAME)
    checked_username(name)
    body = await _body(request, wire.User)
    if body.username and body.username != name:
        raise InvalidParameter(_TWO_NAMES.format(name, body.username))
    return name, body


async def _body(request: Request[H], shape: type[B]) -> B:
    if not request.body:
        raise InvalidParameter("the request has no body")
    return await read_json(request, shape)


@contextmanager
def _as_java() -> Iterator[None]:
    """Refuse what is malformed with RocketMQ's response code."""
    try:
        yield
    except BadPolicy as exc:
        raise NoPermission(str(exc)) from exc
