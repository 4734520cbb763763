"""Timers: messages with a delivery time that is not due yet, and how they are recalled.

Bolide's brokers list their pending timers. RocketMQ has no request for that: it tells only how many
each topic has, since 5.0.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from bolide.admin.servers import MASTER, gather_by_key
from bolide.errors import BolideError
from bolide.model.names import SYSTEM_TOPIC_PREFIX
from bolide.operations.cluster import Cluster
from bolide.operations.declaration import change, read
from bolide.operations.errors import BadInput, NotFound, NotSupported
from bolide.operations.held.delays import DelayLevel, waiting_by_level
from bolide.operations.servers.missing import NO_BROKER, missing_brokers
from bolide.operations.views import reason_of
from bolide.protocol.bodies.timers import PendingTimer
from bolide.protocol.refusals import RequestCodeNotSupported

_MAX_SIZE = 500
_MAX_PLAN_READS = 20_000
"""Timers that a preview of a recall reads."""
_NO_STORE = "timer message store is null"
"""What RocketMQ says of timers that are switched off."""
_SWITCHED_OFF = "its timers are switched off (timerWheelEnable=false): it has only delay levels"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicTimers:
    """How many timers of a topic are pending at a broker."""

    topic: str
    timers: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerTimers:
    """The pending timers of a broker, by number."""

    broker: str
    address: str
    lists: bool | None
    """Whether the broker can list them, as Bolide's do; None if it does not answer."""
    timers: int | None
    """None if the broker does not tell. Recalled ones count until they would have been due."""
    topics: list[TopicTimers]
    """Those with timers, the most first."""
    failure: str = ""
    """Why the broker does not tell."""
    levels: list[DelayLevel] | None = None
    """Messages with a delay level, and retries, which are no timers; None if unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimerCounts:
    """The pending timers of all brokers, by number."""

    brokers: list[BrokerTimers]


@dataclass(frozen=True, slots=True, kw_only=True)
class Timer:
    """A message that waits for its time; times are milliseconds since 1970."""

    topic: str
    due_ms: int
    message_id: str
    keys: list[str]
    tags: str | None
    stored_ms: int
    size: int
    """Bytes of the body."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timers:
    """A part of the list of pending timers of a broker, by due time."""

    broker: str
    items: list[Timer]
    next: str
    """Cursor of the next part; empty after the last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecallPlan:
    """What a recall would do."""

    broker: str
    items: list[Timer]
    is_complete: bool
    """False if there are too many timers to look at all of them: more may have the key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recalled:
    """Timers that will not be delivered."""

    broker: str
    items: list[Timer] = field(default_factory=list)


@read("/timers/counts")
async def count_timers(cluster: Cluster) -> TimerCounts:
    """Count the pending timers of each broker by topic, and what waits at its delay levels.

    Works with RocketMQ, too. `lists` tells which brokers `list_timers` can be asked of.
    """
    masters = await masters_of(cluster)

    async def counts(name: str) -> BrokerTimers:
        timers = await _counts(cluster, name, masters[name])
        return replace(timers, levels=await _levels(cluster, masters[name]))

    found = await gather_by_key(masters, counts)
    away = [
        BrokerTimers(
            broker=each.server, address="", lists=None, timers=None, topics=[], failure=each.reason
        )
        for each in await missing_brokers(cluster, masters=True)
        if each.reason != NO_BROKER
    ]
    return TimerCounts(brokers=[*found.values(), *away])


@read("/timers")
async def list_timers(
    cluster: Cluster, *, broker: str = "", topic: str = "", cursor: str = "", size: int = 50
) -> Timers:
    """List the pending timers of a broker, those due first at the beginning.

    Without `broker`, that is the first one by name. Timers due days ahead come at the end, and not
    in order of their time. `next` is the `cursor` of the next part.
    """
    name, address = await _broker(cluster, broker)
    try:
        found = await cluster.admin.timers.page(
            address, topic, begin=cursor, limit=min(max(size, 1), _MAX_SIZE)
        )
    except RequestCodeNotSupported as error:
        raise not_listed(name) from error
    return Timers(broker=name, items=_views(found.timers), next=found.next)


async def plan_recall(cluster: Cluster, *, broker: str, topic: str, key: str) -> RecallPlan:
    """The timers that `recall_timers` would recall."""
    name, address = await _broker(cluster, broker)
    _check_key(topic, key)
    found: list[PendingTimer] = []
    cursor, left = "", _MAX_PLAN_READS
    try:
        while left > 0:
            page = await cluster.admin.timers.page(address, topic, begin=cursor, limit=_MAX_SIZE)
            found += [
                each for each in page.timers if key == each.message_id or key in each.keys.split()
            ]
            cursor, left = page.next, left - _MAX_SIZE
            if not cursor:
                break
    except RequestCodeNotSupported as error:
        raise not_listed(name) from error
    return RecallPlan(broker=name, items=_views(found), is_complete=not cursor)


@change(
    "POST", "/timers/recall", target="timers of {topic} with {key} at {broker}", preview=plan_recall
)
async def recall_timers(cluster: Cluster, *, broker: str, topic: str, key: str) -> Recalled:
    """Recall the pending timers of a topic that have a key or a unique id.

    They are never delivered, and cannot be restored. Another broker may have timers with the same
    key: recall them there, too.
    """
    name, address = await _broker(cluster, broker)
    _check_key(topic, key)
    try:
        found = await cluster.admin.timers.recall(address, topic, key)
    except RequestCodeNotSupported as error:
        raise not_listed(name) from error
    if not found:
        raise NotFound(f"no message of {topic} with {key!r} waits at {name}: it may be delivered")
    return Recalled(broker=name, items=_views(found))


async def masters_of(cluster: Cluster) -> dict[str, str]:
    """The address of the master of each broker group that has one, by name."""
    info = await cluster.shared("cluster info", cluster.admin.clusters.info, seconds=3)
    return {
        name: broker.broker_addrs[MASTER]
        for name, broker in sorted(info.broker_addr_table.items())
        if MASTER in broker.broker_addrs
    }


async def master_of(cluster: Cluster, broker: str) -> tuple[str, str]:
    """The name and the address of the master of a broker, by default of the first by name."""
    masters = await masters_of(cluster)
    if not masters:
        raise NotFound("no broker has a master now")
    name = broker or next(iter(masters))
    if name not in masters:
        raise BadInput("broker", f"{broker!r} is none of {', '.join(masters)}")
    return name, masters[name]


def not_listed(broker: str) -> NotSupported:
    return NotSupported(
        f"broker {broker} does not list its timers: only Bolide's brokers do. RocketMQ 5 tells how"
        " many there are (/timers/counts), and a producer can recall a message with its handle"
    )


async def _broker(cluster: Cluster, broker: str) -> tuple[str, str]:
    return await master_of(cluster, broker)


async def _levels(cluster: Cluster, address: str) -> list[DelayLevel] | None:
    try:
        return await waiting_by_level(cluster, address)
    except BolideError:
        return None


async def _counts(cluster: Cluster, name: str, address: str) -> BrokerTimers:
    lists: bool | None = True
    try:
        await cluster.shared(
            f"lists timers {address}", lambda: cluster.admin.timers.page(address, limit=1),
            seconds=5,
        )  # fmt: skip
    except RequestCodeNotSupported:
        lists = False
    except BolideError as error:
        failed = reason_of(error)
        return BrokerTimers(
            broker=name, address=address, lists=None, timers=None, topics=[], failure=failed
        )
    try:
        metrics = await cluster.shared(
            f"timer metrics {address}", lambda: cluster.admin.brokers.timer_metrics(address),
            seconds=5,
        )  # fmt: skip
    except RequestCodeNotSupported:
        failed = "RocketMQ before 5.0 has no timers, only delay levels"
        return BrokerTimers(
            broker=name, address=address, lists=lists, timers=None, topics=[], failure=failed
        )
    except BolideError as error:
        failed = _SWITCHED_OFF if _NO_STORE in str(error) else reason_of(error)
        return BrokerTimers(
            broker=name, address=address, lists=lists, timers=None, topics=[], failure=failed
        )
    topics = [
        TopicTimers(topic=topic, timers=each.count)
        for topic, each in metrics.timing_count.items()
        if each.count > 0 and not topic.startswith(SYSTEM_TOPIC_PREFIX)
    ]
    return BrokerTimers(
        broker=name,
        address=address,
        lists=lists,
        timers=sum(each.timers for each in topics),
        topics=sorted(topics, key=lambda each: (-each.timers, each.topic)),
    )


def _views(found: Iterable[PendingTimer]) -> list[Timer]:
    return [
        Timer(
            topic=each.topic,
            due_ms=each.deliver_ms,
            message_id=each.message_id,
            keys=each.keys.split(),
            tags=each.tags or None,
            stored_ms=each.store_timestamp,
            size=each.size,
        )
        for each in found
    ]


def _check_key(topic: str, key: str) -> None:
    if not topic:
        raise BadInput("topic", "name the topic of the messages")
    if not key.strip():
        raise BadInput("key", "give a key or the unique id of the messages")
