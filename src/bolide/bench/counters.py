"""What is counted while a benchmark runs."""

from dataclasses import dataclass, field
from typing import NamedTuple

from bolide.bench.histogram import Histogram
from bolide.protocol.refusals import Refusal


class SendTotals(NamedTuple):
    """Sends up to one moment; a request is one message, or one batch of them."""

    requests: int
    messages: int
    send_failed: int
    response_failed: int
    messages_failed: int
    seconds: float
    """All round trips together."""

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
    """What became of the sends."""

    def __init__(self) -> None:
        self.times = Histogram()
        self.messages = 0
        self.send_failed = 0
        """Requests that got no answer."""
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
    """Messages consumed up to one moment."""

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
    """What listeners got: how long after it was sent, and after it was stored."""

    born: Histogram = field(default_factory=Histogram)
    stored: Histogram = field(default_factory=Histogram)
    failed: int = 0
    _longest: tuple[float, float] = (0.0, 0.0)

    def got(self, since_born: float, since_stored: float) -> None:
        self.born.record(since_born)
        self.stored.record(since_stored)
        born, stored = self._longest
        if since_born > born or since_stored > stored:
            self._longest = max(born, since_born), max(stored, since_stored)

    def take_longest(self) -> tuple[float, float]:
        """The longest times since this was last asked."""
        found, self._longest = self._longest, (0.0, 0.0)
        return found

    def totals(self) -> ConsumeTotals:
        return ConsumeTotals(self.born.count, self.failed, self.born.total, self.stored.total)
