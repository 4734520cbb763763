"""Offsets of a logical queue, and the physical queue in which each of them is.

A logical queue is a list of items (`LogicQueueMappingItem`), oldest first. Each maps a range of
logical offsets to one physical queue. The last item is the leader: its broker accepts messages.
While a queue is being moved, its new leader has no place yet: `logic_offset` is -1.
"""

from collections.abc import Sequence
from itertools import pairwise

from bolide.errors import BolideError
from bolide.protocol.bodies.queues import QueueMapping, QueueMappingDetail, QueueMappingItem
from bolide.protocol.bodies.topics import MAX_QUEUES

UNPLACED = -1
"""Logical offset of a leader that has not been given its place."""

BLOCK = 10_000
"""Each item begins at a multiple of this logical offset, with a gap behind its predecessor."""

MAX_ITEMS = 1_000
"""Most items of a queue: some requests ask the brokers of all items, one after the other."""
_MAX_OFFSET = 2**62
"""Sums of two offsets up to this are Java longs."""

Items = Sequence[QueueMappingItem]


class BadMapping(BolideError):
    """A queue mapping contradicts itself, or what it is to replace."""


# ---- one item


def is_placed(item: QueueMappingItem) -> bool:
    """Whether the logical offset at which the item begins is known."""
    return item.logic_offset >= 0


def logical_offset(item: QueueMappingItem, offset: int) -> int:
    """The logical offset of one in the item's physical queue, at least that of its start."""
    return item.logic_offset + max(offset - item.start_offset, 0)


def stored_offset(item: QueueMappingItem, offset: int) -> int:
    """The logical offset to report for a stored message; -1 for an item without its place."""
    if not is_placed(item):
        return UNPLACED
    if item.start_offset <= item.end_offset < offset:
        return logical_offset(item, item.end_offset)
    return logical_offset(item, offset)


def item_offset(item: QueueMappingItem, logical: int) -> int:
    """The offset in the item's physical queue that a logical offset means."""
    return logical - item.logic_offset + item.start_offset


def has_end(item: QueueMappingItem) -> bool:
    """Whether the offset at which the item ends is known and the item is not empty."""
    return item.end_offset > item.start_offset


def offset_delta(item: QueueMappingItem) -> int:
    """What a client adds to the queue offset of a record."""
    return item.logic_offset - item.start_offset


# ---- the items of a queue


def find_item(items: Items, logical: int) -> QueueMappingItem | None:
    """The item with a logical offset; the first one for an offset before all of them."""
    placed = [item for item in items if is_placed(item)]
    for item in reversed(placed):
        if logical >= item.logic_offset:
            return item
    return placed[0] if placed else None


def next_item(items: Items, current: QueueMappingItem) -> QueueMappingItem | None:
    """The item that continues `current`; None if there is none or it has no place yet."""
    for item, successor in pairwise(items):
        if item.gen == current.gen:
            return successor if is_placed(successor) else None
    return None


def known_end(items: Items) -> int:
    """The highest logical offset that the items alone tell of; -1 without any."""
    if not items:
        return UNPLACED
    last = items[-1]
    return last.logic_offset + max(last.end_offset - last.start_offset, 0)


def next_block(offset: int, block: int = BLOCK) -> int:
    """Where the next item begins: at least half a block behind `offset`."""
    number, rest = divmod(offset, block)
    return (number + (1 if rest < block // 2 else 2)) * block


def check_items(items: Items) -> None:
    """Raise BadMapping unless generations and offsets of a queue's items increase."""
    if len(items) > MAX_ITEMS:
        raise BadMapping(f"a queue has {len(items)} items, over {MAX_ITEMS}")
    for item in items:
        _check_item(item)
    for item, successor in pairwise(items):
        if not is_placed(item):
            raise BadMapping(f"{_named(item)} has no logical offset, but is not the last item")
        if item.gen >= successor.gen:
            raise BadMapping(f"{_named(successor)} does not have a higher generation than the last")
        if is_placed(successor) and known_end([item]) >= successor.logic_offset:
            raise BadMapping(f"{_named(successor)} begins before the end of its predecessor")


def _check_item(item: QueueMappingItem) -> None:
    if min(item.gen, item.queue_id) < 0:
        raise BadMapping(f"{_named(item)} has a negative generation or queue id")
    if item.start_offset != 0:  # RocketMQ never writes another one
        raise BadMapping(f"{_named(item)} starts at {item.start_offset}, not at 0")
    if max(item.logic_offset, item.end_offset) > _MAX_OFFSET:
        raise BadMapping(f"{_named(item)} has an offset over {_MAX_OFFSET}")
    if item.end_offset != -1 and item.end_offset < item.start_offset:
        raise BadMapping(f"{_named(item)} ends before it starts")


def check_numbers(mapping: QueueMappingDetail) -> None:
    """Raise BadMapping unless the queues of a mapping are among those that it counts."""
    total = mapping.total_queues
    if not 0 <= total <= MAX_QUEUES:
        raise BadMapping(f"topic {mapping.topic} cannot have {total} queues, over {MAX_QUEUES}")
    for number in mapping.hosted_queues:
        if not 0 <= number < total:
            raise BadMapping(f"topic {mapping.topic} has {total} queues and none numbered {number}")


def check_successors(old: Items, new: Items, *, same_epoch: bool) -> None:
    """Raise BadMapping unless `new` keeps what `old` says about the items that both have."""
    if not old:
        return
    if not new:
        raise BadMapping("the new mapping leaves out a logical queue")
    known = {item.gen: item for item in old}
    for item in new:
        before = known.get(item.gen)
        if before is not None and _place(before) != _place(item):
            raise BadMapping(f"{_named(item)} was at {_named(before)} in the old mapping")
        if before is not None and is_placed(before) and before.logic_offset != item.logic_offset:
            raise BadMapping(
                f"{_named(item)} began at logical offset {before.logic_offset}, not"
                f" {item.logic_offset}"
            )
    if same_epoch and (old[-1].gen, _place(old[-1])) != (new[-1].gen, _place(new[-1])):
        raise BadMapping("the leader of a logical queue changes, but not the epoch")


def _place(item: QueueMappingItem) -> tuple[str, int, int]:
    return item.bname, item.queue_id, item.start_offset


def _named(item: QueueMappingItem) -> str:
    return f"item {item.gen} (queue {item.queue_id} of broker {item.bname})"


# ---- mappings of a broker


def leads(mapping: QueueMappingDetail, items: Items | None) -> bool:
    """Whether the broker of a mapping leads a queue, that is accepts its messages."""
    return bool(items) and items[-1].bname == mapping.bname  # type: ignore[index]


def led_queues(mapping: QueueMappingDetail) -> dict[int, int]:
    """The physical queue ids of the logical queues that the broker of a mapping leads."""
    return {
        number: items[-1].queue_id
        for number, items in mapping.hosted_queues.items()
        if leads(mapping, items)
    }


def published(mapping: QueueMappingDetail) -> QueueMapping:
    """What NameServers are told of a mapping."""
    return QueueMapping(
        topic=mapping.topic,
        scope=mapping.scope,
        total_queues=mapping.total_queues,
        bname=mapping.bname,
        epoch=mapping.epoch,
        curr_id_map=led_queues(mapping),
    )
