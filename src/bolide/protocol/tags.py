"""Tags of messages: hashes in consume queues, and the tag expressions of subscriptions.

A queue entry holds the tags as Java's `String.hashCode`, so a broker can skip messages that do not
match without reading the log; two tags may share a hash, so the consumer compares the text.
"""

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from operator import mul

from bolide.model.properties import KEY_SEPARATOR, PropertyName
from bolide.protocol.errors import ProtocolError

ALL = "*"
_AT_ONCE = 256
_POWERS = tuple(pow(31, power, 1 << 32) for power in range(_AT_ONCE, -1, -1))
_JAVA_BLANKS = "".join(map(chr, range(0x21)))  # what Java's String.trim removes


class BadTagExpression(ProtocolError):
    def __init__(self, text: str) -> None:
        super().__init__(f"tag expression {text!r} names no tag")
        self.text = text


@dataclass(frozen=True, slots=True)
class TagExpression:
    """The tag filter of a subscription: `*`, or any of `a || b || c`."""

    text: str
    tags: frozenset[str]
    codes: frozenset[int]

    @classmethod
    def parse(cls, text: str) -> "TagExpression":
        """Raises BadTagExpression for text made of `||` alone, which Java refuses too."""
        if text in {"", ALL}:
            return cls(ALL, frozenset(), frozenset())
        parts = text.split("||")
        if not any(parts):
            raise BadTagExpression(text)
        tags = frozenset(part.strip(_JAVA_BLANKS) for part in parts) - {""}
        return cls(text, tags, frozenset(map(tags_code, tags)))

    @property
    def wants_all(self) -> bool:
        # `*` among other tags is an ordinary tag: Java compares the whole text.
        return self.text == ALL

    def may_match(self, code: int) -> bool:
        """Test the code of a queue entry; a match must be confirmed by `matches`."""
        return self.wants_all or code in self.codes

    def matches(self, tags: str | None) -> bool:
        return self.wants_all or tags in self.tags


@lru_cache(maxsize=8192)
def tags_code(tags: str | None) -> int:
    """Return the tags code of a queue entry, Java's hash as a signed long; 0 without tags."""
    return java_hash(tags) if tags else 0


def java_hash(text: str) -> int:
    """Java's `String.hashCode`: over UTF-16 units, as a signed 32-bit number."""
    units = text.encode() if text.isascii() else _utf16_units(text)
    value = 0
    for start in range(0, len(units), _AT_ONCE):  # `map` is faster than a loop
        part = units[start : start + _AT_ONCE]
        size = len(part)
        value = value * _POWERS[-size - 1] + sum(map(mul, part, _POWERS[-size:])) & 0xFFFF_FFFF
    return value - 0x1_0000_0000 if value & 0x8000_0000 else value


def index_hash(topic: str, key: str) -> int:
    """Return the hash of a key in the key index."""
    value = abs(java_hash(f"{topic}#{key}"))
    return 0 if value == 0x8000_0000 else value  # Java's abs of the smallest int is negative


def tags_key(tags: str) -> str:
    """Return the key under which the key index has the tags of a message."""
    return f"T#{tags}"


def indexed_keys(properties: Mapping[str, str]) -> list[str]:
    """Return the keys by which the key index finds a message: its unique id, keys and tags."""
    keys = [
        properties.get(PropertyName.UNIQUE_ID, ""),
        *properties.get(PropertyName.KEYS, "").split(KEY_SEPARATOR),
    ]
    tags = properties.get(PropertyName.TAGS)
    return [key for key in keys if key] + ([tags_key(tags)] if tags else [])


def _utf16_units(text: str) -> tuple[int, ...]:
    data = text.encode("utf-16-be", "surrogatepass")
    return struct.unpack(f">{len(data) // 2}H", data)
