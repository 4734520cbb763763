"""Validation of groups and messages on the client."""

from bolide.errors import ConfigError
from bolide.model.message import Message
from bolide.model.message_checks import InvalidMessage, check_topic
from bolide.model.names import is_sendable

MAX_GROUP_LENGTH = 120

_RESERVED_GROUPS = frozenset({"DEFAULT_PRODUCER", "DEFAULT_CONSUMER"})


def check_group(group: str) -> None:
    """Raises ConfigError for a group name that RocketMQ rejects."""
    try:
        check_topic(group)
    except InvalidMessage as exc:
        raise ConfigError(f"group: {exc.reason}") from exc
    if len(group) > MAX_GROUP_LENGTH:
        raise ConfigError(f"group: {group!r} is over {MAX_GROUP_LENGTH} characters long")
    if group in _RESERVED_GROUPS:
        raise ConfigError(f"group: {group!r} is reserved, choose a name of your own")


def check_sendable(message: Message, max_size: int) -> None:
    """Raises InvalidMessage for a message that brokers would reject."""
    if not isinstance(message, Message):
        raise TypeError(f"a Message is wanted, not {type(message).__name__}")
    size = len(message.body)
    if size > max_size:
        raise InvalidMessage("body", f"{size} bytes are over max_message_size={max_size}")
    if not size and not message.keys:  # with a key it deletes that key from a compaction topic
        raise InvalidMessage("body", "is empty")
    if not is_sendable(message.topic):
        raise InvalidMessage(
            "topic", f"{message.topic!r} belongs to the broker: clients cannot send to it"
        )
