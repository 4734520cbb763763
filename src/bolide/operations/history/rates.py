"""Rates from counters that somebody else keeps, and begins anew after a restart."""

from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)

LONGEST = 900.0
"""Seconds between two samples after which their rate says nothing about now."""


class Counters(Generic[K]):
    """The last value of each counter, and when it was read."""

    def __init__(self, *, longest: float = LONGEST) -> None:
        self._last: dict[K, tuple[float, int, object]] = {}
        self._longest = longest

    def rate(self, key: K, value: int, now: float, life: object = None) -> float | None:
        """The rate per second since the sample before.

        Args:
            key: the counter.
            value: what it says now.
            now: seconds, of a clock that does not go back.
            life: changes when the counter begins anew, such as the start time of a broker.

        Returns:
            None for the first sample, and for one that is no continuation of the last: the counter
            went back, its life is another one, or the last sample is too old.
        """
        last = self._last.get(key)
        self._last[key] = (now, value, life)
        if last is None:
            return None
        before, value_before, life_before = last
        seconds = now - before
        if life != life_before or value < value_before or not 0 < seconds <= self._longest:
            return None
        return (value - value_before) / seconds

    def forget(self, key: K) -> None:
        """The next sample is a first one."""
        self._last.pop(key, None)

    def keep_only(self, keys: set[K]) -> None:
        for key in self._last.keys() - keys:
            del self._last[key]
