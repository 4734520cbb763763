"""Leases that the messages of an inner batch share.

RocketMQ's brokers pop an inner batch as one message with one receipt. Here its messages are single
ones: the batch is acknowledged with the last of them, and a renewal by any of them holds for all.
Our brokers give each message a receipt of its own.
"""

import asyncio
from collections.abc import Iterable

from bolide.model.message import StoredMessage
from bolide.protocol.inner_batch import is_wrapped, unwrap
from bolide.protocol.pop_info import Receipt
from bolide.protocol.record import iter_records

Place = tuple[str, int, int]
"""Topic, queue id and queue offset of a message."""


class SharedLease:
    """The lease of one batch; belongs to one event loop."""

    def __init__(self, base: int, offsets: Iterable[int]) -> None:
        self.base = base
        """Queue offset of the batch, which its receipt names."""
        self.receipt: Receipt | None = None
        """The newest receipt, once a message of the batch has one."""
        self.lock = asyncio.Lock()
        """Held while the receipt is being replaced."""
        self._left = set(offsets)

    def finish(self, queue_offset: int) -> bool:
        """Record that a message is done; returns whether all are."""
        self._left.discard(queue_offset)
        return not self._left


class SharedMessage(StoredMessage, frozen=True, eq=False, gc=True, kw_only=True):
    """A message of a popped batch."""

    lease: SharedLease


def shared_leases(body: bytes) -> dict[Place, SharedLease]:
    """Return the leases of the inner batches in a reply, by the places of their messages.

    Raises:
        BadRecord: the bytes are not records.
    """
    found: dict[Place, SharedLease] = {}
    for record in iter_records(body):
        if is_wrapped(record.sys_flag):
            offsets = [each.queue_offset for each in unwrap(record)]
            lease = SharedLease(record.queue_offset, offsets)
            found |= {(record.topic, record.queue_id, offset): lease for offset in offsets}
    return found


def with_lease(message: StoredMessage, lease: SharedLease) -> SharedMessage:
    fields = {name: getattr(message, name) for name in message.__struct_fields__}
    properties = fields.pop("_properties")
    topic, body = fields.pop("topic"), fields.pop("body")
    return SharedMessage(topic, body, properties, **fields, lease=lease)


def lease_of(message: StoredMessage) -> SharedLease | None:
    return message.lease if isinstance(message, SharedMessage) else None
