"""Namespaces: names of topics and groups with a prefix on the wire, and without it for users.

`ns%name`; the marks of retry and dead-letter topics stay in front: `%RETRY%ns%group`.
"""

from bolide.model.names import (
    DEAD_LETTER_PREFIX,
    RETRY_PREFIX,
    SYSTEM_GROUP_PREFIX,
    SYSTEM_TOPIC_PREFIX,
    SYSTEM_TOPICS,
)

SEPARATOR = "%"

_SYSTEM_PREFIXES = (SYSTEM_TOPIC_PREFIX, SYSTEM_GROUP_PREFIX)


def wrap(namespace: str, name: str) -> str:
    """The name on the wire; names of the system and wrapped ones stay as they are."""
    if not namespace or not name or name in SYSTEM_TOPICS or name.startswith(_SYSTEM_PREFIXES):
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
