"""The difference between the clock of a broker and this one, through the admin protocol alone.

The runtime figures of a broker, Bolide's or RocketMQ's, have the time of its start in milliseconds
(`bootTimestamp`) and the time since then in whole seconds, cut off (`runtime`). Their sum is the
time of its clock when it answered, less up to a second. It answered between the request and the
response, so each answer bounds the difference by an interval of one second and the round trip. The
bounds hold for all answers at once, so several answers, at different parts of a second, narrow it
down.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

_PART = re.compile(r"([0-9]{1,20}) (day|hour|minute|second)s?")
_TIMESTAMP = re.compile(r"[0-9]{1,20}")
_SECONDS = {"day": 86_400, "hour": 3_600, "minute": 60, "second": 1}
_GRANULARITY = 1.001
"""Seconds that `runtime` lacks at most, and the millisecond that `bootTimestamp` lacks."""


@dataclass(frozen=True, slots=True)
class ClockDifference:
    """Bounds of the broker's clock minus this one, in seconds."""

    least: float
    most: float

    @property
    def certain(self) -> float:
        """The least that the clocks differ by; 0 if they may agree."""
        return max(self.least, -self.most, 0.0)

    @property
    def possible(self) -> float:
        """The most that the clocks differ by."""
        return max(self.most, -self.least)

    def __str__(self) -> str:
        return f"between {self.least:+.2f} s and {self.most:+.2f} s"


def difference_in(
    figures: Mapping[str, str], asked_at: float, answered_at: float
) -> ClockDifference | None:
    """What one answer says of the difference; None if it lacks the figures.

    Args:
        asked_at: time of this clock in seconds when the request was sent.
        answered_at: the same when the response had arrived.
    """
    boot, runtime = figures.get("bootTimestamp", ""), figures.get("runtime", "")
    parts = _PART.findall(runtime)
    # Twenty digits are more than any clock shows.
    if not _TIMESTAMP.fullmatch(boot) or not parts:
        return None
    elapsed = sum(int(count) * _SECONDS[unit] for count, unit in parts)
    shown = int(boot) / 1000 + elapsed
    return ClockDifference(shown - answered_at, shown + _GRANULARITY - asked_at)


def combined(differences: Iterable[ClockDifference]) -> ClockDifference | None:
    """The bounds that hold for all answers; None without answers, or if a clock was set between
    them, so that they contradict each other."""
    found = list(differences)
    if not found:
        return None
    least, most = max(each.least for each in found), min(each.most for each in found)
    return ClockDifference(least, most) if least <= most else None
