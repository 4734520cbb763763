"""Accounts: what a file says about an access key, and what that allows."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Flag

from bolide.auth.plain.addresses import Pattern, parse_pattern
from bolide.model.names import is_retry_topic, retry_topic

MIN_KEY_LENGTH = 7
"""Access and secret keys are longer than 6 characters, as in RocketMQ."""


class Permission(Flag):
    """What an account may do with a topic; a group needs SUB."""

    DENY = 0
    PUB = 1
    SUB = 2


_PERMISSIONS = {
    "DENY": Permission.DENY,
    "PUB": Permission.PUB,
    "SUB": Permission.SUB,
    "PUB|SUB": Permission.PUB | Permission.SUB,
    "SUB|PUB": Permission.PUB | Permission.SUB,
}
PERMISSION_TEXTS = tuple(_PERMISSIONS)


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountEntry:
    """An account as its file has it (`PlainAccessConfig`)."""

    access_key: str
    secret_key: str = field(repr=False)
    white_remote_address: str | None = None
    admin: bool = False
    default_topic_perm: str | None = None
    default_group_perm: str | None = None
    topic_perms: tuple[str, ...] = ()
    """`topic=PUB|SUB`."""
    group_perms: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """An account, ready for decisions. Groups are under the names of their retry topics."""

    entry: AccountEntry
    secret: bytes = field(repr=False)
    white_list: Pattern
    default_topic: Permission
    default_group: Permission
    permissions: Mapping[str, Permission]

    @classmethod
    def of(cls, entry: AccountEntry) -> "Account":
        """Raises ValueError: a value is invalid; the text names it, but no secret."""
        check_keys(entry.access_key, entry.secret_key)
        groups = dict(map(parse_grant, entry.group_perms))
        return cls(
            entry=entry,
            secret=entry.secret_key.encode(),
            white_list=parse_pattern(entry.white_remote_address or ""),
            default_topic=parse_permission(entry.default_topic_perm),
            default_group=parse_permission(entry.default_group_perm),
            # Topics come last: RocketMQ takes those of retry topics for groups.
            permissions={retry_topic(name): value for name, value in groups.items()}
            | dict(map(parse_grant, entry.topic_perms)),
        )

    @property
    def access_key(self) -> str:
        return self.entry.access_key

    @property
    def is_admin(self) -> bool:
        return self.entry.admin

    @property
    def is_unlimited(self) -> bool:
        """An admin without permissions by name may use every topic and group."""
        return self.is_admin and not self.permissions

    def may(self, needed: Permission, resource: str) -> bool:
        """Whether the account has a permission on a topic, or on a group by its retry topic."""
        owned = self.permissions.get(resource)
        if owned is None:
            owned = self.default_group if is_retry_topic(resource) else self.default_topic
        return needed in owned


def check_keys(access_key: str, secret_key: str) -> None:
    """Raises ValueError if one of the keys is too short or has invisible characters."""
    if not access_key.isprintable() or not access_key.strip():
        raise ValueError(f"accessKey={access_key!a}: must consist of visible characters")
    if not secret_key.isprintable() or (secret_key and not secret_key.strip()):
        raise ValueError(
            f"the secretKey of accessKey={access_key} must consist of visible characters"
        )
    if len(access_key) < MIN_KEY_LENGTH:
        raise ValueError(f"accessKey={access_key}: must be longer than {MIN_KEY_LENGTH - 1}")
    if len(secret_key) < MIN_KEY_LENGTH:
        raise ValueError(
            f"the secretKey of accessKey={access_key} must be longer than {MIN_KEY_LENGTH - 1}"
        )


def parse_permission(text: str | None) -> Permission:
    """Read a permission; anything unknown, `ANY` included, denies, as in RocketMQ 4.9."""
    return _PERMISSIONS.get((text or "").strip(), Permission.DENY)


def parse_grant(text: str) -> tuple[str, Permission]:
    """Read `name=PERMISSION`.

    Raises:
        ValueError: the text has another form.
    """
    name, permission = _split_grant(text)
    return name, parse_permission(permission)


def unknown_permissions(entry: AccountEntry) -> list[str]:
    """The texts of an entry that deny only because they are no permission."""
    grants = (*entry.topic_perms, *entry.group_perms)
    texts = [*(_split_grant(each)[1] for each in grants), *_defaults(entry)]
    return [text for text in texts if text not in _PERMISSIONS]


def _defaults(entry: AccountEntry) -> Iterable[str]:
    given = (entry.default_topic_perm, entry.default_group_perm)
    return (text.strip() for text in given if text is not None)


def _split_grant(text: str) -> tuple[str, str]:
    words = [word.strip() for word in text.split("=") if word]
    if len(words) != 2:
        raise ValueError(f"{text!r}: must have the form name=PERMISSION, such as orders=PUB|SUB")
    return words[0], words[1]
