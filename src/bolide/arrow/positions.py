"""Where a position is in each queue."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from bolide.arrow.errors import BadPosition
from bolide.arrow.offsets import EARLIEST, LATEST, At, Earliest, Exact, Group, Latest, Position
from bolide.arrow.patience import for_each
from bolide.arrow.ranges import Bounds, Offsets
from bolide.arrow.samples import records
from bolide.model.message_queue import MessageQueue

if TYPE_CHECKING:
    from bolide.arrow.cluster import Cluster

_LOOK_AROUND = 32


async def resolve(
    cluster: "Cluster", position: Position, queues: list[MessageQueue]
) -> dict[MessageQueue, int]:
    """Raises BadPosition for exact offsets of other queues."""
    match position:
        case At(timestamp_ms):
            return await _at(cluster, timestamp_ms, queues)
        case Exact(offsets):
            _check(offsets, queues)
            return _exact(offsets, await cluster.bounds(_relative(offsets)))
    bounds = await cluster.bounds(queues)
    oldest = {queue: each.oldest for queue, each in bounds.items()}
    match position:
        case Earliest():
            return oldest
        case Latest():
            return {queue: each.end for queue, each in bounds.items()}
        case Group(name):
            return oldest | await cluster.committed(name, queues)


def refuse_past_end(
    offsets: Offsets, bounds: Mapping[MessageQueue, Bounds], *, option: str
) -> None:
    """Raises BadPosition: a queue does not reach that far."""
    for queue, (_, last) in bounds.items():
        if offsets[queue] > last:
            raise BadPosition(f"{option}: queue {queue} ends at {last}, {offsets[queue]} was given")


# Exact offsets


def _check(offsets: Offsets, queues: list[MessageQueue]) -> None:
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


def _relative(offsets: Offsets) -> list[MessageQueue]:
    return [queue for queue, offset in offsets.items() if offset < 0]


def _exact(offsets: Offsets, bounds: Mapping[MessageQueue, Bounds]) -> dict[MessageQueue, int]:
    found = dict(offsets)
    for queue, (oldest, end) in bounds.items():
        found[queue] = oldest if offsets[queue] == EARLIEST else end
    return found


# Times


async def _at(
    cluster: "Cluster", timestamp_ms: int, queues: list[MessageQueue]
) -> dict[MessageQueue, int]:
    bounds = await cluster.bounds(queues)

    async def search(queue: MessageQueue) -> int:
        guess = await cluster.search(queue, timestamp_ms)
        return await _settle(cluster, queue, bounds[queue], guess, timestamp_ms)

    return await for_each(queues, search)


async def _settle(
    cluster: "Cluster", queue: MessageQueue, bounds: Bounds, guess: int, timestamp_ms: int
) -> int:
    """RocketMQ 4.9 names the nearest message, and of several with one time any: look around."""
    oldest, end = bounds
    at = min(max(guess, oldest), end)
    while at > oldest:
        back = max(oldest, at - _LOOK_AROUND)
        found = await records(cluster, queue, back, at)
        later = [each.queue_offset for each in found if each.store_timestamp >= timestamp_ms]
        if not later:
            break
        at = later[0]
        if at > back:
            break
    while at < end:
        found = await records(cluster, queue, at, min(at + _LOOK_AROUND, end))
        later = [each.queue_offset for each in found if each.store_timestamp >= timestamp_ms]
        if later or not found:
            return later[0] if later else at
        at = found[-1].queue_offset + 1
    return at
