"""Parts of queues to read: plain values that travel to workers."""

from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import NamedTuple

from bolide.model.message_queue import MessageQueue

Offsets = Mapping[MessageQueue, int]
"""A position in each queue: that of the next message to read."""


class Bounds(NamedTuple):
    """What a queue holds: from the oldest message to behind the newest."""

    oldest: int
    end: int


class QueueRange(NamedTuple):
    """Messages of one queue from `start` up to and without `end`."""

    queue: MessageQueue
    start: int
    end: int

    @property
    def size(self) -> int:
        return max(0, self.end - self.start)


def between(start: Offsets, end: Offsets) -> list[QueueRange]:
    """What lies between two positions, in order of the queues; a queue must be in both."""
    ranges = (QueueRange(queue, start[queue], end[queue]) for queue in sorted(end))
    return [each for each in ranges if each.size]


def split(
    ranges: Iterable[QueueRange], min_partitions: int = 1, max_rows: int | None = None
) -> list[QueueRange]:
    """Cut long ranges so that there are at least `min_partitions`, none over `max_rows` long.

    Each range gets pieces by its share of all rows, and its pieces are alike in size; there are
    fewer if there are fewer rows.
    """
    whole = [each for each in ranges if each.size]
    total = sum(each.size for each in whole)
    found: list[QueueRange] = []
    for each in whole:
        pieces = -(-each.size * min_partitions // total) if len(whole) < min_partitions else 1
        if max_rows is not None:
            pieces = max(pieces, -(-each.size // max_rows))
        found += _cut(each, min(pieces, each.size))
    return found


def _cut(whole: QueueRange, pieces: int) -> list[QueueRange]:
    edges = [whole.start + whole.size * n // pieces for n in range(pieces + 1)]
    return [QueueRange(whole.queue, start, end) for start, end in pairwise(edges)]


def share(start: Offsets, end: Offsets, max_rows: int) -> dict[MessageQueue, int]:
    """Where to stop so as to read about `max_rows` in all: shared by backlog, at least 1 a queue.

    Queues whose end is at or before their start keep that end.
    """
    backlog = {queue: end[queue] - start[queue] for queue in end}
    total = sum(size for size in backlog.values() if size > 0)
    if total <= max_rows:
        return dict(end)
    ends = {}
    for queue, size in backlog.items():
        part = max(1, size * max_rows // total)
        ends[queue] = start[queue] + part if size > 0 else end[queue]
    return ends
