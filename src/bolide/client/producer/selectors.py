"""Ways to choose the queue of a message: a selector gets the queues, the message and a key."""

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
    """Equal keys to equal queues, the same ones as Java's: texts and whole numbers hash alike."""
    return queues[abs(hash_code(key)) % len(queues)]


def by_random(queues: Sequence[MessageQueue], message: Message, key: Any) -> MessageQueue:
    """Any queue; the key does not matter."""
    return random.choice(queues)  # noqa: S311  to spread load


def by_machine_room(rooms: Collection[str]) -> QueueSelector:
    """Any queue of the brokers in these rooms: those whose names begin with `room@`."""

    def select(queues: Sequence[MessageQueue], message: Message, key: Any) -> MessageQueue:
        near = [queue for queue in queues if queue.broker_name.partition("@")[0] in rooms]
        return by_random(near or queues, message, key)

    return select


def dedup_queue(key: str, queues: Sequence[MessageQueue]) -> MessageQueue:
    """The queue that a message with this de-duplication key goes to, in whatever order they are.

    Every producer must choose it so: a repeat is only known in the queue of the first send.
    """
    return sorted(queues)[crc32(key.encode()) % len(queues)]


def hash_code(key: Any) -> int:
    """Java's hash of a key: of a String, an Integer, a Long, else of the text of it."""
    if isinstance(key, int) and not isinstance(key, bool):
        if key in _INT:
            return key
        bits = key & 0xFFFF_FFFF_FFFF_FFFF
        folded = (bits ^ bits >> 32) & 0xFFFF_FFFF
        return folded - (folded >> 31 << 32)
    return java_hash(str(key))
