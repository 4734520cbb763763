"""What is due when: pops whose time will be over."""

import heapq
from collections.abc import Collection, Iterator

from bolide.broker.pop.queue import Live

_LEAST_COMPACTED = 1024


class Dues:
    """Those of `live`, the earliest first; what is not live any more, or is due at another time by
    now, is passed over."""

    def __init__(self, live: Collection[Live]) -> None:
        self._live = live
        self._heap: list[tuple[int, int, Live]] = []
        self._pushed = 0

    @property
    def first(self) -> int | None:
        """When the next one is due."""
        self._tidy()
        return self._heap[0][0] if self._heap else None

    def add(self, live: Live) -> None:
        """Take one by its `due`, also one that was due at another time."""
        self._pushed += 1
        heapq.heappush(self._heap, (live.due, self._pushed, live))
        if len(self._heap) > 2 * len(self._live) + _LEAST_COMPACTED:
            self._heap = [(each.due, at, each) for at, each in enumerate(self._live)]
            self._pushed = len(self._heap)
            heapq.heapify(self._heap)

    def take(self, now: int) -> Iterator[Live]:
        """Take out those that are due."""
        self._tidy()
        while self._heap and self._heap[0][0] <= now:
            yield heapq.heappop(self._heap)[2]
            self._tidy()

    def clear(self) -> None:
        self._heap.clear()

    def _tidy(self) -> None:
        while self._heap:
            due, _, live = self._heap[0]
            if live in self._live and live.due == due:
                return
            heapq.heappop(self._heap)
