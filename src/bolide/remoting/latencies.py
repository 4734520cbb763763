"""How long requests take, by request code and outcome, for metrics.

A request is counted when its response is made, or when its handling ends if it is one-way. The
fast path of a broker counts many requests at once.
"""

from typing import Final, NamedTuple

from bolide.distribution import Distribution

BOUNDS: Final = (1, 3, 5, 7, 10, 100, 1000, 2000, 3000, 5000)
"""Buckets in milliseconds: those of all metrics that are made of these."""
RPC_BOUNDS: Final = BOUNDS[:-1]
"""RocketMQ's buckets of `rocketmq_rpc_latency`."""
MAX_OUTCOMES: Final = 2000
"""Further outcomes are counted as `OTHER`, as are requests that no handler is for."""


class RpcOutcome(NamedTuple):
    request_code: int
    response_code: int
    is_long_polling: bool = False
    is_one_way: bool = False


OTHER: Final = RpcOutcome(-1, -1)


class RpcLatencies:
    """Latencies in milliseconds by outcome; belongs to one event loop."""

    def __init__(self) -> None:
        self._by_outcome: dict[RpcOutcome, Distribution] = {}

    def add(self, outcome: RpcOutcome, seconds: float, count: int = 1) -> None:
        """Count requests that took the same time."""
        found = self._by_outcome.get(outcome)
        if found is None:
            found = self._new(outcome)
        found.add(seconds * 1000, count)

    def add_counts(self, outcome: RpcOutcome, counts: list[int], milliseconds: float) -> None:
        """Add counts by bucket, and the sum of what was counted."""
        found = self._by_outcome.get(outcome) or self._new(outcome)
        found.counts = [mine + more for mine, more in zip(found.counts, counts, strict=True)]
        found.total += milliseconds

    def snapshot(self) -> list[tuple[RpcOutcome, Distribution]]:
        """A copy; any thread may call it."""
        return [(outcome, found.copy()) for outcome, found in list(self._by_outcome.items())]

    def _new(self, outcome: RpcOutcome) -> Distribution:
        if len(self._by_outcome) >= MAX_OUTCOMES:
            outcome = OTHER
        return self._by_outcome.setdefault(outcome, Distribution(BOUNDS))
