"""What keeps a broker from being stopped, looked at in rounds.

A broker is empty when nobody writes any more, every group has consumed its queues, nothing waits
in the broker for a later delivery, and its replicas have the whole log. Each of these is a check
that returns what is open. What a broker does not tell, as most of RocketMQ's do not, is listed as
unknown instead of being taken for done: such a broker is not known to be safe.
"""

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Protocol

import msgspec

from bolide.admin.brokers import Brokers
from bolide.admin.held_messages import HalfMessages, Timers
from bolide.admin.offsets import Offsets
from bolide.admin.servers import MASTER, Servers, gather_by_key
from bolide.admin.topics import Topics
from bolide.admin.unconsumed import Backlog, Bounds, Unconsumed, delivered_delays, left
from bolide.model.names import (
    DEAD_LETTER_PREFIX,
    HALF_TOPIC,
    PARK_PREFIX,
    RETRY_PREFIX,
    REVIVE_GROUP,
    SCHEDULE_TOPIC,
    SYSTEM_TOPIC_PREFIX,
    SYSTEM_TOPICS,
    TRACE_TOPIC,
    TRANSACTION_GROUP,
    WRITE,
    is_internal,
    revive_topic,
)
from bolide.protocol.bodies.message_queue import MessageQueue
from bolide.protocol.bodies.routes import BrokerRoute
from bolide.protocol.bodies.topics import TopicConfig
from bolide.protocol.refusals import RequestCodeNotSupported, ServerError, TopicNotFound

_POP_SETTLED = 75.0
"""Seconds after the last write to RocketMQ's revive log; 60 s is its default invisible time."""
_ALWAYS_UNKNOWN = "how far groups are that consume by broadcasting or keep their offsets elsewhere"
_OWN_KINDS = (RETRY_PREFIX, DEAD_LETTER_PREFIX, PARK_PREFIX)


class Open(msgspec.Struct, frozen=True, kw_only=True):
    """Something that keeps a broker from being stopped.

    Attributes:
        kind: broker, producers, nameServers, groups, delayed, timers, transactions, pop, replicas.
        count: messages, or bytes for replicas.
        advice: what helps, if it does not go away by itself.
    """

    kind: str
    what: str
    count: int = 0
    advice: str = ""


class DrainedBroker(Protocol):
    """The broker that is looked at."""

    @property
    def address(self) -> str: ...
    @property
    def broker_name(self) -> str: ...
    @property
    def cluster(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Round:
    """One look at a broker.

    Attributes:
        unknown: what the broker does not tell of itself; there may be something open in it.
        remarks: what holds of every broker of its kind, whatever is open.
    """

    address: str
    broker_name: str
    open: tuple[Open, ...]
    unknown: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()

    @property
    def is_safe(self) -> bool:
        """Whether all is known, and nothing is open."""
        return not self.open and not self.unknown


@dataclass(slots=True)
class _Writes:
    """Whether producers write: the ends of the topics of users, and when one last grew."""

    last_write: float
    log_end: str = ""
    ends: dict[str, int] = field(default_factory=dict)
    """The sum of the ends of all queues of each topic that producers may write."""
    grown: dict[str, int] = field(default_factory=dict)
    bounds: dict[str, Bounds] = field(default_factory=dict)
    """The topics of users and the retry topics that have messages."""
    groups: dict[str, list[str]] = field(default_factory=dict)
    """The groups of each topic of users that has messages."""


class Watch:
    """Looks at one broker in rounds; remembers what has grown since the last one."""

    def __init__(
        self,
        servers: Servers,
        broker: DrainedBroker,
        settle: float,
        ignored_groups: frozenset[str],
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.broker = broker
        self._servers = servers
        self._settle = settle
        self._now = now
        self._topics = Topics(servers)
        self._brokers = Brokers(servers)
        self._offsets = Offsets(servers)
        self._transactions = HalfMessages(servers)
        self._timers = Timers(servers)
        self._unconsumed = Unconsumed(servers, broker.address, broker.broker_name, ignored_groups)
        self._writes = _Writes(last_write=now())
        self._unknown: list[str] = []
        self._remarks: list[str] = []
        self._settings: dict[str, str] | None = None

    async def round(self) -> Round:
        """Look once.

        Raises:
            BolideError: the broker does not answer.
        """
        address = self.broker.address
        if self._settings is None:
            self._settings = await self._brokers.config(address)
        figures = await self._brokers.runtime(address)
        log_end = figures.get("commitLogMaxOffset", "")
        stored = not log_end or log_end != self._writes.log_end
        if stored:
            await self._look_at_topics(log_end)
        else:
            self._writes.grown = {}
        found = await self._checked(figures)
        if not found and not stored:  # groups that have come since make no entry in the log
            await self._look_at_topics(log_end)
            found = await self._checked(figures)
        return Round(
            address,
            self.broker.broker_name,
            tuple(sorted(found, key=lambda each: (each.kind, each.what))),
            tuple(dict.fromkeys(self._unknown)),
            (*self._remarks, _ALWAYS_UNKNOWN),
        )

    async def _checked(self, figures: dict[str, str]) -> list[Open]:
        self._unknown, self._remarks = [], []
        checks: list[Awaitable[Iterable[Open]]] = [
            self._groups(),
            self._delayed(figures),
            self._pending_timers(figures),
            self._halves(),
            self._popped(),
            self._replicas(),
        ]
        found = self._producers()
        for check in await asyncio.gather(*checks):
            found.extend(check)
        return found

    async def _look_at_topics(self, log_end: str) -> None:
        """Note what topics have, which of them have grown, and who consumes them."""
        writes, first = self._writes, not self._writes.log_end
        table = (await self._topics.configs(self.broker.address)).topic_config_table
        names = [name for name in table if is_of_users(name) or name.startswith(RETRY_PREFIX)]
        bounds = await gather_by_key(names, self._unconsumed.bounds)
        writes.bounds = {
            name: each for name, each in bounds.items() if each is not None and _end(each)
        }
        ends = {name: _end(bounds[name] or {}) for name in names if is_written(table[name])}
        writes.groups = await gather_by_key(
            [name for name in writes.bounds if is_of_users(name)], self._groups_of
        )
        writes.grown = {}
        if not first:
            grown = {topic: end - writes.ends.get(topic, 0) for topic, end in ends.items()}
            writes.grown = {topic: count for topic, count in grown.items() if count > 0}
        writes.ends, writes.log_end = ends, log_end
        if writes.grown:
            writes.last_write = self._now()

    async def _groups_of(self, topic: str) -> list[str]:
        return (await self._topics.groups_at(self.broker.address, topic)).group_list

    def _producers(self) -> list[Open]:
        """Topics that grow. Delayed messages that become due make them grow, too."""
        writes = self._writes
        rest = self._settle - (self._now() - writes.last_write)
        if writes.grown:
            return [
                Open(kind="producers", what=f"topic {topic} is written", count=count)
                for topic, count in sorted(writes.grown.items())
            ]
        if rest > 0:
            what = f"producers ask for routes every 30 s: {math.ceil(rest)} s more without a write"
            return [Open(kind="producers", what=what)]
        return []

    async def _groups(self) -> list[Open]:
        """Groups that have not consumed what they have begun to consume, and retry topics."""
        writes = self._writes
        found = await self._unconsumed.look(writes.bounds, writes.groups, self._unknown)
        return [
            Open(
                kind="groups",
                what=f"group {each.group} has to consume topic {each.topic}",
                count=each.count,
                advice=_advice(each),
            )
            for each in found
        ]

    async def _delayed(self, figures: dict[str, str]) -> list[Open]:
        """Messages with a delay level that have not been delivered."""
        bounds = await self._unconsumed.bounds(SCHEDULE_TOPIC) or {}
        pending = left(delivered_delays(figures), bounds)
        if not pending:
            return []
        return [Open(kind="delayed", what="delayed messages are not due yet", count=pending)]

    async def _pending_timers(self, figures: dict[str, str]) -> list[Open]:
        assert self._settings is not None
        if self._settings.get("timerWheelEnable") != "true":
            return []
        if self._settings.get("timerRocksDBEnable") == "true":
            self._unknown.append("timers that are kept in RocksDB")
        try:
            metrics = await self._brokers.timer_metrics(self.broker.address)
        except RequestCodeNotSupported:  # RocketMQ 4.9 has no timers
            return []
        except ServerError as exc:
            self._unknown.append(f"timers: {exc}")
            return []
        behind = figures.get("timerOffsetBehind", "")
        found = [
            _timer(topic, each.count)
            for topic, each in sorted(metrics.timing_count.items())
            if each.count > 0 and await self._has_timers(topic)
        ]
        if behind.isdecimal() and int(behind):
            found.append(
                Open(kind="timers", what="timers have to be put into the wheel", count=int(behind))
            )
        return found

    async def _has_timers(self, topic: str) -> bool:
        """Whether a counted timer was not recalled: recalled ones count until they are due."""
        try:
            return bool((await self._timers.page(self.broker.address, topic, limit=1)).timers)
        except RequestCodeNotSupported:  # RocketMQ does not list them
            return True

    async def _halves(self) -> list[Open]:
        assert self._settings is not None
        advice = "producers end them, or are asked for their outcome"
        try:
            page = await self._transactions.page(self.broker.address, limit=1)
        except RequestCodeNotSupported:
            if self._settings.get("transRocksDBEnable") == "true":
                self._unknown.append("transactions that are kept in RocksDB")
            count, _ = await self._behind(HALF_TOPIC, TRANSACTION_GROUP)
            advice += "; RocketMQ notices within a minute"
        else:
            count, advice = page.total, f"{advice}, or resolveTransaction ends them"
        if not count:
            return []
        return [Open(kind="transactions", what="transactions are open", count=count, advice=advice)]

    async def _popped(self) -> list[Open]:
        """Popped messages at RocketMQ; at ours they count as not consumed until acknowledged."""
        assert self._settings is not None
        if self._settings.get("popConsumerKVServiceEnable") == "true":
            self._unknown.append("popped messages that are not acknowledged, kept in RocksDB")
        topic = revive_topic(self.broker.cluster)
        count, written = await self._behind(topic, REVIVE_GROUP)
        if not count:
            return []
        idle = time.time() - written / 1000
        if idle < _POP_SETTLED:
            rest = f"popped messages and acknowledgements settle in {_POP_SETTLED - idle:.0f} s"
            return [Open(kind="pop", what=rest, count=count)]
        self._unknown.append(
            f"popped messages: at most {count} records of the revive log are not settled; those"
            " popped for more than a minute may not be acknowledged yet"
        )
        return []

    async def _behind(self, topic: str, group: str) -> tuple[int, int]:
        """How far the broker itself is behind in an internal topic, and the last store time."""
        try:
            stats = await self._topics.stats_at(self.broker.address, topic)
        except TopicNotFound:
            return 0, 0
        behind = written = 0
        for queue, bounds in stats.offset_table.items():
            if bounds.max_offset <= bounds.min_offset:
                continue
            here = MessageQueue(topic, self.broker.broker_name, queue.queue_id)
            position = await self._offsets.find_committed(group, here)
            behind += bounds.max_offset - max(position or 0, bounds.min_offset)
            written = max(written, bounds.last_update_timestamp)
        return max(behind, 0), written

    async def _replicas(self) -> list[Open]:
        broker = await self._servers.broker_at(self.broker.address)
        slaves = slaves_of(broker)
        if not slaves:
            self._remarks.append(
                "it has no replica: what it has stored cannot be read while it is stopped"
            )
            return []
        try:
            status = await self._brokers.ha_status(self.broker.address)
        except RequestCodeNotSupported:
            self._unknown.append("replicas: RocketMQ before 5.0 does not tell how far they are")
            return []
        missing = len(slaves) - len(status.ha_connection_info)
        found = [
            Open(kind="replicas", what=f"replica {each.addr} is behind", count=each.diff)
            for each in status.ha_connection_info
            if each.diff > 0
        ]
        if missing > 0:
            found.append(
                Open(
                    kind="replicas",
                    what=f"{missing} of {len(slaves)} slaves are not connected to it",
                    advice="start them, or unregister them",
                )
            )
        return found


def _end(bounds: Bounds) -> int:
    """The number of messages that a topic has ever had."""
    return sum(each.max_offset for each in bounds.values())


def _advice(found: Backlog) -> str:
    if found.members:
        return f"connected members: {found.members}"
    return (
        "nobody of it is connected: start it, skip its messages (skipAccumulatedMessage),"
        f" or leave it with --ignore-group {found.group}"
    )


def _timer(topic: str, count: int) -> Open:
    if topic.startswith(SYSTEM_TOPIC_PREFIX):  # RocketMQ's checkpoints of popped messages
        return Open(kind="pop", what="popped messages are in flight", count=count)
    return Open(kind="timers", what=f"timers of topic {topic} are not due yet", count=count)


def slaves_of(broker: BrokerRoute) -> tuple[str, ...]:
    return tuple(at for id_, at in sorted(broker.broker_addrs.items()) if id_ != MASTER)


def is_written(config: TopicConfig) -> bool:
    """Whether producers may send to a topic."""
    return bool(config.perm & WRITE) and is_of_users(config.topic_name)


def is_of_users(topic: str) -> bool:
    if topic == TRACE_TOPIC:
        return True
    own = topic in SYSTEM_TOPICS or topic.startswith(SYSTEM_TOPIC_PREFIX) or is_internal(topic)
    return not own and not topic.startswith(_OWN_KINDS)
