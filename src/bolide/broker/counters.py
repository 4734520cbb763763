"""Sliding-window counters (`StatsItem`) and latency percentiles per minute.

A counter is sampled every 10 s for the last minute, every 10 min for the last hour and every hour
for the last day. What it says of a window reaches up to now and, while the window is not full, back
to the first count; RocketMQ's begins with its first sample, up to an hour later. Callers count by
adding to the list `sums`, so counting is cheap.
"""

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Sequence
from itertools import accumulate
from typing import Final, NamedTuple

from bolide.protocol.bodies.stats import BrokerStats, StatsWindow

# Indices into the sums of a counter.
COUNT: Final = 0
SIZE: Final = 1
TIME: Final = 2
"""Milliseconds."""
CALLS: Final = 3
TIMED: Final = 4
"""Calls whose time is in TIME; others have none that says anything."""
_SUMS: Final = 5

SAMPLE_SECONDS: Final = 10.0


class Sample(NamedTuple):
    time: float
    sums: tuple[float, ...]


class Window:
    """The newest samples of a counter, at a fixed interval."""

    __slots__ = ("_interval", "_samples", "_started")

    def __init__(self, started: float, interval: float, length: int) -> None:
        self._started = started
        self._interval = interval
        self._samples: deque[Sample] = deque(maxlen=length)

    def add(self, now: float, sums: tuple[float, ...]) -> None:
        """Add a sample, unless all samples of the window equal it: idle counters cost nothing."""
        samples = self._samples
        if samples and samples[0].sums == sums:
            return
        if not samples:
            samples.append(Sample(self._started, (0.0,) * len(sums)))
        elif samples[0].sums == samples[-1].sums:
            self._fill(now)
        samples.append(Sample(now, sums))

    def _fill(self, now: float) -> None:
        """Add the samples that were omitted while the counter was idle."""
        idle, length = self._samples[-1].sums, self._samples.maxlen or 0
        self._samples.extend(
            Sample(now - back * self._interval, idle) for back in range(length - 1, 0, -1)
        )

    def since(self, now: float) -> tuple[float, tuple[float, ...]]:
        """Seconds that the window covers, and the sums at its begin."""
        if not self._samples:
            return max(now - self._started, SAMPLE_SECONDS), (0.0,) * _SUMS
        span = self._interval * ((self._samples.maxlen or 1) - 1)
        oldest = now - span - self._interval / 2
        for sample in tuple(self._samples):  # a copy: threads read too
            if sample.time >= oldest:
                return max(now - sample.time, SAMPLE_SECONDS), sample.sums
        return span, self._samples[-1].sums  # idle for longer than the window

    def sampled(self, index: int) -> tuple[float, float]:
        """Growth and seconds between the first and the last sample; 0 seconds without any."""
        samples = tuple(self._samples)  # a copy: threads read too
        if not samples:
            return 0.0, 0.0
        first, last = samples[0], samples[-1]
        return last.sums[index] - first.sums[index], last.time - first.time


class Counter:
    """Sums and their windows; a counter with parts reports the totals of its parts."""

    __slots__ = ("_calls", "_day", "_hour", "_minute", "changed", "parts", "sums")

    def __init__(self, now: float) -> None:
        self.sums = [0.0] * _SUMS
        self.parts: list[Counter] = []
        self.changed = now
        self._calls = 0.0
        self._minute = Window(now, SAMPLE_SECONDS, 7)
        self._hour = Window(now, 600.0, 7)
        self._day = Window(now, 3600.0, 25)

    def sample(self, now: float, *, for_hour: bool, for_day: bool) -> None:
        sums = self.totals()
        if sums[CALLS] != self._calls:
            self._calls, self.changed = sums[CALLS], now
        self._minute.add(now, sums)
        if for_hour:
            self._hour.add(now, sums)
        if for_day:
            self._day.add(now, sums)

    def tps(self, now: float, index: int = COUNT) -> float:
        """Rate per second over the last minute, up to the last sample: for figures of many."""
        growth, seconds = self._minute.sampled(index)
        if seconds:
            return growth / max(seconds, SAMPLE_SECONDS)
        return _window(self._minute, now, self.totals(), index, None).tps

    def sum(self, now: float, index: int) -> int:
        """What was added in the last minute."""
        return _window(self._minute, now, self.totals(), index, None).sum

    def stats(self, now: float, index: int, calls: int | None) -> BrokerStats:
        """The figures of one sum; `calls` is the sum that its average is by, None without one."""
        sums = self.totals()
        minute, hour, day = (
            _window(window, now, sums, index, calls)
            for window in (self._minute, self._hour, self._day)
        )
        return BrokerStats(stats_minute=minute, stats_hour=hour, stats_day=day)

    def totals(self) -> tuple[float, ...]:
        if not self.parts:
            return tuple(self.sums)
        return tuple(map(sum, zip(*(part.sums for part in self.parts), strict=True)))


def _window(
    window: Window, now: float, sums: tuple[float, ...], index: int, calls: int | None
) -> StatsWindow:
    seconds, first = window.since(now)
    total = sums[index] - first[index]
    count = 0.0 if calls is None else sums[calls] - first[calls]
    return StatsWindow(
        sum=round(total), tps=total / seconds, avgpt=total / count if count > 0 else 0.0
    )


EDGES = (
    0.05, 0.1, 0.2, 0.5, 1, 2, 3, 5, 7, 10, 15, 20, 30, 50, 70, 100, 150, 200, 300, 500, 700,
    1000, 2000, 3000, 4000, 5000, 10_000,
)  # fmt: skip
"""Upper bounds of the buckets in milliseconds; the last bucket has none."""

# Names and upper bounds of RocketMQ's own buckets (`StoreStatsService`).
_ROCKETMQ_BUCKETS = {
    "[<=0ms]": 1, "[0~10ms]": 10, "[10~50ms]": 50, "[50~100ms]": 100, "[100~200ms]": 200,
    "[200~500ms]": 500, "[500ms~1s]": 1000, "[1~2s]": 2000, "[2~3s]": 3000, "[3~4s]": 4000,
    "[4~5s]": 5000, "[5~10s]": 10_000, "[10s~]": float("inf"),
}  # fmt: skip


class Latencies:
    """Latency histogram of the last full minute; during the first minute, of that minute."""

    __slots__ = ("_counts", "_last", "longest")

    def __init__(self) -> None:
        self.longest = 0.0
        """Maximum since the start, in milliseconds."""
        self._counts = [0] * (len(EDGES) + 1)
        self._last: list[int] | None = None

    def add(self, milliseconds: float, count: int = 1) -> None:
        self._counts[bisect_right(EDGES, milliseconds)] += count
        if milliseconds > self.longest:  # noqa: PLR1730  max() takes three times as long
            self.longest = milliseconds

    def add_counts(self, counts: Sequence[int], longest: float) -> None:
        """Add counts by bucket (`EDGES`), and the maximum of what was counted in milliseconds."""
        self._counts = [mine + more for mine, more in zip(self._counts, counts, strict=True)]
        self.longest = max(self.longest, longest)

    def begin_minute(self) -> None:
        self._last = self._counts
        self._counts = [0] * (len(EDGES) + 1)

    def percentile(self, share: float) -> float:
        """Latency in milliseconds that a share (0 to 1) does not exceed; 0 without samples."""
        counts = list(accumulate(self._reported()))
        if not counts[-1]:
            return 0.0
        bucket = bisect_left(counts, share * counts[-1])
        return min(float(EDGES[bucket]), self.longest) if bucket < len(EDGES) else self.longest

    def distribution(self) -> str:
        """Histogram as text in RocketMQ's format."""
        counts = [0, *accumulate(self._reported())]
        parts, before = [], 0
        for name, end in _ROCKETMQ_BUCKETS.items():
            below = counts[bisect_right(EDGES, end)] if end <= EDGES[-1] else counts[-1]
            parts.append(f"{name}:{below - before}")
            before = below
        return " ".join(parts)

    def _reported(self) -> list[int]:
        return self._counts if self._last is None else self._last
