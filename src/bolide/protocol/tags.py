"""Tags of a message, as consume queues and subscriptions compare them.

A queue entry holds the tags as Java's `String.hashCode`, so a broker can pass over unwanted
messages without touching the log; two tags may share a hash, so the consumer compares the text.
"""

import struct
from dataclasses import dataclass
from functools import lru_cache
from operator import mul

from bolide.protocol.errors import ProtocolError

ALL = "*"
_AT_ONCE = 256
_POWERS = tuple(pow(31, power, 1 << 32) for power in range(_AT_ONCE, -1, -1))
_JAVA_BLANKS = "".join(map(chr, range(0x21)))  # what Java's String.trim takes off


class BadTagExpression(ProtocolError):
    def __init__(self, text: str) -> None:
        super().__init__(f"tag expression {text!r} names no tag")
        self.text = text


@dataclass(frozen=True, slots=True)
class TagExpression:
    """What a subscription wants: `*`, or any of `a || b || c`."""

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
        # `*` among other tags is a tag like them: Java looks at the whole text.
        return self.text == ALL

    def may_match(self, code: int) -> bool:
        """Judge by the code in a queue entry; a yes is certain only after `matches`."""
        return self.wants_all or code in self.codes

    def matches(self, tags: str | None) -> bool:
        return self.wants_all or tags in self.tags


@lru_cache(maxsize=8192)
def tags_code(tags: str | None) -> int:
    """Return the hash a queue entry holds, 0 without tags; packed as a signed long it is Java's."""
    return java_hash(tags) if tags else 0


def java_hash(text: str) -> int:
    """Java's `String.hashCode`: over UTF-16 units, as a signed 32-bit number."""
    units = text.encode() if text.isascii() else _utf16_units(text)
    value = 0
    for start in range(0, len(units), _AT_ONCE):  # what `map` does is quicker than a loop
        part = units[start : start + _AT_ONCE]
        size = len(part)
        value = value * _POWERS[-size - 1] + sum(map(mul, part, _POWERS[-size:])) & 0xFFFF_FFFF
    return value - 0x1_0000_0000 if value & 0x8000_0000 else value


def index_hash(topic: str, key: str) -> int:
    """Return the hash under which the key index files a message."""
    value = abs(java_hash(f"{topic}#{key}"))
    return 0 if value == 0x8000_0000 else value  # Java cannot negate the smallest int


def _utf16_units(text: str) -> tuple[int, ...]:
    data = text.encode("utf-16-be", "surrogatepass")
    return struct.unpack(f">{len(data) // 2}H", data)
