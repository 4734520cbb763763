"""What consumer groups filter by, as their heartbeats said it (`ConsumerFilterManager`)."""

import logging
from collections.abc import Callable, Iterable, Iterator

from bolide.broker.filters.bloom import positions
from bolide.broker.filters.sql import BadExpression, compile_sql
from bolide.broker.subscriptions import SQL92
from bolide.protocol.bodies.heartbeat import Subscription
from bolide.store.tables import ConsumerFilter, ConsumerFilters, Table
from bolide.store.tables.filters import TopicFilters

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
        self._listeners: list[Callable[[str], None]] = []
        for found in self:
            if not found.dead_time:
                found.dead_time = max(self._now_ms() - _DEAD_FOR, found.born_time)

    def on_change(self, listener: Callable[[str], None]) -> None:
        """Have `listener` called with the group whose filters have changed."""
        self._listeners.append(listener)

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
        for listener in self._listeners:
            listener(group)

    def _now_ms(self) -> int:
        return int(self._now() * 1000)
