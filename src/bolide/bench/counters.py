"""Counters and duration histograms of a running benchmark."""

from dataclasses import dataclass, field
from typing import NamedTuple

from bolide.protocol.refusals import Refusal

_PARTS = 128
_BITS = _PARTS.bit_length() - 1
_MICRO = 1e6
PERCENTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p99.9": 0.999}


class Histogram:
    """Histogram of durations with a precision of 1 µs, or 1/128 of the value for longer ones.

    The memory use is a few kilobytes, independent of the number of durations.
    """

    def __init__(self) -> None:
        self.count = 0
        self.total = 0.0
        self.longest = 0.0
        self._buckets: dict[int, int] = {}

    def record(self, seconds: float) -> None:
        """Count a duration; negative ones, after a clock adjustment, count as 0."""
        if seconds < 0.0:  # noqa: PLR1730  `max` is slower, and its time is part of the measurement
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
        """The duration in seconds that a share of all durations does not exceed; 0 if empty."""
        wanted, seen = part * self.count, 0
        for bucket in sorted(self._buckets):
            seen += self._buckets[bucket]
            if seen >= wanted:
                return min(_upper(bucket) / _MICRO, self.longest)
        return 0.0

    def in_ms(self) -> dict[str, float]:
        """Mean, percentiles and maximum in milliseconds."""
        found = {"mean": self.mean}
        found |= {name: self.percentile(part) for name, part in PERCENTILES.items()}
        found["max"] = self.longest
        return {name: round(seconds * 1000, 3) for name, seconds in found.items()}


def _bucket(micros: int) -> int:
    """The bucket of a duration: 1 µs wide at first, twice as wide after every 128 buckets."""
    if micros < 2 * _PARTS:
        return micros
    shift = micros.bit_length() - _BITS - 1
    return (shift << _BITS) + (micros >> shift)


def _upper(bucket: int) -> int:
    """The upper bound of a bucket, in microseconds."""
    shift = max((bucket >> _BITS) - 1, 0)
    return (bucket - (shift << _BITS) + 1) << shift


class SendTotals(NamedTuple):
    """Snapshot of the send counters; a request is one message or one batch."""

    requests: int
    messages: int
    send_failed: int
    response_failed: int
    messages_failed: int
    seconds: float
    """Sum of all round-trip times."""

    def since(self, before: "SendTotals") -> "SendTotals":
        return SendTotals(
            self.requests - before.requests,
            self.messages - before.messages,
            self.send_failed - before.send_failed,
            self.response_failed - before.response_failed,
            self.messages_failed - before.messages_failed,
            self.seconds - before.seconds,
        )


class SendCounters:
    """Counters of sends, and the histogram of their round-trip times."""

    def __init__(self) -> None:
        self.times = Histogram()
        self.messages = 0
        self.send_failed = 0
        """Requests without a response."""
        self.response_failed = 0
        """Requests that a broker refused."""
        self.messages_failed = 0
        self.last_failure: str | None = None

    def succeeded(self, messages: int, seconds: float) -> None:
        self.messages += messages
        self.times.record(seconds)

    def failed(self, messages: int, cause: Exception) -> None:
        refused = isinstance(cause, Refusal) or isinstance(cause.__cause__, Refusal)
        self.response_failed += refused
        self.send_failed += not refused
        self.messages_failed += messages
        self.last_failure = str(cause)

    def totals(self) -> SendTotals:
        return SendTotals(
            self.times.count, self.messages, self.send_failed, self.response_failed,
            self.messages_failed, self.times.total,
        )  # fmt: skip


class ConsumeTotals(NamedTuple):
    """Snapshot of the consume counters."""

    messages: int
    failed: int
    born_seconds: float
    store_seconds: float

    def since(self, before: "ConsumeTotals") -> "ConsumeTotals":
        return ConsumeTotals(
            self.messages - before.messages,
            self.failed - before.failed,
            self.born_seconds - before.born_seconds,
            self.store_seconds - before.store_seconds,
        )


@dataclass(slots=True)
class ConsumeCounters:
    """Counters of received messages, with histograms of their age since sent and since stored."""

    born: Histogram = field(default_factory=Histogram)
    stored: Histogram = field(default_factory=Histogram)
    failed: int = 0
    _longest: tuple[float, float] = (0.0, 0.0)

    def record(self, since_born: float, since_stored: float) -> None:
        self.born.record(since_born)
        self.stored.record(since_stored)
        born, stored = self._longest
        if since_born > born or since_stored > stored:
            self._longest = max(born, since_born), max(stored, since_stored)

    def reset_longest(self) -> tuple[float, float]:
        """The maxima since the last call."""
        found, self._longest = self._longest, (0.0, 0.0)
        return found

    def totals(self) -> ConsumeTotals:
        return ConsumeTotals(self.born.count, self.failed, self.born.total, self.stored.total)
