"""Changes of users and policies of ACL 2.0, each with who gains and loses what.

A generated password is in the answer of the operation that makes it, once, and nowhere else.
"""

import secrets
from collections.abc import Iterable

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
from bolide.operations.access.brokers import (
    AccessKind,
    AppliedChange,
    Site,
    apply_to_each,
    require_kind,
)
from bolide.operations.access.users import (
    AccessEffect,
    MadeUser,
    PolicyView,
    UserView,
    get_user,
    policy_view,
    read_users,
    resource_text,
)
from bolide.operations.cluster import Cluster
from bolide.operations.declaration import Role, change
from bolide.operations.errors import BadInput, Conflict, NotFound
from bolide.protocol.bodies import access as wire

_PASSWORD_BYTES = 24
_MIN_PASSWORD = 8

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


def _is_about(policy: PolicyView, resource: str, kind: str) -> bool:
    return policy.resource == resource_text(resource) and policy.kind.lower() == kind.lower()


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
    return policy_view(PolicyType.parse(kind).value, checked.to_wire())


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
