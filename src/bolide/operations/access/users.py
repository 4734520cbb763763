"""Users and policies of ACL 2.0: who may do what with topics and groups.

No view has a password. A generated one is in the answer of the operation that makes it, once.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from bolide.auth.policies.model import (
    Action,
    BadPolicy,
    Decision,
    PolicyType,
    Resource,
    UserStatus,
    UserType,
)
from bolide.operations.access.brokers import (
    SHARED,
    AccessKind,
    Site,
    ask_each,
    require_kind,
)
from bolide.operations.cluster import Cluster
from bolide.operations.declaration import read
from bolide.operations.errors import NotFound
from bolide.operations.views import Failure, Page, page_of
from bolide.protocol.bodies import access as wire

_FRESH_SECONDS = 5.0


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


def _user_view(user: wire.User, acl: wire.Acl | None) -> UserView:
    policies = [
        policy_view(policy.policy_type or PolicyType.CUSTOM.value, entry)
        for policy in (acl.policies if acl is not None else ())
        for entry in policy.entries
    ]
    return UserView(
        username=user.username or "",
        user_type=_spelled(UserType, user.user_type),
        status=_spelled(UserStatus, user.user_status),
        policies=sorted(policies, key=lambda each: (each.kind, each.resource)),
    )


def policy_view(kind: str, entry: wire.PolicyEntry) -> PolicyView:
    order = [action.value for action in Action]
    actions = {_spelled(Action, action) for action in entry.actions}
    return PolicyView(
        resource=resource_text(entry.resource or ""),
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


def resource_text(text: str) -> str:
    try:
        return str(Resource.parse(text))
    except BadPolicy:
        return text


def _resources(user: UserView) -> Iterable[str]:
    return (policy.resource for policy in user.policies)
