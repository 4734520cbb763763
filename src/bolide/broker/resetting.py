"""Where the queues of a group are sent when its offsets are reset."""

from collections.abc import Callable, Iterable

from bolide.protocol.refusals import InvalidParameter
from bolide.store.contract import Store

END = -1
"""The timestamp that means the end of a queue."""


def offset_by_time(store: Store, topic: str, queue_id: int, timestamp: int) -> int:
    """The first message stored at a time (ms) or later, the end of the queue if none is. Blocks."""
    if timestamp < 0:
        return store.max_offset(topic, queue_id)
    return max(store.offset_at(topic, queue_id, timestamp), 0)


def offsets_by_time(
    store: Store, topic: str, queue_ids: Iterable[int], timestamp: int
) -> dict[int, int]:
    """As `offset_by_time`, by queue. Blocks."""
    return {queue_id: offset_by_time(store, topic, queue_id, timestamp) for queue_id in queue_ids}


def checked_offset(store: Store, topic: str, queue_id: int, offset: int) -> int:
    """An offset that somebody chose.

    Raises:
        InvalidParameter: the queue does not reach there; says how far it does.
    """
    low, high = store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)
    if not low <= offset <= high:
        raise InvalidParameter(f"Target offset {offset} not in consume queue range [{low}-{high}]")
    return offset


def targets(
    wanted: dict[int, int], consumed: Callable[[int], int], *, force: bool
) -> dict[int, int]:
    """Where consumers go: without `force` only back, never past what they have not seen yet."""
    if force:
        return wanted
    return {queue_id: min(offset, consumed(queue_id)) for queue_id, offset in wanted.items()}
