"""Priority messages: the queue of a message is its priority (`SendMessageProcessor`).

A message may have a priority in any topic, as in RocketMQ; pops of a topic with
`message.type=PRIORITY` go by it (`bolide.broker.pop.queue_order`). A message of another kind, such
as a delayed one, loses its priority: the kinds exclude each other.
"""

import re

import msgspec

from bolide.broker.produce.addressing import write_queues
from bolide.model.properties import PropertyName
from bolide.protocol.bodies.topics import TopicConfig
from bolide.protocol.headers.send import SendHeader
from bolide.protocol.property_string import decode_properties, encode_properties

_NUMBER = re.compile(r"[+-]?[0-9]{1,10}")
_MAX_INT = 2**31 - 1
_OTHER_KINDS = (
    PropertyName.DELAY_LEVEL,
    PropertyName.TIMER_DELIVER_MS,
    PropertyName.TIMER_DELAY_SEC,
    PropertyName.TIMER_DELAY_MS,
    PropertyName.SHARDING_KEY,
    PropertyName.CRON,  # not in RocketMQ
)
"""Properties of messages of another kind (`TopicMessageType.parseFromMessageProperty`)."""


def placed_by_priority(header: SendHeader, topic: TopicConfig) -> SendHeader:
    """Return the header with the queue of the message's priority, or without that priority.

    Raises:
        NoPermission: the topic has no queues to send to.
    """
    if PropertyName.PRIORITY not in header.properties or header.batch:
        return header
    properties = decode_properties(header.properties)
    priority = _priority(properties.get(PropertyName.PRIORITY, ""))
    if priority < 0:
        return header
    if _is_of_another_kind(properties):
        del properties[PropertyName.PRIORITY]
        return msgspec.structs.replace(header, properties=encode_properties(properties))
    return msgspec.structs.replace(header, queue_id=min(priority, write_queues(topic) - 1))


def _priority(text: str) -> int:
    """The priority, -1 for none; text that Java cannot parse counts as none."""
    number = int(text) if _NUMBER.fullmatch(text) else -1
    return number if number <= _MAX_INT else -1


def _is_of_another_kind(properties: dict[str, str]) -> bool:
    prepared = properties.get(PropertyName.TRANSACTION_PREPARED, "").lower() == "true"
    return prepared or any(name in properties for name in _OTHER_KINDS)
