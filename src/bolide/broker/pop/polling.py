"""Pops that wait for something to pop.

Of those who wait for the same, one is woken for what arrives, and wakes the next if it leaves
something: a thousand waiting pops cost no more than one. The clock is that of the pulls that wait.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable
from enum import Enum
from typing import NamedTuple

from bolide.broker.arrivals import Arrivals, QueueKey, Waiter
from bolide.broker.config import BrokerConfig
from bolide.config import ConfigCell
from bolide.model.names import pop_retry_topics
from bolide.remoting.dispatch import Later

ALL_QUEUES = -1

Attempt = Callable[[Later, bool], bool]
"""Tries to answer a promise, for the last time or not; says whether it did."""


class Asked(Enum):
    """What those who wait have asked for."""

    MESSAGES = "messages"
    NOTICE = "notice"


class Place(NamedTuple):
    """Where a pop waits."""

    asked: Asked
    topic: str
    group: str
    queue_id: int

    @property
    def pair(self) -> tuple[str, str]:
        return self.topic, self.group


Waiters = OrderedDict[Waiter, None]


class Polling:
    """Who waits for what; belongs to one event loop."""

    def __init__(self, arrivals: Arrivals, cell: ConfigCell[BrokerConfig]) -> None:
        self._arrivals = arrivals
        self._cell = cell
        self._places: dict[tuple[str, str], dict[Place, Waiters]] = {}
        """By topic and group."""
        self._pairs: dict[str, dict[tuple[str, str], None]] = {}
        """Which of them wait for a topic; retries come in topics of another name."""
        self._count = 0
        arrivals.on_arrival = self.arrived

    def __len__(self) -> int:
        return self._count

    def waiting(self, place: Place) -> int:
        return len(self._places.get(place.pair, {}).get(place, ()))

    def is_full(self, place: Place) -> bool:
        config = self._cell.value
        return (
            self._count >= config.max_pop_polling_size
            or self.waiting(place) > config.pop_polling_size
        )

    def hold(self, place: Place, seconds: float, attempt: Attempt) -> Later:
        """A promise that is kept when something arrives, or the time is up."""
        later = Later()

        def look(is_last: bool) -> bool:
            if later.is_blocked and not is_last:
                self._park(place, waiter, later)
                return False
            later.on_room = None
            answered = later.is_lost or attempt(later, is_last)
            if answered or is_last:
                self._release(place, waiter)
            return answered

        # No topic has a name like this: pulls are not woken together with pops.
        waiter = Waiter((f"{place.topic}@{place.group}@{place.asked.value}", place.queue_id), look)
        later.on_lost = lambda: self._lose(place, waiter)
        self._count += 1
        self._enter(place, waiter)
        self._arrivals.hold(waiter, seconds)
        return later

    # ---- waking

    def arrived(self, keys: Iterable[QueueKey]) -> None:
        """Wake those who may get what came into these queues."""
        for topic, queue_id in keys:
            for pair in self._pairs.get(topic, ()):
                self.wake(*pair, queue_id if topic == pair[0] else None)

    def wake(self, topic: str, group: str, queue_id: int | None = None) -> None:
        """Wake one of those who wait at each place where this queue counts; None is any queue."""
        for place, waiters in self._places.get((topic, group), {}).items():
            if queue_id is None or place.queue_id in {ALL_QUEUES, queue_id}:
                self._wake_first(waiters)

    def _wake_first(self, waiters: Waiters) -> None:
        if waiters:
            self._arrivals.wake(next(iter(waiters)))

    # ---- inside

    def _enter(self, place: Place, waiter: Waiter) -> None:
        self._places.setdefault(place.pair, {}).setdefault(place, OrderedDict())[waiter] = None
        for topic in (place.topic, *pop_retry_topics(place.group, place.topic)):
            self._pairs.setdefault(topic, {})[place.pair] = None

    def _leave(self, place: Place, waiter: Waiter) -> None:
        places = self._places.get(place.pair, {})
        waiters = places.get(place)
        if waiters is None or waiter not in waiters:
            return
        del waiters[waiter]
        if waiters:
            return
        del places[place]
        if not places:
            del self._places[place.pair]
            for topic in (place.topic, *pop_retry_topics(place.group, place.topic)):
                self._unpair(topic, place.pair)

    def _unpair(self, topic: str, pair: tuple[str, str]) -> None:
        pairs = self._pairs[topic]
        del pairs[pair]
        if not pairs:
            del self._pairs[topic]

    def _release(self, place: Place, waiter: Waiter) -> None:
        self._count -= 1
        self._leave(place, waiter)

    def _lose(self, place: Place, waiter: Waiter) -> None:
        """It may have been woken for something that another one has to get now."""
        self._arrivals.drop(waiter)
        self._release(place, waiter)
        self.wake(*place.pair)

    def _park(self, place: Place, waiter: Waiter, later: Later) -> None:
        """Its peer does not read: others come first until it does."""

        def go_on() -> None:
            self._enter(place, waiter)
            self._arrivals.wake(waiter)

        later.on_room = go_on
        self._leave(place, waiter)
        self.wake(*place.pair)
