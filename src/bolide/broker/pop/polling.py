"""Long polling of pops: who may pop, how long they wait, and who is woken.

Of those who wait for the same, one is woken for what arrives, and wakes the next if it leaves
something: a thousand waiting pops cost no more than one. The clock is that of the pulls that wait.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable
from enum import Enum
from typing import NamedTuple

from bolide.broker.consume.long_polling import LongPolling, QueueKey, Waiter
from bolide.broker.metadata.groups import GroupTable
from bolide.broker.metadata.topics import TopicTable
from bolide.broker.settings.config import BrokerConfig
from bolide.config import ConfigCell
from bolide.model.names import READ, pop_retry_topics
from bolide.protocol.bodies.topics import TopicConfig
from bolide.protocol.headers.pop import NotificationHeader, PeekHeader, PollingHeader, PopHeader
from bolide.protocol.refusals import InvalidParameter, NoPermission
from bolide.remoting.dispatch import DeferredReply

ALL_QUEUES = -1

Attempt = Callable[[DeferredReply, bool], bool]
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

    def __init__(self, long_polling: LongPolling, cell: ConfigCell[BrokerConfig]) -> None:
        self._long_polling = long_polling
        self._cell = cell
        self._places: dict[tuple[str, str], dict[Place, Waiters]] = {}
        """By topic and group."""
        self._pairs: dict[str, dict[tuple[str, str], None]] = {}
        """Which of them wait for a topic; retries come in topics of another name."""
        self._count = 0
        long_polling.on_arrival = self.arrived

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

    def hold(self, place: Place, seconds: float, attempt: Attempt) -> DeferredReply:
        """A promise that is kept when something arrives, or the time is up."""
        later = DeferredReply()

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
        self._long_polling.hold(waiter, seconds)
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
            self._long_polling.wake(next(iter(waiters)))

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
        self._long_polling.drop(waiter)
        self._release(place, waiter)
        self.wake(*place.pair)

    def _park(self, place: Place, waiter: Waiter, later: DeferredReply) -> None:
        """Its peer does not read: others come first until it does."""

        def go_on() -> None:
            self._enter(place, waiter)
            self._long_polling.wake(waiter)

        later.on_room = go_on
        self._leave(place, waiter)
        self.wake(*place.pair)


MOST_MESSAGES = 32
"""That a pop may ask for."""
_LONGEST_POLL = 3_600_000

AnyHeader = PopHeader | PeekHeader | NotificationHeader | PollingHeader


class Admission:
    """Checks broker, topic, queue and group."""

    def __init__(
        self, cell: ConfigCell[BrokerConfig], topics: TopicTable, groups: GroupTable
    ) -> None:
        self._cell = cell
        self._topics = topics
        self._groups = groups

    def admit(self, header: AnyHeader, peer: str, to: str) -> TopicConfig:
        """The topic; `to` names what they want to do.

        Raises:
            NoPermission, TopicNotFound, GroupNotFound, InvalidParameter: they may not; says why.
        """
        config = self._cell.value
        if not config.broker_permission & READ:
            raise NoPermission(f"the broker[{config.broker_ip1}] {to} is forbidden")
        topic = self._topics.require(header.topic)
        if not topic.perm & READ:
            raise NoPermission(f"the topic[{header.topic}] {to} is forbidden")
        if header.queue_id >= topic.read_queue_nums:
            raise InvalidParameter(
                f"queueId[{header.queue_id}] is illegal, topic:[{header.topic}]"
                f" topicConfig.readQueueNums:[{topic.read_queue_nums}] consumer:[{peer}]"
            )
        self._admit_group(header)
        return topic

    def _admit_group(self, header: AnyHeader) -> None:
        group = self._groups.require(header.consumer_group)
        if not group.consume_enable:
            raise NoPermission(f"subscription group no permission, {header.consumer_group}")
        if not self._groups.is_readable(header.consumer_group, header.topic):
            raise NoPermission(
                f"the consumer group[{header.consumer_group}] is forbidden for"
                f" topic[{header.topic}]"
            )


def remaining(header: PopHeader | NotificationHeader, now: int) -> int:
    """Milliseconds until the client gives up; the clock is its own."""
    if header.poll_time <= 0:
        return 0
    left = (header.born_time or now) + header.poll_time - now
    return min(left, header.poll_time, _LONGEST_POLL)


def waiting_queue(queue_id: int) -> int:
    """The queue that a pop waits for."""
    return queue_id if queue_id >= 0 else ALL_QUEUES
