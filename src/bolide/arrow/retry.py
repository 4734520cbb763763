"""Retry of cluster requests with exponential backoff, up to a time limit."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

from bolide.arrow.errors import OutOfPatience
from bolide.client.errors import BrokerUnknown, NameServersUnreachable, RouteNotFound
from bolide.errors import BolideError
from bolide.protocol.refusals import Refusal, TopicNotFound
from bolide.remoting.errors import RemotingError

log = logging.getLogger(__name__)

K = TypeVar("K")
T = TypeVar("T")

_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 2.0
_AWAY = RemotingError, NameServersUnreachable, BrokerUnknown, RouteNotFound


def may_pass(failure: BolideError) -> bool:
    """Whether the same may succeed later: the cluster is away, or has too much to do."""
    if isinstance(failure, Refusal):
        # A broker knows its topics from its first moment on.
        return failure.retriable and not isinstance(failure, TopicNotFound)
    return isinstance(failure, _AWAY)


class Patience:
    """How long nothing has succeeded; each pause is longer than the one before."""

    def __init__(self, what: str, seconds: float) -> None:
        self._what = what
        self._seconds = seconds
        self._since: float | None = None
        self._pause = _FIRST_PAUSE

    async def endure(self, failure: BolideError) -> None:
        """Wait a little after a failure; the first of a row is logged.

        Raises:
            OutOfPatience: they have gone on for too long.
        """
        now = time.monotonic()
        if self._since is None:
            self._since = now
            log.warning("%s: tried again for up to %g s: %s", self._what, self._seconds, failure)
        left = self._since + self._seconds - now
        if left <= 0:
            raise OutOfPatience(self._what, self._seconds, failure) from failure
        await asyncio.sleep(min(self._pause, left))
        self._pause = min(2 * self._pause, _LONGEST_PAUSE)

    def succeeded(self) -> None:
        if self._since is not None:
            log.info("%s: it goes on after %.3g s", self._what, time.monotonic() - self._since)
        self._since = None
        self._pause = _FIRST_PAUSE


async def ride_out(
    patience: Patience, attempt: Callable[[], Awaitable[T]], renew: Callable[[], Awaitable[None]]
) -> T:
    """Try until it succeeds; `renew` makes ready for another try.

    Raises:
        OutOfPatience: it has failed for too long.
        BolideError: it failed with what does not pass.
    """
    while True:
        try:
            found = await attempt()
        except BolideError as exc:
            if not may_pass(exc):
                raise
            await patience.endure(exc)
            await renew()
        else:
            patience.succeeded()
            return found


async def for_each(keys: Iterable[K], ask: Callable[[K], Awaitable[T]]) -> dict[K, T]:
    """Ask for all at once; the first failure ends the other questions."""
    wanted = list(keys)
    tasks = [asyncio.ensure_future(ask(key)) for key in wanted]
    try:
        return dict(zip(wanted, await asyncio.gather(*tasks), strict=True))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
