"""How far consumer groups are behind, by queue: for threads.

The lag of a group in a queue is what it has not acknowledged: from its committed offset to the end,
or, of popped queues, what was not popped and what was popped and not acknowledged. Messages that a
filter of the group rejects do not count: their queue units are looked at one by one, and a long
backlog is estimated from its first part, by the same settings as in RocketMQ. A group that has no
offset in a queue with messages has no lag there that is known, so it has none at all.
"""

import struct
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from bolide.broker.components import Parts
from bolide.broker.filters.subscriptions import SQL92, filter_for_subscription, is_by_tags
from bolide.broker.pop.pop_queue import PopQueue
from bolide.broker.settings.config import BrokerConfig
from bolide.kernel.units import BLANK_SIZE, UNIT
from bolide.model.names import SYSTEM_GROUP_PREFIX, is_retry_topic, pop_retry_topics
from bolide.protocol.bodies.heartbeat import MessageModel, Subscription
from bolide.protocol.bodies.topics import TopicConfig
from bolide.protocol.pop_info import normal_topic
from bolide.protocol.refusals import Refusal
from bolide.store.reading import EVERYTHING, MessageFilter, ReadLimits

_SLICE = 1000
"""Queue units that are looked at before the thread rests."""
_MAX_RECORDS = 1000
"""Messages that are read to count those that an SQL expression lets through."""
_MAX_READ = 1024 * 1024
_REMEMBERED = 10_000
_QUEUE_OFFSET = struct.Struct(">20xq")
"""Where a record has it."""


class Counted(NamedTuple):
    """Messages of a part of a queue, and the first one of them, if there is any."""

    messages: int
    first: int | None = None


class QueueLag(NamedTuple):
    """How far a group is behind in a queue; times in milliseconds since 1970, 0 without any."""

    queue_id: int
    messages: int
    oldest: int
    """When the first message was stored that is not acknowledged."""
    in_flight: int
    """Messages delivered and not acknowledged."""
    ready: int
    """Messages not delivered yet."""
    next_stored: int
    """When the first message was stored that is not delivered."""
    end: int
    """Where the queue ends."""
    consumed: int
    """The offset up to which the group has acknowledged everything."""


@dataclass(slots=True)
class GroupLag:
    """How far a group is behind in a topic."""

    group: str
    topic: str
    """As the group knows it, also of the retries of its pops."""
    stored_topic: str
    is_retry: bool
    members: int
    model: MessageModel
    queues: list[QueueLag]


def merged(lags: Iterable[GroupLag]) -> list[GroupLag]:
    """One lag for the two retry topics that a group has once `enableRetryTopicV2` was changed."""
    found: dict[tuple[str, str, bool], GroupLag] = {}
    for lag in lags:
        key = lag.group, lag.topic, lag.is_retry
        known = found.get(key)
        found[key] = lag if known is None else replace(known, queues=_sums(known, lag))
    return list(found.values())


def _sums(*lags: GroupLag) -> list[QueueLag]:
    by_queue: dict[int, QueueLag] = {}
    for each in (queue for lag in lags for queue in lag.queues):
        known = by_queue.get(each.queue_id)
        by_queue[each.queue_id] = each if known is None else _sum(known, each)
    return list(by_queue.values())


def _sum(one: QueueLag, other: QueueLag) -> QueueLag:
    return QueueLag(
        one.queue_id,
        messages=one.messages + other.messages,
        oldest=_earlier(one.oldest, other.oldest),
        in_flight=one.in_flight + other.in_flight,
        ready=one.ready + other.ready,
        next_stored=_earlier(one.next_stored, other.next_stored),
        end=one.end + other.end,
        consumed=one.consumed + other.consumed,
    )


def _earlier(*times: int) -> int:
    return min(filter(None, times), default=0)


class LagReader:
    """Computes lags; remembers what groups subscribed to that have no consumer any more."""

    def __init__(self) -> None:
        self._subscriptions: dict[tuple[str, str], Subscription] = {}

    def lags(self, parts: Parts, rest: Callable[[], None]) -> Iterator[GroupLag]:
        """Yield the lags of all groups.

        Args:
            rest: called again and again, after a little work.
        """
        config = parts.cell.value
        for group in sorted({*(each.group_name for each in parts.groups), *_groups(parts)}):
            if group.startswith(SYSTEM_GROUP_PREFIX):
                continue
            for topic in sorted(_topics(parts, group)):
                found = self._lag(parts, config, group, topic, rest)
                if found is not None:
                    yield found

    def _lag(
        self,
        parts: Parts,
        config: BrokerConfig,
        group: str,
        name: str,
        rest: Callable[[], None],
    ) -> GroupLag | None:
        topic = parts.topics.find(name)
        if topic is None or not topic.perm & config.broker_permission & 6:
            return None
        online = parts.clients.consumer_group(group)
        reader = _Reader(parts, config, group, name, self._filter(parts, config, group, name), rest)
        found = [reader.queue_lag(each) for each in range(_queue_count(topic))]
        queues = [each for each in found if each is not None]
        if not queues:
            return None
        return GroupLag(
            group=group,
            topic=normal_topic(name, group),
            stored_topic=name,
            is_retry=is_retry_topic(name),
            members=len(online.by_connection) if online is not None else 0,
            model=online.message_model if online is not None else MessageModel.CLUSTERING,
            queues=queues,
        )

    def _filter(self, parts: Parts, config: BrokerConfig, group: str, topic: str) -> MessageFilter:
        """What a group wants of a topic; everything, as far as is known."""
        if not config.estimate_accumulation or is_retry_topic(topic):
            return EVERYTHING
        subscription = parts.clients.subscription(group, topic)
        key = group, topic
        if subscription is None:
            subscription = self._subscriptions.get(key)
        elif key in self._subscriptions or len(self._subscriptions) < _REMEMBERED:
            self._subscriptions[key] = subscription
        if subscription is None:
            known = parts.filters.table.find(topic, group)
            if known is None or not known.expression:
                return EVERYTHING
            subscription = Subscription(
                topic=topic, sub_string=known.expression, expression_type=SQL92
            )
        if not is_by_tags(subscription.expression_type) and subscription.expression_type != SQL92:
            return EVERYTHING  # a function of the user: only its processes may run it
        try:
            return filter_for_subscription(subscription)
        except Refusal:
            return EVERYTHING


class _Reader:
    """Reads the queues of one topic for one group."""

    def __init__(
        self,
        parts: Parts,
        config: BrokerConfig,
        group: str,
        topic: str,
        wanted: MessageFilter,
        rest: Callable[[], None],
    ) -> None:
        self._store = parts.store
        self._parts = parts
        self._config = config
        self._group = group
        self._topic = topic
        self._wanted = wanted
        self._rest = rest

    def queue_lag(self, queue_id: int) -> QueueLag | None:
        """The lag in a queue; None if it is not known."""
        self._rest()
        store, topic, group, offsets = self._store, self._topic, self._group, self._parts.offsets
        low, end = store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)
        popped = self._parts.pop.state.queues.get((topic, group, queue_id))
        committed = offsets.find(group, topic, queue_id)
        if popped is not None:
            consumed, pulled, in_flight = _progress_of(popped, committed)
        elif committed is not None:
            consumed, pulled, in_flight = committed, None, None
        elif end == low:
            consumed, pulled, in_flight = end, None, None
        else:
            return None
        consumed = min(max(consumed, low), end)
        if pulled is None:
            pulled = offsets.find_pulled(group, topic, queue_id) or consumed
        pulled = min(max(pulled, consumed), end)
        delivered = self._count(queue_id, consumed, pulled) if in_flight is None else None
        ready = self._count(queue_id, pulled, end)
        if delivered is None:  # popped: what is acknowledged lies in between
            assert in_flight is not None
            delivered = Counted(in_flight, consumed if in_flight else None)
        next_stored = self._stored(queue_id, ready.first)
        oldest = next_stored
        if delivered.first is not None:
            oldest = self._stored(queue_id, delivered.first)
        return QueueLag(
            queue_id,
            messages=delivered.messages + ready.messages,
            oldest=oldest,
            in_flight=delivered.messages,
            ready=ready.messages,
            next_stored=next_stored,
            end=end,
            consumed=consumed,
        )

    def _stored(self, queue_id: int, queue_offset: int | None) -> int:
        if queue_offset is None:
            return 0
        return max(self._store.unit_stored_at(self._topic, queue_id, queue_offset), 0)

    def _count(self, queue_id: int, begin: int, end: int) -> Counted:
        """Count the messages of a part of a queue that the group wants."""
        if begin >= end:
            return Counted(0)
        wanted = self._store.wanted_units(self._wanted, self._topic, queue_id)
        if wanted.record is not None:
            return self._count_records(queue_id, begin, end)
        queue = self._store.find_queue(self._topic, queue_id)
        if wanted.code is None or queue is None or queue.is_batched:
            return Counted(end - begin, begin)
        first, matched, scanned = None, 0, 0
        most = min(end - begin, self._config.max_consume_queue_scan)
        while scanned < most and matched <= self._config.sample_count_threshold:
            units = queue.units(begin + scanned, min(_SLICE, most - scanned))
            if not units:
                break
            for number, (_, size, code) in enumerate(UNIT.iter_unpack(units)):
                if size != BLANK_SIZE and wanted.code(code):
                    matched += 1
                    if first is None:
                        first = begin + scanned + number
            scanned += len(units) // UNIT.size
            self._rest()
        return _estimate(matched, scanned, end - begin, first)

    def _count_records(self, queue_id: int, begin: int, end: int) -> Counted:
        """The same, by reading messages: what an SQL expression asks for is in no queue unit."""
        first, matched, at = None, 0, begin
        most = min(end, begin + _MAX_RECORDS)
        while at < most:
            limits = ReadLimits(64, _MAX_READ, min(64, most - at))
            found = self._store.read(self._topic, queue_id, at, limits, self._wanted)
            if found.next_offset <= at:
                break
            if found.records and first is None:
                (first,) = _QUEUE_OFFSET.unpack_from(found.records[0])
            matched += found.count
            at = found.next_offset
            self._rest()
        return _estimate(matched, min(at, most) - begin, end - begin, first)


def _estimate(matched: int, scanned: int, whole: int, first: int | None) -> Counted:
    if scanned >= whole or not scanned:
        return Counted(matched, first)
    return Counted(matched * whole // scanned, first)


def _progress_of(queue: PopQueue, committed: int | None) -> tuple[int, int, int]:
    """The lowest unacknowledged offset, the next to pop, and how many are not acknowledged.

    Read only, unlike `PopQueue.low`, as the event loop changes the queue meanwhile. An offset that
    a pull or a tool has committed since counts as it will for the next pop.
    """
    if queue.will_adopt(committed):
        assert committed is not None
        return committed, committed, 0
    following, order, in_flight = queue.next_offset, queue.order, 0
    low = following
    for checkpoint in list(queue.checkpoints.values()):
        pending = checkpoint.pending_bits
        if pending:
            low = min(low, checkpoint.low)
            in_flight += pending.bit_count()
    if order is not None:
        pending_offsets = list(order.info.unacknowledged)
        low = min([low, *pending_offsets])
        in_flight += len(pending_offsets)
    return low, following, in_flight


def _queue_count(topic: TopicConfig) -> int:
    return max(topic.read_queue_nums, topic.write_queue_nums)


def _groups(parts: Parts) -> set[str]:
    """Groups that have offsets."""
    return {key.partition("@")[2] for key in parts.offsets.pairs()}


def _topics(parts: Parts, group: str) -> set[str]:
    """Topics that a group consumes: those it subscribes to, or, of absent ones, has offsets in."""
    online = parts.clients.consumer_group(group)
    consumed = parts.offsets.topics_of(group)
    topics = {each for each in consumed if parts.clients.wants(group, each)}
    if online is not None:
        topics |= set(online.subscriptions)
    for topic in list(topics):
        topics |= {each for each in pop_retry_topics(group, topic) if each in parts.topics}
    return topics
