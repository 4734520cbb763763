"""Names of topics and groups: which are allowed, which are the broker's own, what they mean."""

import re

from bolide.broker.config import BrokerConfig
from bolide.kernel import SCHEDULE_TOPIC as _SCHEDULE_TOPIC
from bolide.protocol.refusals import InvalidParameter

READ, WRITE, INHERIT = 4, 2, 1
"""Bits of a topic's permission; topics are created after the model of one that has INHERIT."""

TBW102 = "TBW102"
"""The model of topics that are created by being sent to."""
SCHEDULE_TOPIC = _SCHEDULE_TOPIC.decode()
BENCHMARK_TOPIC = "BenchmarkTest"
SELF_TEST_TOPIC = "SELF_TEST_TOPIC"
OFFSET_MOVED_EVENT = "OFFSET_MOVED_EVENT"
HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
OP_HALF_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
TRANS_CHECK_MAX_TIME_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"

SYSTEM_TOPICS = frozenset({
    TBW102,
    SCHEDULE_TOPIC,
    BENCHMARK_TOPIC,
    SELF_TEST_TOPIC,
    OFFSET_MOVED_EVENT,
    HALF_TOPIC,
    OP_HALF_TOPIC,
    TRANS_CHECK_MAX_TIME_TOPIC,
    "RMQ_SYS_TRACE_TOPIC",
    "CHECKPOINT_TOPIC",
})  # fmt: skip
"""Those of every broker; `system_topics` adds those that go by its settings."""

TOOLS_GROUP = "TOOLS_CONSUMER"
TRANSACTION_GROUP = "CID_RMQ_SYS_TRANS"
SYSTEM_GROUPS = (
    TOOLS_GROUP,
    "FILTERSRV_CONSUMER",
    "SELF_TEST_C_GROUP",
    "CID_ONS-HTTP-PROXY",
    "CID_ONSAPI_PULL",
    "CID_ONSAPI_PERMISSION",
    "CID_ONSAPI_OWNER",
    TRANSACTION_GROUP,
)
SYSTEM_GROUP_PREFIX = "CID_RMQ_SYS_"

_SYSTEM_PREFIX = "rmq_sys_"
_NOT_SENDABLE = frozenset({
    SCHEDULE_TOPIC,
    HALF_TOPIC,
    OP_HALF_TOPIC,
    TRANS_CHECK_MAX_TIME_TOPIC,
    SELF_TEST_TOPIC,
    OFFSET_MOVED_EVENT,
})  # fmt: skip
_RETRY, _DEAD_LETTER = "%RETRY%", "%DLQ%"
_NAME = re.compile(r"[%|a-zA-Z0-9_-]+")
_LONGEST_TOPIC = 127
_LONGEST_OF_GROUP = 255  # what a directory may be called
_LONGEST_GROUP = _LONGEST_OF_GROUP - len(_RETRY)


def validate_topic(topic: str) -> None:
    """Raises InvalidParameter if a topic may not be called so."""
    of_group = is_retry_topic(topic) or is_dead_letter_topic(topic)
    _validate("topic", topic, _LONGEST_OF_GROUP if of_group else _LONGEST_TOPIC)


def validate_group(group: str) -> None:
    """Raises InvalidParameter if a consumer group may not be called so."""
    _validate("group", group, _LONGEST_GROUP)


def _validate(kind: str, name: str, longest: int) -> None:
    if not name.strip():
        raise InvalidParameter(f"The specified {kind} is blank: give it a name.")
    if not _NAME.fullmatch(name):
        raise InvalidParameter(
            f"The specified {kind} {name[:longest]!r} contains illegal characters,"
            " allowing only ^[%|a-zA-Z0-9_-]+$"
        )
    if len(name) > longest:
        raise InvalidParameter(
            f"The specified {kind} {name[:longest]!r}… has {len(name)} characters:"
            f" at most {longest} are allowed."
        )


def system_topics(config: BrokerConfig) -> set[str]:
    """The topics that a broker with these settings keeps for itself."""
    cluster = config.broker_cluster_name
    own = {cluster, config.broker_name, reply_topic(cluster)}
    if config.trace_topic_enable:
        own.add(config.msg_trace_topic_name)
    return own | SYSTEM_TOPICS


def is_system_topic(topic: str, config: BrokerConfig) -> bool:
    return topic.startswith(_SYSTEM_PREFIX) or topic in system_topics(config)


def is_sendable(topic: str) -> bool:
    """Whether clients may send to it: some topics only the broker itself writes to."""
    return topic not in _NOT_SENDABLE


def reply_topic(cluster: str) -> str:
    """Where the answers to requests of clients in a cluster go."""
    return f"{cluster}_REPLY_TOPIC"


def retry_topic(group: str) -> str:
    return _RETRY + group


def dead_letter_topic(group: str) -> str:
    return _DEAD_LETTER + group


def is_retry_topic(topic: str) -> bool:
    return topic.startswith(_RETRY)


def is_dead_letter_topic(topic: str) -> bool:
    return topic.startswith(_DEAD_LETTER)


def group_of_retry_topic(topic: str) -> str:
    return topic.removeprefix(_RETRY)


def pop_retry_topics(group: str, topic: str) -> tuple[str, str]:
    """Where POP consumers' retries go, by the old rule and by the new one."""
    return f"{_RETRY}{group}_{topic}", f"{_RETRY}{group}+{topic}"
