"""Limits on log-ins that fail."""

from collections import OrderedDict
from collections.abc import Callable
from time import monotonic

_FREE = 5
_LONGEST = 300.0
_FORGOTTEN_AFTER = 900.0
_MAX_KEYS = 10_000
_PER_ADDRESS = 30
"""An address may try as many names as that before it has to wait."""


class Attempts:
    """Counts failures by name and address, and by address; says how long to wait.

    After five failures the wait doubles with each one, up to five minutes. Somebody else's failures
    from another address do not lock an account.
    """

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._failures: OrderedDict[tuple[str | None, str], tuple[int, float]] = OrderedDict()

    def wait(self, name: str, address: str) -> float:
        """Seconds until the next attempt is allowed; 0 if it is now."""
        now = self._clock()
        own = self._until((name, address), _FREE)
        of_address = self._until((None, address), _PER_ADDRESS)
        return max(own - now, of_address - now, 0.0)

    def failed(self, name: str, address: str) -> None:
        now = self._clock()
        for key in ((name, address), (None, address)):
            count, last = self._failures.pop(key, (0, now))
            count = 0 if now - last > _FORGOTTEN_AFTER else count
            self._failures[key] = (count + 1, now)
        while len(self._failures) > _MAX_KEYS:
            self._failures.popitem(last=False)

    def succeeded(self, name: str, address: str) -> None:
        """Forget the failures of a name, and take back the one that was counted in advance.

        The address gets only that back: many may share one, behind a proxy, and a success of one
        of them must neither add up to a wait for all, nor allow guesses at other names.
        """
        self._failures.pop((name, address), None)
        count, last = self._failures.get((None, address), (0, 0.0))
        if count > 1:
            self._failures[None, address] = (count - 1, last)
        else:
            self._failures.pop((None, address), None)

    def _until(self, key: tuple[str | None, str], free: int) -> float:
        count, last = self._failures.get(key, (0, 0.0))
        if count < free:
            return 0.0
        return last + min(2.0 ** min(count - free, 20), _LONGEST)
