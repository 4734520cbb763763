"""Resolve positions (earliest, a time, a group, …) to one offset per queue, and sample records."""

from collections.abc import Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from bolide.arrow.errors import BadPosition
from bolide.arrow.offsets import (
    EARLIEST,
    LATEST,
    At,
    Bounds,
    Earliest,
    Exact,
    Group,
    Latest,
    Offsets,
    Position,
)
from bolide.arrow.retry import gather_by_key
from bolide.client.consumer.pull.pull_request import Pull, PullStatus, RawPull
from bolide.client.consumer.subscription import Filter
from bolide.model.message_queue import MessageQueue
from bolide.protocol.inner_batch import unwrap
from bolide.protocol.record import Record, iter_records

if TYPE_CHECKING:
    from bolide.arrow.cluster import Cluster


_PROBE_COUNT = 32
"""Messages read at a time around the offset that a broker returned for a time."""
_SAMPLED_RECORDS = 32
_SAMPLED_QUEUES = 8


async def resolve_position(
    cluster: "Cluster", position: Position, queues: list[MessageQueue]
) -> dict[MessageQueue, int]:
    """The offset of a position in each queue.

    Raises:
        BadPosition: exact offsets omit a queue, or name an unknown one.
    """
    match position:
        case At(timestamp_ms):
            return await _resolve_time(cluster, timestamp_ms, queues)
        case Exact(offsets):
            _check_queues(offsets, queues)
            return _resolve_exact(offsets, await cluster.bounds(_relative_queues(offsets)))
    bounds = await cluster.bounds(queues)
    oldest = {queue: each.oldest for queue, each in bounds.items()}
    match position:
        case Earliest():
            return oldest
        case Latest():
            return {queue: each.end for queue, each in bounds.items()}
        case Group(name):
            return oldest | await cluster.committed(name, queues)


# Exact offsets


def _check_queues(offsets: Offsets, queues: list[MessageQueue]) -> None:
    if missing := sorted(set(queues) - offsets.keys()):
        raise BadPosition(
            f"the offsets lack {_names(missing)}: name every queue, with {EARLIEST} for its oldest"
            f" message or {LATEST} for its end where you have no offset"
        )
    if unknown := sorted(offsets.keys() - set(queues)):
        raise BadPosition(f"there is no {_names(unknown)}: leave out offsets of other queues")


def _names(queues: list[MessageQueue]) -> str:
    rest = f" and {len(queues) - 1} more" if len(queues) > 1 else ""
    first = queues[0]
    return f"queue {first.queue_id} of topic {first.topic!r} on {first.broker_name!r}{rest}"


def _relative_queues(offsets: Offsets) -> list[MessageQueue]:
    return [queue for queue, offset in offsets.items() if offset < 0]


def _resolve_exact(
    offsets: Offsets, bounds: Mapping[MessageQueue, Bounds]
) -> dict[MessageQueue, int]:
    found = dict(offsets)
    for queue, (oldest, end) in bounds.items():
        found[queue] = oldest if offsets[queue] == EARLIEST else end
    return found


# Times


async def _resolve_time(
    cluster: "Cluster", timestamp_ms: int, queues: list[MessageQueue]
) -> dict[MessageQueue, int]:
    bounds = await cluster.bounds(queues)

    async def search(queue: MessageQueue) -> int:
        guess = await cluster.search(queue, timestamp_ms)
        return await _refine(cluster, queue, bounds[queue], guess, timestamp_ms)

    return await gather_by_key(queues, search)


async def _refine(
    cluster: "Cluster", queue: MessageQueue, bounds: Bounds, guess: int, timestamp_ms: int
) -> int:
    """Correct the offset a broker returned for a time by reading the messages around it.

    RocketMQ 4.9 returns the nearest message, and any of several with the same store time.
    """
    oldest, end = bounds
    at = min(max(guess, oldest), end)
    while at > oldest:
        back = max(oldest, at - _PROBE_COUNT)
        found = await read_records(cluster, queue, back, at)
        later = [each.queue_offset for each in found if each.store_timestamp >= timestamp_ms]
        if not later:
            break
        at = later[0]
        if at > back:
            break
    while at < end:
        found = await read_records(cluster, queue, at, min(at + _PROBE_COUNT, end))
        later = [each.queue_offset for each in found if each.store_timestamp >= timestamp_ms]
        if later or not found:
            return later[0] if later else at
        at = found[-1].queue_offset + 1
    return at


async def read_records(
    cluster: "Cluster", queue: MessageQueue, start: int, end: int
) -> list[Record]:
    """Read a short range of records; deleted ones are omitted."""
    found: list[Record] = []
    first = start
    while start < end:
        reply = await cluster.retry(queue, partial(_pull_once, cluster, queue, start, end))
        if reply.status is not PullStatus.FOUND:
            break
        found += [each for record in iter_records(reply.body) for each in unwrap(record)]
        start = reply.header.next_begin_offset
    return [each for each in found if first <= each.queue_offset < end]


async def _pull_once(cluster: "Cluster", queue: MessageQueue, start: int, end: int) -> RawPull:
    return await cluster.pull(
        Pull(
            queue=cluster.on_wire(queue),
            filter=Filter.of(queue.topic, "*", 0),
            queue_offset=start,
            max_count=end - start,
            with_subscription=True,
        )
    )


async def record_size(cluster: "Cluster", queues: Iterable[MessageQueue]) -> float:
    """The average size of recent records in bytes, from a sample; 0.0 if the queues are empty."""
    bounds = await cluster.find_bounds(queues)
    filled = [queue for queue, each in bounds.items() if each.end > each.oldest]
    sampled = filled[:: max(1, len(filled) // _SAMPLED_QUEUES)][:_SAMPLED_QUEUES]

    async def recent(queue: MessageQueue) -> list[int]:
        oldest, end = bounds[queue]
        found = await read_records(cluster, queue, max(oldest, end - _SAMPLED_RECORDS), end)
        return [record.size for record in found]

    sizes = [size for found in (await gather_by_key(sampled, recent)).values() for size in found]
    return sum(sizes) / len(sizes) if sizes else 0.0
