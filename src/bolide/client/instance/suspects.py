"""Brokers that did not answer. Clients avoid them where they have a choice, until they answer.

A suspect is probed, and the routes of its topics are renewed, so that a client notices soon that
the broker is back or that another one took its place. Both become rarer with time, in the end as
rare as the periodic refresh of routes: a NameServer forgets a dead group, but the client keeps the
last route of a topic that was only there, and so cannot tell that the group is gone for good.
"""

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum, auto

from bolide.model.message_queue import MessageQueue

log = logging.getLogger("bolide.client.routes")  # documented in docs/how-to/logging.md

FIRST_PAUSE, LONGEST_PAUSE = 0.1, 2.0
QUICK_TIME = 60.0
"""Seconds without an answer after which pauses may exceed `LONGEST_PAUSE`: a failover is over by
then, and so are most restarts."""
MAX_ABSENCE = 60.0
"""Seconds for which the routes of a broker that left them are renewed: it may be restarted."""


class Probed(Enum):
    """The result of a probe."""

    ANSWERS = auto()
    SILENT = auto()
    ABSENT = auto()
    """The broker is in no route, and its group has no master."""
    REPLACED = auto()
    """The broker is in no route, and its group has another master."""


@dataclass(slots=True)
class _Suspect:
    broker_name: str
    topics: set[str] = field(default_factory=set)
    """The topics for which requests to the broker failed."""
    probe_now: asyncio.Event = field(default_factory=asyncio.Event)


class SuspectBrokers:
    """Addresses of brokers that did not answer; belongs to one event loop.

    Args:
        probe: probes the broker with this address and name.
        renew: renews the route of a topic.
        master_of: the address of a queue's master.
        longest_pause: seconds between two rounds for a broker that has been silent for long.
    """

    def __init__(
        self,
        probe: Callable[[str, str], Awaitable[Probed]],
        renew: Callable[[str], Awaitable[object]],
        master_of: Callable[[MessageQueue], str | None],
        longest_pause: float,
    ) -> None:
        self._probe = probe
        self._renew = renew
        self._master_of = master_of
        self._longest_pause = max(longest_pause, LONGEST_PAUSE)
        self._suspects: dict[str, _Suspect] = {}
        self._watching: set[asyncio.Task[None]] = set()
        self._is_closed = False

    def __contains__(self, address: object) -> bool:
        return address in self._suspects

    def __bool__(self) -> bool:
        return bool(self._suspects)

    def leads(self, queue: MessageQueue) -> bool:
        """Whether the master of a queue is suspected."""
        return self._master_of(queue) in self._suspects

    def add(self, address: str, broker_name: str, topic: str) -> None:
        """Suspect a broker until it answers a probe, and renew the route of a topic meanwhile."""
        if self._is_closed:
            return
        suspect = self._suspects.get(address)
        if suspect is None:
            log.info("broker %s does not answer; it is avoided until it does", address)
            suspect = self._suspects[address] = _Suspect(broker_name)
            name = f"bolide-probe-{address}"
            watching = asyncio.create_task(self._watch(address, suspect), name=name)
            self._watching.add(watching)
            watching.add_done_callback(self._watching.discard)
        suspect.topics.add(topic)

    def probe_soon(self) -> None:
        """Probe all suspects without waiting for the end of their pauses."""
        for suspect in self._suspects.values():
            suspect.probe_now.set()

    async def close(self) -> None:
        self._is_closed = True
        for task in self._watching:
            task.cancel()
        await asyncio.gather(*self._watching, return_exceptions=True)

    async def _watch(self, address: str, suspect: _Suspect) -> None:
        renewing = asyncio.create_task(self._renew_routes(suspect), name=f"bolide-renew-{address}")
        try:
            await self._wait_for(address, suspect)
            log.info("broker %s is not avoided any more", address)
        finally:
            del self._suspects[address]
            renewing.cancel()
            await asyncio.gather(renewing, return_exceptions=True)

    async def _wait_for(self, address: str, suspect: _Suspect) -> None:
        """Wait until a broker answers, is replaced, or has been in no route for long."""
        now = asyncio.get_running_loop().time
        last_present = now()
        async for _ in self._rounds(suspect.probe_now):
            try:
                probed = await self._probe(address, suspect.broker_name)
            except Exception:
                log.exception("broker %s cannot be probed", address)
                continue
            if probed in {Probed.ANSWERS, Probed.REPLACED}:
                return
            if probed is not Probed.ABSENT:
                last_present = now()
            elif now() - last_present > MAX_ABSENCE:
                return

    async def _renew_routes(self, suspect: _Suspect) -> None:
        async for _ in self._rounds(asyncio.Event()):
            topics = sorted(suspect.topics)
            await asyncio.gather(*map(self._renew_one, topics))

    async def _renew_one(self, topic: str) -> None:
        try:
            await self._renew(topic)
        except Exception:
            log.exception("the route of %s cannot be renewed", topic)

    async def _rounds(self, soon: asyncio.Event) -> AsyncIterator[None]:
        """Rounds at growing intervals, the first at once, one more whenever `soon` is set."""
        now = asyncio.get_running_loop().time
        began, pause = now(), FIRST_PAUSE
        while True:
            soon.clear()
            yield
            seconds = random.uniform(pause / 2, pause)  # noqa: S311  to spread load
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await soon.wait()
            is_early = now() - began < QUICK_TIME
            pause = min(pause * 1.3, LONGEST_PAUSE if is_early else self._longest_pause)
