"""What a broker tells of messages that wait for their time; ours, RocketMQ has no such requests."""

from msgspec import field

from bolide.protocol.fastjson import Struct
from bolide.protocol.header import Int, Long


class PendingTimer(Struct, kw_only=True):
    """A message that waits."""

    topic: str
    deliver_ms: Long
    """When it is due, in milliseconds since 1970."""
    message_id: str
    keys: str = ""
    tags: str = ""
    store_timestamp: Long = 0
    size: Int = 0
    """Bytes of its body."""
    out_ms: Long = 0
    """The same time as the record says it: RocketMQ's is that of a slot."""


class PendingTimers(Struct, kw_only=True):
    """Answer to BOLIDE_LIST_TIMERS and BOLIDE_RECALL_TIMERS."""

    timers: list[PendingTimer] = field(default_factory=list)
    next: str = ""
    """Where the next page begins; empty behind the last."""
