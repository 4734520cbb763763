"""Accounts and white lists of ACL 1.0, which brokers of RocketMQ 4.9 to 5.2 have, and Bolide's.

Brokers of RocketMQ tell the secrets of accounts; no view has them.
"""

import re
import secrets
from dataclasses import dataclass, field

from bolide.auth.plain.accounts import PERMISSION_TEXTS
from bolide.operations.access.brokers import (
    SHARED,
    AccessKind,
    AppliedChange,
    Site,
    apply_to_each,
    ask_each,
    require_kind,
)
from bolide.operations.access.users import AccessEffect
from bolide.operations.cluster import Cluster
from bolide.operations.declaration import Role, change, read
from bolide.operations.errors import BadInput, NotFound
from bolide.operations.views import Failure, Page, page_of
from bolide.protocol.bodies.access import PlainAccount, PlainAccounts
from bolide.protocol.refusals import Refusal

_FRESH_SECONDS = 5.0
_MIN_KEY = 7
_SECRET_BYTES = 24
_NO_EMPTY_LIST = "Parse Resource format error"
_LAST_GRANT = (
    "brokers of RocketMQ do not take away the last permission on a topic or group: write it as"
    " name=DENY"
)
_KEY = re.compile(r"[^\s,=]+")
_GRANT = re.compile(r"[^\s,=]+=(?:DENY|PUB|SUB|PUB\|SUB|SUB\|PUB)")


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountView:
    """An account of ACL 1.0."""

    access_key: str
    admin: bool
    white_address: str
    """Addresses from which the account may do everything, such as 10.0.0.*; empty for none."""
    default_topic: str
    """DENY, PUB, SUB or PUB|SUB: what it may do with topics that `topics` does not name."""
    default_group: str
    topics: list[str]
    """Such as `orders=PUB|SUB`."""
    groups: list[str]
    missing_at: list[str] = field(default_factory=list)
    """Brokers that do not have the account, while others do."""
    differs_at: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class WhiteListView:
    """The global white list of ACL 1.0, by broker: these addresses may do everything."""

    broker: str
    addresses: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class WhiteLists:
    """The global white lists of all brokers, which should be the same."""

    brokers: list[WhiteListView]
    failures: list[Failure] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class PutAccount:
    """An account was created or changed."""

    access_key: str
    secret_key: str | None
    """The generated secret, which nobody can read again; None if none was generated."""
    brokers: list[str]
    failures: list[Failure] = field(default_factory=list)


@read("/access-control/accounts")
async def list_accounts(
    cluster: Cluster, *, search: str = "", page: int = 1, size: int = 50
) -> Page[AccountView]:
    """List the accounts of ACL 1.0; `search` looks at keys, topics and groups."""
    known, failures = await _read(cluster)
    wanted = search.casefold()
    rows = [
        account
        for key in sorted({key for accounts in known.values() for key in _by_key(accounts)})
        if (account := _find(known, key)) is not None
        and any(
            wanted in text.casefold()
            for text in (account.access_key, *account.topics, *account.groups)
        )
    ]
    return page_of(rows, page=page, size=size, failures=failures)


@read("/access-control/accounts/{access_key}")
async def get_account(cluster: Cluster, *, access_key: str) -> AccountView:
    """Show an account of ACL 1.0; nothing tells its secret."""
    known, _ = await _read(cluster)
    found = _find(known, access_key)
    if found is None:
        raise NotFound(f"no account {access_key!r}")
    return found


async def put_account_effect(  # noqa: PLR0913  the columns of an account
    cluster: Cluster,
    *,
    access_key: str,
    secret_key: str = "",
    new_secret: bool = False,
    admin: bool = False,
    white_address: str = "",
    default_topic: str = "DENY",
    default_group: str = "DENY",
    topics: list[str] | None = None,
    groups: list[str] | None = None,
) -> AccessEffect:
    """What the account gains and loses with `put_account`."""
    known, _ = await _read(cluster)
    before = _find(known, access_key)
    after = AccountView(
        access_key=access_key,
        admin=admin,
        white_address=white_address,
        default_topic=default_topic,
        default_group=default_group,
        topics=topics or [],
        groups=groups or [],
    )
    effect = _effect(cluster, known, before, after)
    if before is None or not (secret_key or new_secret):
        return effect
    return AccessEffect(
        username=effect.username,
        loses=["clients that use the old secret are refused from now on", *effect.loses],
        gains=effect.gains,
        warnings=effect.warnings,
    )


@change(
    "PUT",
    "/access-control/accounts/{access_key}",
    target="account {access_key}",
    role=Role.ADMIN,
    preview=put_account_effect,
    state=get_account.function,
    secret=frozenset({"secret_key"}),
)
async def put_account(  # noqa: PLR0913  the columns of an account
    cluster: Cluster,
    *,
    access_key: str,
    secret_key: str = "",
    new_secret: bool = False,
    admin: bool = False,
    white_address: str = "",
    default_topic: str = "DENY",
    default_group: str = "DENY",
    topics: list[str] | None = None,
    groups: list[str] | None = None,
) -> PutAccount:
    """Create an account of ACL 1.0 at all brokers, or replace what it may do.

    A new account, and one with `new_secret`, gets the given secret or a generated one, which is in
    this answer only. Otherwise the secret stays; brokers of RocketMQ need it with every change,
    and it is read from them for that.
    """
    _check(access_key, secret_key, default_topic, default_group, topics or [], groups or [])
    sites = await require_kind(cluster, AccessKind.ACCOUNTS)
    known, _ = await _read(cluster)
    is_new = _find(known, access_key) is None
    chosen = secret_key or (secrets.token_urlsafe(_SECRET_BYTES) if is_new or new_secret else "")

    async def put(address: str) -> None:
        before = await _find_at(cluster, address, access_key)
        try:
            await cluster.admin.plain_acl.update(
                address,
                access_key,
                chosen or before.secret_key or None,
                admin=admin,
                white_address=white_address,
                default_topic=default_topic,
                default_group=default_group,
                # RocketMQ's brokers take no empty list, and None leaves it as it is.
                topics=topics or ([] if before.topic_perms else None),
                groups=groups or ([] if before.group_perms else None),
            )
        except Refusal as error:
            if _NO_EMPTY_LIST in str(error):
                raise BadInput("topics", _LAST_GRANT) from error
            raise

    applied = await apply_to_each(cluster, sites, put)
    return PutAccount(
        access_key=access_key,
        secret_key=chosen if chosen and not secret_key else None,
        brokers=applied.brokers,
        failures=applied.failures,
    )


async def delete_account_effect(cluster: Cluster, *, access_key: str) -> AccessEffect:
    """What an account loses with `delete_account`."""
    before = await get_account.function(cluster, access_key=access_key)
    known, _ = await _read(cluster)
    return _effect(cluster, known, before, None)


@change(
    "DELETE",
    "/access-control/accounts/{access_key}",
    target="account {access_key}",
    role=Role.ADMIN,
    preview=delete_account_effect,
    state=get_account.function,
)
async def delete_account(cluster: Cluster, *, access_key: str) -> AppliedChange:
    """Delete an account of ACL 1.0 at all brokers; its clients are refused at once."""
    known, _ = await _read(cluster)
    sites = [site for site, accounts in known.items() if access_key in _by_key(accounts)]
    if not sites:
        raise NotFound(f"no account {access_key!r}")
    return await apply_to_each(
        cluster, sites, lambda address: cluster.admin.plain_acl.delete(address, access_key)
    )


@read("/access-control/white-lists")
async def get_white_lists(cluster: Cluster) -> WhiteLists:
    """Show the global white lists of ACL 1.0: from these addresses everything is allowed."""
    known, failures = await _read(cluster)
    lists = [
        WhiteListView(broker=site.broker, addresses=accounts.global_white_addrs)
        for site, accounts in known.items()
    ]
    return WhiteLists(brokers=lists, failures=failures)


async def white_list_effect(cluster: Cluster, *, addresses: list[str]) -> AccessEffect:
    """What `put_white_list` adds and takes away."""
    lists = await get_white_lists.function(cluster)
    old = {address for each in lists.brokers for address in each.addresses}
    added = [each for each in addresses if each not in old]
    return AccessEffect(
        username="the global white list",
        loses=[f"everything, from {each}" for each in sorted(old - {*addresses})],
        gains=[f"everything, without a signature, from {each}" for each in added],
        warnings=["an address with * opens the brokers to others"] if "*" in addresses else [],
    )


@change(
    "PUT",
    "/access-control/white-lists",
    target="global white list",
    role=Role.ADMIN,
    preview=white_list_effect,
    state=get_white_lists.function,
)
async def put_white_list(cluster: Cluster, *, addresses: list[str]) -> AppliedChange:
    """Replace the global white list of ACL 1.0 at all brokers, such as 10.10.103.*."""
    sites = await require_kind(cluster, AccessKind.ACCOUNTS)
    return await apply_to_each(
        cluster,
        sites,
        lambda address: cluster.admin.plain_acl.update_white_addresses(address, addresses),
    )


Known = dict[Site, PlainAccounts]


async def _read(cluster: Cluster) -> tuple[Known, list[Failure]]:
    """The accounts of all brokers, without secrets, not older than a few seconds."""

    async def accounts_at(site: Site) -> PlainAccounts:
        found = await cluster.admin.plain_acl.accounts(site.address)
        for account in found.plain_access_configs:
            account.secret_key = None
        return found

    async def fetch() -> tuple[Known, list[Failure]]:
        sites = await require_kind(cluster, AccessKind.ACCOUNTS)
        return await ask_each(sites, accounts_at)

    return await cluster.shared(f"{SHARED}accounts", fetch, seconds=_FRESH_SECONDS)


async def _find_at(cluster: Cluster, address: str, access_key: str) -> PlainAccount:
    """The account at a broker, an empty one if it has none.

    RocketMQ's broker tells the secret, which it needs with every change; Bolide's tell none, and
    need none.
    """
    accounts = await cluster.admin.plain_acl.accounts(address)
    return _by_key(accounts).get(access_key) or PlainAccount(access_key=access_key)


def _by_key(accounts: PlainAccounts) -> dict[str, PlainAccount]:
    return {each.access_key: each for each in accounts.plain_access_configs if each.access_key}


def _find(known: Known, access_key: str) -> AccountView | None:
    having = {
        site: _view(found)
        for site, accounts in known.items()
        if (found := _by_key(accounts).get(access_key)) is not None
    }
    if not having:
        return None
    first = next(iter(having.values()))
    return AccountView(
        access_key=first.access_key,
        admin=first.admin,
        white_address=first.white_address,
        default_topic=first.default_topic,
        default_group=first.default_group,
        topics=first.topics,
        groups=first.groups,
        missing_at=[site.broker for site in known if site not in having],
        differs_at=[site.broker for site, account in having.items() if account != first],
    )


def _view(account: PlainAccount) -> AccountView:
    return AccountView(
        access_key=account.access_key or "",
        admin=account.admin,
        white_address=account.white_remote_address or "",
        default_topic=account.default_topic_perm or "DENY",
        default_group=account.default_group_perm or "DENY",
        topics=sorted(account.topic_perms or ()),
        groups=sorted(account.group_perms or ()),
    )


def _powers(account: AccountView | None) -> list[str]:
    if account is None:
        return []
    powers = [f"topic {each}" for each in account.topics]
    powers += [f"group {each}" for each in account.groups]
    if account.default_topic != "DENY":
        powers.append(f"other topics={account.default_topic}")
    if account.default_group != "DENY":
        powers.append(f"other groups={account.default_group}")
    if account.admin:
        powers.append("everything, as an administrator")
    if account.white_address:
        powers.append(f"everything, from {account.white_address}")
    return powers


def _effect(
    cluster: Cluster, known: Known, before: AccountView | None, after: AccountView | None
) -> AccessEffect:
    old, new = _powers(before), _powers(after)
    shown = before or after
    assert shown is not None
    key, warnings = shown.access_key, []
    if before is not None and before.admin and (after is None or not after.admin):
        admins = {
            each
            for accounts in known.values()
            for each, account in _by_key(accounts).items()
            if account.admin
        }
        if admins == {key}:
            warnings.append(f"{key} is the last administrator: nobody could manage accounts then")
        if cluster.identity.access_key == key:
            warnings.append(f"{key} is the account of this session, which could not undo this")
    loses = [each for each in old if each not in new]
    if after is None:
        loses.insert(0, "every access: its clients are refused at once")
    return AccessEffect(
        username=key,
        loses=loses,
        gains=[each for each in new if each not in old],
        warnings=warnings,
    )


def _check(
    access_key: str,
    secret_key: str,
    default_topic: str,
    default_group: str,
    topics: list[str],
    groups: list[str],
) -> None:
    """Raises BadInput."""
    for name, key in (("access_key", access_key), ("secret_key", secret_key)):
        if (key or name == "access_key") and (len(key) < _MIN_KEY or not _KEY.fullmatch(key)):
            raise BadInput(name, f"it needs {_MIN_KEY} characters, without blanks, commas and =")
    for name, perm in (("default_topic", default_topic), ("default_group", default_group)):
        if perm not in PERMISSION_TEXTS:
            raise BadInput(name, f"use one of {', '.join(PERMISSION_TEXTS)}")
    for name, grants in (("topics", topics), ("groups", groups)):
        for grant in grants:
            if not _GRANT.fullmatch(grant):
                raise BadInput(name, f"{grant!r}: write it as name=PUB|SUB")
