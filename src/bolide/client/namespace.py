"""Namespaces: names of topics and groups with a prefix on the wire, and without it for users.

`ns%name`; the marks of retry and dead-letter topics stay in front: `%RETRY%ns%group`.
"""

from typing import Final

RETRY_PREFIX: Final = "%RETRY%"
DEAD_LETTER_PREFIX: Final = "%DLQ%"
SEPARATOR: Final = "%"

_SYSTEM_TOPICS = frozenset({
    "TBW102", "SCHEDULE_TOPIC_XXXX", "BenchmarkTest", "RMQ_SYS_TRANS_HALF_TOPIC",
    "RMQ_SYS_TRACE_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "TRANS_CHECK_MAX_TIME_TOPIC",
    "SELF_TEST_TOPIC", "OFFSET_MOVED_EVENT", "CHECKPOINT_TOPIC",
})  # fmt: skip
_SYSTEM_PREFIXES = ("rmq_sys_", "CID_RMQ_SYS_")


def wrap(namespace: str, name: str) -> str:
    """The name on the wire; names of the system and wrapped ones stay as they are."""
    if not namespace or not name or name in _SYSTEM_TOPICS or name.startswith(_SYSTEM_PREFIXES):
        return name
    mark, bare = _split(name)
    return name if bare.startswith(namespace + SEPARATOR) else f"{mark}{namespace}%{bare}"


def unwrap(namespace: str, name: str) -> str:
    """The name for users; one of another namespace stays as it is."""
    if not namespace:
        return name
    mark, bare = _split(name)
    return mark + bare.removeprefix(namespace + SEPARATOR)


def _split(name: str) -> tuple[str, str]:
    for mark in (RETRY_PREFIX, DEAD_LETTER_PREFIX):
        if name.startswith(mark):
            return mark, name[len(mark) :]
    return "", name
