"""Log lines about something that may happen with every message: once, then now and then."""

import logging
import time
from collections.abc import Callable, Hashable


class RareLog:
    """Lets one line for each key through a minute, and says how many it kept back."""

    def __init__(
        self,
        log: logging.Logger,
        every: float = 60.0,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._log = log
        self._every = every
        self._now = now
        self._said: dict[Hashable, float] = {}
        self._kept: dict[Hashable, int] = {}

    def warning(
        self, key: Hashable, text: str, *args: object, exc_info: BaseException | None = None
    ) -> None:
        now = self._now()
        last = self._said.get(key)
        if last is not None and now - last < self._every:
            self._kept[key] = self._kept.get(key, 0) + 1
            self._log.debug(text, *args)
            return
        self._said[key] = now
        if kept := self._kept.pop(key, 0):
            text, args = f"{text} (and %d times since it was said last)", (*args, kept)
        self._log.warning(text, *args, exc_info=exc_info)

    def forget(self, key: Hashable) -> None:
        """The trouble is over: say it again when it comes back."""
        self._said.pop(key, None)
        self._kept.pop(key, None)
