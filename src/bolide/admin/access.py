"""Users and policies of ACL 2.0, and what a server says about one's own permissions."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from bolide.admin.errors import AdminError
from bolide.admin.servers import Servers
from bolide.auth.policies.model import (
    BadPolicy,
    Entry,
    PolicyType,
    Resource,
    UserStatus,
    UserType,
    checked_username,
)
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

CUSTOM = PolicyType.CUSTOM.value
PASSWORD = "PASSWORD"  # noqa: S105  the beginning of the names of variables
_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


class Users:
    """The users of a broker. Bolide never tells a password: it is empty in answers."""

    def __init__(self, servers: Servers) -> None:
        self._servers = servers

    async def create(
        self,
        address: str,
        username: str,
        password: str,
        user_type: str | None = None,
        user_status: str | None = None,
    ) -> None:
        """Create a user; it is a normal one and enabled unless type or status say otherwise."""
        user = User(
            username=username, password=password, user_type=user_type, user_status=user_status
        )
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
        """Whether the caller, or another user, may do all of the actions on a resource.

        Raises:
            NoPermission: only administrators may ask about others.
        """
        header = CanIHeader(resource=resource, actions=actions, username=username, source_ip=source)
        reply = await self._servers.call(address, RequestCode.BOLIDE_CAN_I, header)
        return CanIReply.from_fields(reply.fields)


# ---- users and policies as a document


Entries = Mapping[tuple[PolicyType, Resource], Entry]
"""The policy entries of one user. Values, not texts: a document may spell them in other ways than
the broker that answers, in another case for example."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WantedUser:
    """A user of a document."""

    username: str
    password: str | None = field(default=None, repr=False)
    """A reference, `${NAME}`."""
    user_type: UserType = UserType.NORMAL
    user_status: UserStatus = UserStatus.ENABLE
    entries: Entries = field(default_factory=dict)

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
    puts: tuple[PolicyType, Entry] | None = None
    deletes: tuple[PolicyType, Resource] | None = None


class BadDocument(AdminError):
    """A file of users and policies cannot be used; the text says what to change."""


class UnreadablePolicies(AdminError):
    """A broker has policies that cannot be compared with those of a document."""


def exported(users: Iterable[User], acls: Iterable[Acl]) -> dict[str, Any]:
    """The document of users and policies; passwords are references to the environment."""
    by_subject = {acl.subject: acl for acl in acls}
    users = list(users)
    passwords = references((user.username or "" for user in users), PASSWORD)
    return {
        "users": {
            user.username: {
                "password": passwords[user.username or ""],
                "type": user.user_type,
                "status": user.user_status,
                "policies": list(_documents(by_subject.get(f"User:{user.username}"))),
            }
            for user in users
        }
    }


def load_document(data: bytes) -> object:
    """Read YAML; its text may have a secret, so errors do not show it. Raises BadDocument."""
    import yaml  # noqa: PLC0415  only this needs it

    try:
        return yaml.safe_load(data)
    except yaml.MarkedYAMLError as exc:
        where = "" if exc.problem_mark is None else f"line {exc.problem_mark.line + 1}: "
        raise BadDocument(f"{where}not valid YAML: {exc.problem}") from None
    except (yaml.YAMLError, ValueError, OverflowError, RecursionError) as exc:
        raise BadDocument(f"not valid YAML ({type(exc).__name__})") from None


def parse_document(document: object) -> list[WantedUser]:
    """Read a document. Raises BadDocument."""
    users = document.get("users") if isinstance(document, dict) else None
    if not isinstance(users, dict):
        raise BadDocument("the file needs a map of users under the key users")
    return [_wanted(str(name), given or {}) for name, given in users.items()]


def changes(
    wanted: Iterable[WantedUser], users: Iterable[User], acls: Iterable[Acl]
) -> Iterator[Change]:
    """The steps that make a broker have the wanted users; other users are left alone.

    Raises:
        UnreadablePolicies: the broker has an entry of such a user that we do not understand.
    """
    existing = {user.username: user for user in users}
    acl_of_subject = {acl.subject: acl for acl in acls}
    for user in wanted:
        old = existing.get(user.username)
        kind, status = user.user_type.value, user.user_status.value
        if old is None:
            disabled = "" if user.user_status is UserStatus.ENABLE else f", {status}"
            text = f"+ {user.username} ({kind}{disabled})"
            yield Change(text=text, user=user, creates=True)
        elif (_folded(old.user_type), _folded(old.user_status)) != (_folded(kind), _folded(status)):
            text = f"~ {user.username} {old.user_type}, {old.user_status} -> {kind}, {status}"
            yield Change(text=text, user=user, updates=True)
        yield from _entry_changes(user, entries_of(acl_of_subject.get(user.subject)))


def resolved_password(user: WantedUser, environment: Mapping[str, str]) -> str:
    """The password of a new user. Raises BadDocument if the environment does not have it."""
    found = _REFERENCE.fullmatch(user.password or "")
    if found is None:
        raise BadDocument(
            f"the new user {user.username} needs a password: a reference such as"
            f" {reference(PASSWORD, user.username)}"
        )
    password = environment.get(found[1], "")
    if not password.strip():
        raise BadDocument(f"set {found[1]}, the password of the new user {user.username}")
    return password


def acl_of(subject: str, policy_type: str, entries: list[PolicyEntry]) -> Acl:
    return Acl(subject=subject, policies=[Policy(policy_type=policy_type, entries=entries)])


def entries_of(acl: Acl | None) -> Entries:
    """The entries of a user at a broker.

    Raises:
        UnreadablePolicies: we do not understand one of them.
    """
    if acl is None:
        return {}
    try:
        return {
            (PolicyType.parse(kind), Resource.parse(entry.resource)): Entry.of(entry)
            for kind, entry in _with_types(acl)
        }
    except BadPolicy as exc:
        raise UnreadablePolicies(
            f"the policies of {acl.subject} cannot be compared: {exc}"
        ) from exc


def _folded(text: str | None) -> str:
    return (text or "").strip().lower()


def _entry_changes(user: WantedUser, old: Entries) -> Iterator[Change]:
    for key, entry in user.entries.items():
        found = old.get(key)
        if found is None or comparable(found) != comparable(entry):
            mark = "+" if found is None else "~"
            text = f"{mark} {user.username}: {_shown(key[0], entry)}"
            yield Change(text=text, user=user, puts=(key[0], entry))
    for key, entry in old.items():
        if key not in user.entries:
            text = f"- {user.username}: {_shown(key[0], entry)}"
            yield Change(text=text, user=user, deletes=key)


def comparable(entry: Entry) -> PolicyEntry:
    """What an entry decides, however its addresses are written and ordered."""
    wire = entry.to_wire()
    wire.source_ips = sorted({str(each) for each in entry.sources}) or None
    return wire


def _shown(kind: PolicyType, entry: Entry) -> str:
    wire = entry.to_wire()
    sources = f" from {', '.join(wire.source_ips)}" if wire.source_ips else ""
    default = "" if kind is PolicyType.CUSTOM else f" ({kind.value})"
    return f"{wire.decision} {','.join(wire.actions)} on {wire.resource}{sources}{default}"


def _with_types(acl: Acl) -> Iterator[tuple[str, PolicyEntry]]:
    for policy in acl.policies:
        for entry in policy.entries:
            yield policy.policy_type or CUSTOM, entry


def _documents(acl: Acl | None) -> Iterator[dict[str, Any]]:
    for kind, entry in _with_types(acl) if acl is not None else ():
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
            f" {reference(PASSWORD, name)}"
        )
    try:
        return WantedUser(
            username=checked_username(name),
            password=None if password is None else str(password),
            user_type=UserType.parse(str(given.get("type") or UserType.NORMAL.value)),
            user_status=UserStatus.parse(str(given.get("status") or UserStatus.ENABLE.value)),
            entries=_wanted_entries(given.get("policies") or []),
        )
    except BadPolicy as exc:  # what a broker would refuse, before a part of the file is applied
        raise BadDocument(f"user {name}: {exc}") from exc


def _wanted_entries(given: object) -> Entries:
    """Raises BadPolicy."""
    if not isinstance(given, list):
        raise BadPolicy("policies must be a list")
    entries: dict[tuple[PolicyType, Resource], Entry] = {}
    for each in given:
        kind, entry = _wanted_entry(each)
        if (kind, entry.resource) in entries:
            raise BadPolicy(f"two policies are about {entry.resource}; a broker keeps one")
        entries[kind, entry.resource] = entry
    return entries


def _wanted_entry(each: object) -> tuple[PolicyType, Entry]:
    if not isinstance(each, dict) or not {"resource", "actions", "decision"} <= each.keys():
        raise BadPolicy("a policy needs resource, actions and decision")
    entry = PolicyEntry(
        resource=str(each["resource"]),
        actions=_texts(each["actions"]),
        source_ips=_texts(each.get("sourceIps")) or None,
        decision=str(each["decision"]),
    )
    return PolicyType.parse(str(each.get("type") or CUSTOM)), Entry.of(entry)


def _texts(value: object) -> list[str]:
    if value is None:
        return []
    return [str(each) for each in value] if isinstance(value, list) else [str(value)]


def references(names: Iterable[str], prefix: str) -> dict[str, str]:
    """A reference to the environment for each name: `a-b` and `a_b` must not share a password."""
    taken: set[str] = set()
    found: dict[str, str] = {}
    for name in sorted(names):  # the same at each export
        plain = text = reference(prefix, name)
        number = 1
        while text in taken:
            number += 1
            text = f"{plain[:-1]}_{number}}}"
        taken.add(text)
        found[name] = text
    return found


def reference(prefix: str, name: str) -> str:
    """`${PASSWORD_MY_SHOP}` for my-shop."""
    return f"${{{prefix}_{re.sub(r'[^A-Za-z0-9_]', '_', name).upper()}}}"


def referenced(text: str) -> str | None:
    """The variable that a reference names; None if the text is none."""
    found = _REFERENCE.fullmatch(text)
    return None if found is None else found[1]
