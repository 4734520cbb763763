"""Users, resources and policies as values, and their forms on the wire and in files.

The texts are RocketMQ's: a resource is `Topic:orders`, `Topic:orders*`, `Topic:*` or `*`; names of
kinds, actions and decisions are read without regard to case.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import Enum
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Self, TypeVar

from bolide.protocol.bodies import access as wire

USER_PREFIX = "User:"
_ANYTHING = "*"


class BadPolicy(ValueError):
    """A user, resource or policy is malformed; the text says what to change."""


class _Named(Enum):
    """An enum whose values are RocketMQ's texts."""

    @classmethod
    def parse(cls, text: str | None) -> Self:
        """Raises BadPolicy if the text, in any case, is none of the members."""
        wanted = (text or "").strip().lower()
        for member in cls:
            if member.value.lower() == wanted:
                return member
        known = ", ".join(member.value for member in cls)
        raise BadPolicy(f"The {cls._subject()} {text!r} is unknown; known are {known}.")

    @classmethod
    def _subject(cls) -> str:
        return cls.__name__.lower()


class Action(_Named):
    """What is done with a resource; ALL is for policies."""

    ALL = "All"
    PUB = "Pub"
    SUB = "Sub"
    CREATE = "Create"
    UPDATE = "Update"
    DELETE = "Delete"
    GET = "Get"
    LIST = "List"


class Decision(_Named):
    """What a policy entry decides."""

    ALLOW = "Allow"
    DENY = "Deny"


class PolicyType(_Named):
    """Default policies count only if no custom policy matches a request."""

    CUSTOM = "Custom"
    DEFAULT = "Default"

    @classmethod
    def _subject(cls) -> str:
        return "policy type"


class UserType(_Named):
    """A super user needs no policies."""

    SUPER = "Super"
    NORMAL = "Normal"

    @classmethod
    def _subject(cls) -> str:
        return "user type"


class UserStatus(_Named):
    """A disabled user is refused whatever it sends."""

    ENABLE = "enable"
    DISABLE = "disable"

    @classmethod
    def _subject(cls) -> str:
        return "user status"


class ResourceType(_Named):
    """The kinds of resources; ANY stands for all of them."""

    ANY = "Any"
    CLUSTER = "Cluster"
    NAMESPACE = "Namespace"
    TOPIC = "Topic"
    GROUP = "Group"

    @classmethod
    def _subject(cls) -> str:
        return "resource type"


class Pattern(Enum):
    """How the name of a resource is compared; the value is the rank, the closest match first."""

    LITERAL = 0
    PREFIX = 1
    ANY = 2


@dataclass(frozen=True, slots=True)
class Resource:
    """A resource, or a pattern that matches several."""

    type: ResourceType
    name: str | None = None
    """None: any name, or one that the request does not tell."""
    pattern: Pattern = Pattern.LITERAL

    @classmethod
    def parse(cls, key: str | None) -> Self:
        """Read `Topic:orders`, `Topic:orders*`, `Topic:*` or `*`. Raises BadPolicy."""
        key = (key or "").strip()
        if not key:
            raise BadPolicy("The resource is null.")
        if key == _ANYTHING:
            return cls(ResourceType.ANY, None, Pattern.ANY)
        kind, _, name = key.partition(":")
        found = ResourceType.parse(kind)
        if not name:
            raise BadPolicy(f"The resource {key!r} has no name; write for example {kind}:*.")
        if name == _ANYTHING or found is ResourceType.ANY:  # `Any:x` is written and means `*`
            return cls(found, None, Pattern.ANY)
        if name.endswith(_ANYTHING):
            return cls(found, name.partition(_ANYTHING)[0], Pattern.PREFIX)
        return cls(found, name)

    def __str__(self) -> str:
        if self.type is ResourceType.ANY:
            return _ANYTHING
        star = "" if self.pattern is Pattern.LITERAL else _ANYTHING
        name = "" if self.pattern is Pattern.ANY else self.name
        return f"{self.type.value}:{name}{star}"

    def matches(self, other: "Resource") -> bool:
        """Whether this pattern covers a resource."""
        if self.type is ResourceType.ANY:
            return True
        if self.type is not other.type:
            return False
        if self.pattern is Pattern.ANY:
            return True
        if other.name is None or self.name is None:
            return False
        if self.pattern is Pattern.LITERAL:
            return other.name == self.name
        return other.name.startswith(self.name)


@dataclass(frozen=True, slots=True)
class Source:
    """An address, or a range of them in CIDR notation."""

    text: str
    first: int
    last: int
    exact: IPv4Address | IPv6Address | None
    """Set for a single address; a range compares numbers only, as RocketMQ does."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises BadPolicy if the text is neither an IP address nor a range."""
        text = text.strip()
        try:
            if "/" not in text:
                address = ip_address(text)
                return cls(text, int(address), int(address), address)
            network = ip_network(text, strict=False)
        except ValueError as exc:
            raise BadPolicy(f"The source ip is invalid: {exc}.") from exc
        return cls(text, int(network[0]), int(network[-1]), None)

    def __str__(self) -> str:
        """The same text for every spelling."""
        return str(self.exact if self.exact is not None else ip_network(self.text, strict=False))

    def covers(self, address: IPv4Address | IPv6Address) -> bool:
        if self.exact is not None:
            return address == self.exact
        return self.first <= int(address) <= self.last


@dataclass(frozen=True, slots=True)
class Entry:
    """The decision of a policy about actions on resources, from some addresses or any."""

    resource: Resource
    actions: frozenset[Action]
    decision: Decision
    sources: tuple[Source, ...] = ()

    @classmethod
    def of(cls, entry: wire.PolicyEntry) -> Self:
        """Check and convert an entry. Raises BadPolicy with RocketMQ's texts where it has some."""
        if not entry.actions:
            raise BadPolicy("The actions is empty.")
        if any(text.strip().lower() == "any" for text in entry.actions):
            raise BadPolicy("The actions can not be Any.")
        if any(not text.strip() for text in entry.source_ips or ()):
            raise BadPolicy("The source ip is empty.")
        if not entry.decision:
            raise BadPolicy("The decision is null or illegal.")
        return cls(
            resource=Resource.parse(entry.resource),
            actions=frozenset(map(Action.parse, entry.actions)),
            decision=Decision.parse(entry.decision),
            sources=tuple(map(Source.parse, entry.source_ips or ())),
        )

    def to_wire(self) -> wire.PolicyEntry:
        return wire.PolicyEntry(
            resource=str(self.resource),
            actions=[action.value for action in Action if action in self.actions],
            source_ips=[source.text for source in self.sources] or None,
            decision=self.decision.value,
        )


Policies = dict[PolicyType, tuple[Entry, ...]]


@dataclass(frozen=True, slots=True)
class Acl:
    """All policies of one subject."""

    username: str
    policies: Policies = field(default_factory=dict)

    @classmethod
    def of(cls, acl: wire.Acl, subject: str | None = None) -> Self:
        """Check and convert the body of a request; `subject` is used if the body has none.

        Raises:
            BadPolicy: with RocketMQ's texts where it has some.
        """
        if not acl.policies:
            raise BadPolicy("The policies is empty.")
        policies: Policies = {}
        for policy in acl.policies:
            if not policy.entries:
                raise BadPolicy("The policy entries is empty.")
            kind = PolicyType.parse(policy.policy_type or PolicyType.CUSTOM.value)
            policies[kind] = _merged(policies.get(kind, ()), map(Entry.of, policy.entries))
        return cls(parse_subject(acl.subject or subject), policies)

    @property
    def subject(self) -> str:
        return USER_PREFIX + self.username

    def to_wire(self, resource_filter: str = "") -> wire.Acl | None:
        """The body of an answer; None if no entry is about a resource that has the filter."""
        policies = [
            wire.Policy(policy_type=kind.value, entries=[each.to_wire() for each in kept])
            for kind, entries in self.policies.items()
            if (kept := [each for each in entries if resource_filter in str(each.resource)])
        ]
        return wire.Acl(subject=self.subject, policies=policies) if policies else None

    def updated(self, other: "Acl") -> "Acl":
        """Replace the entries about the same resources, add the others."""
        policies = dict(self.policies)
        for kind, entries in other.policies.items():
            policies[kind] = _merged(policies.get(kind, ()), entries)
        return replace(self, policies=policies)

    def without(self, kind: PolicyType, resource: Resource) -> "Acl":
        """Drop the entry about a resource, and the policy if none is left."""
        kept = tuple(each for each in self.policies.get(kind, ()) if each.resource != resource)
        policies = {other: entries for other, entries in self.policies.items() if other != kind}
        return replace(self, policies=policies | ({kind: kept} if kept else {}))


@dataclass(frozen=True, slots=True)
class User:
    """A user; its password is the secret that signs its requests."""

    username: str
    password: str = field(repr=False)
    type: UserType = UserType.NORMAL
    status: UserStatus = UserStatus.ENABLE

    @property
    def is_super(self) -> bool:
        return self.type is UserType.SUPER

    @property
    def is_enabled(self) -> bool:
        return self.status is UserStatus.ENABLE

    def to_wire(self, *, with_password: bool = False) -> wire.User:
        """The body of an answer, whose password is empty, or the form in the file."""
        return wire.User(
            username=self.username,
            password=self.password if with_password else "",
            user_type=self.type.value,
            user_status=self.status.value,
        )


def checked_username(username: str | None) -> str:
    """Raises BadPolicy if a name is blank or has characters that cannot be printed."""
    if not username or not username.strip():
        raise BadPolicy("username can not be blank")
    if not username.isprintable():
        raise BadPolicy("username can not contain control characters")
    return username


def parse_subject(subject: str | None) -> str:
    """The user's name in `User:name`. Raises BadPolicy."""
    if not subject:
        raise BadPolicy("The subject is null.")
    kind, colon, name = subject.partition(":")
    if not colon or kind.lower() != USER_PREFIX.removesuffix(":").lower():
        raise BadPolicy(f"The subject {subject!r} is not of the form User:name.")
    return checked_username(name)


T = TypeVar("T", bound=_Named)


def optional(kind: type[T], text: str | None) -> T | None:
    """Parse a text that may be missing. Raises BadPolicy."""
    return kind.parse(text) if text and text.strip() else None


def _merged(entries: tuple[Entry, ...], others: Iterable[Entry]) -> tuple[Entry, ...]:
    by_resource = {each.resource: each for each in entries}
    for other in others:
        by_resource[other.resource] = other
    return tuple(by_resource.values())
