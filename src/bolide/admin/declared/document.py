"""The document: a YAML file with the objects that a cluster is to have.

```yaml
version: 1
cluster: DefaultCluster
topics:
  Orders: {writeQueueNums: 8, readQueueNums: 8, attributes: {message.type: FIFO}}
groups:
  billing: {retryMaxTimes: 5}
users:
  shop: {password: "${PASSWORD_SHOP}", policies: [{resource: "Topic:Orders", ...}]}
```

A field that is left out is left as it is, and gets its default in a new object. `onlyOn` names the
brokers that have a topic or group, by default all; `overrides` has other values for some brokers.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from bolide.admin.access import PASSWORD, references
from bolide.admin.declared.fields import (
    RULES,
    Fields,
    Kind,
    plain_value,
    read_secret,
    refuse_unknown,
)
from bolide.auth.plain.yaml_nodes import BadAclFile, Node, read_nodes
from bolide.auth.policies.model import BadPolicy, checked_username
from bolide.broker.metadata.topics import validate_group, validate_topic
from bolide.model.names import (
    DEAD_LETTER_PREFIX,
    PARK_PREFIX,
    RETRY_PREFIX,
    SYSTEM_TOPIC_PREFIX,
    SYSTEM_TOPICS,
    is_internal,
    is_system_group,
)
from bolide.protocol.refusals import InvalidParameter

VERSION: Final = 1
_MAX_SIZE = 64 * 1024 * 1024
_ONLY_ON = "onlyOn"
_OVERRIDES = "overrides"
_SECRET_KEY = "SECRET_KEY"  # noqa: S105  the beginning of the names of variables


class Declared(msgspec.Struct, frozen=True, kw_only=True):
    """One object of a document."""

    kind: Kind
    name: str
    fields: dict[str, Any]
    """What the document says of it, at all brokers."""
    only_on: tuple[str, ...] | None = None
    """Names of the brokers that have it; None: all of them."""
    overrides: dict[str, dict[str, Any]] = msgspec.field(default_factory=dict)
    secret: str | None = None
    """A reference to the environment."""
    line: int = 0

    def at(self, broker: str) -> Fields | None:
        """The fields that it has at a broker; None if it is not to be there."""
        if self.only_on is not None and broker not in self.only_on:
            return None
        return self.fields | self.overrides.get(broker, {})

    def __str__(self) -> str:
        return f"{self.kind.noun} {self.name}"


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """What a file declares."""

    objects: tuple[Declared, ...]
    cluster: str | None = None
    kinds: frozenset[Kind] = frozenset()
    """The sections that the file has: only these are pruned."""
    file: str = "the file"

    def of_kind(self, kind: Kind) -> dict[str, Declared]:
        return {each.name: each for each in self.objects if each.kind is kind}


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerState:
    """What one broker has of the kinds of objects that a document declares."""

    name: str
    """Of the broker group."""
    address: str
    label: str
    """The name; of a slave with its id."""
    is_master: bool = True
    major: int = 5
    """The version of RocketMQ that it is, or is compatible with."""
    objects: Mapping[Kind, Mapping[str, Fields]]
    """Without what is not declared: system topics and groups, retry and dead-letter topics."""
    kept: Mapping[Kind, Mapping[str, str]] = field(default_factory=dict)
    """Objects that exist and are not changed by documents, with the reason."""
    missing: Mapping[Kind, str] = field(default_factory=dict)
    """Kinds that it does not have, with the reason."""
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Secret keys of accounts, which only RocketMQ's brokers tell."""


def system_reason(kind: Kind, name: str) -> str | None:
    """Why an object of that name is not declared by documents; None if it is."""
    if kind is Kind.TOPICS:
        if name.startswith((RETRY_PREFIX, DEAD_LETTER_PREFIX, PARK_PREFIX)):
            return "it belongs to a group, whose consumers create it"
        if name in SYSTEM_TOPICS or is_internal(name) or name.startswith(SYSTEM_TOPIC_PREFIX):
            return "it is a system topic"
    if kind is Kind.GROUPS and is_system_group(name):
        return "it is a system group"
    return None


# ---- reading


def read_document(data: bytes, file: str) -> Document:
    """Read a file.

    Raises:
        BadAclFile: the file is invalid; the text begins with file and line, and has no secret.
    """
    root = read_nodes(data, file, _MAX_SIZE)
    content = root.as_mapping("the file")
    sections = {kind.value: kind for kind in Kind}
    refuse_unknown(content, ["version", "cluster", *sections], "the file")
    if "version" not in content:
        raise root.error(f"the file needs a version: {VERSION}")
    if (version := content["version"].as_number("version")) != VERSION:
        raise content["version"].error(f"version {version} is unknown; this reads {VERSION}")
    cluster = content["cluster"].as_text("cluster") if "cluster" in content else None
    for key in sections:
        if key in content and content[key].is_empty:  # a slip, which --prune would make a disaster
            reason = f"{key} is empty: write {key}: {{}} to declare none, or leave it out"
            raise content[key].error(reason)
    objects = [
        _declared(kind, name, node)
        for key, kind in sections.items()
        if key in content
        for name, node in content[key].as_mapping(key).items()
    ]
    kinds = frozenset(kind for key, kind in sections.items() if key in content)
    return Document(objects=tuple(objects), cluster=cluster, kinds=kinds, file=file)


def _declared(kind: Kind, name: str, node: Node) -> Declared:
    what = f"{kind.noun} {name}"
    _check_name(kind, name, node)
    given = node.as_mapping(what)
    rules = RULES[kind]
    of_brokers = () if kind.is_on_slaves else (_ONLY_ON, _OVERRIDES)
    secret = (kind.secret,) if kind.secret else ()
    refuse_unknown(given, [*rules, *of_brokers, *secret], what)
    return Declared(
        kind=kind,
        name=name,
        fields=_fields(kind, what, given),
        only_on=_names(given[_ONLY_ON], f"{what}: {_ONLY_ON}") if _ONLY_ON in given else None,
        overrides=_overrides(kind, what, given.get(_OVERRIDES)),
        secret=read_secret(given[kind.secret], f"{what}: {kind.secret}")
        if kind.secret in given
        else None,
        line=node.line,
    )


def _check_name(kind: Kind, name: str, node: Node) -> None:
    try:
        match kind:
            case Kind.TOPICS:
                validate_topic(name)
            case Kind.GROUPS:
                validate_group(name)
            case Kind.USERS | Kind.ACCOUNTS:
                checked_username(name)
    except (InvalidParameter, BadPolicy) as exc:
        raise node.error(f"{kind.noun} {name!r}: {exc}") from exc
    if reason := system_reason(kind, name):
        raise node.error(f"{kind.noun} {name} is not declared: {reason}")


def _fields(kind: Kind, what: str, given: Mapping[str, Node]) -> dict[str, Any]:
    return {
        name: rule.read(given[name], f"{what}: {name}")
        for name, rule in RULES[kind].items()
        if name in given
    }


def _overrides(kind: Kind, what: str, node: Node | None) -> dict[str, dict[str, Any]]:
    if node is None:
        return {}
    found = {}
    for broker, each in node.as_mapping(f"{what}: {_OVERRIDES}").items():
        name = f"{what}: {_OVERRIDES}: {broker}"
        given = each.as_mapping(name)
        refuse_unknown(given, [*RULES[kind]], name)
        found[broker] = _fields(kind, name, given)
    return found


def _names(node: Node, name: str) -> tuple[str, ...]:
    return tuple(each.as_text(f"an item of {name}") for each in node.as_list(name))


# ---- writing


def declare(
    states: Sequence[BrokerState], cluster: str, kinds: Iterable[Kind] = tuple(Kind)
) -> dict[str, Any]:
    """The document of what brokers have, as plain values; it has no secrets.

    A field has the value that most brokers have. Topics and groups that differ have the others
    as overrides; users and accounts are meant to be the same everywhere.
    """
    document: dict[str, Any] = {"version": VERSION, "cluster": cluster}
    for kind in kinds:
        having = [each for each in states if kind in each.objects]
        if having:
            document[kind.value] = _section(kind, having)
    return document


def to_yaml(document: Mapping[str, Any]) -> str:
    import yaml  # noqa: PLC0415  slow to import

    # Equal values are written again: reading refuses aliases.
    plain = {"ignore_aliases": lambda *_: True}
    dumper = type("_Dumper", (getattr(yaml, "CSafeDumper", yaml.SafeDumper),), plain)
    text: str = yaml.dump(document, Dumper=dumper, sort_keys=False, allow_unicode=True, width=100)
    return text


def _section(kind: Kind, states: Sequence[BrokerState]) -> dict[str, Any]:
    names = sorted({name for state in states for name in state.objects[kind]})
    prefix = PASSWORD if kind is Kind.USERS else _SECRET_KEY
    secrets = references(names, prefix) if kind.secret else {}
    return {
        name: ({kind.secret: secrets[name]} if kind.secret else {}) | _written(kind, name, states)
        for name in names
    }


def _written(kind: Kind, name: str, states: Sequence[BrokerState]) -> dict[str, Any]:
    found = {each.label: each.objects[kind][name] for each in states if name in each.objects[kind]}
    common = {
        key: _most_common([fields[key] for fields in found.values() if key in fields])
        for key in RULES[kind]
        if any(key in fields for fields in found.values())
    }
    written = {key: plain_value(kind, key, value) for key, value in common.items()}
    if kind.is_on_slaves:
        return written
    if len(found) < len(states):
        written[_ONLY_ON] = [*found]
    others = {
        broker: {
            key: plain_value(kind, key, value)
            for key, value in fields.items()
            if value != common[key]
        }
        for broker, fields in found.items()
    }
    if overrides := {broker: fields for broker, fields in others.items() if fields}:
        written[_OVERRIDES] = overrides
    return written


def _most_common(values: Sequence[Any]) -> Any:
    """The value that most brokers have; of several the one that comes first."""
    texts = [msgspec.json.encode(value, order="sorted") for value in values]
    ((text, _),) = Counter(texts).most_common(1)
    return values[texts.index(text)]


__all__ = [
    "VERSION",
    "BadAclFile",
    "BrokerState",
    "Declared",
    "Document",
    "declare",
    "read_document",
    "system_reason",
    "to_yaml",
]
