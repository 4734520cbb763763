"""Queue selectors: functions of the queues, the message and a key."""

import random
from collections.abc import Callable, Collection, Sequence
from typing import Any
from zlib import crc32

from bolide.model.message import Message
from bolide.model.message_queue import MessageQueue
from bolide.protocol.tags import java_hash

QueueSelector = Callable[[Sequence[MessageQueue], Message, Any], MessageQueue]

_INT = range(-(2**31), 2**31)


def by_hash(queues: Sequence[MessageQueue], message: Message, key: Any) -> MessageQueue:
    """Select by the hash of the key, as Java's client does for strings and integers."""
    return queues[abs(hash_code(key)) % len(queues)]


def by_random(queues: Sequence[MessageQueue], message: Message, key: Any) -> MessageQueue:
    """Select a random queue; the key is ignored."""
    return random.choice(queues)  # noqa: S311  to spread load


def by_machine_room(rooms: Collection[str]) -> QueueSelector:
    """Select a random queue of brokers in these machine rooms, named `room@broker`."""

    def select(queues: Sequence[MessageQueue], message: Message, key: Any) -> MessageQueue:
        near = [queue for queue in queues if queue.broker_name.partition("@")[0] in rooms]
        return by_random(near or queues, message, key)

    return select


def dedup_queue(key: str, queues: Sequence[MessageQueue]) -> MessageQueue:
    """The queue of a deduplication key, independent of the order of `queues`.

    All producers must use the same mapping: a duplicate is only detected in the queue of the first
    send.
    """
    return sorted(queues)[crc32(key.encode()) % len(queues)]


def hash_code(key: Any) -> int:
    """Java's hashCode of a String, Integer or Long; of other values, of their text."""
    if isinstance(key, int) and not isinstance(key, bool):
        if key in _INT:
            return key
        bits = key & 0xFFFF_FFFF_FFFF_FFFF
        folded = (bits ^ bits >> 32) & 0xFFFF_FFFF
        return folded - (folded >> 31 << 32)
    return java_hash(str(key))
