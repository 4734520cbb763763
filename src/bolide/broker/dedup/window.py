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

    __slots__ = ("_order", "_places", "_stale", "delivered", "span")

    def __init__(self, span: Span) -> None:
        self.span = span
        self.delivered: dict[bytes, int] = {}
        """Keys of messages that were delayed, whose places are those of their deliveries; and when
        they were born."""
        self._places: dict[bytes, bytes] = {}
        self._order: deque[bytes] = deque()
        self._stale: dict[bytes, int] = {}
        """How often a key stands in the order besides its place: to take it out of the middle
        takes long."""

    def __len__(self) -> int:
        return len(self._places)

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
            self._forget(key)
            self._pass_over(key)
        self._places[key] = _PLACE.pack(*appended, mark)
        self._order.append(key)

    def slide(self, oldest: int, least: int = 0) -> None:
        """Forget keys whose mark is below; of many only some, for a broker must go on.

        Args:
            oldest: the least mark that stays.
            least: how many at least, as far as there are.
        """
        for _ in range(max(_SLID_AT_ONCE, least)):
            if not self._order or not self._is_below(self._order[0], oldest):
                break
            self._step()

    def drop(self, count: int) -> None:
        """Forget so many of the oldest, as far as there are."""
        left = max(len(self) - count, 0)
        while len(self) > left:
            self._step()

    def take_back(self, position: int, generation: int) -> None:
        """Forget what lay behind a position of the log before this generation."""
        lost: set[bytes] = set()
        for key in reversed(self._order):
            if key in self._places:
                place = self._place(key)
                if place.end <= position:
                    break
                if place.generation < generation:
                    lost.add(key)
        for key in lost:
            self._forget(key)
            self._pass_over(key)

    def _is_below(self, key: bytes, oldest: int) -> bool:
        return key in self._stale or self._mark(key) < oldest

    def _step(self) -> None:
        """Go on behind the first of the order."""
        key = self._order.popleft()
        times = self._stale.pop(key, 0)
        if not times:
            self._forget(key)
        elif times > 1:
            self._stale[key] = times - 1

    def _pass_over(self, key: bytes) -> None:
        self._stale[key] = self._stale.get(key, 0) + 1

    def _forget(self, key: bytes) -> None:
        del self._places[key]
        self.delivered.pop(key, None)

    def _mark(self, key: bytes) -> int:
        return int(_PLACE.unpack(self._places[key])[-1])

    def _place(self, key: bytes) -> Appended:
        return Appended._make(_PLACE.unpack(self._places[key])[:-1])
