"""Reads of a batch queue: whole records, from the one that holds the offset asked for."""

from bolide.protocol.headers.offsets import Boundary
from bolide.store.batch_queue import BatchQueue, BatchUnit
from bolide.store.reading import (
    MessageFilter,
    ReadableLog,
    ReadLimits,
    ReadResult,
    ReadStatus,
    Window,
    add_if_wanted,
    status_outside,
)


def read_batches(
    commit_log: ReadableLog,
    queue: BatchQueue,
    queue_offset: int,
    limits: ReadLimits,
    wanted: MessageFilter,
    *,
    may_block: bool,
) -> ReadResult:
    """As `read_queue`; limits of numbers count messages.

    The first record may begin before `queue_offset`: the reader drops the messages below it. The
    filter sees the tags and properties of the record, not those of the messages in it, as in Java.

    Raises:
        NotInMemory: the read needs the disk and may not block.
    """
    low, high = queue.min_offset, queue.end_below(commit_log.readable, may_block=may_block)
    outside = status_outside(queue_offset, low, high)
    if outside:
        return ReadResult(outside[0], outside[1], low, high, inner_count=0)
    scanned = max(limits.max_scanned // wanted.weight, limits.max_count)
    found = ReadResult(ReadStatus.NO_MATCHED_MESSAGE, queue_offset, low, high, inner_count=0)
    window = Window(commit_log, may_block=may_block)
    for unit in queue.batches(queue_offset, min(scanned, high - queue_offset), may_block=may_block):
        if unit.end > high:
            break
        if unit.base - queue_offset >= scanned:  # behind a gap
            found.next_offset = unit.base
            break
        if not _examine(unit, found, limits, wanted, window):
            break
        found.next_offset = unit.end
    if found.next_offset == queue_offset and not found.records:
        found.status = ReadStatus.OFFSET_FOUND_NULL
        found.next_offset = max(queue.min_offset, queue_offset + 1)
    return found


def _examine(
    unit: BatchUnit, found: ReadResult, limits: ReadLimits, wanted: MessageFilter, window: Window
) -> bool:
    """Examine one record; returns False if the limits end the read before it."""
    if found.records and (
        found.count + unit.messages > limits.max_count or found.size + unit.size > limits.max_size
    ):
        return False
    if add_if_wanted(unit, found, wanted, window):
        found.inner_count = found.count + unit.messages
    return True


def batch_offset_at(queue: BatchQueue, timestamp: int, boundary: Boundary) -> int:
    """Return the queue offset of a record for a store time (ms), by RocketMQ's rules. Blocks.

    From the store time of the last record on, that record is meant. Before, it is the first record
    stored at that time or later; of several stored at that time, with UPPER, the last one.
    """
    last = queue.batch_at(queue.tail.end - 1)
    if last is None:
        return queue.min_offset
    found: BatchUnit | None = last
    if timestamp < last.store_timestamp:
        found = queue.batch_at(queue.number_at(timestamp))
        if boundary is Boundary.UPPER:
            behind = queue.batch_at(queue.number_at(timestamp, after=True) - 1)
            if behind and behind.store_timestamp == timestamp:
                found = behind
    return max(found.base if found else 0, queue.min_offset)
