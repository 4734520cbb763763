"""Attributes of consumer groups (`SubscriptionGroupAttributes`): names, values, defaults."""

from collections.abc import Callable, Mapping

from bolide.broker.metadata.topic_attributes import Attribute
from bolide.protocol.bodies.groups import GroupConfig

PRIORITY_FACTOR = "priority.factor"
_DEFAULT_FACTOR = 100


def priority_factor(group: GroupConfig) -> int:
    """The percentage of the group's pops that read a priority topic by priority."""
    try:
        return int(group.attributes.get(PRIORITY_FACTOR, _DEFAULT_FACTOR))
    except ValueError:  # from a table that another program wrote
        return _DEFAULT_FACTOR


def _percentage(value: str) -> None:
    number = int(value) if value.isascii() and value.isdigit() and len(value) <= 18 else -1
    if not 0 <= number <= 100:
        raise ValueError("it is a number from 0 to 100")


def _refused(value: str) -> None:
    raise ValueError("light topics are not implemented")


_LIGHT_TOPIC_NAMES = (
    "lite.bind.topic",
    "lite.sub.model",
    "lite.sub.reset.offset.exclusive",
    "lite.sub.reset.offset.unsubscribe",
    "lite.sub.client.quota",
    "lite.sub.client.max.event.cnt",
    "lite.sub.wildcard",
)

_CHECKS: Mapping[str, Callable[[str], object]] = {
    PRIORITY_FACTOR: _percentage,
    **dict.fromkeys(_LIGHT_TOPIC_NAMES, _refused),
}

GROUP_ATTRIBUTES: Mapping[str, Attribute] = {
    name: Attribute(check) for name, check in _CHECKS.items()
}
"""All attributes that RocketMQ knows; those of light topics can be removed but not set."""
