"""What consumer groups subscribe to, as their heartbeats announced it (`ConsumerFilterManager`).

Ours sets no such bits: it evaluates expressions when messages are read. But Java brokers throw
the whole table of filters away if an entry lacks its bits.
"""

import logging
import struct
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache

from bolide.broker.filters.sql import BadExpression, compile_sql
from bolide.broker.listeners import Listeners
from bolide.protocol.bodies.heartbeat import Subscription
from bolide.protocol.refusals import ServerError, SubscriptionMalformed
from bolide.protocol.tags import BadTagExpression, TagExpression
from bolide.store.reading import EVERYTHING, MessageFilter
from bolide.store.tables import BloomPositions, ConsumerFilter, ConsumerFilters, Table, TopicFilters

TAG, SQL92, FUNCTION = "TAG", "SQL92", "FILTER"
"""Types of expressions; the last one is ours."""

_USUAL_TERMS = 16


def is_by_tags(expression_type: str | None) -> bool:
    return (expression_type or TAG) == TAG


def wanted_by(expression_type: str | None, expression: str | None) -> MessageFilter:
    """The filter of an expression.

    Raises:
        SubscriptionMalformed: it cannot be read.
        ServerError: it is of a kind that this broker does not filter by.
    """
    if is_by_tags(expression_type):
        return _by_tags(expression or "")
    if expression_type == SQL92:
        return _by_sql(expression or "")
    raise not_filtered_by(expression_type)


def not_filtered_by(expression_type: str | None) -> ServerError:
    """The refusal of a type of expressions."""
    return ServerError(
        f"The broker does not support consumer to filter message by {expression_type}"
    )


def wanted_by_subscription(subscription: Subscription) -> MessageFilter:
    """As `wanted_by`, of what a heartbeat said."""
    return wanted_by(subscription.expression_type, subscription.sub_string)


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


_BITS, _HASHES = 112, 3  # of 32 consumers and one error in five, RocketMQ's defaults
_BLOCK = struct.Struct("<QQ")
_LONG = 0xFFFF_FFFF_FFFF_FFFF
_C1, _C2 = 0x87C3_7B91_1142_53D5, 0x4CF5_AD43_2745_937F
_MIX1, _MIX2 = 0xFF51_AFD7_ED55_8CCD, 0xC4CE_B9FE_1A85_EC53


def positions(group: str, topic: str) -> BloomPositions:
    """The bits of a group that filters a topic."""
    hashed = _murmur3(f"{group}#{topic}".encode())
    low, high = hashed & 0xFFFF_FFFF, hashed >> 32
    sums = [(low + number * high) & 0xFFFF_FFFF for number in range(1, _HASHES + 1)]
    return BloomPositions(bit_num=_BITS, bit_pos=[_positive(each) % _BITS for each in sums])


def _positive(value: int) -> int:
    """Java's int, its bits flipped if it is negative."""
    return value ^ 0xFFFF_FFFF if value & 0x8000_0000 else value


def _murmur3(data: bytes) -> int:
    """The first half of MurmurHash3 x64 128 with seed 0."""
    first = second = 0
    whole = len(data) - len(data) % _BLOCK.size
    for one, two in _BLOCK.iter_unpack(data[:whole]):
        first ^= _scatter(one, _C1, 31, _C2)
        first = (_rotated(first, 27) + second) * 5 + 0x52DC_E729 & _LONG
        second ^= _scatter(two, _C2, 33, _C1)
        second = (_rotated(second, 31) + first) * 5 + 0x3849_5AB5 & _LONG
    one, two = _BLOCK.unpack(data[whole:].ljust(_BLOCK.size, b"\0"))
    second ^= _scatter(two, _C2, 33, _C1) ^ len(data)
    first ^= _scatter(one, _C1, 31, _C2) ^ len(data)
    first = first + second & _LONG
    second = second + first & _LONG
    return _mixed(first) + _mixed(second) & _LONG


def _scatter(value: int, factor: int, bits: int, further: int) -> int:
    return _rotated(value * factor & _LONG, bits) * further & _LONG


def _rotated(value: int, bits: int) -> int:
    return (value << bits | value >> 64 - bits) & _LONG


def _mixed(value: int) -> int:
    value = (value ^ value >> 33) * _MIX1 & _LONG
    value = (value ^ value >> 33) * _MIX2 & _LONG
    return value ^ value >> 33


log = logging.getLogger(__name__)

_DEAD_FOR = 30_000
"""Milliseconds that consumers count as gone when a broker starts, as in RocketMQ."""


class FilterTable:
    """The SQL filter of each topic and group, out of a table that is loaded.

    It outlives the consumers: when they come back the filter is there before their heartbeat. One
    whose consumers are gone for long is dropped. Belongs to one event loop.
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
        """Take over what a heartbeat of the group says; filters that it does not name die."""
        topics = set()
        for each in subscriptions:
            topics.add(each.topic)
            if each.expression_type == SQL92 and each.sub_string:
                self._register(group, each)
        for topic, of_topic in self._topics.items():
            found = of_topic.group_filter_data.get(group)
            if found is not None and topic not in topics:
                self._bury(found)

    def sweep(self, is_online: Callable[[str], bool], dead_for: float) -> None:
        """Bury the filters of groups that left, and drop those dead for so many seconds."""
        for found in list(self):
            if not is_online(found.consumer_group):
                self._bury(found)
            if found.is_dead() and self._now_ms() - found.dead_time >= dead_for * 1000:
                self._drop(found.topic, found.consumer_group)

    def __iter__(self) -> Iterator[ConsumerFilter]:
        for of_topic in self._topics.values():
            yield from of_topic.group_filter_data.values()

    @property
    def _topics(self) -> dict[str, TopicFilters]:
        return self.table.value.filter_data_by_topic

    def _register(self, group: str, wanted: Subscription) -> None:
        known = self.find(wanted.topic, group)
        if known is None or known.is_dead():  # then a clock that was set back does not count
            is_newer = is_latest = True
        else:
            is_newer = wanted.sub_version > known.client_version
            is_latest = wanted.sub_version >= known.client_version
        if known is not None and known.expression == wanted.sub_string:
            if is_latest:
                self._renew(known, wanted.sub_version)
        elif is_newer:
            self._add(group, wanted)

    def _renew(self, known: ConsumerFilter, version: int) -> None:
        if known.is_dead() or known.client_version != version:
            known.dead_time, known.client_version = 0, version
            self._changed(known.consumer_group)

    def _add(self, group: str, wanted: Subscription) -> None:
        """A filter that cannot be read leaves none at all, and pulls are told so."""
        try:
            compile_sql(wanted.sub_string)
        except BadExpression as exc:
            log.warning("group %s filters %s by bad SQL: %s", group, wanted.topic, exc)
            self._drop(wanted.topic, group)
            return
        log.info("group %s filters %s by %.200r", group, wanted.topic, wanted.sub_string)
        of_topic = self._topics.setdefault(wanted.topic, TopicFilters(topic=wanted.topic))
        of_topic.group_filter_data[group] = ConsumerFilter(
            consumer_group=group,
            topic=wanted.topic,
            expression=wanted.sub_string,
            expression_type=SQL92,
            born_time=self._now_ms(),
            client_version=wanted.sub_version,
            bloom_filter_data=positions(group, wanted.topic),
        )
        self._changed(group)

    def _bury(self, found: ConsumerFilter) -> None:
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
