"""Users and policies of ACL 2.0: who may do what with topics and groups.

No view has a password. A generated one is in the answer of the operation that makes it, once.
"""

import secrets
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from bolide.admin.access import acl_of
from bolide.auth.policies.model import (
    Action,
    BadPolicy,
    Decision,
    Entry,
    PolicyType,
    Resource,
    Source,
    UserStatus,
    UserType,
    checked_username,
)
from bolide.operations.access_brokers import (
    SHARED,
    AccessKind,
    AppliedChange,
    Site,
    apply_to_each,
    ask_each,
    require_kind,
)
from bolide.operations.cluster import Cluster
from bolide.operations.declaration import Role, change, read
from bolide.operations.errors import BadInput, Conflict, NotFound
from bolide.operations.views import Failure, Page, page_of
from bolide.protocol.bodies import access as wire

_FRESH_SECONDS = 5.0
_PASSWORD_BYTES = 24
_MIN_PASSWORD = 8


class UserSort(StrEnum):
    """By what a list of users is sorted."""

    NAME = "name"
    TYPE = "type"
    STATUS = "status"
    POLICIES = "policies"


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyView:
    """A policy entry: the decision about actions on a resource, from some addresses or any."""

    resource: str
    """`Topic:orders`, `Topic:orders*`, `Topic:*`, the same with Group or Cluster, or `*`."""
    actions: list[str]
    """Pub, Sub, Create, Update, Delete, Get, List or All."""
    decision: str
    """Allow or Deny."""
    sources: list[str] = field(default_factory=list)
    """Addresses or ranges such as 10.0.0.0/8; empty for any address."""
    kind: str = PolicyType.CUSTOM.value
    """Default policies count only if no Custom one matches."""

    def __str__(self) -> str:
        sources = f" from {', '.join(self.sources)}" if self.sources else ""
        default = "" if self.kind == PolicyType.CUSTOM.value else f" ({self.kind})"
        return f"{self.decision} {', '.join(self.actions)} on {self.resource}{sources}{default}"


@dataclass(frozen=True, slots=True, kw_only=True)
class UserView:
    """A user with its policies."""

    username: str
    user_type: str
    """Super users need no policies; the others are Normal."""
    status: str
    """enable or disable."""
    policies: list[PolicyView]
    missing_at: list[str] = field(default_factory=list)
    """Brokers that do not have the user, while others do."""
    differs_at: list[str] = field(default_factory=list)
    """Brokers at which type, status or policies are others than shown here."""

    @property
    def is_super(self) -> bool:
        return self.user_type == UserType.SUPER.value

    @property
    def is_enabled(self) -> bool:
        return self.status == UserStatus.ENABLE.value


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeUser:
    """A user was created, or has a new password."""

    username: str
    password: str | None
    """The generated password, which nobody can read again; None if the caller gave one."""
    brokers: list[str]
    failures: list[Failure] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessEffect:
    """What a change means for a user."""

    username: str
    loses: list[str]
    """What it will not have any more, in words."""
    gains: list[str]
    warnings: list[str]
    """Who is locked out."""


class Users(NamedTuple):
    """The users of all brokers."""

    by_site: dict[Site, dict[str, UserView]]
    failures: list[Failure]

    def find(self, username: str) -> UserView | None:
        """The user as the first broker has it, and where it is another one."""
        having = {
            site: users[username] for site, users in self.by_site.items() if username in users
        }
        if not having:
            return None
        first = next(iter(having.values()))
        return UserView(
            username=first.username,
            user_type=first.user_type,
            status=first.status,
            policies=first.policies,
            missing_at=[site.broker for site in self.by_site if site not in having],
            differs_at=[site.broker for site, user in having.items() if user != first],
        )

    def all(self) -> list[UserView]:
        names = dict.fromkeys(name for users in self.by_site.values() for name in users)
        return [user for name in names if (user := self.find(name)) is not None]


@read("/access-control/users")
async def list_users(
    cluster: Cluster,
    *,
    search: str = "",
    sort: UserSort = UserSort.NAME,
    descending: bool = False,
    page: int = 1,
    size: int = 50,
) -> Page[UserView]:
    """List the users of ACL 2.0 with their policies; `search` looks at names and resources.

    `missing_at` and `differs_at` name brokers whose users are not the same.
    """
    users = await read_users(cluster)
    wanted = search.casefold()
    rows = [
        user
        for user in users.all()
        if any(wanted in text.casefold() for text in (user.username, *_resources(user)))
    ]
    rows.sort(key=lambda user: user.username)
    rows.sort(key=_SORT_KEYS[sort], reverse=descending)
    return page_of(rows, page=page, size=size, failures=users.failures)


@read("/access-control/users/{username}")
async def get_user(cluster: Cluster, *, username: str) -> UserView:
    """Show a user of ACL 2.0 with its policies; nothing tells its password."""
    users = await read_users(cluster)
    found = users.find(username)
    if found is None:
        raise NotFound(f"no user {username!r}")
    return found


_STATE = get_user.function


@change(
    "POST",
    "/access-control/users",
    target="user {username}",
    role=Role.ADMIN,
    state=_STATE,
    secret=frozenset({"password"}),
)
async def create_user(
    cluster: Cluster,
    *,
    username: str,
    password: str = "",
    user_type: UserType = UserType.NORMAL,
    status: UserStatus = UserStatus.ENABLE,
) -> MadeUser:
    """Create a user of ACL 2.0 at all brokers; without a password one is generated.

    The generated password is in this answer only. A user that some brokers lack is created there;
    give its password then. A new user may do nothing until it has policies, unless it is `Super`.
    """
    name = _username(username)
    sites = await require_kind(cluster, AccessKind.USERS)
    users = await read_users(cluster)
    found = users.find(name)
    missing = [site for site in sites if found is None or site.broker in found.missing_at]
    if not missing:
        raise Conflict(f"user {name!r} exists already")
    if found is not None and not password:
        raise BadInput("password", f"{name!r} exists at other brokers: give its password there")
    chosen = _password(password)
    applied = await apply_to_each(
        cluster,
        missing,
        lambda address: cluster.admin.users.create(
            address, name, chosen, user_type.value, status.value
        ),
    )
    return _made(name, password, chosen, applied)


async def update_effect(
    cluster: Cluster,
    *,
    username: str,
    user_type: UserType | None = None,
    status: UserStatus | None = None,
) -> AccessEffect:
    """Who is locked out by `update_user`."""
    user = await _STATE(cluster, username=username)
    after = UserView(
        username=user.username,
        user_type=user.user_type if user_type is None else user_type.value,
        status=user.status if status is None else status.value,
        policies=user.policies,
    )
    return await _effect(cluster, user, after)


@change(
    "PATCH",
    "/access-control/users/{username}",
    target="user {username}",
    role=Role.ADMIN,
    preview=update_effect,
    state=_STATE,
)
async def update_user(
    cluster: Cluster,
    *,
    username: str,
    user_type: UserType | None = None,
    status: UserStatus | None = None,
) -> AppliedChange:
    """Change the type or the status of a user; a disabled one is refused at once."""
    if user_type is None and status is None:
        raise BadInput("status", "give a type or a status")
    sites = await _sites_of(cluster, username)
    return await apply_to_each(
        cluster,
        sites,
        lambda address: cluster.admin.users.update(
            address,
            username,
            user_type=None if user_type is None else user_type.value,
            user_status=None if status is None else status.value,
        ),
    )


async def password_effect(cluster: Cluster, *, username: str) -> AccessEffect:
    """Who is locked out by `replace_password`."""
    await _STATE(cluster, username=username)
    own = cluster.identity.access_key == username
    warnings = [f"{username} is the user of this session: it ends with the change"] if own else []
    loses = ["clients that use the old password are refused from now on"]
    return AccessEffect(username=username, loses=loses, gains=[], warnings=warnings)


@change(
    "POST",
    "/access-control/users/{username}/password",
    target="user {username}",
    role=Role.ADMIN,
    preview=password_effect,
    state=_STATE,
    secret=frozenset({"password"}),
)
async def replace_password(cluster: Cluster, *, username: str, password: str = "") -> MadeUser:
    """Give a user another password; without one it is generated, and is in this answer only.

    Clients with the old password are refused at once.
    """
    sites = await _sites_of(cluster, username)
    chosen = _password(password)
    applied = await apply_to_each(
        cluster,
        sites,
        lambda address: cluster.admin.users.update(address, username, password=chosen),
    )
    return _made(username, password, chosen, applied)


async def delete_effect(cluster: Cluster, *, username: str) -> AccessEffect:
    """What a user loses with `delete_user`."""
    return await _effect(cluster, await _STATE(cluster, username=username), None)


@change(
    "DELETE",
    "/access-control/users/{username}",
    target="user {username}",
    role=Role.ADMIN,
    preview=delete_effect,
    state=_STATE,
)
async def delete_user(cluster: Cluster, *, username: str) -> AppliedChange:
    """Delete a user and its policies at all brokers; its clients are refused at once."""
    sites = await _sites_of(cluster, username)
    return await apply_to_each(
        cluster, sites, lambda address: cluster.admin.users.delete(address, username)
    )


async def put_effect(  # noqa: PLR0913  the columns of a policy
    cluster: Cluster,
    *,
    username: str,
    resource: str,
    actions: list[str],
    decision: str = Decision.ALLOW.value,
    sources: list[str] | None = None,
    kind: str = PolicyType.CUSTOM.value,
) -> AccessEffect:
    """The policy that `put_policy` writes, and the one that it replaces."""
    user = await _STATE(cluster, username=username)
    wanted = _policy(resource, actions, decision, sources, kind)
    others = [each for each in user.policies if not _is_about(each, wanted.resource, wanted.kind)]
    return await _effect(cluster, user, _with_policies(user, [*others, wanted]))


@change(
    "PUT",
    "/access-control/users/{username}/policies",
    target="user {username}, {resource}",
    role=Role.ADMIN,
    preview=put_effect,
    state=_STATE,
)
async def put_policy(  # noqa: PLR0913  the columns of a policy
    cluster: Cluster,
    *,
    username: str,
    resource: str,
    actions: list[str],
    decision: str = Decision.ALLOW.value,
    sources: list[str] | None = None,
    kind: str = PolicyType.CUSTOM.value,
) -> AppliedChange:
    """Create the policy of a user about a resource, or replace it.

    A resource is `Topic:orders`, `Topic:orders*` or `Topic:*`, the same with Group or Cluster, or
    `*`. Actions are Pub, Sub, Create, Update, Delete, Get, List or All; the decision is Allow or
    Deny. Of all that match, the closest policy decides: a full name before a prefix, a prefix
    before `*`, and Deny before Allow.
    """
    policy = _policy(resource, actions, decision, sources, kind)
    sites = await _sites_of(cluster, username)
    entry = wire.PolicyEntry(
        resource=policy.resource,
        actions=policy.actions,
        source_ips=policy.sources or None,
        decision=policy.decision,
    )
    acl = acl_of(f"User:{username}", policy.kind, [entry])
    return await apply_to_each(
        cluster, sites, lambda address: cluster.admin.policies.create(address, acl)
    )


async def delete_policy_effect(
    cluster: Cluster, *, username: str, resource: str, kind: str = PolicyType.CUSTOM.value
) -> AccessEffect:
    """The policy that `delete_policy` deletes."""
    user = await _STATE(cluster, username=username)
    kept = [each for each in user.policies if not _is_about(each, resource, kind)]
    if len(kept) == len(user.policies):
        raise NotFound(f"user {username!r} has no policy about {resource}")
    return await _effect(cluster, user, _with_policies(user, kept))


@change(
    "DELETE",
    "/access-control/users/{username}/policies",
    target="user {username}, {resource}",
    role=Role.ADMIN,
    preview=delete_policy_effect,
    state=_STATE,
)
async def delete_policy(
    cluster: Cluster, *, username: str, resource: str, kind: str = PolicyType.CUSTOM.value
) -> AppliedChange:
    """Delete the policy of a user about a resource."""
    await delete_policy_effect(cluster, username=username, resource=resource, kind=kind)
    sites = await _sites_of(cluster, username)
    return await apply_to_each(
        cluster,
        sites,
        lambda address: cluster.admin.policies.delete(address, f"User:{username}", resource, kind),
    )


async def read_users(cluster: Cluster) -> Users:
    """The users of all brokers, not older than a few seconds."""

    async def users_at(site: Site) -> dict[str, UserView]:
        users = await cluster.admin.users.list(site.address)
        acls = await cluster.admin.policies.list(site.address)
        by_subject = {acl.subject: acl for acl in acls}
        return {
            user.username: _user_view(user, by_subject.get(f"User:{user.username}"))
            for user in users
            if user.username
        }

    async def fetch() -> Users:
        sites = await require_kind(cluster, AccessKind.USERS)
        return Users(*await ask_each(sites, users_at))

    return await cluster.shared(f"{SHARED}users", fetch, seconds=_FRESH_SECONDS)


_SORT_KEYS = {
    UserSort.NAME: lambda user: user.username,
    UserSort.TYPE: lambda user: user.user_type,
    UserSort.STATUS: lambda user: user.status,
    UserSort.POLICIES: lambda user: len(user.policies),
}


async def _sites_of(cluster: Cluster, username: str) -> list[Site]:
    """The brokers that have a user. Raises NotFound."""
    users = await read_users(cluster)
    sites = [site for site, known in users.by_site.items() if username in known]
    if not sites:
        raise NotFound(f"no user {username!r}")
    return sites


async def _effect(cluster: Cluster, before: UserView, after: UserView | None) -> AccessEffect:
    users = await read_users(cluster)
    old = [str(policy) for policy in before.policies]
    new = [] if after is None else [str(policy) for policy in after.policies]
    loses = [text for text in old if text not in new]
    if before.is_super and (after is None or not after.is_super):
        loses.insert(0, "everything, as a super user")
    if before.is_enabled and (after is None or not after.is_enabled):
        loses.insert(0, "every access: its clients are refused at once")
    return AccessEffect(
        username=before.username,
        loses=loses,
        gains=[text for text in new if text not in old]
        + (["everything, as a super user"] if _becomes_super(before, after) else []),
        warnings=list(_lockouts(users.all(), before, after, cluster.identity.access_key)),
    )


def _becomes_super(before: UserView, after: UserView | None) -> bool:
    return after is not None and after.is_super and not before.is_super


def _lockouts(
    users: Iterable[UserView], before: UserView, after: UserView | None, own: str | None
) -> Iterable[str]:
    """Who cannot undo the change."""
    was_in_charge = before.is_super and before.is_enabled
    stays = after is not None and after.is_super and after.is_enabled
    others = [
        user
        for user in users
        if user.username != before.username and user.is_super and user.is_enabled
    ]
    if was_in_charge and not stays and not others:
        yield f"{before.username} is the last enabled super user: nobody could manage users then"
    if own != before.username or stays:
        return
    if after is None or not after.is_enabled or was_in_charge or after.policies != before.policies:
        yield f"{own} is the user of this session, which may be unable to undo the change"


def _user_view(user: wire.User, acl: wire.Acl | None) -> UserView:
    policies = [
        _policy_view(policy.policy_type or PolicyType.CUSTOM.value, entry)
        for policy in (acl.policies if acl is not None else ())
        for entry in policy.entries
    ]
    return UserView(
        username=user.username or "",
        user_type=_spelled(UserType, user.user_type),
        status=_spelled(UserStatus, user.user_status),
        policies=sorted(policies, key=lambda each: (each.kind, each.resource)),
    )


def _policy_view(kind: str, entry: wire.PolicyEntry) -> PolicyView:
    order = [action.value for action in Action]
    actions = {_spelled(Action, action) for action in entry.actions}
    return PolicyView(
        resource=_resource(entry.resource or ""),
        actions=sorted(actions, key=lambda each: order.index(each) if each in order else 99),
        decision=_spelled(Decision, entry.decision),
        sources=sorted(entry.source_ips or ()),
        kind=_spelled(PolicyType, kind),
    )


def _spelled(
    kind: type[UserType | UserStatus | Action | Decision | PolicyType], text: str | None
) -> str:
    """A name as we write it; brokers of other versions use another case."""
    try:
        value: str = kind.parse(text).value
    except BadPolicy:
        return text or ""
    return value


def _resource(text: str) -> str:
    try:
        return str(Resource.parse(text))
    except BadPolicy:
        return text


def _resources(user: UserView) -> Iterable[str]:
    return (policy.resource for policy in user.policies)


def _is_about(policy: PolicyView, resource: str, kind: str) -> bool:
    return policy.resource == _resource(resource) and policy.kind.lower() == kind.lower()


def _with_policies(user: UserView, policies: list[PolicyView]) -> UserView:
    return UserView(
        username=user.username,
        user_type=user.user_type,
        status=user.status,
        policies=policies,
    )


def _policy(
    resource: str, actions: list[str], decision: str, sources: list[str] | None, kind: str
) -> PolicyView:
    """A policy that brokers take. Raises BadInput."""
    for name, check, texts in (
        ("resource", Resource.parse, [resource]),
        ("actions", Action.parse, actions),
        ("decision", Decision.parse, [decision]),
        ("sources", Source.parse, sources or []),
        ("kind", PolicyType.parse, [kind]),
    ):
        for text in texts:
            try:
                check(text)
            except BadPolicy as error:
                raise BadInput(name, str(error)) from error
    entry = wire.PolicyEntry(
        resource=resource, actions=actions, source_ips=sources or None, decision=decision
    )
    try:
        checked = Entry.of(entry)
    except BadPolicy as error:
        raise BadInput("actions", str(error)) from error
    return _policy_view(PolicyType.parse(kind).value, checked.to_wire())


def _username(name: str) -> str:
    try:
        return checked_username(name.strip())
    except BadPolicy as error:
        raise BadInput("username", str(error)) from error


def _password(given: str) -> str:
    if given and len(given) < _MIN_PASSWORD:
        raise BadInput("password", f"it needs at least {_MIN_PASSWORD} characters")
    return given or secrets.token_urlsafe(_PASSWORD_BYTES)


def _made(username: str, given: str, chosen: str, applied: AppliedChange) -> MadeUser:
    return MadeUser(
        username=username,
        password=None if given else chosen,
        brokers=applied.brokers,
        failures=applied.failures,
    )
