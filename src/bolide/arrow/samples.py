"""A few messages of queues, looked at: their times, their sizes."""

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING

from bolide.arrow.patience import for_each
from bolide.client.consumer.pull.pull_request import Pull, PullStatus, RawPull
from bolide.client.consumer.subscription import Filter
from bolide.model.message_queue import MessageQueue
from bolide.protocol.record import Record, iter_records

if TYPE_CHECKING:
    from bolide.arrow.cluster import Cluster

_RECENT = 32
_ASKED_FOR_SIZE = 8


async def records(cluster: "Cluster", queue: MessageQueue, start: int, end: int) -> list[Record]:
    """The records of a few messages; what is not there any more is left out."""
    found: list[Record] = []
    while start < end:
        reply = await cluster.ride_out(queue, partial(_look, cluster, queue, start, end))
        if reply.status is not PullStatus.FOUND:
            break
        found += iter_records(reply.body)
        start = reply.header.next_begin_offset
    return [each for each in found if each.queue_offset < end]


async def _look(cluster: "Cluster", queue: MessageQueue, start: int, end: int) -> RawPull:
    return await cluster.pull(
        Pull(
            queue=cluster.on_wire(queue),
            filter=Filter.of(queue.topic, "*", 0),
            offset=start,
            max_count=end - start,
            with_subscription=True,
        )
    )


async def record_size(cluster: "Cluster", queues: Iterable[MessageQueue]) -> float:
    """The average size of recent records in bytes; 0.0 while there are none."""
    bounds = await cluster.find_bounds(queues)
    filled = [queue for queue, each in bounds.items() if each.end > each.oldest]
    asked = filled[:: max(1, len(filled) // _ASKED_FOR_SIZE)][:_ASKED_FOR_SIZE]

    async def recent(queue: MessageQueue) -> list[int]:
        oldest, end = bounds[queue]
        found = await records(cluster, queue, max(oldest, end - _RECENT), end)
        return [record.size for record in found]

    sizes = [size for found in (await for_each(asked, recent)).values() for size in found]
    return sum(sizes) / len(sizes) if sizes else 0.0
