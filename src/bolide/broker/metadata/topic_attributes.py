"""Attributes of a topic: which there are and how requests change them (`TopicAttributes`).

Changes come as "+name=value" and "-name": the first sets, the second takes away.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from bolide.broker.dedup.window import Span
from bolide.model.names import is_dead_letter_topic, is_retry_topic
from bolide.protocol.bodies.topics import TopicConfig
from bolide.protocol.refusals import InvalidParameter

DEDUP_WINDOW = "dedup.window"


@dataclass(frozen=True, slots=True)
class Attribute:
    """What an attribute may be."""

    check: Callable[[str], object]
    """Raises ValueError for a value that cannot be; says what it may be."""
    is_fixed: bool = False
    """Given when the topic is created, and never changed."""


def _one_of(served: Collection[str], *others: str) -> Callable[[str], None]:
    """A check for what works here; `others` are what else RocketMQ knows."""

    def check(value: str) -> None:
        if value in others:
            raise ValueError(f"{value} is not supported; use one of {sorted(served)}")
        if value not in served:
            raise ValueError(f"it is one of {sorted([*served, *others])}")

    return check


_MESSAGE_TYPES = ("UNSPECIFIED", "NORMAL", "FIFO", "DELAY", "TRANSACTION")

TOPIC_ATTRIBUTES: Mapping[str, Attribute] = {
    "queue.type": Attribute(_one_of(["SimpleCQ"], "BatchCQ"), is_fixed=True),
    "cleanup.policy": Attribute(_one_of(["DELETE"], "COMPACTION"), is_fixed=True),
    "message.type": Attribute(_one_of(_MESSAGE_TYPES, "MIXED")),
    DEDUP_WINDOW: Attribute(Span.parse),  # ours
}


def parse_changes(text: str | None) -> dict[str, str]:
    """Read "+message.type=FIFO,-cleanup.policy" into signed names and values.

    Raises:
        InvalidParameter: it is not of that form.
    """
    changes: dict[str, str] = {}
    for part in (text or "").split(","):
        name, equals, value = part.strip().partition("=")
        if not name:
            continue
        if name in changes or (name.startswith("+") and not equals):
            raise InvalidParameter(
                f"the attributes {text!r} cannot be read at {part!r}: write +name=value or -name"
            )
        changes[name.strip()] = value.strip()
    return changes


def changed_attributes(
    current: Mapping[str, str] | None,
    changes: Mapping[str, str],
    known: Mapping[str, Attribute] = TOPIC_ATTRIBUTES,
) -> dict[str, str]:
    """The attributes after the changes; without `current` those of something new.

    Raises:
        InvalidParameter: one of them cannot be made; names it.
    """
    found = dict(current or {})
    for signed, value in changes.items():
        sign, name = signed[:1], signed[1:]
        attribute = known.get(name)
        if sign not in {"+", "-"} or attribute is None:
            raise InvalidParameter(
                f"attribute {signed!r} is not known: write a sign and one of {sorted(known)}"
            )
        if current is not None and attribute.is_fixed and found.get(name) != value:
            raise InvalidParameter(f"attribute {name!r} cannot be changed once the topic is there")
        if sign == "+":
            found[name] = _checked(name, value, attribute)
        elif found.pop(name, None) is None:
            raise InvalidParameter(f"attribute {name!r} is not set: it cannot be taken away")
    return found


def _checked(name: str, value: str, attribute: Attribute) -> str:
    try:
        attribute.check(value)
    except ValueError as exc:
        raise InvalidParameter(f"attribute {name!r} cannot be {value!r}: {exc}") from exc
    return value


def has_window(topic: TopicConfig) -> bool:
    """Whether keyed messages are taken once; retries keep the keys of what they once were."""
    name = topic.topic_name
    return DEDUP_WINDOW in topic.attributes and not (
        is_retry_topic(name) or is_dead_letter_topic(name)
    )
