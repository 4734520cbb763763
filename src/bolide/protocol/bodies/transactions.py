"""Transactions that have not ended, as administrators see them."""

from msgspec import field

from bolide.protocol.fastjson import Struct
from bolide.protocol.header import Long


class OpenTransaction(Struct, kw_only=True):
    """A half message; times are milliseconds since 1970."""

    msg_id: str
    """Its offset id, by which it is resolved."""
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
    """Not before then its producer is asked again; 0: never."""
    size: int
    half_offset: Long


class Transactions(Struct, kw_only=True):
    """Answer to BOLIDE_LIST_TRANSACTIONS."""

    total: Long
    """How many are open, or have been set aside, whatever group or topic was asked for."""
    next_begin: Long = -1
    """Where to go on; -1: that was all."""
    transactions: list[OpenTransaction] = field(default_factory=list)
