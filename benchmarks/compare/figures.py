"""Medians, ratios and bounds of what was measured."""

import statistics
from collections.abc import Callable, Iterable, Sequence

from benchmarks.compare.rounds import Round

_LEAST_LEFT = 0.02
Of = Callable[[Round], float | None]


def values(rounds: Iterable[Round], server: str, of: Of) -> list[float]:
    """Of that server's rounds, those that have it."""
    found = (of(each) for each in rounds if each.server == server)
    return [each for each in found if each is not None]


def median(rounds: Iterable[Round], server: str, of: Of) -> float | None:
    found = values(rounds, server, of)
    return statistics.median(found) if found else None


def ratio(rounds: Sequence[Round], first: str, second: str, of: Of) -> float | None:
    """Of the medians of two servers."""
    return quotient(median(rounds, first, of), median(rounds, second, of))


def quotient(above: float | None, below: float | None) -> float | None:
    """None where there is nothing to divide, or nothing to divide by."""
    return above / below if above is not None and below else None


def without(whole: float, part: float) -> float:
    """What is left of a cost, at least a fiftieth: less is noise, and would make any ratio."""
    return max(whole - part, _LEAST_LEFT * whole)


def client_bound(client: float, theirs: float, ours: float) -> float:
    """How many times the messages fit into the same CPU time when the server's cost falls.

    All are CPU times for a message; the client's own does not change.
    """
    return (client + theirs) / (client + ours)


def sync_bound(senders: int, sync_seconds: float, unsynced_rate: float) -> float:
    """Messages per second when each group of sends waits for one sync of the disk."""
    return senders / (sync_seconds + senders / unsynced_rate)


def growth(costs: Sequence[float]) -> float | None:
    """How the last third of a row of costs stands to the first, by their medians.

    The first tenth is left out: it has what happens once, such as the first file.
    """
    settled = costs[len(costs) // 10 :]
    third = len(settled) // 3
    if not third:
        return None
    return statistics.median(settled[-third:]) / statistics.median(settled[:third])
