"""Medians, ratios and bounds of measured rounds."""

import statistics
from collections.abc import Callable, Iterable, Sequence

from benchmarks.compare.rounds import Round

_MIN_REMAINDER = 0.02
Metric = Callable[[Round], float | None]


def values(rounds: Iterable[Round], server: str, metric: Metric) -> list[float]:
    """The metric of each of the server's rounds, without those where it is None."""
    found = (metric(each) for each in rounds if each.server == server)
    return [each for each in found if each is not None]


def median(rounds: Iterable[Round], server: str, metric: Metric) -> float | None:
    found = values(rounds, server, metric)
    return statistics.median(found) if found else None


def ratio(rounds: Sequence[Round], first: str, second: str, metric: Metric) -> float | None:
    """Ratio of the medians of two servers."""
    return quotient(median(rounds, first, metric), median(rounds, second, metric))


def quotient(above: float | None, below: float | None) -> float | None:
    """None if a value is missing or the divisor is 0."""
    return above / below if above is not None and below else None


def without(whole: float, part: float) -> float:
    """The rest of a cost, at least a fiftieth: a smaller rest is noise and distorts ratios."""
    return max(whole - part, _MIN_REMAINDER * whole)


def client_bound(client: float, theirs: float, ours: float) -> float:
    """Factor by which throughput can grow on the same CPU time when the server's cost falls.

    All arguments are CPU times per message; the client's stays the same.
    """
    return (client + theirs) / (client + ours)


def sync_bound(senders: int, sync_seconds: float, unsynced_rate: float) -> float:
    """Messages per second when each group of sends waits for one sync of the disk."""
    return senders / (sync_seconds + senders / unsynced_rate)


def growth(costs: Sequence[float]) -> float | None:
    """Median of the last third of the costs by that of the first third.

    The first tenth is skipped: it contains one-time work such as creating the first file.
    """
    steady = costs[len(costs) // 10 :]
    third = len(steady) // 3
    if not third:
        return None
    return statistics.median(steady[-third:]) / statistics.median(steady[:third])
