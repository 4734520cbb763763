"""How long not to ask a function again that hung or died: each time costs a process."""

import time
from collections.abc import Callable, Hashable
from typing import NamedTuple

FIRST, LONGEST = 1.0, 30.0
"""Seconds; each pause is twice as long as the one before."""
_MANY = 1024


class Pause(NamedTuple):
    reason: str
    seconds: float
    end: float


class Pauses:
    """Who has to wait, by whatever tells them apart."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._pauses: dict[Hashable, Pause] = {}

    def __len__(self) -> int:
        return len(self._pauses)

    def find(self, key: Hashable) -> Pause | None:
        """The pause that is not over yet."""
        found = self._pauses.get(key)
        return found if found is not None and found.end > self._now() else None

    def failed(self, key: Hashable, reason: str) -> None:
        before, now = self._pauses.pop(key, None), self._now()
        seconds = min(before.seconds * 2, LONGEST) if before else FIRST
        if len(self._pauses) >= _MANY:
            self._pauses = {each: p for each, p in self._pauses.items() if p.end > now}
        self._pauses[key] = Pause(reason, seconds, now + seconds)

    def worked(self, key: Hashable) -> None:
        self._pauses.pop(key, None)
