"""Pending timers of a broker; Bolide's own, RocketMQ has no such requests."""

from msgspec import field

from bolide.protocol.fastjson import Struct
from bolide.protocol.header import Int, Long


class PendingTimer(Struct, kw_only=True):
    """A message with a delivery time that is not due yet."""

    topic: str
    deliver_ms: Long
    """When it is due, in milliseconds since 1970."""
    message_id: str
    keys: str = ""
    tags: str = ""
    store_timestamp: Long = 0
    size: Int = 0
    """Size of the body in bytes."""
    out_ms: Long = 0
    """Delivery time in the record; with RocketMQ the due time is that of the slot."""


class PendingTimers(Struct, kw_only=True):
    """Answer to BOLIDE_LIST_TIMERS and BOLIDE_RECALL_TIMERS."""

    timers: list[PendingTimer] = field(default_factory=list)
    next: str = ""
    """Start of the next page; empty after the last."""
