"""Route queries out of turn, after a failure that a changed route may explain.

The periodic refresh of routes is too slow to notice a failover. Callers that wait for a route share
one query for each topic, and queries that change nothing are spaced by 20 to 200 ms, after some
seconds without a change by up to two seconds.
"""

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from bolide.client.errors import WrongState
from bolide.errors import BolideError
from bolide.remoting.tasks import SingleFlight

log = logging.getLogger(__name__)

FIRST_PAUSE, LONGEST_PAUSE = 0.02, 0.2
_FAILOVER_TIME = 10.0
"""Seconds in which a failover is over; after them queries become rarer still."""
_LONGEST_PAUSE_LATER = 2.0
_CALM = 1.0
"""Seconds without a query after which the next one is made at once."""


@dataclass(slots=True)
class _Backoff:
    last: float
    began: float
    """When the first of the queries in a row that changed nothing was made."""
    pause: float = 0.0


class RouteRenewals:
    """Refreshes routes after failures; one query at a time for each topic."""

    def __init__(
        self,
        refresh: Callable[[str], Awaitable[bool]],
        jitter: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self._refresh = refresh
        self._jitter = jitter
        self._backoffs: dict[str, _Backoff] = {}
        self._queries: SingleFlight[str, bool] = SingleFlight(_closed)
        self._background: set[asyncio.Task[None]] = set()
        self.is_closed = False

    async def renew(self, topic: str) -> bool:
        """Fetch a route again, after a pause if that was done just now; True if it changed.

        A failed query counts as an unchanged route. Raises WrongState if the client is closed.
        """
        if self.is_closed:
            raise _closed(topic)
        return await self._queries.run(topic, lambda: self._renew(topic), f"renew {topic}")

    def renew_soon(self, topic: str) -> None:
        """Like `renew`, in the background."""
        if self.is_closed:
            return
        task = asyncio.create_task(self._renew_quietly(topic), name=f"bolide-renew-{topic}")
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def close(self) -> None:
        """Cancel the queries; their callers get WrongState."""
        self.is_closed = True
        for task in self._background:
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)
        await self._queries.close()

    async def _renew_quietly(self, topic: str) -> None:
        try:
            await self.renew(topic)
        except WrongState:
            log.debug("the client was closed before the route of %s was renewed", topic)

    async def _renew(self, topic: str) -> bool:
        now = asyncio.get_running_loop().time
        if topic not in self._backoffs:
            self._forget_calm(now())
        backoff = self._backoffs.setdefault(topic, _Backoff(now() - _CALM, now()))
        if now() - backoff.last >= max(_CALM, 2 * backoff.pause):
            backoff.pause, backoff.began = 0.0, now()
        due = backoff.last + self._jitter(backoff.pause / 2, backoff.pause)
        await asyncio.sleep(max(due - now(), 0))
        try:
            changed = await self._refresh(topic)
        except BolideError as exc:
            log.debug("the route of %s cannot be renewed: %s", topic, exc)
            changed = False
        backoff.last = now()
        if changed:
            backoff.pause, backoff.began = 0.0, backoff.last
        else:
            is_early = backoff.last - backoff.began < _FAILOVER_TIME
            longest = LONGEST_PAUSE if is_early else _LONGEST_PAUSE_LATER
            backoff.pause = min(max(2 * backoff.pause, FIRST_PAUSE), longest)
        return changed

    def _forget_calm(self, now: float) -> None:
        forgotten = _CALM + _LONGEST_PAUSE_LATER
        for topic in [t for t, each in self._backoffs.items() if now - each.last >= forgotten]:
            del self._backoffs[topic]


def _closed(topic: str) -> WrongState:
    return WrongState(f"the client was closed while it fetched the route of {topic!r}")
