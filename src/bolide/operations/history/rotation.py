"""`Rotation`: asks about one topic or group after the other, slowly, for ever.

A round asks about all of them and takes `ROUND` seconds at least; with more of them it takes as
long as the permitted requests per second make it. Requests follow each other with a pause between,
so that brokers see a small steady load. What fails is asked again in the next round; a broker that
does not answer is left alone for a while, and what it would tell is unknown meanwhile.
"""

import asyncio
import heapq
import math
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from time import monotonic
from typing import TypeVar

from bolide.admin import AdminClient, BrokerUnknown, GroupOffline
from bolide.admin.servers import address_of
from bolide.errors import BolideError
from bolide.model.names import (
    DEAD_LETTER_PREFIX,
    RETRY_PREFIX,
    dead_letter_topic,
    is_system_group,
)
from bolide.operations.history.figures import GroupFigures, TopicFigures
from bolide.operations.history.group_parts import GroupPart
from bolide.operations.history.rates import Counters
from bolide.operations.history.sizes import MeanSizes
from bolide.operations.views import reason_of
from bolide.protocol.bodies.groups import GroupConfigTable
from bolide.protocol.bodies.topics import TopicStats
from bolide.protocol.refusals import GroupNotFound, TopicNotFound
from bolide.remoting.errors import RemotingError

T = TypeVar("T")

NO_BROKERS = "no broker is registered"
ROUND = 5.0
"""Seconds of a round in a small cluster."""
RATE = 80.0
"""Requests per second at most."""
_SECONDS_PER_ROUTE = 0.12
_LONGEST_ROUTE_AGE = 600.0
"""Seconds for which the brokers of a topic are remembered: the more topics, the longer."""
_SECONDS_PER_GROUP = 0.06
_LONGEST_TABLE_AGE = 120.0
"""Seconds between two requests for the table of all groups of a broker: the longer it is, the
less often."""
_LEAVE_ALONE = 15.0
"""Seconds in which a broker that did not answer is not asked."""
_PATIENCE = 5.0
"""Seconds in which a server has to answer."""
_AGAIN = 2.0
"""Seconds after which a cluster that cannot be asked is tried again."""
_BUSY, _BUSY_EVERY = 15, 10.0
"""The topics with the largest rates and the groups with the largest lags are asked about as often
as this, in seconds, in clusters whose rounds are longer."""
_LONGEST_PAUSE = 0.2
_MAX_LAGGING = 8
"""Topics of one group whose delay is asked for: those with the largest lag."""


class Rotation:
    """Keeps the latest figures of all topics and groups."""

    def __init__(
        self, admin: AdminClient, *, rate: float = RATE, round_time: float = ROUND
    ) -> None:
        self._admin = admin
        self._rate = rate
        self._round_time = round_time
        self.topics: dict[str, TopicFigures] = {}
        self.groups: dict[str, GroupFigures] = {}
        self.rounds = 0
        """Rounds that ended."""
        self.last_round = 0.0
        """Seconds that the last one took."""
        self.failure = ""
        """Why the last round could not begin; empty if it could."""
        self._names: set[str] = set()
        self._masters: tuple[str, ...] = ()
        self._masters_changed = 0.0
        self._routes: dict[str, tuple[float, tuple[str, ...]]] = {}
        self._brokers_of_group: dict[str, tuple[str, ...]] = {}
        self._groups_read = -math.inf
        self._seen: set[str] = set()
        """Retry topics and masters when the tables of groups were read."""
        self._consumers: dict[str, dict[str, frozenset[str]]] = {}
        """Client ids by group, by address of the broker."""
        self.system_topics: set[str] = set()
        """Topics that the servers have made for themselves, such as one named as the cluster."""
        self.failures: dict[str, str] = {}
        """Why brokers, by address, did not tell something in this round."""
        self._away: dict[str, float] = {}
        self._counters: Counters[str] = Counters()
        self._sizes = MeanSizes(admin)
        self._busy_asked = 0.0
        self._pause = 1 / rate
        self._requests = 0

    async def run(self) -> None:
        """Rounds, until it is cancelled."""
        while True:
            begun = monotonic()
            await self.round()
            rest = begun + self._round_time - monotonic()
            again = min(self._round_time, _AGAIN) if self.failure else rest
            await asyncio.sleep(max(again, 0.1))

    async def round(self) -> None:
        """Ask about everything once."""
        begun = self._busy_asked = monotonic()
        self._requests = 0
        try:
            await self._list()
        except (BolideError, TimeoutError) as exc:
            self.failure = reason_of(exc)
            return
        self.failure = "" if self._masters else NO_BROKERS
        if self.failure:  # what is known grows old; it is not gone
            return
        groups = sorted(self._brokers_of_group)
        topics = sorted(each for each in self._names if self._is_asked_as_topic(each))
        for group in groups:
            await self._group(group)
            await self._look_at_busy()
        for topic in topics:
            await self._topic(topic)
            await self._look_at_busy()
        self._forget_gone({*topics}, {*groups})
        self.rounds += 1
        self.last_round = monotonic() - begun
        # Spread the requests of the next round over its time.
        spread = min(self._round_time / max(self._requests, 1), _LONGEST_PAUSE)
        self._pause = max(1 / self._rate, spread)

    def remember(
        self,
        topics: Mapping[str, TopicFigures],
        groups: Mapping[str, GroupFigures],
        system_topics: Iterable[str],
    ) -> None:
        """Begin with what was known before this start."""
        self.topics.update(topics)
        self.groups.update(groups)
        self.system_topics.update(system_topics)
        self._sizes.remember(topics)
        for topic, each in topics.items():  # for a rate after the first sample
            if each.end is not None:
                at = monotonic() - (time.time() - each.sampled)
                self._counters.rate(topic, each.end, at, life=each.queues)

    @property
    def round_time(self) -> float:
        """Seconds of a round: of the last one, or what the present one will take at least."""
        expected = (len(self.topic_names) + 3 * len(self.group_names)) * 2 / self._rate
        return max(self.last_round, expected)

    @property
    def topic_names(self) -> Collection[str]:
        """All topics, also those that were not asked about yet."""
        return self._names or self.topics

    @property
    def group_names(self) -> Collection[str]:
        """All groups, also those that were not asked about yet."""
        return self._brokers_of_group or self.groups

    def consumers_at(self, address: str) -> set[str]:
        """Client ids of the consumers that are connected to a broker."""
        return {each for ids in self._consumers.get(address, {}).values() for each in ids}

    # ---- what there is

    async def _list(self) -> None:
        info = await self._one(self._admin.clusters.info)
        masters = tuple(
            address_of(broker) for broker in info.broker_addr_table.values() if broker.broker_addrs
        )
        if {*masters} != {*self._masters}:
            self._masters, self._masters_changed = masters, monotonic()
        if not self._masters:
            return
        self._names = {*await self._one(self._admin.topics.names)}
        for address in self._consumers.keys() - {*self._masters}:
            del self._consumers[address]
        seen = {each for each in self._names if each.startswith(RETRY_PREFIX)} | {*self._masters}
        age = monotonic() - self._groups_read
        # A new retry topic does not tell its group for sure, but that a table has changed.
        known = len(self._brokers_of_group) * _SECONDS_PER_GROUP
        longest = min(max(known, self._round_time), _LONGEST_TABLE_AGE)
        if age >= longest or (seen != self._seen and age >= self._round_time):
            self._seen = seen
            await self._list_groups()
            await self._list_system_topics()

    async def _list_system_topics(self) -> None:
        with suppress(BolideError, TimeoutError):
            self.system_topics.update(await self._one(self._admin.topics.system))
        for address in self._masters:
            found = await self._ask(address, partial(self._system_topics_at, address))
            self.system_topics.update(found or ())

    async def _system_topics_at(self, address: str) -> list[str]:
        return await self._one(lambda: self._admin.topics.system_at(address))

    async def _group_table(self, address: str) -> GroupConfigTable:
        return await self._one(lambda: self._admin.groups.configs(address))

    async def _list_groups(self) -> None:
        found: dict[str, tuple[str, ...]] = {}
        silent: list[str] = []
        for address in self._masters:
            table = await self._ask(address, partial(self._group_table, address))
            if table is None:
                silent.append(address)
                continue
            for group in table.subscription_group_table:
                if not is_system_group(group):
                    found[group] = (*found.get(group, ()), address)
        self._groups_read = monotonic()
        if silent:  # each of them may have any group
            names = found.keys() | self._brokers_of_group.keys()
            found = {group: (*found.get(group, ()), *silent) for group in names}
        self._brokers_of_group = found

    def _is_asked_as_topic(self, topic: str) -> bool:
        if topic.startswith(DEAD_LETTER_PREFIX):  # otherwise it is asked about with its group
            return topic.removeprefix(DEAD_LETTER_PREFIX) not in self._brokers_of_group
        return not topic.startswith(RETRY_PREFIX)

    def _forget_gone(self, topics: set[str], groups: set[str]) -> None:
        for name in self.topics.keys() - topics - {dead_letter_topic(each) for each in groups}:
            del self.topics[name]
        for name in self.groups.keys() - groups:
            del self.groups[name]
        for name in self._routes.keys() - self._names:
            del self._routes[name]
        self._counters.keep_only(self._names)
        self._sizes.keep_only(self._names)
        for by_group in self._consumers.values():
            for name in by_group.keys() - groups:
                del by_group[name]

    async def _look_at_busy(self) -> None:
        """Amid a long round, ask again about what the dashboard shows first."""
        if monotonic() - self._busy_asked < _BUSY_EVERY:
            return
        known = self._brokers_of_group
        lags = {group: each.lag for group, each in self.groups.items() if each.lag}
        rates = {topic: each.rate_in for topic, each in self.topics.items() if each.rate_in}
        for group in heapq.nlargest(_BUSY, lags, key=lambda group: lags[group]):
            if group in known:
                await self._group(group)
        for topic in heapq.nlargest(_BUSY, rates, key=lambda topic: rates[topic]):
            if topic in self._names:
                await self._topic(topic)
        self._busy_asked = monotonic()

    # ---- topics

    async def _topic(self, topic: str) -> TopicFigures | None:
        """The topic's figures; None if no broker is known that has it."""
        addresses = await self._addresses(topic)
        if not addresses:
            if topic in self.topics:
                self.topics[topic] = TopicFigures(sampled=time.time(), is_whole=False)
            return None
        parts: dict[str, TopicStats | None] = {}
        for address in addresses:
            try:
                part = await self._ask(address, partial(self._stats, address, topic))
            except TopicNotFound:  # the route is out of date
                self._routes.pop(topic, None)
                continue
            parts[address] = part
        figures = self._figures(topic, parts.values())
        if figures.messages and self._sizes.is_due(topic):
            await self._ask_size(topic, parts)
        figures = replace(figures, bytes=self._sizes.estimate(topic, figures.messages))
        self.topics[topic] = figures
        return figures

    async def _ask_size(self, topic: str, parts: Mapping[str, TopicStats | None]) -> None:
        """Ask the broker that has most of the topic; the mean of the others is much the same."""
        most = max(parts, key=lambda at: _stored(parts[at]))
        with suppress(TimeoutError):
            self._requests += 1  # besides the one that `_one` counts
            await self._one(lambda: self._sizes.ask(topic, most))

    async def _stats(self, address: str, topic: str) -> TopicStats:
        return await self._one(lambda: self._admin.topics.stats_at(address, topic))

    def _figures(self, topic: str, parts: Iterable[TopicStats | None]) -> TopicFigures:
        told = [*parts]
        bounds = [q for part in told if part is not None for q in part.offset_table.values()]
        newest = max((q.last_update_timestamp for q in bounds), default=0)
        if None in told or not told:
            return TopicFigures(sampled=time.time(), is_whole=False)
        end = sum(q.max_offset for q in bounds)
        rate = self._counters.rate(topic, end, monotonic(), life=len(bounds))
        if rate is None:  # RocketMQ 4.9 tells 0 whatever there is
            rate = sum(part.topic_put_tps for part in told if part is not None) or None
        return TopicFigures(
            sampled=time.time(),
            rate_in=rate,
            messages=sum(map(_stored, told)),
            end=end,
            queues=len(bounds),
            last_write_ms=newest if newest > 0 else None,
        )

    async def _addresses(self, topic: str) -> tuple[str, ...]:
        known = self._routes.get(topic)
        if known is not None and self._is_current(*known):
            return known[1]
        try:
            found = await self._one(lambda: self._admin.topics.addresses(topic))
        except TopicNotFound:
            return ()
        except (BolideError, TimeoutError):
            return () if known is None else known[1]
        interned = {each: each for each in self._masters}
        addresses = tuple(interned.get(each, each) for each in found.values())
        self._routes[topic] = (monotonic(), addresses)
        return addresses

    def _is_current(self, read: float, addresses: tuple[str, ...]) -> bool:
        longest = min(len(self._names) * _SECONDS_PER_ROUTE, _LONGEST_ROUTE_AGE)
        return (
            read >= self._masters_changed
            and monotonic() - read < longest
            and all(each in self._masters for each in addresses)
        )

    # ---- groups

    async def _group(self, group: str) -> None:
        whole, parts = True, list[GroupPart]()
        for address in self._brokers_of_group[group]:
            if address not in self._masters:  # it has left since
                continue
            part = await self._ask(address, partial(self._group_at, address, group))
            if part is None:
                whole = False
                continue
            parts.append(part)
        whole = whole and bool(parts)
        dead_letters = await self._dead_letters(group)
        figures = GroupFigures(
            sampled=time.time(),
            dead_letters=dead_letters,
            topics=tuple(sorted({topic for part in parts for topic in part.topics})),
            is_whole=whole,
        )
        if whole:
            delays = [part.delay for part in parts]
            figures = replace(
                figures,
                lag=sum(part.lag for part in parts),
                delay=None if None in delays else max((d for d in delays if d), default=0.0),
                rate_out=sum(part.rate_out for part in parts),
                members=len({each for part in parts for each in part.members}),
            )
        self.groups[group] = figures

    async def _group_at(self, address: str, group: str) -> GroupPart:
        try:
            stats = await self._one(lambda: self._admin.offsets.progress_at(address, group))
        except (GroupNotFound, TopicNotFound):
            return GroupPart()
        members = await self._members_at(address, group)
        self._consumers.setdefault(address, {})[group] = members
        part = GroupPart.of(stats, members)
        lagging = part.lagging[:_MAX_LAGGING]
        return part.with_delays([await self._delay_at(address, group, each) for each in lagging])

    async def _members_at(self, address: str, group: str) -> frozenset[str]:
        try:
            found = await self._one(lambda: self._admin.clients.consumers(group, address))
        except GroupOffline:
            return frozenset()
        return frozenset(each.client_id or "" for each in found.connection_set)

    async def _delay_at(self, address: str, group: str, topic: str) -> float | None:
        try:
            spans = await self._one(
                lambda: self._admin.offsets.time_spans_at(address, group, topic)
            )
        except RemotingError:
            raise
        except BolideError:  # RocketMQ refuses it for topics that the group does not subscribe to
            return None
        return max((span.delay_time for span in spans), default=0) / 1000

    async def _dead_letters(self, group: str) -> int | None:
        topic = dead_letter_topic(group)
        if topic not in self._names:
            return 0
        figures = await self._topic(topic)
        return None if figures is None else figures.messages

    # ---- asking

    async def _ask(self, address: str, request: Callable[[], Awaitable[T]]) -> T | None:
        """What a broker tells; None if it does not. Raises TopicNotFound."""
        if self._away.get(address, 0.0) > monotonic():
            return None
        try:
            answer = await request()
        except (RemotingError, BrokerUnknown, TimeoutError) as exc:
            self._away[address] = monotonic() + _LEAVE_ALONE
            self.failures[address] = reason_of(exc)
        except TopicNotFound:
            raise
        except BolideError as exc:  # refused: it will not tell this
            self.failures[address] = reason_of(exc)
        else:
            self.failures.pop(address, None)
            return answer
        return None

    async def _one(self, request: Callable[[], Awaitable[T]]) -> T:
        """One request, after the pause that it has to keep."""
        self._requests += 1
        await asyncio.sleep(self._pause)
        async with asyncio.timeout(_PATIENCE):
            return await request()


def _stored(part: TopicStats | None) -> int:
    """Messages stored at a broker; 0 if it did not tell."""
    bounds = () if part is None else part.offset_table.values()
    return sum(max(each.max_offset - each.min_offset, 0) for each in bounds)
