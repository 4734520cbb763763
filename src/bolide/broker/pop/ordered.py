"""Ordered pops: a queue has one pop in flight, and the next pop waits for its acknowledgement
(`ConsumerOrderInfoManager`).
"""

import msgspec
from msgspec import field

from bolide.protocol import fastjson
from bolide.protocol.fastjson import Struct
from bolide.protocol.header import Int, Long
from bolide.store.tables import TableKind


class OrderInfo(Struct, kw_only=True):
    """The ordered pop in flight on a queue, in the format of RocketMQ's file. Times in
    milliseconds."""

    pop_time: Long = field(name="popTime", default=0)
    invisible_time: Long | None = field(name="i", default=None)
    offset_list: list[Long] = field(name="o", default_factory=list)
    """The first offset, then the distances from it."""
    next_visible: dict[int, Long] | None = field(name="ot", default=None)
    """When messages become visible again whose invisible time was changed, by queue offset."""
    counts: dict[int, Int] | None = field(name="oc", default=None)
    """Redelivery counts by queue offset, where greater than zero."""
    last_consumed: Long = field(name="l", default=0)
    acked: Long = field(name="cm", default=0)
    """Bitmap: one bit per offset, set when acknowledged."""
    attempt_id: str | None = field(name="a", default=None)

    @property
    def offsets(self) -> list[int]:
        if not self.offset_list:
            return []
        first, *distances = self.offset_list
        return [first, *(first + distance for distance in distances)]

    @property
    def is_done(self) -> bool:
        return not self.unacknowledged

    @property
    def unacknowledged(self) -> list[int]:
        return [offset for at, offset in enumerate(self.offsets) if not self.acked >> at & 1]

    def visible_at(self, offset: int) -> int:
        """Return when a message becomes visible again."""
        by_pop = self.pop_time + (self.invisible_time or 0)
        return (self.next_visible or {}).get(offset, by_pop)

    def acknowledge(self, offset: int) -> None:
        self.acked |= 1 << self.offsets.index(offset)

    def next_order_info(
        self, attempt_id: str | None, pop_time: int, invisible_time: int, offsets: list[int]
    ) -> "OrderInfo":
        """Build the next pop of the queue, with the counts of redelivered messages."""
        after = first_order_info(attempt_id, pop_time, invisible_time, offsets)
        before = self.counts or {}
        if self.attempt_id is not None and self.attempt_id == attempt_id:
            after.counts = dict(before)
        else:
            again = set(self.offsets)
            after.counts = {each: before.get(each, 0) + 1 for each in offsets if each in again}
        return after

    @property
    def least_count(self) -> int:
        """The redelivery count that all messages have reached."""
        counts = self.counts or {}
        return min(counts.values()) if len(counts) == len(self.offset_list) else 0


def first_order_info(
    attempt_id: str | None, pop_time: int, invisible_time: int, offsets: list[int]
) -> OrderInfo:
    """Build the first pop of a queue."""
    first = offsets[0]
    return OrderInfo(
        pop_time=pop_time,
        invisible_time=invisible_time,
        offset_list=[first, *(offset - first for offset in offsets[1:])],
        last_consumed=pop_time,
        attempt_id=attempt_id,
    )


class OrderTable(Struct, kw_only=True):
    """Ordered pops by "topic@group" and queue id."""

    table: dict[str, dict[int, OrderInfo]] = field(default_factory=dict)


ORDERS = TableKind("consumerOrderInfo.json", OrderTable, 5.0, fastjson.encode)


def merge_order_info(one: OrderInfo, other: OrderInfo) -> OrderInfo:
    """Return the later of two pops; two versions of the same pop are combined."""
    if one.pop_time != other.pop_time:
        return max(one, other, key=lambda info: info.pop_time)
    visible, other_visible = one.next_visible or {}, other.next_visible or {}
    latest = {
        each: max(visible.get(each, 0), other_visible.get(each, 0))
        for each in visible | other_visible
    }
    return msgspec.structs.replace(
        one, acked=one.acked | other.acked, next_visible=latest or one.next_visible
    )
