"""The metrics of a broker under the names, labels and units of RocketMQ 5.x; for threads."""

import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from bolide.broker.admin.runtime import broker_figures, statistics_figures
from bolide.broker.components import Parts
from bolide.broker.metadata.clients import Member
from bolide.broker.metadata.topics import system_topic_names
from bolide.broker.metrics.lag import GroupLag, QueueLag
from bolide.broker.timers.scheduler import TimerLag
from bolide.broker.transactions.open_halves import OpenHalves
from bolide.distribution import Distribution
from bolide.kernel import read_record
from bolide.metrics.families import Family, Kind, Scope, Series, truth
from bolide.metrics.requests import rpc_families
from bolide.model.names import HALF_TOPIC, SYSTEM_GROUP_PREFIX, SYSTEM_TOPIC_PREFIX, TIMER_TOPIC
from bolide.model.properties import PropertyName
from bolide.protocol.bodies.heartbeat import ConsumeType
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.record import Record
from bolide.remoting.latencies import RpcOutcome
from bolide.store.reading import ReadLimits
from bolide.version import version_name

METER = "broker-meter"

_MAX_HALVES = 2000
"""Open half messages that are read to tell their topics."""
_CONSUME_MODES = {
    ConsumeType.CONSUME_ACTIVELY: "pull",
    ConsumeType.CONSUME_PASSIVELY: "push",
    ConsumeType.CONSUME_POP: "pop",
}
_MAX_LANGUAGE = 32
_STORAGE = (("storage_medium", "disk"), ("storage_type", "local"))
_TIMER_SPANS = (5, 60, 300, 900, 3600, 14_400, 28_800, 86_400)

_CREATION_BOUNDS = (10, 100, 1000, 3000, 5000)
"""RocketMQ's buckets of the time to create a topic or a group, in milliseconds."""
_TOPIC_CHANGES = frozenset({
    RequestCode.UPDATE_AND_CREATE_TOPIC, RequestCode.UPDATE_AND_CREATE_TOPIC_LIST,
    RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC,
})  # fmt: skip
_GROUP_CHANGES = frozenset({
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
})  # fmt: skip


class Names:
    """Which topics and groups are the system's."""

    def __init__(self, parts: Parts) -> None:
        self._topics = system_topic_names(parts.cell.value)

    def is_system(self, topic: str, group: str = "") -> str:
        """As the value of a label."""
        is_system = (
            topic.startswith(SYSTEM_TOPIC_PREFIX)
            or topic in self._topics
            or group.lower().startswith(SYSTEM_GROUP_PREFIX.lower())
        )
        return truth(is_system)


def gauge(name: str, text: str, series: Iterable[Series], **rest: Any) -> Family:
    return Family(name, Kind.GAUGE, text, series, **rest)


def counter(name: str, text: str, series: Iterable[Series], **rest: Any) -> Family:
    return Family(name, Kind.COUNTER, text, series, **rest)


def histogram(
    name: str, text: str, found: Iterable[tuple[tuple[str, ...], Distribution]], **rest: Any
) -> Family:
    series = [(labels, each.copy()) for labels, each in found]
    return Family(name, Kind.HISTOGRAM, text, series, **rest)


# ---- numbers of topics and groups


@dataclass(frozen=True, slots=True)
class Sampled:
    """What only the event loop may look at, taken when a collection begins."""

    leads: bool
    """Whether this broker is a master or acts for one. A slave has the topics and offsets of its
    master, so that sums over all brokers would count them twice; a Java slave shows its lags."""
    waiting: int
    """Requests that wait for messages."""
    now_ms: int
    """By the clock of the pops."""
    pop_late: int
    """Milliseconds since the first lease of a pop expired."""
    timers: TimerLag
    halves: OpenHalves | None
    figures: Mapping[str, str]
    """Of the runtime information what is counted in memory."""

    @classmethod
    def of(cls, parts: Parts, boot_time: float, now: float) -> "Sampled":
        accepts_from = parts.cell.value.start_accept_send_request_time_stamp
        due, queue = parts.pop.state.next_due, parts.transactions.queue
        now_ms = parts.pop.state.now
        return cls(
            leads=parts.role.is_master or (parts.acting is not None and parts.acting.is_acting),
            waiting=parts.long_polling.waiting,
            now_ms=now_ms,
            pop_late=0 if due is None else max(now_ms - due, 0),
            timers=parts.timers.lag(),
            halves=queue.open.copy() if queue.is_loaded else None,
            figures=statistics_figures(parts.statistics, boot_time, now)
            | broker_figures({}, accepts_from, active=True),
        )


def stats_families(parts: Parts, scope: Scope, sampled: Sampled) -> Iterator[Family]:
    yield gauge(
        "rocketmq_broker_permission",
        "What clients may do: 4 read, 2 write, 6 both.",
        [((), parts.cell.value.broker_permission)],
        scope=scope,
    )
    yield gauge("rocketmq_topic_number", "Topics.", [((), len(parts.topics))], scope=scope)
    yield gauge(
        "rocketmq_consumer_group_number", "Consumer groups.", [((), len(parts.groups))], scope=scope
    )
    yield gauge(
        "bolide_long_polling_requests", "Requests that wait for messages.", [((), sampled.waiting)],
        scope=scope,
    )  # fmt: skip


# ---- messages in and out


def request_families(parts: Parts, scope: Scope, names: Names) -> Iterator[Family]:
    traffic = parts.statistics.traffic
    sent = list(traffic.sent.items())
    labels_in = ("topic", "message_type", "is_system")
    of = [((topic, kind, names.is_system(topic)), each) for (topic, kind), each in sent]
    yield counter(
        "rocketmq_messages_in_total", "Messages stored for producers.",
        [(labels, each.count) for labels, each in of], labels=labels_in, scope=scope,
    )  # fmt: skip
    yield counter(
        "rocketmq_throughput_in_total", "Bytes of their records.",
        [(labels, each.size) for labels, each in of], labels=labels_in, scope=scope,
    )  # fmt: skip
    yield histogram(
        "rocketmq_message_size", "Bytes of the record of a message.",
        [(labels, each.sizes) for labels, each in of], labels=labels_in, scope=scope,
    )  # fmt: skip
    labels_out = ("topic", "consumer_group", "is_system", "is_retry")
    out = [
        (
            (
                key.topic,
                key.group,
                names.is_system(key.topic, key.group),
                "" if key.is_retry is None else truth(key.is_retry),
            ),
            sums,
        )
        for key, sums in list(traffic.delivered.items())
    ]
    yield counter(
        "rocketmq_messages_out_total", "Messages delivered to consumers.",
        [(labels, sums[0]) for labels, sums in out], labels=labels_out, scope=scope,
    )  # fmt: skip
    yield counter(
        "rocketmq_throughput_out_total", "Bytes of their records.",
        [(labels, sums[1]) for labels, sums in out], labels=labels_out, scope=scope,
    )  # fmt: skip
    requests = parts.dispatcher.latencies.snapshot()
    yield histogram(
        "rocketmq_topic_create_execution_time", "Time to create or change a topic.",
        [((status, "false"), each) for status, each in _creations(requests, _TOPIC_CHANGES)],
        unit="milliseconds", labels=("invocation_status", "is_system"), scope=scope,
    )  # fmt: skip
    yield histogram(
        "rocketmq_consumer_group_create_execution_time", "Time to create or change a group.",
        [((status,), each) for status, each in _creations(requests, _GROUP_CHANGES)],
        unit="milliseconds", labels=("invocation_status",), scope=scope,
    )  # fmt: skip


def _creations(
    requests: Iterable[tuple[RpcOutcome, Distribution]], codes: frozenset[int]
) -> list[tuple[str, Distribution]]:
    """The times of some requests, by whether they succeeded."""
    found: dict[str, Distribution] = {}
    for outcome, each in requests:
        if outcome.request_code in codes:
            is_done = outcome.response_code == ResponseCode.SUCCESS
            status = "success" if is_done else "failure"
            found.setdefault(status, Distribution(_CREATION_BOUNDS)).merge(
                each.within(_CREATION_BOUNDS)
            )
    return list(found.items())


# ---- connections


def connection_families(parts: Parts, scope: Scope, names: Names) -> Iterator[Family]:
    producers: Counter[tuple[str, ...]] = Counter()
    for group in parts.clients.producer_groups():
        for member in parts.clients.producers(group):
            producers[_language(member), _version(member.version), "remoting"] += 1
    yield gauge(
        "rocketmq_producer_connections", "Connected producers.", list(producers.items()),
        labels=("language", "version", "protocol_type"), scope=scope,
    )  # fmt: skip
    consumers: Counter[tuple[str, ...]] = Counter()
    for found in parts.clients.consumer_groups():
        mode = _CONSUME_MODES[found.consume_type]
        is_system = names.is_system("", found.name)
        for member in found.members:
            version = _version(member.version)
            consumers[found.name, _language(member), version, mode, "remoting", is_system] += 1
    yield gauge(
        "rocketmq_consumer_connections", "Connected consumers.", list(consumers.items()),
        labels=(
            "consumer_group", "language", "version", "consume_mode", "protocol_type", "is_system",
        ),
        scope=scope,
    )  # fmt: skip


def _language(member: Member) -> str:
    """The client says it."""
    return member.language.lower()[:_MAX_LANGUAGE]


def _version(number: int) -> str:
    return version_name(number).lower()


# ---- lag


def lag_families(
    parts: Parts, scope: Scope, names: Names, lags: list[GroupLag], now: float
) -> Iterator[Family]:
    labels = ("consumer_group", "topic", "is_retry", "is_system")

    def of(value: Callable[[GroupLag], float]) -> list[Series]:
        return [
            (
                (
                    each.group,
                    each.topic,
                    truth(each.is_retry),
                    names.is_system(each.topic, each.group),
                ),
                value(each),
            )
            for each in lags
        ]

    def age(times: list[int]) -> int:
        oldest = min(filter(None, times), default=0)
        return max(int(now * 1000) - oldest, 0) if oldest else 0

    yield gauge(
        "rocketmq_consumer_lag_messages", "Messages that a group has not acknowledged.",
        of(lambda lag: sum(each.messages for each in lag.queues)), labels=labels, scope=scope,
    )  # fmt: skip
    yield gauge(
        "rocketmq_consumer_lag_latency", "Age of the oldest of them.",
        of(lambda lag: age([each.oldest for each in lag.queues])),
        unit="milliseconds", labels=labels, scope=scope,
    )  # fmt: skip
    yield gauge(
        "rocketmq_consumer_inflight_messages", "Messages delivered and not acknowledged.",
        of(lambda lag: sum(each.in_flight for each in lag.queues)), labels=labels, scope=scope,
    )  # fmt: skip
    yield gauge(
        "rocketmq_consumer_queueing_latency", "Age of the oldest message not delivered yet.",
        of(lambda lag: age([each.next_stored for each in lag.queues])),
        unit="milliseconds", labels=labels, scope=scope,
    )  # fmt: skip
    yield gauge(
        "rocketmq_consumer_ready_messages", "Messages not delivered yet.",
        of(lambda lag: sum(each.ready for each in lag.queues)), labels=labels, scope=scope,
    )  # fmt: skip
    dead = list(parts.statistics.traffic.dead.items())
    yield counter(
        "rocketmq_send_to_dlq_messages_total", "Messages moved to dead letter topics.",
        [((group, topic, names.is_system(topic, group)), count) for (group, topic), count in dead],
        labels=("consumer_group", "topic", "is_system"), scope=scope,
    )  # fmt: skip


def queue_families(lags: list[GroupLag], scope: Scope, now: float) -> Iterator[Family]:
    """The lag of each group in each queue: names of our own."""
    labels = ("consumer_group", "topic", "queue_id", "is_retry")

    def of(value: Callable[[QueueLag], float]) -> Iterator[Series]:
        for lag in lags:
            retry = truth(lag.is_retry)
            for each in lag.queues:
                yield (lag.group, lag.topic, str(each.queue_id), retry), value(each)

    yield gauge(
        "bolide_queue_lag_messages", "Messages of a queue that a group has not acknowledged.",
        of(lambda each: each.messages), labels=labels, scope=scope,
    )  # fmt: skip
    yield gauge(
        "bolide_queue_lag_seconds", "Age of the oldest of them.",
        of(lambda each: max(round(now - each.oldest / 1000, 3), 0.0) if each.oldest else 0),
        labels=labels, scope=scope,
    )  # fmt: skip


# ---- transactions


def transaction_families(parts: Parts, scope: Scope, sampled: Sampled) -> Iterator[Family]:
    traffic = parts.statistics.traffic
    labels = ("topic",)
    yield counter(
        "rocketmq_commit_messages_total", "Transactions committed.",
        [((topic,), count) for topic, count in list(traffic.committed.items())],
        labels=labels, scope=scope,
    )  # fmt: skip
    yield counter(
        "rocketmq_rollback_messages_total", "Transactions rolled back.",
        [((topic,), count) for topic, count in list(traffic.rolled_back.items())],
        labels=labels, scope=scope,
    )  # fmt: skip
    # RocketMQ names milliseconds and records seconds.
    yield histogram(
        "rocketmq_finish_message_latency",
        "Seconds, in spite of the name, from a message to its commit.",
        [((topic,), each) for topic, each in list(traffic.finish_times.items())],
        unit="milliseconds", labels=labels, scope=scope,
    )  # fmt: skip
    yield gauge(
        "rocketmq_half_messages", "Messages of open transactions.",
        half_messages(parts, sampled.halves), labels=labels, scope=scope,
    )  # fmt: skip


def half_messages(parts: Parts, opened: OpenHalves | None) -> list[Series]:
    """Open half messages by topic; those beyond a limit without topic."""
    if opened is None:
        return []
    store, end = parts.store, parts.store.max_offset(HALF_TOPIC, 0)
    whole, found = opened.count(end), Counter[str]()
    for offset in islice(opened.between(opened.first, end), _MAX_HALVES):
        result = store.read(HALF_TOPIC, 0, offset, ReadLimits(1, 1, 1))
        record = read_record(bytes(result.records[0])) if result.records else None
        if isinstance(record, Record):
            found[record.decode_properties().get(PropertyName.REAL_TOPIC, "")] += 1
    if whole > _MAX_HALVES:
        found[""] += whole - _MAX_HALVES
    return [((topic,), count) for topic, count in found.items()]


# ---- requests


def remoting_families(parts: Parts, scope: Scope) -> Iterator[Family]:
    yield from rpc_families(parts.dispatcher.latencies.snapshot(), scope)
    if parts.fast_path is None:
        return
    found = parts.fast_path.fall_throughs
    yield counter(
        "bolide_fast_path_served_total", "Messages and pulls that compiled code has served.",
        [(("sends",), found.served_sends), (("pulls",), found.served_pulls)],
        labels=("kind",), scope=scope,
    )  # fmt: skip
    yield counter(
        "bolide_fast_path_fall_throughs_total", "Requests left to the handlers, and why.",
        [((reason.lower(),), count) for reason, count in found.counts.items()],
        labels=("reason",), scope=scope,
    )  # fmt: skip


# ---- the store and its timers


def store_families(parts: Parts, scope: Scope, sampled: Sampled, now: float) -> Iterator[Family]:
    store = parts.store
    scope = Scope(scope.labels + _STORAGE, scope.meter)
    usage = shutil.disk_usage(_existing(store.config.value.root))
    yield gauge(
        "rocketmq_storage_size", "Used bytes of the partition that has the store.",
        [((), usage.total - usage.free)], unit="bytes", scope=scope,
    )  # fmt: skip
    yield gauge(
        "rocketmq_storage_flush_behind_bytes", "Bytes of the commit log not on the disk yet.",
        [((), max(store.log.written - store.flushed, 0))], unit="bytes", scope=scope,
    )  # fmt: skip
    yield gauge(
        "rocketmq_storage_dispatch_behind_bytes",
        "Bytes of the commit log that are not in consume queues yet.",
        [((), max(store.log.end - store.sound_end, 0))], unit="bytes", scope=scope,
    )  # fmt: skip
    earliest = store.earliest_log_time()
    if earliest > 0:
        yield gauge(
            "rocketmq_storage_message_reserve_time", "Age of the oldest message.",
            [((), max(int(now * 1000) - earliest, 0))], unit="milliseconds", scope=scope,
        )  # fmt: skip
    if parts.cell.value.timer_wheel_enable:
        yield from _timer_families(parts, scope, sampled.timers, now)


def _timer_families(parts: Parts, scope: Scope, lag: TimerLag, now: float) -> Iterator[Family]:
    timers, labels = parts.timers, ("topic",)
    first = parts.store.unit_stored_at(TIMER_TOPIC, 0, lag.next_offset) if lag.behind else 0
    yield gauge(
        "rocketmq_timer_enqueue_lag", "Timer messages not in the wheel yet.",
        [((), lag.behind)], scope=scope,
    )  # fmt: skip
    yield gauge(
        "rocketmq_timer_enqueue_latency", "Age of the oldest of them.",
        [((), max(int(now * 1000) - first, 0) if first > 0 else 0)],
        unit="milliseconds", scope=scope,
    )  # fmt: skip
    yield gauge(
        "rocketmq_timer_dequeue_lag", "Timer messages that wait for their time.",
        [((), timers.counts.total)], scope=scope,
    )  # fmt: skip
    # RocketMQ names milliseconds and exposes seconds.
    yield gauge(
        "rocketmq_timer_dequeue_latency",
        "Seconds, in spite of the name, for which the first of them is due.",
        [((), lag.late_seconds)], unit="milliseconds", scope=scope,
    )  # fmt: skip
    counts = timers.counts
    yield gauge(
        "rocketmq_timing_messages", "Timer messages that wait.",
        [((topic,), each.count) for topic, each in list(counts.table.timing_count.items())],
        labels=labels, scope=scope,
    )  # fmt: skip
    yield counter(
        "rocketmq_timer_enqueue_total", "Timer messages put into the wheel.",
        [((topic,), count) for topic, count in list(counts.arrived.items())],
        labels=labels, scope=scope,
    )  # fmt: skip
    yield counter(
        "rocketmq_timer_dequeue_total", "Timer messages delivered.",
        [((topic,), count) for topic, count in list(counts.delivered.items())],
        labels=labels, scope=scope,
    )  # fmt: skip
    yield gauge(
        "rocketmq_timer_message_snapshot",
        "Timer messages that are due within so many seconds, and later than the bound before.",
        [((str(bound),), count) for bound, count in timers.due_counts(_TIMER_SPANS)],
        labels=("timer_bound_s",), scope=scope,
    )  # fmt: skip
    yield histogram(
        "rocketmq_delay_message_latency", "Delays that timer messages ask for.",
        [((topic,), each) for topic, each in list(counts.delays.items())],
        unit="seconds", labels=labels, scope=scope,
    )  # fmt: skip


def _existing(path: Path) -> Path:
    while not path.exists():
        path = path.parent
    return path


# ---- POP


def pop_families(parts: Parts, scope: Scope, sampled: Sampled) -> Iterator[Family]:
    state = parts.pop.state
    yield gauge(
        "rocketmq_pop_checkpoint_buffer_size", "Pops with unacknowledged messages.",
        [((), len(state))], scope=scope,
    )  # fmt: skip
    yield gauge(
        "rocketmq_pop_offset_buffer_size", "Popped queues whose offset is to be committed.",
        [((), len(state.changed))], scope=scope,
    )  # fmt: skip
    yield gauge(
        "rocketmq_pop_revive_lag",
        "Expired pops that wait to be revived: a number, in spite of the name.",
        [(("0",), state.overdue(sampled.now_ms))],
        unit="milliseconds", labels=("queue_id",), scope=scope,
    )  # fmt: skip
    yield gauge(
        "rocketmq_pop_revive_latency", "For how long the first expired pop waits to be revived.",
        [(("0",), sampled.pop_late)], unit="milliseconds", labels=("queue_id",), scope=scope,
    )  # fmt: skip
    revived = list(parts.statistics.traffic.revived.items())
    yield counter(
        "rocketmq_pop_revive_retry_messages_total", "Popped messages put into retry topics.",
        [((group, topic, "PUT_OK"), count) for (group, topic), count in revived],
        labels=("consumer_group", "topic", "put_status"), scope=scope,
    )  # fmt: skip
