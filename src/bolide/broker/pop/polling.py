"""Long polling of pops: admission, waiting and wake-up.

An arrival wakes one of the pops that wait under the same key; that pop wakes the next one if it
leaves messages behind. A thousand waiting pops therefore cost no more than one. Notifications take
no message: an arrival wakes as many of them as there are messages. Deadlines are kept by the long
polling of pulls.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable
from enum import Enum
from itertools import islice
from typing import NamedTuple

from bolide.broker.consume.long_polling import CallbackWaiter, LongPolling, QueueKey
from bolide.broker.metadata.groups import GroupTable
from bolide.broker.metadata.topics import TopicTable
from bolide.broker.settings.config import BrokerConfig
from bolide.config import ConfigCell
from bolide.model.names import BROKER_GROUPS, READ, pop_retry_topics
from bolide.protocol.bodies.topics import TopicConfig
from bolide.protocol.headers.pop import NotificationHeader, PeekHeader, PollingHeader, PopHeader
from bolide.protocol.refusals import InvalidParameter, NoPermission
from bolide.remoting.dispatch import DeferredReply

ALL_QUEUES = -1
MAX_MESSAGES = 32
"""Messages that one pop may request."""
_MAX_POLL_MS = 3_600_000

Attempt = Callable[[DeferredReply, bool], bool]
"""Tries to answer a deferred reply, given whether it is the last attempt; returns whether it
did."""


class PollKind(Enum):
    """What a waiting request is for."""

    MESSAGES = "messages"
    NOTICE = "notice"


class PollKey(NamedTuple):
    """What a waiting request waits for; requests with the same key are woken one at a time."""

    kind: PollKind
    topic: str
    group: str
    queue_id: int

    @property
    def pair(self) -> tuple[str, str]:
        return self.topic, self.group


Count = Callable[[], int]

Waiters = OrderedDict[CallbackWaiter, Count | None]
"""Waiting requests, with the count of messages that they wait for if that is how many to wake."""


class Polling:
    """Waiting pops and notifications; belongs to one event loop."""

    def __init__(self, long_polling: LongPolling, cell: ConfigCell[BrokerConfig]) -> None:
        self._long_polling = long_polling
        self._cell = cell
        self._waiters: dict[tuple[str, str], dict[PollKey, Waiters]] = {}
        """By topic and group."""
        self._pairs: dict[str, dict[tuple[str, str], None]] = {}
        """Topic and group pairs to wake by topic of the arrival, which may be a retry topic."""
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def waiting_count(self, key: PollKey) -> int:
        return len(self._waiters.get(key.pair, {}).get(key, ()))

    @property
    def withholds(self) -> bool:
        """Whether the request that is being retried must get no message."""
        return self._long_polling.withholds

    def is_full(self, key: PollKey) -> bool:
        config = self._cell.value
        return (
            self._count >= config.max_pop_polling_size
            or self.waiting_count(key) > config.pop_polling_size
        )

    def hold(
        self, key: PollKey, seconds: float, attempt: Attempt, count: Count | None = None
    ) -> DeferredReply:
        """Return a reply that is answered when a message arrives or after `seconds`.

        Args:
            count: counts the messages for requests that take none; as many of them are woken.
        """
        deferred = DeferredReply()
        deferred.is_long_polling = True

        def retry(is_last: bool) -> bool:
            if deferred.is_blocked and not is_last:
                self._park(key, waiter, deferred, count)
                return False
            deferred.on_room = None
            answered = deferred.is_lost or attempt(deferred, is_last)
            if answered or is_last:
                self._release(key, waiter)
            return answered

        # No topic has a name like this, so pulls are not woken together with pops.
        waiter = CallbackWaiter((f"{key.topic}@{key.group}@{key.kind.value}", key.queue_id), retry)
        deferred.on_lost = lambda: self._on_connection_lost(key, waiter)
        self._count += 1
        self._add(key, waiter, count)
        self._long_polling.hold(waiter, seconds)
        return deferred

    # ---- waking

    def arrived(self, keys: Iterable[QueueKey]) -> None:
        """Wake waiters after arrivals in these queues."""
        for topic, queue_id in keys:
            for pair in self._pairs.get(topic, ()):
                self.wake(*pair, queue_id if topic == pair[0] else None)

    def wake(self, topic: str, group: str, queue_id: int | None = None) -> None:
        """Wake the first waiters of every key that covers this queue; None stands for any queue."""
        for key, waiters in self._waiters.get((topic, group), {}).items():
            if queue_id is None or key.queue_id in {ALL_QUEUES, queue_id}:
                self._wake_first(waiters)

    def _wake_first(self, waiters: Waiters) -> None:
        if waiters:
            count = next(iter(waiters.values()))
            for waiter in list(islice(waiters, 1 if count is None else count())):
                self._long_polling.wake(waiter)

    # ---- inside

    def _add(self, key: PollKey, waiter: CallbackWaiter, count: Count | None) -> None:
        self._waiters.setdefault(key.pair, {}).setdefault(key, OrderedDict())[waiter] = count
        for topic in (key.topic, *pop_retry_topics(key.group, key.topic)):
            self._pairs.setdefault(topic, {})[key.pair] = None

    def _remove(self, key: PollKey, waiter: CallbackWaiter) -> None:
        by_key = self._waiters.get(key.pair, {})
        waiters = by_key.get(key)
        if waiters is None or waiter not in waiters:
            return
        del waiters[waiter]
        if waiters:
            return
        del by_key[key]
        if not by_key:
            del self._waiters[key.pair]
            for topic in (key.topic, *pop_retry_topics(key.group, key.topic)):
                self._unpair(topic, key.pair)

    def _unpair(self, topic: str, pair: tuple[str, str]) -> None:
        pairs = self._pairs[topic]
        del pairs[pair]
        if not pairs:
            del self._pairs[topic]

    def _release(self, key: PollKey, waiter: CallbackWaiter) -> None:
        self._count -= 1
        self._remove(key, waiter)

    def _on_connection_lost(self, key: PollKey, waiter: CallbackWaiter) -> None:
        """The lost waiter may have been woken for a message that another one must get now."""
        self._long_polling.drop(waiter)
        self._release(key, waiter)
        self.wake(*key.pair)

    def _park(
        self, key: PollKey, waiter: CallbackWaiter, deferred: DeferredReply, count: Count | None
    ) -> None:
        """Let other waiters go first while the peer does not read."""

        def resume() -> None:
            self._add(key, waiter, count)
            self._long_polling.wake(waiter)

        deferred.on_room = resume
        self._remove(key, waiter)
        self.wake(*key.pair)


_AnyPopHeader = PopHeader | PeekHeader | NotificationHeader | PollingHeader


class Admission:
    """Checks broker, topic, queue and group."""

    def __init__(
        self, cell: ConfigCell[BrokerConfig], topics: TopicTable, groups: GroupTable
    ) -> None:
        self._cell = cell
        self._topics = topics
        self._groups = groups

    def admit(self, header: _AnyPopHeader, peer: str, to: str) -> TopicConfig:
        """Return the topic; `to` names the operation in refusals.

        Raises:
            NoPermission, TopicNotFound, GroupNotFound, InvalidParameter: the request is refused.
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

    def _admit_group(self, header: _AnyPopHeader) -> None:
        if header.consumer_group in BROKER_GROUPS:
            raise NoPermission(f"the offsets of {header.consumer_group} are the broker's own")
        group = self._groups.require(header.consumer_group)
        if not group.consume_enable:
            raise NoPermission(f"subscription group no permission, {header.consumer_group}")
        if not self._groups.is_readable(header.consumer_group, header.topic):
            raise NoPermission(
                f"the consumer group[{header.consumer_group}] is forbidden for"
                f" topic[{header.topic}]"
            )


def remaining(header: PopHeader | NotificationHeader, now: int) -> int:
    """Milliseconds until the client gives up, measured from the clock of the client."""
    if header.poll_time <= 0:
        return 0
    left = (header.born_time or now) + header.poll_time - now
    return min(left, header.poll_time, _MAX_POLL_MS)


def waiting_queue(queue_id: int) -> int:
    """The queue id to wait for, or ALL_QUEUES."""
    return queue_id if queue_id >= 0 else ALL_QUEUES
