"""Open transactions, for administrators."""

from msgspec import field

from bolide.protocol.fastjson import Struct
from bolide.protocol.header import Long


class OpenTransaction(Struct, kw_only=True):
    """A half message; times are milliseconds since 1970."""

    msg_id: str
    """Offset id of the half message, by which it is resolved."""
    transaction_id: str | None = None
    producer_group: str
    topic: str
    queue_id: int
    keys: str | None = None
    tags: str | None = None
    born_host: str
    began: Long
    check_times: int
    next_check: Long = 0
    """Earliest time of the next check-back; 0: never."""
    size: int
    half_offset: Long


class Transactions(Struct, kw_only=True):
    """Answer to BOLIDE_LIST_TRANSACTIONS."""

    total: Long
    """Total open, or set aside, regardless of the group or topic requested."""
    next_begin: Long = -1
    """Start of the next page; -1 after the last."""
    transactions: list[OpenTransaction] = field(default_factory=list)
