"""Takes the accounts of ACL 1.0 over as users and policies, as Java's `AuthMigrator`.

Accounts whose user exists are left alone, so that it does not matter how often this runs. White
lists are not taken over: ACL 2.0 has none, and an address does not replace a signature.
"""

import logging
from collections.abc import Iterable, Iterator

from bolide.auth.plain.accounts import AccountEntry
from bolide.auth.plain.files import AclFiles, AclPlaces
from bolide.auth.policies.metadata import Metadata
from bolide.auth.policies.model import (
    Acl,
    Action,
    BadPolicy,
    Decision,
    Entry,
    Pattern,
    PolicyType,
    Resource,
    ResourceType,
    User,
    UserType,
    checked_username,
)
from bolide.model.names import group_of_retry_topic

log = logging.getLogger(__name__)

_ACTIONS = {
    "PUB": (Action.PUB,),
    "SUB": (Action.SUB,),
    "PUB|SUB": (Action.PUB, Action.SUB),
    "SUB|PUB": (Action.PUB, Action.SUB),
}
_DENY = "DENY"


def add_plain_accounts(metadata: Metadata, places: AclPlaces) -> None:
    """Create the users of `plain_acl.yml` and `acl/*.yml` that are missing. Blocks.

    Raises:
        ConfigError: a file is invalid; the text names file and line.
    """
    files = AclFiles(places)
    users, acls = [], []
    for account in [each.entry for each in files.load().accounts.values()]:
        try:
            users.append(_user(account))
        except BadPolicy as exc:
            log.error("an account of ACL 1.0 is not taken over: %s", exc)  # noqa: TRY400
            continue
        acl = policies_of(account)
        if acl.policies:
            acls.append(acl)
        if account.white_remote_address:
            log.warning(
                "the user %s needs a signature now, whatever its whiteRemoteAddress says",
                account.access_key,
            )
    metadata.add_missing(users, acls)


def policies_of(account: AccountEntry) -> Acl:
    """The policies that allow what the account allows."""
    custom = [
        *_entries(account.topic_perms, ResourceType.TOPIC),
        *_entries(account.group_perms, ResourceType.GROUP),
    ]
    defaults = [
        _entry(Resource(kind, None, Pattern.ANY), perm)
        for kind, perm in (
            (ResourceType.TOPIC, account.default_topic_perm),
            (ResourceType.GROUP, account.default_group_perm),
        )
        if perm and perm.strip()
    ]
    found = {PolicyType.CUSTOM: tuple(custom), PolicyType.DEFAULT: tuple(defaults)}
    return Acl(account.access_key, {kind: entries for kind, entries in found.items() if entries})


def _entries(permissions: Iterable[str], kind: ResourceType) -> Iterator[Entry]:
    for permission in permissions:
        name, equals, perm = permission.partition("=")
        if not equals or not name.strip():
            continue
        name = name.strip()
        if kind is ResourceType.GROUP:
            name = group_of_retry_topic(name)
        yield _entry(Resource(kind, name), perm)


def _entry(resource: Resource, perm: str) -> Entry:
    """RocketMQ allows everything by a permission that it does not know; here it denies."""
    perm = perm.strip()
    if perm in _ACTIONS:
        return Entry(resource, frozenset(_ACTIONS[perm]), Decision.ALLOW)
    if perm != _DENY:
        log.warning("the permission %r on %s is unknown and denies", perm, resource)
    return Entry(resource, frozenset({Action.ALL}), Decision.DENY)


def _user(account: AccountEntry) -> User:
    if not account.secret_key.strip():
        raise BadPolicy(f"{account.access_key!r} has no secretKey")
    kind = UserType.SUPER if account.admin else UserType.NORMAL
    return User(checked_username(account.access_key), account.secret_key, kind)
