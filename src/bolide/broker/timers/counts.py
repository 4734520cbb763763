"""How many messages wait, by topic, and how fast they come and go (`TimerMetrics`)."""

import time
from collections import deque
from collections.abc import Callable

from bolide.protocol.bodies.replication import TimerMetric, TimerMetrics
from bolide.store.tables import Table

_SPAN = 10.0
"""Seconds over which rates are told."""


class Rate:
    """How often something happened lately, a second."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._seconds: deque[tuple[int, int]] = deque(maxlen=int(_SPAN))
        self.total = 0

    def add(self) -> None:
        second = int(self._now())
        self.total += 1
        if self._seconds and self._seconds[-1][0] == second:
            self._seconds[-1] = second, self._seconds[-1][1] + 1
        else:
            self._seconds.append((second, 1))

    @property
    def per_second(self) -> float:
        oldest = int(self._now()) - _SPAN
        return sum(count for second, count in self._seconds if second > oldest) / _SPAN


class Counts:
    """Changed on the event loop; a crash may leave them a little wrong."""

    def __init__(self, table: Table[TimerMetrics], now: Callable[[], float] = time.time) -> None:
        self._table = table
        self._now = now
        self.arrivals = Rate()
        self.deliveries = Rate()

    @property
    def table(self) -> TimerMetrics:
        return self._table.value

    @property
    def total(self) -> int:
        return sum(metric.count for metric in list(self.table.timing_count.values()))

    def enqueued(self, topic: str) -> None:
        self.arrivals.add()
        self._change(topic, 1)

    def gone(self, topic: str | None) -> None:
        """Say that a message waits no longer."""
        if topic is not None:
            self._change(topic, -1)

    def none_left(self) -> None:
        """Say that nothing waits at all."""
        for metric in self.table.timing_count.values():
            if metric.count:
                metric.count = 0
                self._table.changed()

    def save(self, *, at_once: bool = False) -> None:
        """Write them down if they changed, and not only just before. Blocks."""
        if at_once:
            self._table.save()
        else:
            self._table.save_due(time.monotonic())

    def _change(self, topic: str, difference: int) -> None:
        metric = self.table.timing_count.get(topic)
        if metric is None:
            metric = self.table.timing_count[topic] = TimerMetric()
        metric.count = max(metric.count + difference, 0)
        metric.time_stamp = now = int(self._now() * 1000)
        self.table.data_version = self.table.data_version.bumped(now)
        self._table.changed()
