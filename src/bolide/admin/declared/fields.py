"""The fields of declared objects: how each is read from a document, and its default.

A field has one canonical value for all spellings, so that equal values are equal objects. Fields
that hold several items (attributes, policies, grants) are maps, of which the items are compared.
"""

import difflib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

import msgspec

from bolide.admin.access import CUSTOM, comparable, referenced
from bolide.admin.topics import DEFAULT_QUEUES
from bolide.auth.plain.accounts import PERMISSION_TEXTS, Permission, parse_grant
from bolide.auth.plain.addresses import parse_pattern
from bolide.auth.plain.yaml_nodes import Node
from bolide.auth.policies.model import BadPolicy, Entry, PolicyType, UserStatus, UserType
from bolide.broker.metadata.group_attributes import GROUP_ATTRIBUTES
from bolide.broker.metadata.topic_attributes import TOPIC_ATTRIBUTES, Attribute
from bolide.protocol.bodies.access import PolicyEntry
from bolide.protocol.bodies.groups import GroupConfig, RetryPolicy
from bolide.protocol.bodies.topics import MAX_QUEUES, TopicConfig, TopicFilterType

Fields = Mapping[str, Any]
"""Canonical values by the name of the field."""

_INT_MAX = 2**31 - 1
_LONG_MAX = 2**63 - 1
_LITE = "LITE"
POLICIES: Final = "policies"
ATTRIBUTES: Final = "attributes"
READ_QUEUES: Final = "readQueueNums"
WRITE_QUEUES: Final = "writeQueueNums"


class Kind(StrEnum):
    """What a document declares; the values are the names of its sections."""

    TOPICS = "topics"
    GROUPS = "groups"
    USERS = "users"
    ACCOUNTS = "accounts"

    @property
    def noun(self) -> str:
        return self.value.removesuffix("s")

    @property
    def secret(self) -> str:
        """The key of the reference to a secret; empty if such objects have none."""
        return {Kind.USERS: "password", Kind.ACCOUNTS: "secretKey"}.get(self, "")

    @property
    def is_on_slaves(self) -> bool:
        """Whether slaves have their own, which no master sends them."""
        return self in {Kind.USERS, Kind.ACCOUNTS}


@dataclass(frozen=True, slots=True)
class Rule:
    """One field."""

    read: Callable[[Node, str], Any]
    """Returns the canonical value; raises BadAclFile with file and line."""
    default: Any = None
    """The value of a new object if the document does not say."""
    since: int = 4
    """The major version of RocketMQ whose brokers have the field."""


def whole(low: int, high: int) -> Callable[[Node, str], int]:
    def read(node: Node, name: str) -> int:
        number = node.as_number(name)
        if not low <= number <= high:
            raise node.error(f"{name}={number}: must be a whole number from {low} to {high}")
        return number

    return read


def truth(node: Node, name: str) -> bool:
    if node.is_empty:
        raise node.error(f"{name} must be true or false")
    return node.as_bool(name)


def text(node: Node, name: str) -> str:
    return "" if node.is_empty else node.as_text(name)


def one_of(values: Collection[str]) -> Callable[[Node, str], str]:
    def read(node: Node, name: str) -> str:
        given = text(node, name)
        for value in values:
            if given.lower() == value.lower():
                return value
        raise node.error(f"{name}={given!r}: must be one of {', '.join(values)}")

    return read


def attributes(known: Mapping[str, Attribute]) -> Callable[[Node, str], dict[str, str]]:
    def read(node: Node, name: str) -> dict[str, str]:
        found = {}
        for key, value in node.as_mapping(name).items():
            if key not in known:
                raise value.error(f"{name}: unknown attribute {key}{did_you_mean(key, known)}")
            found[key] = value.as_text(f"{name}: {key}")
            try:
                # RocketMQ's brokers have light topics.
                if found[key] != _LITE:
                    known[key].check(found[key])
            except ValueError as exc:
                raise value.error(f"{name}: {key}={found[key]!r}: {exc}") from exc
        return dict(sorted(found.items()))

    return read


def retry_policy(node: Node, name: str) -> dict[str, Any]:
    try:
        policy = msgspec.convert(_plain(node, name), _StrictRetry)
        _check_retry(policy, node, name)
        return canonical_retry_policy(policy)
    except msgspec.ValidationError as exc:
        raise node.error(f"{name}: {exc}") from exc


def _check_retry(policy: RetryPolicy, node: Node, name: str) -> None:
    """Delays that lie in the past are those that brokers take without a word."""
    if (growing := policy.exponential_retry_policy) is not None:
        if min(growing.initial, growing.max) < 0:
            raise node.error(f"{name}: initial and max must be 0 or more milliseconds")
        if growing.multiplier < 1:
            raise node.error(f"{name}: multiplier={growing.multiplier}: must be 1 or more")
    listed = policy.customized_retry_policy
    if listed is not None and listed.next and min(listed.next) < 0:
        raise node.error(f"{name}: the delays of next must be 0 or more milliseconds")


def canonical_retry_policy(policy: RetryPolicy) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.to_builtins(policy)
    return {key: value for key, value in plain.items() if value is not None}


def policies(node: Node, name: str) -> dict[str, Any]:
    """The entries by resource; the keys of entries of default policies have that as a suffix."""
    found: dict[str, Any] = {}
    for each in node.as_list(name):
        given = each.as_mapping(f"a policy of {name}")
        known = {"resource", "actions", "decision", "sourceIps", "type"}
        refuse_unknown(given, known, f"a policy of {name}")
        if missing := sorted({"resource", "actions", "decision"} - given.keys()):
            raise each.error(f"a policy of {name} needs {', '.join(missing)}")
        entry = PolicyEntry(
            resource=text(given["resource"], "resource"),
            actions=_texts(given["actions"], "actions"),
            source_ips=_texts(given["sourceIps"], "sourceIps") if "sourceIps" in given else None,
            decision=text(given["decision"], "decision"),
        )
        try:
            kind = PolicyType.parse(text(given["type"], "type") if "type" in given else CUSTOM)
            key, value = canonical_policy(kind, Entry.of(entry))
        except BadPolicy as exc:
            raise each.error(f"{name}: {exc}") from exc
        if key in found:
            raise each.error(f"{name}: two policies are about {key}; a broker keeps one")
        found[key] = value
    return dict(sorted(found.items()))


def canonical_policy(kind: PolicyType, entry: Entry) -> tuple[str, dict[str, Any]]:
    wire = msgspec.to_builtins(comparable(entry))
    suffix = "" if kind is PolicyType.CUSTOM else f" ({kind.value})"
    value = {key: each for key, each in wire.items() if each is not None}
    if suffix:
        value["type"] = kind.value
    return f"{wire['resource']}{suffix}", value


def grants(node: Node, name: str) -> dict[str, str]:
    """`Orders=PUB|SUB`, as in plain_acl.yml, by the name of the topic or group."""
    found: dict[str, str] = {}
    for each in node.as_list(name):
        given = each.as_text(f"an item of {name}")
        if given.partition("=")[2].strip() not in PERMISSION_TEXTS:
            raise each.error(f"{name}: {given!r}: write name=PERMISSION, {_PERMISSIONS}")
        key, permission = canonical_grant(given)
        if key in found:
            raise each.error(f"{name}: {key} occurs twice")
        found[key] = permission
    return dict(sorted(found.items()))


def canonical_grant(given: str) -> tuple[str, str]:
    """Raises ValueError."""
    name, permission = parse_grant(given)
    return name, canonical_permission(permission)


def canonical_permission(permission: Permission) -> str:
    names = [each.name or "" for each in (Permission.PUB, Permission.SUB) if each in permission]
    return "|".join(names) or Permission.DENY.name or ""


def addresses(node: Node, name: str) -> str:
    given = text(node, name)
    try:
        parse_pattern(given)
    except ValueError as exc:
        raise node.error(f"{name}: {exc}") from exc
    return given


_PERMISSIONS = f"with one of {', '.join(PERMISSION_TEXTS)}"
_GROUP = GroupConfig(group_name="")
_TOPIC = TopicConfig(topic_name="", read_queue_nums=DEFAULT_QUEUES, write_queue_nums=DEFAULT_QUEUES)
_permission = one_of([*dict.fromkeys(("DENY", "PUB", "SUB", "PUB|SUB", *PERMISSION_TEXTS))])

RULES: Mapping[Kind, Mapping[str, Rule]] = {
    Kind.TOPICS: {
        READ_QUEUES: Rule(whole(1, MAX_QUEUES), _TOPIC.read_queue_nums),
        WRITE_QUEUES: Rule(whole(1, MAX_QUEUES), _TOPIC.write_queue_nums),
        "perm": Rule(whole(0, 7), _TOPIC.perm),
        "order": Rule(truth, _TOPIC.order),
        "topicFilterType": Rule(one_of([*TopicFilterType]), TopicFilterType.SINGLE_TAG.value),
        "topicSysFlag": Rule(whole(0, _INT_MAX), _TOPIC.topic_sys_flag),
        ATTRIBUTES: Rule(
            attributes({**TOPIC_ATTRIBUTES, "lite.topic.expiration": Attribute(str)}), {}, since=5
        ),
    },
    Kind.GROUPS: {
        "consumeEnable": Rule(truth, _GROUP.consume_enable),
        "consumeFromMinEnable": Rule(truth, _GROUP.consume_from_min_enable),
        "consumeBroadcastEnable": Rule(truth, _GROUP.consume_broadcast_enable),
        "consumeMessageOrderly": Rule(truth, _GROUP.consume_message_orderly, since=5),
        "retryQueueNums": Rule(whole(0, MAX_QUEUES), _GROUP.retry_queue_nums),
        "retryMaxTimes": Rule(whole(-1, _INT_MAX), _GROUP.retry_max_times),
        "groupRetryPolicy": Rule(
            retry_policy, canonical_retry_policy(_GROUP.group_retry_policy), since=5
        ),
        "brokerId": Rule(whole(0, _LONG_MAX), _GROUP.broker_id),
        "whichBrokerWhenConsumeSlowly": Rule(
            whole(0, _LONG_MAX), _GROUP.which_broker_when_consume_slowly
        ),
        "notifyConsumerIdsChangedEnable": Rule(truth, _GROUP.notify_consumer_ids_changed_enable),
        "groupSysFlag": Rule(whole(0, _INT_MAX), _GROUP.group_sys_flag, since=5),
        "consumeTimeoutMinute": Rule(whole(0, _INT_MAX), _GROUP.consume_timeout_minute, since=5),
        ATTRIBUTES: Rule(attributes(GROUP_ATTRIBUTES), {}, since=5),
    },
    Kind.USERS: {
        "type": Rule(one_of([each.value for each in UserType]), UserType.NORMAL.value),
        "status": Rule(one_of([each.value for each in UserStatus]), UserStatus.ENABLE.value),
        POLICIES: Rule(policies, {}),
    },
    Kind.ACCOUNTS: {
        "admin": Rule(truth, default=False),
        "whiteRemoteAddress": Rule(addresses, ""),
        "defaultTopicPerm": Rule(_permission, Permission.DENY.name),
        "defaultGroupPerm": Rule(_permission, Permission.DENY.name),
        "topicPerms": Rule(grants, {}),
        "groupPerms": Rule(grants, {}),
    },
}


def default_fields(kind: Kind, given: Fields, major: int) -> dict[str, Any]:
    """The fields of a new object at a broker of that version of RocketMQ."""
    values = {
        name: rule.default for name, rule in RULES[kind].items() if rule.since <= major
    } | dict(given)
    if kind is Kind.TOPICS:  # as many queues to read as to write, if only one is said
        values[READ_QUEUES] = given.get(READ_QUEUES, values[WRITE_QUEUES])
        values[WRITE_QUEUES] = given.get(WRITE_QUEUES, values[READ_QUEUES])
    return values


def plain_value(kind: Kind, name: str, value: Any) -> Any:
    """A canonical value in the form of the document."""
    if kind is Kind.USERS and name == POLICIES:
        return list(value.values())
    if kind is Kind.ACCOUNTS and isinstance(value, dict):
        return [f"{key}={permission}" for key, permission in value.items()]
    return value


def read_secret(node: Node, name: str) -> str:
    """A reference to the environment; a document has no secrets."""
    given = node.as_text(name)
    if referenced(given) is None:
        raise node.error(
            f"{name}: a secret is not written here but refers to the environment, as ${{NAME}}"
        )
    return given


def refuse_unknown(given: Mapping[str, Node], known: Collection[str], name: str) -> None:
    """Raises BadAclFile for the first key that is not known."""
    for key, value in given.items():
        if key not in known:
            near = did_you_mean(key, known) or f"; known are {', '.join(known)}"
            raise value.error(f"{name}: unknown field {key}{near}")


def did_you_mean(word: str, known: Collection[str]) -> str:
    folded = {each.lower(): each for each in known}
    near = difflib.get_close_matches(word.lower(), folded, n=1)
    return f", did you mean {folded[near[0]]}?" if near else ""


def _texts(node: Node, name: str) -> list[str]:
    if node.tag == "seq":
        return [each.as_text(f"an item of {name}") for each in node.items]
    return [] if node.is_empty else [each.strip() for each in node.as_text(name).split(",")]


def _plain(node: Node, name: str) -> Any:
    if node.tag == "map":
        return {key: _plain(value, name) for key, value in node.as_mapping(name).items()}
    if node.tag == "seq":
        return [_plain(each, name) for each in node.items]
    if node.tag == "int":
        return node.as_number(name)
    return None if node.is_empty else node.as_text(name)


class _StrictRetry(RetryPolicy, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """A retry policy in which a misspelt field is an error."""
