"""Queues that are popped in order: one pop at a time, the next when all of it is acknowledged
(`ConsumerOrderInfoManager`)."""

import msgspec
from msgspec import field

from bolide.protocol import fastjson
from bolide.protocol.fastjson import Struct
from bolide.protocol.header import Int, Long
from bolide.store.tables import TableKind


class OrderInfo(Struct, kw_only=True):
    """The pop that a queue waits for, as RocketMQ keeps it in a file. Times in milliseconds."""

    pop_time: Long = field(name="popTime", default=0)
    invisible_time: Long | None = field(name="i", default=None)
    offset_list: list[Long] = field(name="o", default_factory=list)
    """The first offset, then the distances from it."""
    next_visible: dict[int, Long] | None = field(name="ot", default=None)
    """When messages are to be seen again that got another time than the pop."""
    counts: dict[int, Int] | None = field(name="oc", default=None)
    """How often messages were given away before, where it is more than never."""
    last_consumed: Long = field(name="l", default=0)
    acked: Long = field(name="cm", default=0)
    """One bit for each offset."""
    attempt_id: str | None = field(name="a", default=None)

    @property
    def offsets(self) -> list[int]:
        if not self.offset_list:
            return []
        first, *distances = self.offset_list
        return [first, *(first + distance for distance in distances)]

    @property
    def is_done(self) -> bool:
        return not self.unsettled

    @property
    def unsettled(self) -> list[int]:
        return [offset for at, offset in enumerate(self.offsets) if not self.acked >> at & 1]

    def visible_at(self, offset: int) -> int:
        """When a message is to be seen again."""
        by_pop = self.pop_time + (self.invisible_time or 0)
        return (self.next_visible or {}).get(offset, by_pop)

    def settle(self, offset: int) -> None:
        self.acked |= 1 << self.offsets.index(offset)

    def followed_by(
        self, attempt_id: str | None, pop_time: int, invisible_time: int, offsets: list[int]
    ) -> "OrderInfo":
        """The next pop of the queue, which counts what is given away again."""
        after = ordered(attempt_id, pop_time, invisible_time, offsets)
        before = self.counts or {}
        if self.attempt_id is not None and self.attempt_id == attempt_id:
            after.counts = dict(before)
        else:
            again = set(self.offsets)
            after.counts = {each: before.get(each, 0) + 1 for each in offsets if each in again}
        return after

    @property
    def least_count(self) -> int:
        """How often all of the messages were given away before."""
        counts = self.counts or {}
        return min(counts.values()) if len(counts) == len(self.offset_list) else 0


def ordered(
    attempt_id: str | None, pop_time: int, invisible_time: int, offsets: list[int]
) -> OrderInfo:
    """The first pop of a queue."""
    first = offsets[0]
    return OrderInfo(
        pop_time=pop_time,
        invisible_time=invisible_time,
        offset_list=[first, *(offset - first for offset in offsets[1:])],
        last_consumed=pop_time,
        attempt_id=attempt_id,
    )


class OrderTable(Struct, kw_only=True):
    """By "topic@group" and queue id."""

    table: dict[str, dict[int, OrderInfo]] = field(default_factory=dict)


ORDERS = TableKind("consumerOrderInfo.json", OrderTable, 5.0, fastjson.encode)


def merged(one: OrderInfo, other: OrderInfo) -> OrderInfo:
    """Of two accounts of a queue the later one; of the same pop, all that either knows."""
    if one.pop_time != other.pop_time:
        return max(one, other, key=lambda info: info.pop_time)
    visible, further = one.next_visible or {}, other.next_visible or {}
    later = {each: max(visible.get(each, 0), further.get(each, 0)) for each in visible | further}
    return msgspec.structs.replace(
        one, acked=one.acked | other.acked, next_visible=later or one.next_visible
    )
