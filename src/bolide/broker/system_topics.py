"""The topics that a broker makes for itself when it starts."""

from collections.abc import Iterator

from bolide.broker.config import BrokerConfig
from bolide.model.names import (
    BENCHMARK_TOPIC,
    HALF_TOPIC,
    INHERIT,
    OFFSET_MOVED_EVENT,
    OP_HALF_TOPIC,
    POP_JOURNAL_TOPIC,
    READ,
    SCHEDULE_TOPIC,
    SELF_TEST_TOPIC,
    TBW102,
    TIMER_TOPIC,
    WRITE,
    reply_topic,
    revive_topic,
)
from bolide.protocol.bodies.topics import TopicConfig


def system_topics(config: BrokerConfig, delay_levels: int) -> Iterator[TopicConfig]:
    """What a broker with these settings starts with (`TopicConfigManager.init`)."""
    cluster = config.broker_cluster_name
    yield topic_of(SELF_TEST_TOPIC, 1)
    if config.auto_create_topic_enable:
        yield topic_of(TBW102, config.default_topic_queue_nums, perm=READ | WRITE | INHERIT)
    yield topic_of(BENCHMARK_TOPIC, 1024)
    yield topic_of(cluster, 16, perm=_own_perm(usable=config.cluster_topic_enable))
    yield topic_of(config.broker_name, 1, perm=_own_perm(usable=config.broker_topic_enable))
    yield topic_of(OFFSET_MOVED_EVENT, 1)
    yield topic_of(SCHEDULE_TOPIC, delay_levels)
    yield topic_of(TIMER_TOPIC, 1)
    if config.trace_topic_enable:
        yield topic_of(config.msg_trace_topic_name, 1)
    yield topic_of(reply_topic(cluster), 1)
    yield topic_of(HALF_TOPIC, 1)
    yield topic_of(OP_HALF_TOPIC, 1)
    yield topic_of(POP_JOURNAL_TOPIC, 1)
    yield topic_of(revive_topic(cluster), config.revive_queue_num)


def _own_perm(*, usable: bool) -> int:
    return INHERIT | READ | WRITE if usable else INHERIT


def topic_of(
    name: str,
    queues: int,
    *,
    perm: int = READ | WRITE,
    order: bool = False,
    topic_sys_flag: int = 0,
    topic_filter_type: str = "SINGLE_TAG",
) -> TopicConfig:
    """A topic with as many queues to read as to write."""
    return TopicConfig(
        topic_name=name,
        read_queue_nums=queues,
        write_queue_nums=queues,
        perm=perm,
        order=order,
        topic_sys_flag=topic_sys_flag,
        topic_filter_type=topic_filter_type,
    )
