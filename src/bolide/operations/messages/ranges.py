"""The parts of queues that a search is to look at."""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import replace

from bolide.errors import BolideError
from bolide.operations.cluster import Cluster
from bolide.operations.errors import BadInput, NotFound, NotSupported
from bolide.operations.messages.cursors import Cursor, Spot
from bolide.operations.messages.views import Order
from bolide.operations.views import Failure, failure_of
from bolide.protocol.bodies.message_queue import MessageQueue
from bolide.protocol.bodies.topics import TopicOffset
from bolide.remoting.errors import RemotingError

_BOUNDS_SECONDS = 0.3
"""Time for which all open pages use the same bounds of a topic."""
_AT_ONCE = 16

Bounds = dict[MessageQueue, TopicOffset]


async def bounds_of(cluster: Cluster, topic: str) -> tuple[Bounds, list[Failure]]:
    """The ends of the readable queues of a topic, and the brokers that do not tell them.

    Raises:
        NotSupported: no queue may be read.
        BolideError: no broker tells them.
    """
    return await cluster.shared(
        f"messages:bounds:{topic}", lambda: _bounds_of(cluster, topic), seconds=_BOUNDS_SECONDS
    )


async def _bounds_of(cluster: Cluster, topic: str) -> tuple[Bounds, list[Failure]]:
    unreachable: list[RemotingError] = []
    queues, stats = await asyncio.gather(
        cluster.admin.topics.queues(topic),
        cluster.admin.topics.stats(topic, on_failure=unreachable.append),
    )
    if not queues:
        raise NotSupported(f"topic {topic!r} may not be read: give it the permission to read")
    found = {each: stats.offset_table[each] for each in queues if each in stats.offset_table}
    missing = sorted({each.broker_name for each in queues if each not in found})
    reason = str(unreachable[0]) if unreachable else "it does not tell the ends of its queues"
    return found, [Failure(server=name, reason=reason) for name in missing]


async def ranges_of(  # noqa: PLR0913  the options of a search
    cluster: Cluster,
    topic: str,
    *,
    broker: str = "",
    queue_id: int | None = None,
    begin_ms: int | None = None,
    end_ms: int | None = None,
    order: Order = Order.NEWEST,
) -> tuple[list[Spot], list[Failure]]:
    """The ranges of the queues that are asked for, with positions at their beginnings.

    Raises:
        NotFound: the topic has no such broker or queue.
    """
    bounds, failures = await bounds_of(cluster, topic)
    chosen = {
        queue: at
        for queue, at in bounds.items()
        if (not broker or queue.broker_name == broker) and queue_id in {None, queue.queue_id}
    }
    if not chosen and (broker or queue_id is not None) and not failures:
        known = ", ".join(f"{each.broker_name}/{each.queue_id}" for each in sorted(bounds))
        raise NotFound(f"topic {topic!r} has no such queue; it has {known}")
    spots = [_spot(queue, at.min_offset, at.max_offset, order) for queue, at in chosen.items()]
    filled = [each for each in spots if each.low < each.high]
    if begin_ms is None and end_ms is None:
        return filled, failures
    limit = asyncio.Semaphore(_AT_ONCE)

    async def within(spot: Spot) -> Spot | Failure:
        async with limit:
            try:
                return await _within(cluster, topic, spot, begin_ms, end_ms)
            except BolideError as exc:
                return failure_of(spot.broker, exc)

    cut = await asyncio.gather(*map(within, filled))
    found = [each for each in cut if isinstance(each, Spot)]
    failed = {each.server: each for each in cut if isinstance(each, Failure)}
    positioned = [replace(s, position=_begin_of(s.low, s.high, order)) for s in found]
    return [each for each in positioned if each.low < each.high], [*failures, *failed.values()]


async def begin_search(  # noqa: PLR0913  the options of a search
    cluster: Cluster,
    topic: str,
    *,
    cursor: str,
    broker: str,
    queue_id: int | None,
    offset: int | None,
    begin_ms: int | None,
    end_ms: int | None,
    order: Order,
) -> tuple[list[Spot], bool, list[Failure]]:
    """Where a search begins, or goes on with a cursor; and whether that one leads back.

    Raises:
        BadInput: the cursor is of another search, or an offset is given without its queue.
        NotFound: the topic has no such broker or queue.
    """
    if cursor:
        place = Cursor.decode(cursor, topic)
        return list(place.spots), place.is_back, []
    spots, failures = await ranges_of(
        cluster,
        topic,
        broker=broker,
        queue_id=queue_id,
        begin_ms=begin_ms,
        end_ms=end_ms,
        order=order,
    )
    if offset is not None:
        spots = _started_at(spots, offset, order)
    return spots, False, failures


def _started_at(spots: Sequence[Spot], offset: int, order: Order) -> list[Spot]:
    """Begin at an offset of a queue, with the message there; raises BadInput without a queue."""
    if offset < 0:
        raise BadInput("offset", f"{offset} is negative")
    if len({(each.broker, each.queue_id) for each in spots}) > 1:
        raise BadInput("offset", "an offset is one of a queue: give broker and queue_id, too")
    position = offset if order is Order.OLDEST else offset + 1
    return [replace(s, position=min(max(position, s.low), s.high)) for s in spots]


def moved_up(spots: Iterable[Spot], bounds: Bounds) -> list[Spot]:
    """The same positions, with ranges up to the present ends of the queues.

    A queue that was added meanwhile is taken from its beginning.
    """
    known = {(each.broker, each.queue_id): each for each in spots}
    moved = []
    for queue, at in bounds.items():
        spot = known.pop((queue.broker_name, queue.queue_id), None)
        low, high = at.min_offset, at.max_offset
        position = low if spot is None else min(max(spot.position, low), high)
        moved.append(
            Spot(
                broker=queue.broker_name,
                queue_id=queue.queue_id,
                position=position,
                low=low,
                high=high,
            )
        )
    return [*moved, *known.values()]  # of brokers that do not answer now


def _spot(queue: MessageQueue, low: int, high: int, order: Order) -> Spot:
    return Spot(
        broker=queue.broker_name,
        queue_id=queue.queue_id,
        position=_begin_of(low, high, order),
        low=low,
        high=high,
    )


def _begin_of(low: int, high: int, order: Order) -> int:
    return low if order is Order.OLDEST else high


async def _within(
    cluster: Cluster, topic: str, spot: Spot, begin_ms: int | None, end_ms: int | None
) -> Spot:
    """The range of store times, rather a little too wide: RocketMQ 4.9 tells the nearest message.

    The filter compares the times themselves.
    """
    queue = MessageQueue(topic, spot.broker, spot.queue_id)
    low, high = spot.low, spot.high
    search = cluster.admin.offsets.search
    if begin_ms is not None:
        low = max(await search(queue, max(begin_ms - 1, 0)) - 1, low)
    if end_ms is not None:
        high = min(await search(queue, end_ms + 1) + 1, high)
    return replace(spot, low=min(low, high), high=high)
