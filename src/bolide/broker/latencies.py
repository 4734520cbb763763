"""How long something took: percentiles and RocketMQ's distribution, minute by minute."""

from bisect import bisect_left, bisect_right
from itertools import accumulate

EDGES = (
    0.05, 0.1, 0.2, 0.5, 1, 2, 3, 5, 7, 10, 15, 20, 30, 50, 70, 100, 150, 200, 300, 500, 700,
    1000, 2000, 3000, 4000, 5000, 10_000,
)  # fmt: skip
"""Upper ends of the buckets in milliseconds; the last bucket has none."""

# The names and ends of RocketMQ's own buckets (`StoreStatsService`).
_NAMES = {
    "[<=0ms]": 1, "[0~10ms]": 10, "[10~50ms]": 50, "[50~100ms]": 100, "[100~200ms]": 200,
    "[200~500ms]": 500, "[500ms~1s]": 1000, "[1~2s]": 2000, "[2~3s]": 3000, "[3~4s]": 4000,
    "[4~5s]": 5000, "[5~10s]": 10_000, "[10s~]": float("inf"),
}  # fmt: skip


class Latencies:
    """Tells of the last whole minute; of the running one until there is one."""

    __slots__ = ("_counts", "_last", "longest")

    def __init__(self) -> None:
        self.longest = 0.0
        """Milliseconds, since the start."""
        self._counts = [0] * (len(EDGES) + 1)
        self._last: list[int] | None = None

    def add(self, milliseconds: float, count: int = 1) -> None:
        self._counts[bisect_right(EDGES, milliseconds)] += count
        if milliseconds > self.longest:  # noqa: PLR1730  max() takes three times as long
            self.longest = milliseconds

    def begin_minute(self) -> None:
        self._last = self._counts
        self._counts = [0] * (len(EDGES) + 1)

    def percentile(self, share: float) -> float:
        """Milliseconds that so great a share stayed below; 0 if there was nothing."""
        counts = list(accumulate(self._shown()))
        if not counts[-1]:
            return 0.0
        bucket = bisect_left(counts, share * counts[-1])
        return min(float(EDGES[bucket]), self.longest) if bucket < len(EDGES) else self.longest

    def distribution(self) -> str:
        """As RocketMQ writes it."""
        counts = [0, *accumulate(self._shown())]
        parts, before = [], 0
        for name, end in _NAMES.items():
            below = counts[bisect_right(EDGES, end)] if end <= EDGES[-1] else counts[-1]
            parts.append(f"{name}:{below - before}")
            before = below
        return " ".join(parts)

    def _shown(self) -> list[int]:
        return self._counts if self._last is None else self._last
