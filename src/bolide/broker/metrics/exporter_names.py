"""The metrics of a broker under the names and labels of rocketmq-exporter; for threads.

The exporter asks brokers with admin requests and shows what they answer. Here the same figures are
shown without it. Names with a unit of time have milliseconds.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from bolide.broker.admin.runtime import store_figures
from bolide.broker.components import Parts
from bolide.broker.metrics.lag import GroupLag, QueueLag
from bolide.broker.metrics.slave_names import names_of_slaves
from bolide.broker.replicas.master import MasterReplication
from bolide.broker.settings.config import BrokerConfig
from bolide.metrics.families import Family, Kind, Series
from bolide.model.names import (
    DEAD_LETTER_PREFIX,
    SYSTEM_GROUP_PREFIX,
    is_dead_letter_topic,
    is_retry_topic,
)
from bolide.protocol.bodies.heartbeat import MessageModel
from bolide.remoting.address import format_address
from bolide.version import ROCKETMQ_VERSION, ROCKETMQ_VERSION_NAME

_TOPIC = ("cluster", "broker", "topic")
_GROUP = ("cluster", "broker", "topic", "group")
_BROKER = ("cluster", "brokerIP", "broker")
_DIFF = ("group", "topic", "countOfOnlineConsumers", "msgModel")
_RUNTIME = ("cluster", "brokerIP", "brokerHost", "des", "boottime", "broker_version")

_FIGURES = {
    "msg_put_total_today_now": "msgPutTotalTodayNow",
    "msg_gettotal_today_now": "msgGetTotalTodayNow",
    "msg_gettotal_yesterdaymorning": "msgGetTotalYesterdayMorning",
    "msg_puttotal_yesterdaymorning": "msgPutTotalYesterdayMorning",
    "msg_gettotal_todaymorning": "msgGetTotalTodayMorning",
    "msg_puttotal_todaymorning": "msgPutTotalTodayMorning",
    "dispatch_behind_bytes": "dispatchBehindBytes",
    "put_message_size_total": "putMessageSizeTotal",
    "put_message_average_size": "putMessageAverageSize",
    "query_threadpool_queue_capacity": "queryThreadPoolQueueCapacity",
    "remain_transientstore_buffer_numbs": "remainTransientStoreBufferNumbs",
    "earliest_message_timestamp": "earliestMessageTimeStamp",
    "putmessage_entire_time_max": "putMessageEntireTimeMax",
    "start_accept_sendrequest_time": "startAcceptSendRequestTimeStamp",
    "send_threadpool_queue_size": "sendThreadPoolQueueSize",
    "putmessage_times_total": "putMessageTimesTotal",
    "getmessage_entire_time_max": "getMessageEntireTimeMax",
    "pagecache_lock_time_mills": "pageCacheLockTimeMills",
    "commitlog_disk_ratio": "commitLogDiskRatio",
    "consumequeue_disk_ratio": "consumeQueueDiskRatio",
    "dispatch_maxbuffer": "dispatchMaxBuffer",
    "pull_threadpoolqueue_capacity": "pullThreadPoolQueueCapacity",
    "send_threadpoolqueue_capacity": "sendThreadPoolQueueCapacity",
    "pull_threadpoolqueue_size": "pullThreadPoolQueueSize",
    "query_threadpoolqueue_size": "queryThreadPoolQueueSize",
    "pull_threadpoolqueue_headwait_timemills": "pullThreadPoolQueueHeadWaitTimeMills",
    "query_threadpoolqueue_headwait_timemills": "queryThreadPoolQueueHeadWaitTimeMills",
    "send_threadpoolqueue_headwait_timemills": "sendThreadPoolQueueHeadWaitTimeMills",
    "commitlog_maxoffset": "commitLogMaxOffset",
    "commitlog_minoffset": "commitLogMinOffset",
    "put_latency_99": "putLatency99",
    "put_latency_999": "putLatency999",
}
"""The names behind `rocketmq_brokeruntime_` by the key of the runtime information."""
_RATES = {
    "getfound": "getFoundTps",
    "gettotal": "getTotalTps",
    "gettransfered": "getTransferedTps",
    "getmiss": "getMissTps",
    "put": "putTps",
}
_SPANS = (10, 60, 600)
_MAX_LABEL = 8192
_DISTRIBUTION = {
    "0ms": "<=0ms", "0to10ms": "0~10ms", "10to50ms": "10~50ms", "50to100ms": "50~100ms",
    "100to200ms": "100~200ms", "200to500ms": "200~500ms", "500to1s": "500ms~1s", "1to2s": "1~2s",
    "2to3s": "2~3s", "3to4s": "3~4s", "4to5s": "4~5s", "5to10s": "5~10s", "10stomore": "10s~",
}  # fmt: skip
_SIZE = re.compile(r"([\d.]+) ([KMGTPE]?)i?B")
_UNITS = " KMGTPE"


class Place(NamedTuple):
    """The labels of this broker."""

    cluster: str
    broker: str
    address: str

    @classmethod
    def of(cls, config: BrokerConfig) -> "Place":
        address = format_address((config.broker_ip1, config.listen_port))
        return cls(config.broker_cluster_name, config.broker_name, address)


def exporter_group_families(
    parts: Parts, lags: list[GroupLag], now: float, rest: Callable[[], None]
) -> Iterator[Family]:
    """Those of topics, groups and clients, of which the exporter asks masters only."""
    place = Place.of(parts.cell.value)
    yield from _topic_families(parts, place, rest)
    yield from _group_families(lags, now, place)
    yield from _consumption_families(parts, lags, place)
    yield from _client_families(parts, place)


def exporter_broker_families(
    parts: Parts, figures: Mapping[str, str], members: Mapping[int, str]
) -> Iterator[Family]:
    """Those of the broker itself.

    Args:
        members: registered addresses of its slaves by broker id.
        figures: the runtime information, except that of the store.
    """
    place = Place.of(parts.cell.value)
    yield from _broker_families(parts, place, members)
    yield from _runtime_families(parts, place, figures)


def _gauge(name: str, text: str, labels: tuple[str, ...], series: list[Series]) -> Family:
    return Family(name, Kind.GAUGE, text, series, labels=labels)


# ---- topics


def _topic_families(parts: Parts, place: Place, rest: Callable[[], None]) -> Iterator[Family]:
    ends: list[Series] = []
    retries: list[Series] = []
    dead: list[Series] = []
    rates: list[Series] = []
    sizes: list[Series] = []
    for topic in list(parts.topics):
        rest()
        name = topic.topic_name
        queues = range(max(topic.read_queue_nums, topic.write_queue_nums))
        end = sum(parts.store.max_offset(name, each) for each in queues)
        labels = (place.cluster, place.broker, name)
        if is_retry_topic(name):
            retries.append((labels, end))
        elif is_dead_letter_topic(name):
            group = name.removeprefix(DEAD_LETTER_PREFIX)
            dead.append(((place.cluster, place.broker, group), end))
        else:
            ends.append((labels, end))
            for series, key in ((rates, "TOPIC_PUT_NUMS"), (sizes, "TOPIC_PUT_SIZE")):
                if (tps := parts.statistics.rate(key, name)) is not None:
                    series.append((labels, tps))
    yield _gauge("rocketmq_producer_offset", "Ends of the queues of a topic.", _TOPIC, ends)
    yield _gauge("rocketmq_topic_retry_offset", "The same of retry topics.", _TOPIC, retries)
    yield _gauge(
        "rocketmq_topic_dlq_offset",
        "The same of dead letter topics.",
        ("cluster", "broker", "group"),
        dead,
    )
    yield _gauge("rocketmq_producer_tps", "Messages stored a second.", _TOPIC, rates)
    yield _gauge("rocketmq_producer_message_size", "Bytes stored a second.", _TOPIC, sizes)


# ---- groups


def _group_families(lags: list[GroupLag], now: float, place: Place) -> Iterator[Family]:
    plain: list[Series] = []
    retries: list[Series] = []
    dead: list[Series] = []
    consumed: list[Series] = []
    latencies: list[Series] = []
    accumulated: list[Series] = []
    for lag in lags:
        name = lag.stored_topic
        diff = sum(each.end - each.consumed for each in lag.queues)
        labels = (lag.group, name, str(lag.members), _model(lag.model))
        own = (place.cluster, place.broker, name, lag.group)
        consumed.append((own, sum(each.consumed for each in lag.queues)))
        if lag.model is MessageModel.BROADCASTING:
            continue
        kind = retries if is_retry_topic(name) else dead if is_dead_letter_topic(name) else plain
        kind.append((labels, diff))
        accumulated.append((own, diff))
        latencies.append((own, max(_age(each, now) for each in lag.queues)))
    yield _gauge("rocketmq_group_diff", "Messages not consumed yet.", _DIFF, plain)
    yield _gauge("rocketmq_group_retrydiff", "The same of retry topics.", _DIFF, retries)
    yield _gauge("rocketmq_group_dlqdiff", "The same of dead letter topics.", _DIFF, dead)
    yield _gauge("rocketmq_message_accumulation", "Messages not consumed yet.", _GROUP, accumulated)
    yield _gauge("rocketmq_consumer_offset", "Offsets of a group.", _GROUP, consumed)
    yield _gauge(
        "rocketmq_group_get_latency_by_storetime",
        "Age of the next message that a group consumes, in milliseconds.",
        _GROUP,
        latencies,
    )


def _age(lag: QueueLag, now: float) -> int:
    return max(int(now * 1000) - lag.oldest, 0) if lag.oldest else 0


def _model(model: MessageModel) -> str:
    """The ordinal of Java's enum."""
    return "0" if model is MessageModel.BROADCASTING else "1"


def _consumption_families(parts: Parts, lags: list[GroupLag], place: Place) -> Iterator[Family]:
    statistics = parts.statistics
    rates: list[Series] = []
    sizes: list[Series] = []
    back: list[Series] = []
    reads: list[Series] = []
    for lag in lags:
        pair = f"{lag.stored_topic}@{lag.group}"
        own = (place.cluster, place.broker, lag.stored_topic, lag.group)
        for series, key in ((rates, "GROUP_GET_NUMS"), (sizes, "GROUP_GET_SIZE")):
            if (tps := statistics.rate(key, pair)) is not None:
                series.append((own, tps))
        if (found := statistics.minute_sum("SNDBCK_PUT_NUMS", pair)) is not None:
            back.append((own, found))
        for each in lag.queues:
            took = statistics.rate("GROUP_GET_LATENCY", f"{each.queue_id}@{pair}")
            if took is not None:
                reads.append(((*own, str(each.queue_id)), took))
    yield _gauge("rocketmq_consumer_tps", "Messages delivered a second.", _GROUP, rates)
    yield _gauge("rocketmq_consumer_message_size", "Bytes delivered a second.", _GROUP, sizes)
    yield _gauge("rocketmq_send_back_nums", "Messages sent back in a minute.", _GROUP, back)
    yield _gauge(
        "rocketmq_group_get_latency",
        "Milliseconds that reads of a queue take, a second.",
        (*_GROUP, "queueid"),
        reads,
    )


# ---- clients


def _client_families(parts: Parts, place: Place) -> Iterator[Family]:
    clients = parts.clients
    consumers: list[Series] = []
    for found in clients.consumer_groups():
        members = found.members
        addresses = _joined(each.connection.peer for each in members)
        ids = _joined(each.client_id for each in members)
        consumers.append(((addresses, ids, found.name), len(members)))
    online = {found for (*_, found), _ in consumers}
    consumers += [(("", "", each), 0) for each in sorted(_groups_with_offsets(parts) - online)]
    yield _gauge(
        "rocketmq_group_count", "Connected consumers.", ("caddr", "localaddr", "group"), consumers
    )
    producers: list[Series] = [
        ((place.cluster, place.broker, group), len(clients.producers(group)))
        for group in clients.producer_groups()
    ]
    yield _gauge(
        "rocketmq_producer_count", "Connected producers.", ("cluster", "broker", "group"), producers
    )


def _groups_with_offsets(parts: Parts) -> set[str]:
    """Groups that the exporter shows although nobody is in them: they have offsets in a topic."""
    pairs = (each.partition("@") for each in list(parts.offsets.pairs()))
    return {
        group
        for topic, _, group in pairs
        if not is_dead_letter_topic(topic) and not group.startswith(SYSTEM_GROUP_PREFIX)
    }


def _joined(words: Iterable[str]) -> str:
    """The value of a label; of a large group the first ones."""
    return ",".join(sorted(words))[:_MAX_LABEL]


# ---- the broker


def _broker_families(parts: Parts, place: Place, members: Mapping[int, str]) -> Iterator[Family]:
    labels = (place.cluster, place.address, place.broker)
    for name, key, text in (
        ("rocketmq_broker_tps", "BROKER_PUT_NUMS", "Messages stored a second."),
        ("rocketmq_broker_qps", "BROKER_GET_NUMS", "Messages delivered a second."),
    ):
        rate = parts.statistics.rate(key, place.cluster)
        yield _gauge(name, text, _BROKER, [] if rate is None else [(labels, rate)])
    behind: list[Series] = []
    if isinstance(parts.replication, MasterReplication):
        end = parts.store.log.written
        slaves = list(parts.replication.primary.slaves)
        behind = [
            ((place.cluster, name, place.broker), max(end - each.acked, 0))
            for name, each in zip(names_of_slaves(slaves, members), slaves, strict=True)
        ]
    yield _gauge("rocketmq_broker_commitlog_diff", "Bytes that a slave is behind.", _BROKER, behind)


def _runtime_families(parts: Parts, place: Place, figures: Mapping[str, str]) -> Iterator[Family]:
    table = dict(figures) | store_figures(parts.store)
    labels = (
        place.cluster,
        place.address,
        "",
        ROCKETMQ_VERSION_NAME,
        table["bootTimestamp"],
        str(ROCKETMQ_VERSION),
    )
    for name, value, text in runtime_values(table):
        yield _gauge(f"rocketmq_brokeruntime_{name}", text, _RUNTIME, [(labels, value)])


def runtime_values(table: Mapping[str, str]) -> Iterator[tuple[str, float, str]]:
    """The figures of the runtime information: end of the name, value, and the key."""
    for name, key in _FIGURES.items():
        yield name, _number(table[key]), f"{key} of the runtime information."
    for name, key in _RATES.items():
        rates = table[key].split()
        for span, rate in zip(_SPANS, rates, strict=True):
            yield f"{name}_tps{span}", float(rate), f"{key} of the last {span} seconds."
    counts = dict(each.strip("[").split("]:") for each in table["putMessageDistributeTime"].split())
    for name, key in _DISTRIBUTION.items():
        yield f"pmdt_{name}", _number(counts[key]), f"Messages stored within {key}, last minute."
    yield (
        "remain_howmanydata_toflush",
        float(table["remainHowManyDataToFlush"].split()[0]),
        "remainHowManyDataToFlush of the runtime information, without its unit, as the exporter.",
    )
    sizes = _SIZE.findall(table["commitLogDirCapacity"])
    for name, size in zip(("total", "free"), sizes, strict=True):
        yield f"commitlogdir_capacity_{name}", _bytes(*size), "Bytes of the partition of the store."


def _number(text: str) -> float:
    return float(text) if "." in text else int(text)


def _bytes(number: str, unit: str) -> float:
    return float(float(number) * 1024 ** _UNITS.index(unit or " "))
