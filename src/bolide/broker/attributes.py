"""Attributes of a topic: which there are and how requests change them (`TopicAttributes`).

Changes come as "+name=value" and "-name": the first sets, the second takes away.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from bolide.protocol.refusals import InvalidParameter


@dataclass(frozen=True, slots=True)
class Attribute:
    """What an attribute may be, of what RocketMQ knows and of what works here."""

    values: frozenset[str]
    served: frozenset[str]
    is_fixed: bool
    """Given when the topic is created, and never changed."""


_MESSAGE_TYPES = frozenset({"UNSPECIFIED", "NORMAL", "FIFO", "DELAY", "TRANSACTION"})

TOPIC_ATTRIBUTES: Mapping[str, Attribute] = {
    "queue.type": Attribute(
        frozenset({"SimpleCQ", "BatchCQ"}), frozenset({"SimpleCQ"}), is_fixed=True
    ),
    "cleanup.policy": Attribute(
        frozenset({"DELETE", "COMPACTION"}), frozenset({"DELETE"}), is_fixed=True
    ),
    "message.type": Attribute(_MESSAGE_TYPES | {"MIXED"}, _MESSAGE_TYPES, is_fixed=False),
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
    if value not in attribute.values:
        raise InvalidParameter(
            f"attribute {name!r} cannot be {value!r}: it is one of {sorted(attribute.values)}"
        )
    if value not in attribute.served:
        raise InvalidParameter(
            f"attribute {name!r}: {value} is not supported; use one of {sorted(attribute.served)}"
        )
    return value
