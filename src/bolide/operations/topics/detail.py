"""One topic: its settings on each broker, its queues, and the groups that consume it."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import TypeVar

from bolide.admin.errors import GroupUnknown
from bolide.admin.servers import address_of, gather_answers, gather_by_key
from bolide.admin.traffic import messages_of_day
from bolide.errors import BolideError
from bolide.model.names import READ, WRITE
from bolide.operations.cluster import Cluster
from bolide.operations.declaration import read
from bolide.operations.servers.missing import missing_brokers
from bolide.operations.topics.figures import (
    LIVE_SECONDS,
    distinct,
    failures_of,
    last_write,
    merged_stats,
    named_failure,
    require_route,
    stored,
    visible_figures,
)
from bolide.operations.topics.table import (
    MESSAGE_TYPE,
    TopicKind,
    TopicPermission,
    kind_of,
    system_topics,
)
from bolide.operations.views import Failure, Page, failure_of, page_of
from bolide.protocol.bodies.routes import BrokerRoute, TopicRoute
from bolide.protocol.bodies.topics import TopicConfig, TopicStats
from bolide.protocol.refusals import ServerError
from bolide.protocol.static_topics.addressing import is_logical

T = TypeVar("T")

_MASTER = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicBroker:
    """A topic on one broker."""

    broker: str
    cluster: str
    address: str
    has_master: bool
    """Without one, nothing can be written or changed there."""
    read_queues: int | None = None
    write_queues: int | None = None
    permission: TopicPermission | None = None
    route_permission: TopicPermission | None = None
    """What the NameServer tells clients; another one while the broker is drained."""
    is_ordered: bool | None = None
    message_type: str | None = None
    attributes: dict[str, str] = field(default_factory=dict)
    messages: int | None = None
    last_write_ms: int | None = None
    rate_in: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDetail:
    """One topic."""

    topic: str
    kind: TopicKind
    is_static: bool
    """Whether its queues are logical ones, mapped to those of brokers."""
    brokers: list[TopicBroker]
    differing: list[str]
    """Settings that are not the same on all brokers."""
    order_conf: str | None
    """The fixed queues of an ordered topic, `broker:queues;broker:queues`."""
    messages: int | None
    last_write_ms: int | None
    rate_in: float | None
    average_bytes: float | None
    """Mean size of the messages of the last day, as the brokers counted them."""
    bytes: int | None
    """Of all messages; see `is_estimated`."""
    is_estimated: bool
    """Whether `bytes` is the mean size times the number of messages."""
    failures: list[Failure] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicQueue:
    """One queue of a topic."""

    broker: str
    queue: int
    min_offset: int
    max_offset: int
    messages: int
    last_write_ms: int | None
    is_readable: bool
    is_writable: bool
    is_logical: bool = False
    """Of a static topic; its messages are in the queues of brokers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicGroup:
    """A group that consumes, or has consumed, a topic."""

    group: str
    members: int | None
    lag: int | None
    """Messages of this topic that it has not consumed."""
    delay_ms: int | None
    """Age of the oldest of them; 0 without lag."""
    last_consumed_ms: int | None
    """Store time of the newest message that it has consumed."""


@read("/topics/{topic}")
async def show_topic(cluster: Cluster, *, topic: str) -> TopicDetail:
    """Show one topic: on which brokers it is, with which settings, and how much is in it."""
    return await cluster.shared(
        f"topic detail {topic}", lambda: _detail(cluster, topic), seconds=LIVE_SECONDS
    )


@read("/topics/{topic}/queues")
async def list_queues(
    cluster: Cluster, *, topic: str, broker: str = "", page: int = 1, size: int = 100
) -> Page[TopicQueue]:
    """List the queues of a topic with their bounds, by broker and number."""
    route = await require_route(cluster, topic)
    stats, failures = await _stats(cluster, topic, route)
    failures = [*failures, *await missing_brokers(cluster)]
    data = {each.broker_name: each for each in route.queue_datas}
    queues = []
    for queue, bounds in sorted(stats.offset_table.items()):
        if broker and queue.broker_name != broker:
            continue
        on = data.get(queue.broker_name)
        reads, writes = (on.read_queue_nums, on.write_queue_nums) if on else (0, 0)
        perm, logical = on.perm if on else READ | WRITE, is_logical(queue.broker_name)
        queues.append(
            TopicQueue(
                broker=queue.broker_name,
                queue=queue.queue_id,
                min_offset=bounds.min_offset,
                max_offset=bounds.max_offset,
                messages=stored(bounds),
                last_write_ms=bounds.last_update_timestamp or None,
                is_readable=logical or bool(perm & READ and queue.queue_id < reads),
                is_writable=logical or bool(perm & WRITE and queue.queue_id < writes),
                is_logical=logical,
            )
        )
    return page_of(queues, page=page, size=size, failures=failures)


@read("/topics/{topic}/groups")
async def list_groups(
    cluster: Cluster, *, topic: str, search: str = "", page: int = 1, size: int = 50
) -> Page[TopicGroup]:
    """List the groups that consume a topic, or have offsets in it, by name."""
    await require_route(cluster, topic)
    names, failed = await cluster.shared(
        f"topic groups {topic}",
        lambda: cluster.admin.topics.groups_and_failures(topic),
        seconds=LIVE_SECONDS,
    )
    found = [name for name in names if search.strip().lower() in name.lower()]
    failures = [*map(named_failure, failed), *await missing_brokers(cluster)]
    shown = page_of(found, page=page, size=size, failures=failures)
    groups = await gather_by_key(
        shown.items,
        lambda group: cluster.shared(
            f"topic group {topic} {group}",
            lambda: _group(cluster, topic, group),
            seconds=LIVE_SECONDS,
        ),
    )
    return Page(
        items=[each for each, _ in groups.values()],
        total=shown.total,
        page=shown.page,
        size=shown.size,
        failures=[
            *shown.failures,
            *distinct(f for _, missing in groups.values() for f in missing),
        ],
    )


async def _detail(cluster: Cluster, topic: str) -> TopicDetail:
    route = await require_route(cluster, topic)
    data = {each.broker_name: each for each in route.queue_datas}
    order_conf = None
    parts: dict[str, tuple[TopicBroker, TopicConfig | None, list[Failure]]]
    parts = await gather_by_key(
        sorted(each.broker_name for each in route.broker_datas if each.broker_addrs),
        lambda name: _on_broker(
            cluster, topic, next(b for b in route.broker_datas if b.broker_name == name)
        ),
    )
    brokers = []
    for name, (part, _, _) in parts.items():
        told = TopicPermission.of(data[name].perm) if name in data else None
        brokers.append(replace(part, route_permission=told))
    configs = [config for _, config, _ in parts.values() if config is not None]
    away = await missing_brokers(cluster)
    failures = [failure for _, _, missing in parts.values() for failure in missing]
    failures += away
    if any(each.order for each in configs):
        try:
            order_conf = await cluster.admin.name_servers.find_order_conf(topic)
        except BolideError as error:
            failures.append(named_failure(error))
    counts = _all_known(each.messages for each in brokers)
    messages = None if counts is None else sum(counts)
    if away:  # what is stored there is not known
        messages = messages or None
    average = await _average_bytes(cluster, topic, brokers)
    figures = (await visible_figures(cluster, [topic])).get(topic)
    size = figures.bytes if figures else None
    if average is not None and messages is not None:
        size = round(average * messages)
    writes = [each.last_write_ms for each in brokers if each.last_write_ms]
    rate = figures.rate_in if figures else None
    if rate is None and (rates := _all_known(each.rate_in for each in brokers)) is not None:
        rate = sum(rates)
    if away:
        rate = rate or None
    if rate == 0:  # then no broker gets anything
        brokers = [replace(each, rate_in=0.0) for each in brokers]
    return TopicDetail(
        topic=topic,
        kind=kind_of(topic, await system_topics(cluster), configs),
        is_static=bool(route.topic_queue_mapping_by_broker),
        brokers=brokers,
        differing=_differing(configs),
        order_conf=order_conf,
        messages=messages,
        last_write_ms=max(writes, default=None),
        rate_in=rate,
        average_bytes=average,
        bytes=size,
        is_estimated=bool(size),
        failures=distinct(failures),
    )


async def _on_broker(
    cluster: Cluster, topic: str, route: BrokerRoute
) -> tuple[TopicBroker, TopicConfig | None, list[Failure]]:
    address = address_of(route)
    part = TopicBroker(
        broker=route.broker_name,
        cluster=route.cluster or "",
        address=address,
        has_master=_MASTER in route.broker_addrs,
    )
    config, failures = None, list[Failure]()
    try:
        stats = await cluster.admin.topics.stats_at(address, topic)
    except BolideError as error:
        failures.append(failure_of(address, error))
    else:
        ends = stats.offset_table.values()
        part = replace(
            part,
            messages=sum(map(stored, ends)),
            last_write_ms=last_write(ends),
            rate_in=stats.topic_put_tps or None,
        )
    try:
        config = await cluster.admin.topics.config(address, topic)
    except BolideError as error:
        failures.append(failure_of(address, error))
    else:
        part = replace(
            part,
            read_queues=config.read_queue_nums,
            write_queues=config.write_queue_nums,
            permission=TopicPermission.of(config.perm),
            is_ordered=config.order,
            message_type=config.attributes.get(MESSAGE_TYPE),
            attributes=dict(sorted(config.attributes.items())),
        )
    return part, config, failures


async def _average_bytes(
    cluster: Cluster, topic: str, brokers: Iterable[TopicBroker]
) -> float | None:
    """The mean size of the messages of the last day; None if none came, or a broker is silent."""
    count = size = 0
    for each in brokers:
        try:
            told = cluster.admin.brokers.stats
            size += messages_of_day(await told(each.address, "TOPIC_PUT_SIZE", topic))
            count += messages_of_day(await told(each.address, "TOPIC_PUT_NUMS", topic))
        except ServerError as error:
            if "not exist" not in error.remark:  # nothing was counted at this broker
                return None
        except BolideError:
            return None
    return size / count if count else None


async def _stats(
    cluster: Cluster, topic: str, route: TopicRoute
) -> tuple[TopicStats, list[Failure]]:
    """The bounds of the queues at the brokers that answer; of a static topic the logical ones."""
    if route.topic_queue_mapping_by_broker:
        failures: list[Failure] = []
        stats = await cluster.admin.topics.stats(
            topic, on_failure=lambda error: failures.append(named_failure(error))
        )
        return stats, failures
    addresses = [address_of(each) for each in route.broker_datas if each.broker_addrs]
    stats, errors = await cluster.shared(
        f"topic queues {topic}",
        lambda: merged_stats(cluster, topic, addresses),
        seconds=LIVE_SECONDS,
    )
    if errors and len(errors) == len(addresses):
        raise next(iter(errors.values()))
    return stats, failures_of(errors)


async def _group(cluster: Cluster, topic: str, group: str) -> tuple[TopicGroup, list[Failure]]:
    admin = cluster.admin
    addresses = (await admin.topics.addresses(topic)).values()
    parts, failed = await gather_answers(
        addresses, lambda at: admin.offsets.progress_at(at, group, topic)
    )
    failures = [*map(named_failure, failed)]
    lag = delay = None
    progress = [each for part in parts.values() for each in part.offset_table.values()]
    if not failed:
        lag = sum(max(each.broker_offset - max(each.consumer_offset, 0), 0) for each in progress)
        delay = 0 if lag == 0 else await _delay(cluster, topic, group)
    consumed = [each.last_timestamp for each in progress if each.last_timestamp > 0]
    return TopicGroup(
        group=group,
        members=await _members(cluster, group),
        lag=lag,
        delay_ms=delay,
        last_consumed_ms=max(consumed, default=None),
    ), failures


async def _delay(cluster: Cluster, topic: str, group: str) -> int | None:
    try:
        spans = await cluster.admin.offsets.time_spans(group, topic)
    except BolideError:  # the brokers do not tell, or not to this user
        return None
    return max((max(each.delay_time, 0) for each in spans), default=None)


async def _members(cluster: Cluster, group: str) -> int | None:
    try:
        found, failures = await cluster.admin.clients.consumers_and_failures(group)
    except BolideError as error:
        return 0 if isinstance(error, GroupUnknown) else None
    if failures:
        return None
    return len(found.connection_set) if found else 0


def _all_known(values: Iterable[T | None]) -> list[T] | None:
    """The values; None if one is unknown, or there is none."""
    found = [*values]
    known = [each for each in found if each is not None]
    return known if known and len(known) == len(found) else None


def _differing(configs: list[TopicConfig]) -> list[str]:
    shapes = [
        {
            "read_queues": each.read_queue_nums,
            "write_queues": each.write_queue_nums,
            "permission": each.perm,
            "order": each.order,
            "filter_type": each.topic_filter_type,
            "system_flag": each.topic_sys_flag,
            "attributes": each.attributes,
        }
        for each in configs
    ]
    return [name for name in (shapes or [{}])[0] if any(s[name] != shapes[0][name] for s in shapes)]
