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
from bolide.remoting.errors import RemotingError, UntrustedServer

log = logging.getLogger(__name__)

K = TypeVar("K")
T = TypeVar("T")

_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 2.0
_UNREACHABLE = RemotingError, NameServersUnreachable, BrokerUnknown, RouteNotFound


def is_transient(failure: BolideError) -> bool:
    """Whether a retry may succeed: the cluster is unreachable or overloaded."""
    if isinstance(failure, Refusal):
        # A broker loads its topics before it serves, so an unknown topic stays unknown.
        return failure.retriable and not isinstance(failure, TopicNotFound)
    if isinstance(failure, UntrustedServer) or isinstance(failure.__cause__, UntrustedServer):
        return False  # settings, or files that somebody has to replace
    return isinstance(failure, _UNREACHABLE)


class Backoff:
    """Exponential backoff that gives up after `seconds` without success."""

    def __init__(self, what: str, seconds: float) -> None:
        self._what = what
        self._seconds = seconds
        self._since: float | None = None  # when the current series of failures began
        self._pause = _FIRST_PAUSE

    async def back_off(self, failure: BolideError) -> None:
        """Sleep after a failure; the first failure of a series is logged.

        Raises:
            OutOfPatience: the series of failures has reached the time limit.
        """
        now = time.monotonic()
        if self._since is None:
            self._since = now
            log.warning("%s: retrying for up to %g s: %s", self._what, self._seconds, failure)
        left = self._since + self._seconds - now
        if left <= 0:
            raise OutOfPatience(self._what, self._seconds, failure) from failure
        await asyncio.sleep(min(self._pause, left))
        self._pause = min(2 * self._pause, _LONGEST_PAUSE)

    def succeeded(self) -> None:
        if self._since is not None:
            log.info("%s: recovered after %.3g s", self._what, time.monotonic() - self._since)
        self._since = None
        self._pause = _FIRST_PAUSE


async def retry_transient(
    backoff: Backoff, attempt: Callable[[], Awaitable[T]], prepare: Callable[[], Awaitable[None]]
) -> T:
    """Repeat `attempt` until it succeeds; `prepare` runs before each retry.

    Raises:
        OutOfPatience: transient failures have lasted too long.
        BolideError: the attempt failed for a permanent reason.
    """
    while True:
        try:
            found = await attempt()
        except BolideError as exc:
            if not is_transient(exc):
                raise
            await backoff.back_off(exc)
            await prepare()
        else:
            backoff.succeeded()
            return found


async def gather_by_key(keys: Iterable[K], request: Callable[[K], Awaitable[T]]) -> dict[K, T]:
    """Run a request for every key concurrently; the first failure cancels the others."""
    wanted = list(keys)
    tasks = [asyncio.ensure_future(request(key)) for key in wanted]
    try:
        return dict(zip(wanted, await asyncio.gather(*tasks), strict=True))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
