"""The keys that a queue has taken lately, and where their messages lie.

A key is kept as a digest of 16 bytes, a place packed into 40: about 200 bytes of memory a key,
and nothing for the garbage collector to walk through.
"""

import re
import struct
from collections import deque
from dataclasses import dataclass
from hashlib import blake2b
from typing import Self

from bolide.model.properties import PropertyName
from bolide.protocol.record import Buffer
from bolide.store.appending import Appended

MOST_MESSAGES = 10_000_000
MOST_SECONDS = 7 * 24 * 3600

_COUNT = re.compile("[0-9]{1,9}")
_TIME = re.compile("([0-9]{1,9})(s|m|h|d)")
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 24 * 3600}
_KEY = re.compile(b"(?:^|\x02)%s\x01([^\x02]+)" % PropertyName.DEDUP_KEY.encode())
_SLID_AT_ONCE = 1000
_PLACE = struct.Struct(">qiqqiq")  # an Appended and its mark


@dataclass(frozen=True, slots=True)
class Span:
    """How long a key is kept: for so many messages of its queue, or for so many seconds."""

    messages: int = 0
    seconds: int = 0

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `100000`, `30s`, `10m`, `2h` or `7d`.

        Raises:
            ValueError: it is none of these, or too much; says what it may be.
        """
        if _COUNT.fullmatch(text) and 1 <= int(text) <= MOST_MESSAGES:
            return cls(messages=int(text))
        if found := _TIME.fullmatch(text):
            seconds = int(found[1]) * _UNITS[found[2]]
            if 1 <= seconds <= MOST_SECONDS:
                return cls(seconds=seconds)
        raise ValueError(
            f"it is a number of messages, 1 to {MOST_MESSAGES}, or a time, 1s to 7d,"
            " written like 30s, 10m, 2h or 7d"
        )

    def mark(self, store_timestamp: int, queue_offset: int) -> int:
        """Where in the span a message stands."""
        return store_timestamp if self.seconds else queue_offset

    def oldest(self, now: float, end: int) -> int:
        """The least mark that is inside, now and with the queue ending at `end`."""
        return int((now - self.seconds) * 1000) if self.seconds else end - self.messages


def find_key(properties: Buffer) -> bytes | None:
    """The digest of the key that a property string holds; of two the later counts."""
    found = _KEY.findall(properties)
    return digest(found[-1]) if found else None


def digest(key: bytes) -> bytes:
    return blake2b(key, digest_size=16).digest()


class Window:
    """The keys of one queue, in the order they came."""

    __slots__ = ("_order", "_places", "delivered", "span")

    def __init__(self, span: Span) -> None:
        self.span = span
        self.delivered: set[bytes] = set()
        """Keys of messages that were delayed, whose places are those of their deliveries."""
        self._places: dict[bytes, bytes] = {}
        self._order: deque[bytes] = deque()

    def __len__(self) -> int:
        return len(self._order)

    def __contains__(self, key: bytes) -> bool:
        return key in self._places

    def find(self, key: bytes, oldest: int) -> Appended | None:
        """Where the first message with this key went, if its mark is not below `oldest`."""
        packed = self._places.get(key)
        if packed is None:
            return None
        *place, mark = _PLACE.unpack(packed)
        return Appended._make(place) if mark >= oldest else None

    def add(self, key: bytes, appended: Appended, mark: int) -> None:
        """Keep a key, in place of one that is out of date."""
        if key in self._places:
            self._order.remove(key)
            self.delivered.discard(key)
        self._places[key] = _PLACE.pack(*appended, mark)
        self._order.append(key)

    def slide(self, oldest: int) -> None:
        """Forget keys whose mark is below; of many only some, for a broker must go on."""
        for _ in range(_SLID_AT_ONCE):
            if not self._order or self._mark(self._order[0]) >= oldest:
                break
            self._forget(self._order.popleft())

    def drop(self, count: int) -> None:
        """Forget so many of the oldest, as far as there are."""
        for _ in range(min(count, len(self._order))):
            self._forget(self._order.popleft())

    def take_back(self, position: int, generation: int) -> None:
        """Forget what lay behind a position of the log before this generation."""
        newer: list[bytes] = []
        while self._order and (place := self._place(self._order[-1])).end > position:
            key = self._order.pop()
            if place.generation < generation:
                self._forget(key)
            else:
                newer.append(key)
        self._order.extend(reversed(newer))

    def _forget(self, key: bytes) -> None:
        del self._places[key]
        self.delivered.discard(key)

    def _mark(self, key: bytes) -> int:
        return int(_PLACE.unpack(self._places[key])[-1])

    def _place(self, key: bytes) -> Appended:
        return Appended._make(_PLACE.unpack(self._places[key])[:-1])
