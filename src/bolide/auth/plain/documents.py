"""Files of access rules: read into accounts and white lists, and written again.

A file is a mapping with `globalWhiteRemoteAddresses`, `accounts` and `dataVersion`. Values are read
as RocketMQ 4.9 reads them; what it would misread silently is refused with file and line.
"""

import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace

import yaml

from bolide.auth.plain.accounts import Account, AccountEntry, unknown_permissions
from bolide.auth.plain.addresses import Pattern, parse_pattern
from bolide.auth.plain.yaml_nodes import BadAclFile, Node, read_nodes
from bolide.protocol.bodies.data_version import DataVersion

log = logging.getLogger(__name__)

_FIRST_VERSION = DataVersion()
_WHITE_ADDRESSES = "globalWhiteRemoteAddresses"
_ACCOUNTS = "accounts"
_VERSION = "dataVersion"
_ACCOUNT_KEYS = {
    "accesskey": "accessKey",
    "secretkey": "secretKey",
    "whiteremoteaddress": "whiteRemoteAddress",
    "admin": "admin",
    "defaulttopicperm": "defaultTopicPerm",
    "defaultgroupperm": "defaultGroupPerm",
    "topicperms": "topicPerms",
    "groupperms": "groupPerms",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class AclDocument:
    """The contents of one file."""

    white_addresses: tuple[str, ...] = ()
    white_list: tuple[Pattern, ...] = ()
    accounts: tuple[Account, ...] = ()
    version: DataVersion = _FIRST_VERSION

    def with_account(self, account: Account) -> "AclDocument":
        """Put an account, new or changed, at the end, as RocketMQ does."""
        return replace(self, accounts=(*self.without(account.access_key).accounts, account))

    def without(self, access_key: str) -> "AclDocument":
        kept = tuple(each for each in self.accounts if each.access_key != access_key)
        return replace(self, accounts=kept)

    def with_white_addresses(self, addresses: tuple[str, ...]) -> "AclDocument":
        """Raises ValueError: an address is no pattern."""
        patterns = tuple(map(parse_pattern, addresses))
        return replace(self, white_addresses=addresses, white_list=patterns)


def read_document(data: bytes, file: str) -> AclDocument:
    """Read a file.

    Raises:
        BadAclFile: the file is invalid; names file and line, but no secret.
    """
    root = read_nodes(data, file)
    content = root.as_mapping("the file")
    _warn_of_unknown(content, {_WHITE_ADDRESSES, _ACCOUNTS, _VERSION})
    addresses, patterns = _white_list(content.get(_WHITE_ADDRESSES))
    accounts = content[_ACCOUNTS].as_list(_ACCOUNTS) if _ACCOUNTS in content else []
    return AclDocument(
        white_addresses=addresses,
        white_list=patterns,
        accounts=tuple(map(_account, accounts)),
        version=_version(content.get(_VERSION)),
    )


def write_document(document: AclDocument, before: bytes = b"") -> bytes:
    """Write a file; comments at the beginning of the former text are kept, others are not."""
    content: dict[str, object] = {}
    if document.white_addresses:
        content[_WHITE_ADDRESSES] = list(document.white_addresses)
    content[_ACCOUNTS] = [_texts(each.entry) for each in document.accounts]
    version = document.version
    content[_VERSION] = [{"counter": version.counter, "timestamp": version.timestamp}]
    text: str = yaml.safe_dump(content, sort_keys=False, width=2**20)
    return "".join(_leading_comments(before)).encode() + text.encode()


def _leading_comments(before: bytes) -> Iterator[str]:
    for line in before.decode(errors="replace").splitlines(keepends=True):
        if line.strip() and not line.startswith("#"):
            return
        yield line


def _texts(entry: AccountEntry) -> dict[str, object]:
    given: dict[str, object] = {
        "accessKey": entry.access_key,
        "secretKey": entry.secret_key,
        "whiteRemoteAddress": entry.white_remote_address,
        "admin": entry.admin,
        "defaultTopicPerm": entry.default_topic_perm,
        "defaultGroupPerm": entry.default_group_perm,
        "topicPerms": list(entry.topic_perms) or None,
        "groupPerms": list(entry.group_perms) or None,
    }
    return {key: value for key, value in given.items() if value is not None}


def _white_list(node: Node | None) -> tuple[tuple[str, ...], tuple[Pattern, ...]]:
    texts: list[str] = []
    patterns: list[Pattern] = []
    for item in node.as_list(_WHITE_ADDRESSES) if node is not None else []:
        if item.is_empty:
            continue
        text = item.as_text("an address")
        try:
            patterns.append(parse_pattern(text))
        except ValueError as exc:
            raise item.error(exc) from exc
        texts.append(text)
    return tuple(texts), tuple(patterns)


def _account(node: Node) -> Account:
    given = node.as_mapping("an account", _normal)
    _warn_of_unknown(given, set(_ACCOUNT_KEYS))
    entry = AccountEntry(
        access_key=_required(node, given, "accesskey"),
        secret_key=_required(node, given, "secretkey"),
        white_remote_address=_optional(given, "whiteremoteaddress"),
        admin="admin" in given and given["admin"].as_bool("admin"),
        default_topic_perm=_optional(given, "defaulttopicperm"),
        default_group_perm=_optional(given, "defaultgroupperm"),
        topic_perms=_grants(given, "topicperms"),
        group_perms=_grants(given, "groupperms"),
    )
    try:
        account = Account.of(entry)
    except ValueError as exc:
        raise node.error(exc) from exc
    for text in unknown_permissions(entry):
        log.warning(
            "%s:%s: accessKey=%s: %r is no permission and denies",
            node.file, node.line, entry.access_key, text,
        )  # fmt: skip
    return account


def _normal(key: str) -> str:
    """Spell a key as RocketMQ's JSON library compares it: `access_key` is `accessKey`."""
    return key.replace("_", "").replace("-", "").lower()


def _required(node: Node, given: dict[str, Node], key: str) -> str:
    if key not in given or given[key].is_empty:
        raise node.error(f"an account needs {_ACCOUNT_KEYS[key]}")
    return given[key].as_text(_ACCOUNT_KEYS[key])


def _optional(given: dict[str, Node], key: str) -> str | None:
    if key not in given or given[key].is_empty:
        return None
    return given[key].as_text(_ACCOUNT_KEYS[key])


def _grants(given: dict[str, Node], key: str) -> tuple[str, ...]:
    if key not in given:
        return ()
    name = _ACCOUNT_KEYS[key]
    return tuple(each.as_text(f"an item of {name}") for each in given[key].as_list(name))


def _version(node: Node | None) -> DataVersion:
    entries = node.as_list(_VERSION) if node is not None else []
    if not entries:
        return _FIRST_VERSION
    first = entries[0].as_mapping(f"an item of {_VERSION}")
    numbers = {
        name: first[name].as_number(name) for name in ("counter", "timestamp") if name in first
    }
    return DataVersion(**numbers)


def _warn_of_unknown(given: dict[str, Node], known: set[str]) -> None:
    for key in given.keys() - known:
        node = given[key]
        log.warning("%s:%s: %s is unknown and ignored", node.file, node.line, key)


__all__ = ["AclDocument", "BadAclFile", "read_document", "write_document"]
