"""Filters of consumer groups, as announced by heartbeats (`ConsumerFilterManager`).

Expressions are evaluated when messages are read, so the Bloom filter bits that RocketMQ keeps with
each filter are not used here. They are stored all the same: a Java broker discards the whole table
if an entry lacks its bits.
"""

import logging
import struct
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache

from bolide.broker.filters.sql import BadExpression, compile_sql
from bolide.events import Listeners
from bolide.protocol.bodies.heartbeat import Subscription
from bolide.protocol.refusals import ServerError, SubscriptionMalformed
from bolide.protocol.tags import BadTagExpression, TagExpression
from bolide.store.reading import EVERYTHING, MessageFilter
from bolide.store.tables import BloomPositions, ConsumerFilter, ConsumerFilters, Table, TopicFilters

log = logging.getLogger(__name__)

TAG, SQL92, FUNCTION = "TAG", "SQL92", "FILTER"
"""Expression types; FILTER is an extension of Bolide."""

_USUAL_TERMS = 16
_DEAD_FOR = 30_000
"""Milliseconds for which consumers count as gone when a broker starts, as in RocketMQ."""
_BITS, _HASHES = 112, 3  # for 32 consumers and an error rate of 20 %, RocketMQ's defaults
_BLOCK = struct.Struct("<QQ")
_LONG = 0xFFFF_FFFF_FFFF_FFFF
_C1, _C2 = 0x87C3_7B91_1142_53D5, 0x4CF5_AD43_2745_937F
_MIX1, _MIX2 = 0xFF51_AFD7_ED55_8CCD, 0xC4CE_B9FE_1A85_EC53


def is_by_tags(expression_type: str | None) -> bool:
    return (expression_type or TAG) == TAG


def filter_for(expression_type: str | None, expression: str | None) -> MessageFilter:
    """Return the filter of an expression.

    Raises:
        SubscriptionMalformed: the expression is invalid.
        ServerError: the broker does not support the expression type.
    """
    if is_by_tags(expression_type):
        return _by_tags(expression or "")
    if expression_type == SQL92:
        return _by_sql(expression or "")
    raise unsupported_type(expression_type)


def unsupported_type(expression_type: str | None) -> ServerError:
    """Build the refusal of an expression type."""
    return ServerError(
        f"The broker does not support consumer to filter message by {expression_type}"
    )


def filter_for_subscription(subscription: Subscription) -> MessageFilter:
    """As `filter_for`, for a subscription of a heartbeat."""
    return filter_for(subscription.expression_type, subscription.sub_string)


@lru_cache(maxsize=4096)
def _by_tags(text: str) -> MessageFilter:
    try:
        tags = TagExpression.parse(text)
    except BadTagExpression as exc:
        raise SubscriptionMalformed(f"parse the consumer's subscription failed: {exc}") from exc
    if tags.wants_all:
        return EVERYTHING
    return MessageFilter(code=tags.codes.__contains__, codes=tags.codes)


def _by_sql(text: str) -> MessageFilter:
    try:
        compiled = compile_sql(text)
    except BadExpression as exc:
        raise SubscriptionMalformed(f"parse the consumer's subscription failed: {exc}") from exc
    return MessageFilter(record=compiled.sieve, weight=1 + compiled.terms // _USUAL_TERMS)


class FilterTable:
    """SQL filters by topic and group, on a loaded table; belongs to one event loop.

    Filters outlive their consumers, so that a returning consumer finds its filter before its first
    heartbeat. A filter whose consumers have been offline for long is dropped.
    """

    def __init__(self, table: Table[ConsumerFilters], now: Callable[[], float]) -> None:
        self.table = table
        self._now = now
        self.on_change: Listeners[str] = Listeners()
        """The filters of a group changed."""
        for found in self:
            if not found.dead_time:
                found.dead_time = max(self._now_ms() - _DEAD_FOR, found.born_time)

    def find(self, topic: str, group: str) -> ConsumerFilter | None:
        of_topic = self._topics.get(topic)
        return of_topic.group_filter_data.get(group) if of_topic else None

    def register(self, group: str, subscriptions: Iterable[Subscription]) -> None:
        """Register the filters of a heartbeat; filters it does not name are marked dead."""
        topics = set()
        for each in subscriptions:
            topics.add(each.topic)
            if each.expression_type == SQL92 and each.sub_string:
                self._register(group, each)
        for topic, of_topic in self._topics.items():
            found = of_topic.group_filter_data.get(group)
            if found is not None and topic not in topics:
                self._mark_dead(found)

    def sweep(self, is_online: Callable[[str], bool], dead_for: float) -> None:
        """Mark the filters of offline groups dead, and drop those dead for `dead_for` seconds."""
        for found in list(self):
            if not is_online(found.consumer_group):
                self._mark_dead(found)
            if found.is_dead() and self._now_ms() - found.dead_time >= dead_for * 1000:
                self._drop(found.topic, found.consumer_group)

    def __iter__(self) -> Iterator[ConsumerFilter]:
        for of_topic in self._topics.values():
            yield from of_topic.group_filter_data.values()

    @property
    def _topics(self) -> dict[str, TopicFilters]:
        return self.table.value.filter_data_by_topic

    def _register(self, group: str, subscription: Subscription) -> None:
        known = self.find(subscription.topic, group)
        if known is None or known.is_dead():  # a client whose clock was set back may register again
            is_newer = is_latest = True
        else:
            is_newer = subscription.sub_version > known.client_version
            is_latest = subscription.sub_version >= known.client_version
        if known is not None and known.expression == subscription.sub_string:
            if is_latest:
                self._renew(known, subscription.sub_version)
        elif is_newer:
            self._add(group, subscription)

    def _renew(self, known: ConsumerFilter, version: int) -> None:
        if known.is_dead() or known.client_version != version:
            known.dead_time, known.client_version = 0, version
            self._changed(known.consumer_group)

    def _add(self, group: str, subscription: Subscription) -> None:
        """Add a filter; an invalid one removes the old filter, and pulls report the error."""
        try:
            compile_sql(subscription.sub_string)
        except BadExpression as exc:
            log.warning(
                "group %s subscribes to %s with invalid SQL: %s", group, subscription.topic, exc
            )
            self._drop(subscription.topic, group)
            return
        log.info(
            "group %s filters %s by %.200r", group, subscription.topic, subscription.sub_string
        )
        of_topic = self._topics.setdefault(
            subscription.topic, TopicFilters(topic=subscription.topic)
        )
        of_topic.group_filter_data[group] = ConsumerFilter(
            consumer_group=group,
            topic=subscription.topic,
            expression=subscription.sub_string,
            expression_type=SQL92,
            born_time=self._now_ms(),
            client_version=subscription.sub_version,
            bloom_filter_data=bloom_positions(group, subscription.topic),
        )
        self._changed(group)

    def _mark_dead(self, found: ConsumerFilter) -> None:
        if not found.is_dead():
            found.dead_time = max(self._now_ms(), found.born_time)
            self._changed(found.consumer_group)

    def _drop(self, topic: str, group: str) -> None:
        of_topic = self._topics.get(topic)
        if of_topic is None or of_topic.group_filter_data.pop(group, None) is None:
            return
        if not of_topic.group_filter_data:
            del self._topics[topic]
        self._changed(group)

    def _changed(self, group: str) -> None:
        self.table.changed()
        self.on_change(group)

    def _now_ms(self) -> int:
        return int(self._now() * 1000)


def bloom_positions(group: str, topic: str) -> BloomPositions:
    """Return the Bloom filter bits of a group that filters a topic."""
    hashed = _murmur3(f"{group}#{topic}".encode())
    low, high = hashed & 0xFFFF_FFFF, hashed >> 32
    sums = [(low + number * high) & 0xFFFF_FFFF for number in range(1, _HASHES + 1)]
    return BloomPositions(bit_num=_BITS, bit_pos=[_positive(each) % _BITS for each in sums])


def _positive(value: int) -> int:
    """A Java int, with its bits flipped if negative."""
    return value ^ 0xFFFF_FFFF if value & 0x8000_0000 else value


def _murmur3(data: bytes) -> int:
    """The first half of MurmurHash3 x64 128 with seed 0."""
    first = second = 0
    whole = len(data) - len(data) % _BLOCK.size
    for one, two in _BLOCK.iter_unpack(data[:whole]):
        first ^= _scatter(one, _C1, 31, _C2)
        first = (_rotate(first, 27) + second) * 5 + 0x52DC_E729 & _LONG
        second ^= _scatter(two, _C2, 33, _C1)
        second = (_rotate(second, 31) + first) * 5 + 0x3849_5AB5 & _LONG
    one, two = _BLOCK.unpack(data[whole:].ljust(_BLOCK.size, b"\0"))
    second ^= _scatter(two, _C2, 33, _C1) ^ len(data)
    first ^= _scatter(one, _C1, 31, _C2) ^ len(data)
    first = first + second & _LONG
    second = second + first & _LONG
    return _mix(first) + _mix(second) & _LONG


def _scatter(value: int, factor: int, bits: int, second_factor: int) -> int:
    return _rotate(value * factor & _LONG, bits) * second_factor & _LONG


def _rotate(value: int, bits: int) -> int:
    return (value << bits | value >> 64 - bits) & _LONG


def _mix(value: int) -> int:
    value = (value ^ value >> 33) * _MIX1 & _LONG
    value = (value ^ value >> 33) * _MIX2 & _LONG
    return value ^ value >> 33
