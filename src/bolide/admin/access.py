"""Users and policies of ACL 2.0, and what a server says about one's own permissions."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from bolide.admin.errors import AdminError
from bolide.admin.servers import Servers
from bolide.auth.policies import model
from bolide.protocol import fastjson
from bolide.protocol.bodies.access import Acl, Policy, PolicyEntry, User
from bolide.protocol.codes import RequestCode
from bolide.protocol.headers.access import (
    CanIHeader,
    CanIReply,
    DeleteAclHeader,
    ListAclsHeader,
    ListUsersHeader,
    SubjectHeader,
    UserHeader,
    WhoAmIReply,
)

CUSTOM = "Custom"
_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


class Users:
    """The users of a broker. Bolide never tells a password: it is empty in answers."""

    def __init__(self, servers: Servers) -> None:
        self._servers = servers

    async def create(
        self, address: str, username: str, password: str, user_type: str | None = None
    ) -> None:
        user = User(username=username, password=password, user_type=user_type)
        await self._send(address, RequestCode.AUTH_CREATE_USER, user)

    async def update(
        self,
        address: str,
        username: str,
        *,
        password: str | None = None,
        user_type: str | None = None,
        user_status: str | None = None,
    ) -> None:
        """Change what is given."""
        user = User(
            username=username, password=password, user_type=user_type, user_status=user_status
        )
        await self._send(address, RequestCode.AUTH_UPDATE_USER, user)

    async def delete(self, address: str, username: str) -> None:
        """Delete a user and its policies."""
        await self._servers.call(address, RequestCode.AUTH_DELETE_USER, UserHeader(username))

    async def find(self, address: str, username: str) -> User | None:
        code = RequestCode.AUTH_GET_USER
        reply = await self._servers.call(address, code, UserHeader(username))
        return fastjson.decode(reply.body, User) if reply.body else None

    async def list(self, address: str, name_filter: str | None = None) -> list[User]:
        """The users whose names contain the filter."""
        code = RequestCode.AUTH_LIST_USER
        reply = await self._servers.call(address, code, ListUsersHeader(name_filter))
        return fastjson.decode(reply.body or b"[]", list[User])

    async def _send(self, address: str, code: RequestCode, user: User) -> None:
        header = UserHeader(user.username or "")
        await self._servers.call(address, code, header, body=fastjson.encode(user))


class Policies:
    """The policies of the users of a broker."""

    def __init__(self, servers: Servers) -> None:
        self._servers = servers

    async def create(self, address: str, acl: Acl) -> None:
        """Add policies; an entry replaces one about the same resource."""
        await self._send(address, RequestCode.AUTH_CREATE_ACL, acl)

    async def update(self, address: str, acl: Acl) -> None:
        await self._send(address, RequestCode.AUTH_UPDATE_ACL, acl)

    async def delete(
        self,
        address: str,
        subject: str,
        resource: str | None = None,
        policy_type: str | None = None,
    ) -> None:
        """Delete the entry about a resource, or all of the subject."""
        header = DeleteAclHeader(subject=subject, policy_type=policy_type, resource=resource)
        await self._servers.call(address, RequestCode.AUTH_DELETE_ACL, header)

    async def find(self, address: str, subject: str) -> Acl | None:
        code = RequestCode.AUTH_GET_ACL
        reply = await self._servers.call(address, code, SubjectHeader(subject))
        return fastjson.decode(reply.body, Acl) if reply.body else None

    async def list(
        self, address: str, subject_filter: str | None = None, resource_filter: str | None = None
    ) -> list[Acl]:
        """The policies whose subjects and resources contain the filters."""
        header = ListAclsHeader(subject_filter, resource_filter)
        reply = await self._servers.call(address, RequestCode.AUTH_LIST_ACL, header)
        return fastjson.decode(reply.body or b"[]", list[Acl])

    async def _send(self, address: str, code: RequestCode, acl: Acl) -> None:
        header = SubjectHeader(acl.subject or "")
        await self._servers.call(address, code, header, body=fastjson.encode(acl))


class Permissions:
    """What a Bolide server says about permissions; RocketMQ has no such requests."""

    def __init__(self, servers: Servers) -> None:
        self._servers = servers

    async def who_am_i(self, address: str | None = None) -> WhoAmIReply:
        """Whom a server takes the caller for; by default the first NameServer that answers."""
        code = RequestCode.BOLIDE_WHO_AM_I
        if address is None:
            reply = await self._servers.call_name_server(code)
        else:
            reply = await self._servers.call(address, code)
        return WhoAmIReply.from_fields(reply.fields)

    async def can_i(
        self,
        address: str,
        resource: str,
        actions: str,
        *,
        username: str | None = None,
        source: str | None = None,
    ) -> CanIReply:
        """Whether the caller, or another user, may do one of the actions on a resource.

        Raises:
            NoPermission: only administrators may ask about others.
        """
        header = CanIHeader(resource=resource, actions=actions, username=username, source_ip=source)
        reply = await self._servers.call(address, RequestCode.BOLIDE_CAN_I, header)
        return CanIReply.from_fields(reply.fields)


# ---- users and policies as a document


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedUser:
    """A user of a document, with its policy entries by type and resource."""

    username: str
    password: str | None = field(default=None, repr=False)
    """A reference, `${NAME}`."""
    user_type: str = "Normal"
    user_status: str = "enable"
    entries: Mapping[tuple[str, str], PolicyEntry] = field(default_factory=dict)

    @property
    def subject(self) -> str:
        return f"User:{self.username}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One step from what a broker has to what a document wants."""

    text: str
    user: WantedUser
    creates: bool = False
    updates: bool = False
    puts: tuple[str, PolicyEntry] | None = None
    deletes: tuple[str, str] | None = None


class BadDocument(AdminError):
    """A file of users and policies cannot be used; the text says what to change."""


def exported(users: Iterable[User], acls: Iterable[Acl]) -> dict[str, Any]:
    """The document of users and policies; passwords are references to the environment."""
    by_subject = {acl.subject: acl for acl in acls}
    users = list(users)
    variables = _variables(user.username or "" for user in users)
    return {
        "users": {
            user.username: {
                "password": "${" + variables[user.username or ""] + "}",
                "type": user.user_type,
                "status": user.user_status,
                "policies": list(_documents(by_subject.get(f"User:{user.username}"))),
            }
            for user in users
        }
    }


def parse_document(document: object) -> list[WantedUser]:
    """Read a document. Raises BadDocument."""
    users = document.get("users") if isinstance(document, dict) else None
    if not isinstance(users, dict):
        raise BadDocument("the file needs a map of users under the key users")
    wanted = [_wanted(str(name), given or {}) for name, given in users.items()]
    for user in wanted:
        _check(user)
    return wanted


def _check(user: WantedUser) -> None:
    """Refuse what a broker would refuse, before a part of the document is applied."""
    try:
        model.checked_username(user.username)
        model.UserType.parse(user.user_type)
        model.UserStatus.parse(user.user_status)
        for kind, _ in user.entries:
            model.PolicyType.parse(kind)
        for entry in user.entries.values():
            model.Entry.of(entry)
    except model.BadPolicy as exc:
        raise BadDocument(f"user {user.username}: {exc}") from exc


def changes(
    wanted: Iterable[WantedUser], users: Iterable[User], acls: Iterable[Acl]
) -> Iterator[Change]:
    """The steps that make a broker have the wanted users; other users are left alone."""
    existing = {user.username: user for user in users}
    entries = {acl.subject: dict(_keyed(acl)) for acl in acls}
    for user in wanted:
        old = existing.get(user.username)
        if old is None:
            yield Change(text=f"+ {user.username} ({user.user_type})", user=user, creates=True)
        elif (old.user_type, old.user_status) != (user.user_type, user.user_status):
            text = f"~ {user.username} {old.user_type}, {old.user_status}"
            text += f" -> {user.user_type}, {user.user_status}"
            yield Change(text=text, user=user, updates=True)
        yield from _entry_changes(user, entries.get(user.subject, {}))


def resolved_password(user: WantedUser, environment: Mapping[str, str]) -> str:
    """The password of a new user. Raises BadDocument if the environment does not have it."""
    found = _REFERENCE.fullmatch(user.password or "")
    if found is None:
        raise BadDocument(
            f"the new user {user.username} needs a password: a reference such as"
            f" ${{{_variable(user.username)}}}"
        )
    password = environment.get(found[1], "")
    if not password.strip():
        raise BadDocument(f"set {found[1]}, the password of the new user {user.username}")
    return password


def acl_of(subject: str, policy_type: str, entries: list[PolicyEntry]) -> Acl:
    return Acl(subject=subject, policies=[Policy(policy_type=policy_type, entries=entries)])


def _entry_changes(
    user: WantedUser, old: Mapping[tuple[str, str], PolicyEntry]
) -> Iterator[Change]:
    for (kind, resource), entry in user.entries.items():
        found = old.get((kind, resource))
        if found is None or _comparable(found) != _comparable(entry):
            mark = "+" if found is None else "~"
            text = f"{mark} {user.username}: {_shown(kind, entry)}"
            yield Change(text=text, user=user, puts=(kind, entry))
    for (kind, resource), entry in old.items():
        if (kind, resource) not in user.entries:
            text = f"- {user.username}: {_shown(kind, entry)}"
            yield Change(text=text, user=user, deletes=(kind, resource))


def _comparable(entry: PolicyEntry) -> tuple[object, ...]:
    return sorted(entry.actions), sorted(entry.source_ips or []), entry.decision


def _shown(kind: str, entry: PolicyEntry) -> str:
    sources = f" from {', '.join(entry.source_ips)}" if entry.source_ips else ""
    default = "" if kind == CUSTOM else f" ({kind})"
    return f"{entry.decision} {','.join(entry.actions)} on {entry.resource}{sources}{default}"


def _keyed(acl: Acl) -> Iterator[tuple[tuple[str, str], PolicyEntry]]:
    for policy in acl.policies:
        for entry in policy.entries:
            yield (policy.policy_type or CUSTOM, entry.resource or ""), entry


def _documents(acl: Acl | None) -> Iterator[dict[str, Any]]:
    for (kind, _), entry in _keyed(acl) if acl is not None else ():
        document: dict[str, Any] = {
            "resource": entry.resource,
            "actions": entry.actions,
            "decision": entry.decision,
        }
        if entry.source_ips:
            document["sourceIps"] = entry.source_ips
        if kind != CUSTOM:
            document["type"] = kind
        yield document


def _wanted(name: str, given: object) -> WantedUser:
    if not isinstance(given, dict):
        raise BadDocument(f"user {name}: must be a map")
    password = given.get("password")
    if password is not None and not _REFERENCE.fullmatch(str(password)):
        raise BadDocument(
            f"user {name}: a password is not written here but refers to the environment, as"
            f" ${{{_variable(name)}}}"
        )
    entries = {}
    for each in given.get("policies") or []:
        kind, entry = _entry(name, each)
        entries[kind, entry.resource or ""] = entry
    return WantedUser(
        username=name,
        password=None if password is None else str(password),
        user_type=str(given.get("type") or "Normal"),
        user_status=str(given.get("status") or "enable"),
        entries=entries,
    )


def _entry(name: str, each: object) -> tuple[str, PolicyEntry]:
    if not isinstance(each, dict) or not {"resource", "actions", "decision"} <= each.keys():
        raise BadDocument(f"user {name}: a policy needs resource, actions and decision")
    entry = PolicyEntry(
        resource=str(each["resource"]),
        actions=_texts(each["actions"]),
        source_ips=_texts(each.get("sourceIps")) or None,
        decision=str(each["decision"]),
    )
    return str(each.get("type") or CUSTOM), entry


def _texts(value: object) -> list[str]:
    if value is None:
        return []
    return [str(each) for each in value] if isinstance(value, list) else [str(value)]


def _variables(usernames: Iterable[str]) -> dict[str, str]:
    """A variable for each user: `a-b` and `a_b` must not share a password."""
    taken: set[str] = set()
    found: dict[str, str] = {}
    for username in sorted(usernames):  # the same at each export
        plain = name = _variable(username)
        number = 1
        while name in taken:
            number += 1
            name = f"{plain}_{number}"
        taken.add(name)
        found[username] = name
    return found


def _variable(username: str) -> str:
    return "PASSWORD_" + re.sub(r"[^A-Za-z0-9_]", "_", username).upper()
