"""Parts of queues to read: plain values that travel to workers."""

from collections.abc import Mapping
from typing import NamedTuple

from bolide.model.message_queue import MessageQueue

Offsets = Mapping[MessageQueue, int]
"""A position in each queue: that of the next message to read."""


class Bounds(NamedTuple):
    """What a queue holds: from the oldest message to behind the newest."""

    oldest: int
    end: int


class QueueRange(NamedTuple):
    """Messages of one queue from `start` up to and without `end`."""

    queue: MessageQueue
    start: int
    end: int
