"""Validation of messages; each error names the field."""

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Final

from bolide.errors import BolideError
from bolide.model.names import (
    ALLOWED_NAME,
    DEAD_LETTER_PREFIX,
    MAX_SYSTEM_TOPIC_LENGTH,
    MAX_TOPIC_LENGTH,
    RETRY_PREFIX,
)
from bolide.model.properties import KEY_SEPARATOR, RESERVED_NAMES, PropertyName

_SEPARATORS = re.compile("[\x01\x02]")
_LONG_TOPICS = (RETRY_PREFIX, DEAD_LETTER_PREFIX)
_KEYWORDS = {  # the argument to use instead of a reserved property
    PropertyName.TAGS: "tags=",
    PropertyName.KEYS: "keys=",
    PropertyName.DELAY_LEVEL: "delay_level=",
    PropertyName.TIMER_DELIVER_MS: "deliver_at=",
    PropertyName.TIMER_DELAY_MS: "delay=",
    PropertyName.TIMER_DELAY_SEC: "delay=",
    PropertyName.WAIT_STORED: "wait_stored=",
    PropertyName.DEDUP_KEY: "dedup_key=",
    PropertyName.EXPIRES_AT: "expires_at=",
    PropertyName.CRON: "cron=",
    PropertyName.CRON_ZONE: "cron_zone=",
    PropertyName.PRIORITY: "priority=",
    PropertyName.SHARDING_KEY: "sharding_key=",
}
_WITHOUT_PRIORITY = (
    PropertyName.DELAY_LEVEL,
    PropertyName.TIMER_DELIVER_MS,
    PropertyName.TIMER_DELAY_MS,
    PropertyName.SHARDING_KEY,
    PropertyName.CRON,
)
"""Properties of kinds of messages whose priority the broker would drop."""
_MAX_INT = 2**31 - 1
_MAX_DEDUP_KEY = 255


class InvalidMessage(BolideError, ValueError):
    """A message that fails validation; `field` names the invalid part."""

    code: Final = 13  # MESSAGE_ILLEGAL, as in RocketMQ's clients

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(f"{field}: {reason}")
        self.field = field
        self.reason = reason

    def __reduce__(self) -> tuple[type["InvalidMessage"], tuple[str, str]]:
        return type(self), (self.field, self.reason)


def check_topic(topic: str) -> None:
    if not isinstance(topic, str) or not topic:
        raise InvalidMessage("topic", f"{topic!r} is not the name of a topic")
    _check_name(topic)


@lru_cache(maxsize=4096)
def _check_name(topic: str) -> None:
    if not ALLOWED_NAME.fullmatch(topic):
        raise InvalidMessage(
            "topic", f"{topic!r} holds other characters than letters, digits and % | _ -"
        )
    most = MAX_SYSTEM_TOPIC_LENGTH if topic.startswith(_LONG_TOPICS) else MAX_TOPIC_LENGTH
    if len(topic) > most:
        raise InvalidMessage("topic", f"{topic!r} is over {most} characters long")


def plain_body(body: object) -> bytes:
    """Return the body as immutable bytes."""
    if isinstance(body, bytes):
        return body
    if isinstance(body, bytearray | memoryview):
        return bytes(body)
    hint = ": encode it first, as in body.encode()" if isinstance(body, str) else ""
    raise InvalidMessage("body", f"must be bytes, not {type(body).__name__}{hint}")


def checked_flag(flag: object) -> int:
    if not isinstance(flag, int) or not -_MAX_INT - 1 <= flag <= _MAX_INT:
        raise InvalidMessage("flag", f"{flag!r} is not a 32-bit number")
    return flag


def checked_tags(tags: object) -> str:
    text = _text("tags", tags)
    if "||" in text:
        raise InvalidMessage("tags", f"{text!r}: a message has one tag; || is for subscriptions")
    return text


def joined_keys(keys: str | Iterable[str]) -> str:
    words = [keys] if isinstance(keys, str) else list(keys)
    for word in words:
        if not _text("keys", word) or KEY_SEPARATOR in word:
            raise InvalidMessage("keys", f"{word!r}: a key is not empty and holds no blank")
    return KEY_SEPARATOR.join(words)


def level_text(delay_level: object) -> str:
    if not isinstance(delay_level, int) or isinstance(delay_level, bool) or delay_level < 0:
        raise InvalidMessage(
            "delay_level", f"{delay_level!r} is not a level: 1 and up, 0 for no delay"
        )
    return str(delay_level) if delay_level else ""


def priority_text(priority: object, held: Mapping[str, str]) -> str:
    """Return the priority as text; `held` are the other properties of the message."""
    if not isinstance(priority, int) or isinstance(priority, bool) or not 0 <= priority <= _MAX_INT:
        raise InvalidMessage("priority", f"{priority!r} is not a priority: 0 and up")
    other = next((name for name in _WITHOUT_PRIORITY if name in held), None)
    if other is not None:
        raise InvalidMessage(
            "priority", f"a message with {_KEYWORDS.get(other, other)} has none: give one of them"
        )
    return str(priority)


def user_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """Return a copy of user properties after validation."""
    for name, value in properties.items():
        if not _text("properties", name).strip():
            raise InvalidMessage("properties", "a name is empty")
        if name in RESERVED_NAMES:
            keyword = _KEYWORDS.get(name)
            instead = f": use {keyword}" if keyword else ", RocketMQ sets it itself"
            raise InvalidMessage("properties", f"the name {name!r} is reserved{instead}")
        if not _text(f"properties[{name!r}]", value):
            raise InvalidMessage(f"properties[{name!r}]", "is empty, and would be lost on the way")
    return dict(properties)


def checked_sharding_key(key: object) -> str:
    return _text("sharding_key", key)


def checked_dedup_key(key: object) -> str:
    text = _text("dedup_key", key)
    if len(text) > _MAX_DEDUP_KEY or not text.isprintable():
        raise InvalidMessage(
            "dedup_key", f"{text!r}: it is of at most {_MAX_DEDUP_KEY} printable characters"
        )
    return text


def _text(field: str, value: object) -> str:
    if not isinstance(value, str):
        raise InvalidMessage(field, f"must be text, not {type(value).__name__}")
    if _SEPARATORS.search(value):
        raise InvalidMessage(field, f"{value!r} holds a separator of properties (0x01 or 0x02)")
    return value
