"""Names of topics and groups that RocketMQ gives a meaning, and the bits of permissions."""

import re
from typing import Final

READ, WRITE, INHERIT = 4, 2, 1
"""Bits of a topic's permission; topics are created after the model of one that has INHERIT."""

TBW102 = "TBW102"
"""The model of topics that are created by being sent to."""
SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
BENCHMARK_TOPIC = "BenchmarkTest"
SELF_TEST_TOPIC = "SELF_TEST_TOPIC"
OFFSET_MOVED_EVENT = "OFFSET_MOVED_EVENT"
HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
OP_HALF_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
TRANS_CHECK_MAX_TIME_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"
TIMER_TOPIC = "rmq_sys_wheel_timer"
"""Where messages wait for a time of their own."""
TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"

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
    "CHECKPOINT_TOPIC",
})  # fmt: skip
"""Those of every broker; its settings add some."""

POP_JOURNAL_TOPIC = "rmq_sys_bolide_pop"
"""Ours: what happened to popped messages."""
POP_JOURNAL_GROUP = "CID_RMQ_SYS_bolide_pop"
REVIVE_GROUP = "CID_RMQ_SYS_REVIVE_GROUP"

TOOLS_GROUP = "TOOLS_CONSUMER"
TRANSACTION_GROUP = "CID_RMQ_SYS_TRANS"
SYSTEM_GROUP_PREFIX = "CID_RMQ_SYS_"

SYSTEM_TOPIC_PREFIX = "rmq_sys_"
_NOT_SENDABLE = frozenset({
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
    HALF_TOPIC,
    OP_HALF_TOPIC,
    TRANS_CHECK_MAX_TIME_TOPIC,
    SELF_TEST_TOPIC,
    OFFSET_MOVED_EVENT,
    POP_JOURNAL_TOPIC,
})  # fmt: skip
RETRY_PREFIX: Final = "%RETRY%"
DEAD_LETTER_PREFIX: Final = "%DLQ%"
PARK_PREFIX: Final = "%PARK%"
"""Ours: what a group's ordered consumers set aside."""

ALLOWED_NAME: Final = re.compile(r"[%|a-zA-Z0-9_-]+")
"""What topics and groups may be called."""
MAX_TOPIC_LENGTH: Final = 127
MAX_SYSTEM_TOPIC_LENGTH: Final = 255
"""Of %RETRY% and %DLQ% topics, which hold the name of a group; what a directory may be called."""


def is_sendable(topic: str) -> bool:
    """Whether clients may send to it: some topics only the broker itself writes to."""
    return topic not in _NOT_SENDABLE


def reply_topic(cluster: str) -> str:
    """Where the answers to requests of clients in a cluster go."""
    return f"{cluster}_REPLY_TOPIC"


def revive_topic(cluster: str) -> str:
    """Where RocketMQ 5.x keeps what happened to popped messages."""
    return f"rmq_sys_REVIVE_LOG_{cluster}"


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


def pop_retry_topics(group: str, topic: str) -> tuple[str, str]:
    """Where POP consumers' retries go, by the old rule and by the new one."""
    return f"{RETRY_PREFIX}{group}_{topic}", f"{RETRY_PREFIX}{group}+{topic}"
