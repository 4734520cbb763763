"""Attributes of a topic: the known ones, and the changes that requests make (`TopicAttributes`).

A change is written "+name=value", which sets an attribute, or "-name", which removes one.
"""

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from bolide.broker.dedup.window import WindowLength
from bolide.model.names import is_dead_letter_topic, is_retry_topic
from bolide.protocol.bodies.topics import TopicConfig
from bolide.protocol.refusals import InvalidParameter

DEDUP_WINDOW = "dedup.window"
MESSAGE_TYPE = "message.type"
PRIORITY = "PRIORITY"
MIXED = "MIXED"
CLEANUP_POLICY = "cleanup.policy"
_COMPACTION = "COMPACTION"
_LONG_MAX = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Attribute:
    """The rules of one attribute."""

    check: Callable[[str], object]
    """Raises ValueError, with the allowed values, if a value is not allowed."""
    is_fixed: bool = False
    """Set when the topic is created and immutable afterwards."""


def _one_of(supported: Collection[str], *others: str) -> Callable[[str], None]:
    """Build a check for the supported values; `others` are values that only RocketMQ supports."""

    def check(value: str) -> None:
        if value in others:
            raise ValueError(f"{value} is not supported; use one of {sorted(supported)}")
        if value not in supported:
            raise ValueError(f"it is one of {sorted([*supported, *others])}")

    return check


def _check_reserve_time(value: str) -> None:
    if not re.fullmatch(r"[+-]?[0-9]+", value) or not -1 <= int(value) <= _LONG_MAX:
        raise ValueError(f"it is a number from -1 to {_LONG_MAX}")


_MESSAGE_TYPES = ("UNSPECIFIED", "NORMAL", "FIFO", "DELAY", "TRANSACTION", PRIORITY, MIXED)

TOPIC_ATTRIBUTES: Mapping[str, Attribute] = {
    "queue.type": Attribute(_one_of(["SimpleCQ", "BatchCQ"]), is_fixed=True),
    CLEANUP_POLICY: Attribute(_one_of(["DELETE", _COMPACTION]), is_fixed=True),
    MESSAGE_TYPE: Attribute(_one_of(_MESSAGE_TYPES, "LITE")),
    "reserve.time": Attribute(_check_reserve_time),  # RocketMQ's tiered store alone uses it
    DEDUP_WINDOW: Attribute(WindowLength.parse),  # not in RocketMQ
}


def parse_changes(text: str | None) -> dict[str, str]:
    """Parse "+message.type=FIFO,-cleanup.policy" into a map from signed names to values.

    Raises:
        InvalidParameter: the text does not have that form.
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
    """Apply changes to attributes; `current` is None for a topic that does not exist yet.

    Raises:
        InvalidParameter: a change is not allowed; the remark names the attribute.
    """
    attributes = dict(current or {})
    for signed, value in changes.items():
        sign, name = signed[:1], signed[1:]
        attribute = known.get(name)
        if sign not in {"+", "-"} or attribute is None:
            raise InvalidParameter(
                f"attribute {signed!r} is not known: write a sign and one of {sorted(known)}"
            )
        is_same = sign == "+" and attributes.get(name) == value
        if current is not None and attribute.is_fixed and not is_same:
            raise InvalidParameter(f"attribute {name!r} cannot be changed once the topic exists")
        if sign == "+":
            attributes[name] = _checked(name, value, attribute)
        elif attributes.pop(name, None) is None:
            raise InvalidParameter(f"attribute {name!r} is not set: it cannot be removed")
    _refuse_with_batch_queues(attributes)
    return attributes


def _refuse_with_batch_queues(attributes: Mapping[str, str]) -> None:
    if attributes.get("queue.type") != "BatchCQ":
        return
    is_compacting = attributes.get(CLEANUP_POLICY) == _COMPACTION
    if is_compacting or DEDUP_WINDOW in attributes:
        name = CLEANUP_POLICY if is_compacting else DEDUP_WINDOW
        raise InvalidParameter(
            f"attribute {name!r} is not for topics with queue.type=BatchCQ: the messages of a"
            " batch are stored as one record, whatever their keys are"
        )


def _checked(name: str, value: str, attribute: Attribute) -> str:
    try:
        attribute.check(value)
    except ValueError as exc:
        raise InvalidParameter(f"attribute {name!r} cannot be {value!r}: {exc}") from exc
    return value


def is_priority_topic(topic: TopicConfig) -> bool:
    """Whether pops of the topic go by priority."""
    return topic.attributes.get(MESSAGE_TYPE) == PRIORITY


def has_window(topic: TopicConfig) -> bool:
    """Whether the topic deduplicates; retry and dead-letter topics never do.

    Their messages keep the keys of the original messages and would count as duplicates.
    """
    name = topic.topic_name
    return DEDUP_WINDOW in topic.attributes and not (
        is_retry_topic(name) or is_dead_letter_topic(name)
    )


def is_compacted(topic: TopicConfig) -> bool:
    """Whether the topic keeps the newest message of each key (`cleanup.policy=COMPACTION`)."""
    return topic.attributes.get(CLEANUP_POLICY) == _COMPACTION
