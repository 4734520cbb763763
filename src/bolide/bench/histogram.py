"""Durations, counted in buckets: any number of them in a few kilobytes."""

_PARTS = 128
_BITS = _PARTS.bit_length() - 1
_MICRO = 1e6
PERCENTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p99.9": 0.999}


class Histogram:
    """Counts durations to the microsecond, long ones to a 128th of their size."""

    def __init__(self) -> None:
        self.count = 0
        self.total = 0.0
        self.longest = 0.0
        self._buckets: dict[int, int] = {}

    def record(self, seconds: float) -> None:
        """Count one; a clock that went back counts as nothing."""
        if seconds < 0.0:  # noqa: PLR1730  a call of max is slower, and part of what is measured
            seconds = 0.0
        self.count += 1
        self.total += seconds
        if seconds > self.longest:  # noqa: PLR1730
            self.longest = seconds
        bucket = _bucket(int(seconds * _MICRO))
        self._buckets[bucket] = self._buckets.get(bucket, 0) + 1

    @property
    def mean(self) -> float:
        return self.total / self.count if self.count else 0.0

    def percentile(self, part: float) -> float:
        """Seconds that this part of all durations did not exceed; 0 if there are none."""
        wanted, seen = part * self.count, 0
        for bucket in sorted(self._buckets):
            seen += self._buckets[bucket]
            if seen >= wanted:
                return min(_upper(bucket) / _MICRO, self.longest)
        return 0.0

    def in_ms(self) -> dict[str, float]:
        """The figures of a report, in milliseconds."""
        found = {"mean": self.mean}
        found |= {name: self.percentile(part) for name, part in PERCENTILES.items()}
        found["max"] = self.longest
        return {name: round(seconds * 1000, 3) for name, seconds in found.items()}


def _bucket(micros: int) -> int:
    """Buckets are one microsecond wide at first, and twice as wide after every 128."""
    if micros < 2 * _PARTS:
        return micros
    shift = micros.bit_length() - _BITS - 1
    return (shift << _BITS) + (micros >> shift)


def _upper(bucket: int) -> int:
    """The end of a bucket, in microseconds."""
    shift = max((bucket >> _BITS) - 1, 0)
    return (bucket - (shift << _BITS) + 1) << shift
