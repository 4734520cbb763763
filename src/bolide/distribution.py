"""Counts of values by bucket: what a histogram of metrics is made of."""

from bisect import bisect_left
from collections.abc import Sequence


class Distribution:
    """Counts of a histogram by bucket, and the sum of all values; changed by one thread."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        """Inclusive upper bounds; one more bucket follows."""
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def add(self, value: float, count: int = 1) -> None:
        """Add a value, or as many of the same."""
        self.counts[bisect_left(self.bounds, value)] += count
        self.total += value * count

    def copy(self) -> "Distribution":
        copied = Distribution(self.bounds)
        copied.counts, copied.total = list(self.counts), self.total
        return copied

    def merge(self, other: "Distribution") -> None:
        """Add the counts of another one with the same buckets."""
        self.counts = [mine + more for mine, more in zip(self.counts, other.counts, strict=True)]
        self.total += other.total

    def within(self, bounds: Sequence[float]) -> "Distribution":
        """The same in fewer buckets; their bounds must be among these."""
        merged = Distribution(bounds)
        merged.total = self.total
        for bound, count in zip((*self.bounds, float("inf")), self.counts, strict=True):
            merged.counts[bisect_left(merged.bounds, bound)] += count
        return merged

    def since(self, before: "Distribution | None") -> "Distribution":
        """What was added since an earlier copy; all, if the counts began anew meanwhile."""
        grown = self.copy()
        if before is None:
            return grown
        counts = [mine - other for mine, other in zip(self.counts, before.counts, strict=True)]
        if min(counts) >= 0:
            grown.counts = counts
            grown.total -= before.total
        return grown
