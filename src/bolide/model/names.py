"""Topic and group names with a special meaning in RocketMQ, and permission bits."""

import re
from typing import Final

READ, WRITE, INHERIT = 4, 2, 1
"""Permission bits of a topic; a topic with INHERIT can be the template of new ones."""

TBW102 = "TBW102"
"""The template of topics that are created by a send."""
SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
BENCHMARK_TOPIC = "BenchmarkTest"
SELF_TEST_TOPIC = "SELF_TEST_TOPIC"
OFFSET_MOVED_EVENT = "OFFSET_MOVED_EVENT"
HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
OP_HALF_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
TRANS_CHECK_MAX_TIME_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"
TIMER_TOPIC = "rmq_sys_wheel_timer"
"""Holds timer messages until they are due."""
TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"
PIPELINE_TOPIC = "BOLIDE_PIPELINE_PROGRESS"
"""Bolide's own: what runs of Spark pipelines report. An ordinary topic at RocketMQ's brokers."""

SYSTEM_TOPICS = frozenset({
    TBW102,
    SCHEDULE_TOPIC,
    BENCHMARK_TOPIC,
    SELF_TEST_TOPIC,
    OFFSET_MOVED_EVENT,
    HALF_TOPIC,
    OP_HALF_TOPIC,
    TRANS_CHECK_MAX_TIME_TOPIC,
    TRACE_TOPIC,
    PIPELINE_TOPIC,
    "CHECKPOINT_TOPIC",
})  # fmt: skip
"""System topics of every broker; its settings add more."""

POP_JOURNAL_TOPIC = "rmq_sys_bolide_pop"
"""Bolide's own: the journal of POP consumption."""
AUDIT_TOPIC = "rmq_sys_bolide_audit"
"""Bolide's own: who administered the broker; no client may send to it or pull from it."""
POP_JOURNAL_GROUP = "CID_RMQ_SYS_bolide_pop"
REVIVE_GROUP = "CID_RMQ_SYS_REVIVE_GROUP"

TOOLS_GROUP = "TOOLS_CONSUMER"
TRANSACTION_GROUP = "CID_RMQ_SYS_TRANS"
SYSTEM_GROUP_PREFIX = "CID_RMQ_SYS_"
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
"""Groups that every broker has from its first start."""
BROKER_GROUPS = frozenset({TRANSACTION_GROUP, POP_JOURNAL_GROUP, REVIVE_GROUP})
"""Groups whose offsets say from where a broker reads its own topics at a start."""

UNLIMITED_TOPICS = frozenset({AUDIT_TOPIC, OP_HALF_TOPIC})
"""Topics of records that the broker makes itself and that maxMessageSize is not meant for. The
journal of POP splits records that are too large."""

SYSTEM_TOPIC_PREFIX = "rmq_sys_"
_REVIVE_PREFIX = "rmq_sys_REVIVE_LOG_"
_INTERNAL = frozenset({
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
    HALF_TOPIC,
    OP_HALF_TOPIC,
    TRANS_CHECK_MAX_TIME_TOPIC,
    "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC",
    "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC",
    POP_JOURNAL_TOPIC,
    AUDIT_TOPIC,
})  # fmt: skip
_NOT_SENDABLE = _INTERNAL | {SELF_TEST_TOPIC, OFFSET_MOVED_EVENT}
RETRY_PREFIX: Final = "%RETRY%"
DEAD_LETTER_PREFIX: Final = "%DLQ%"
PARK_PREFIX: Final = "%PARK%"
"""Bolide's own: messages parked by a group's ordered consumers."""

ALLOWED_NAME: Final = re.compile(r"[%|a-zA-Z0-9_-]+")
"""Allowed characters of topic and group names."""
MAX_TOPIC_LENGTH: Final = 127
MAX_SYSTEM_TOPIC_LENGTH: Final = 255
"""For %RETRY% and %DLQ% topics, which contain a group name; the limit of a directory name."""


def is_sendable(topic: str) -> bool:
    """Whether clients may send to a topic; some topics only the broker writes."""
    return topic not in _NOT_SENDABLE and not topic.startswith(_REVIVE_PREFIX)


def is_internal(topic: str) -> bool:
    """Whether a topic holds messages of other topics, or what the broker keeps for itself."""
    return topic in _INTERNAL or topic.startswith(_REVIVE_PREFIX)


def is_reserved(topic: str) -> bool:
    """Whether a topic belongs to the brokers or to one group, and users do not send to it."""
    kinds = (DEAD_LETTER_PREFIX, RETRY_PREFIX, PARK_PREFIX, SYSTEM_TOPIC_PREFIX)
    return topic in SYSTEM_TOPICS or is_internal(topic) or topic.startswith(kinds)


def is_system_group(group: str) -> bool:
    """Whether a group is not made by users."""
    return group in SYSTEM_GROUPS or group.startswith(SYSTEM_GROUP_PREFIX)


def reply_topic(cluster: str) -> str:
    """The topic of replies to request messages in a cluster."""
    return f"{cluster}_REPLY_TOPIC"


def revive_topic(cluster: str) -> str:
    """The topic of RocketMQ 5.x's POP checkpoints and acknowledgements."""
    return _REVIVE_PREFIX + cluster


def retry_topic(group: str) -> str:
    return RETRY_PREFIX + group


def dead_letter_topic(group: str) -> str:
    return DEAD_LETTER_PREFIX + group


def park_topic(group: str) -> str:
    return PARK_PREFIX + group


def is_retry_topic(topic: str) -> bool:
    return topic.startswith(RETRY_PREFIX)


def is_dead_letter_topic(topic: str) -> bool:
    return topic.startswith(DEAD_LETTER_PREFIX)


def group_of_retry_topic(topic: str) -> str:
    return topic.removeprefix(RETRY_PREFIX)


def retrying_group(topic: str) -> str:
    """The group whose messages a retry topic gets, also of POP by the new rule."""
    return group_of_retry_topic(topic).partition("+")[0]


def pop_retry_topics(group: str, topic: str) -> tuple[str, str]:
    """The retry topics of POP consumers, by the old and the new naming rule."""
    return f"{RETRY_PREFIX}{group}_{topic}", f"{RETRY_PREFIX}{group}+{topic}"
