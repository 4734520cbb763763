"""The de-duplication window of one queue: recent keys and the positions of their messages.

A key is stored as a digest of 16 bytes and a position packed into 40. A key takes about 200 bytes
of memory, and the garbage collector has no objects to traverse.
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

MAX_MESSAGES = 10_000_000
MAX_SECONDS = 7 * 24 * 3600

_COUNT = re.compile("[0-9]{1,9}")
_TIME = re.compile("([0-9]{1,9})(s|m|h|d)")
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 24 * 3600}
_KEY = re.compile(b"(?:^|\x02)%s\x01([^\x02]+)" % PropertyName.DEDUP_KEY.encode())
_EVICTED_AT_ONCE = 1000
_ENTRY = struct.Struct(">qiqqiq")  # an Appended and its stamp


@dataclass(frozen=True, slots=True)
class WindowLength:
    """How long a key is retained: for a number of messages of its queue, or of seconds."""

    messages: int = 0
    seconds: int = 0

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse `100000`, `30s`, `10m`, `2h` or `7d`.

        Raises:
            ValueError: the text is malformed or out of bounds; the message states the bounds.
        """
        if _COUNT.fullmatch(text) and 1 <= int(text) <= MAX_MESSAGES:
            return cls(messages=int(text))
        if found := _TIME.fullmatch(text):
            seconds = int(found[1]) * _UNITS[found[2]]
            if 1 <= seconds <= MAX_SECONDS:
                return cls(seconds=seconds)
        raise ValueError(
            f"expected a number of messages, 1 to {MAX_MESSAGES}, or a time, 1s to 7d,"
            " written like 30s, 10m, 2h or 7d"
        )

    def stamp(self, store_timestamp: int, queue_offset: int) -> int:
        """The stamp of a message, by which it leaves the window: its store time or queue offset."""
        return store_timestamp if self.seconds else queue_offset

    def oldest(self, now: float, end: int) -> int:
        """The lowest stamp inside the window, now and with the queue ending at `end`."""
        return int((now - self.seconds) * 1000) if self.seconds else end - self.messages


def find_key(properties: Buffer) -> bytes | None:
    """Return the digest of the key in a property string; the last of several keys counts."""
    found = _KEY.findall(properties)
    return digest(found[-1]) if found else None


def digest(key: bytes) -> bytes:
    return blake2b(key, digest_size=16).digest()


class Window:
    """Keys of one queue, in arrival order."""

    __slots__ = ("_entries", "_order", "_stale", "delivered", "length")

    def __init__(self, length: WindowLength) -> None:
        self.length = length
        self.delivered: dict[bytes, int] = {}
        """Keys of delayed messages whose positions are those of their deliveries, with their
        born times."""
        self._entries: dict[bytes, bytes] = {}
        self._order: deque[bytes] = deque()
        self._stale: dict[bytes, int] = {}
        """Number of outdated entries per key in the order: removing them from the middle is
        slow."""

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: bytes) -> bool:
        return key in self._entries

    def find(self, key: bytes, oldest: int) -> Appended | None:
        """Return the position of the first message with this key if its stamp is at least
        `oldest`."""
        packed = self._entries.get(key)
        if packed is None:
            return None
        *appended, stamp = _ENTRY.unpack(packed)
        return Appended._make(appended) if stamp >= oldest else None

    def add(self, key: bytes, appended: Appended, stamp: int) -> None:
        """Record a key, replacing one that has expired."""
        if key in self._entries:
            self._discard(key)
            self._add_stale(key)
        self._entries[key] = _ENTRY.pack(*appended, stamp)
        self._order.append(key)

    def evict_expired(self, oldest: int, at_least: int = 0) -> None:
        """Evict keys with stamps below `oldest`, a bounded number per call.

        Args:
            oldest: the lowest stamp that stays.
            at_least: the bound is at least this number.
        """
        for _ in range(max(_EVICTED_AT_ONCE, at_least)):
            if not self._order or not self._is_below(self._order[0], oldest):
                break
            self._evict_first()

    def evict_oldest(self, count: int) -> None:
        """Evict up to `count` of the oldest keys."""
        left = max(len(self) - count, 0)
        while len(self) > left:
            self._evict_first()

    def discard_lost(self, position: int, generation: int) -> None:
        """Discard keys of records that a failed flush lost: behind `position` and before
        `generation`."""
        lost: set[bytes] = set()
        for key in reversed(self._order):
            if key in self._entries:
                appended = self._position(key)
                if appended.end <= position:
                    break
                if appended.generation < generation:
                    lost.add(key)
        for key in lost:
            self._discard(key)
            self._add_stale(key)

    def _is_below(self, key: bytes, oldest: int) -> bool:
        return key in self._stale or self._stamp(key) < oldest

    def _evict_first(self) -> None:
        """Remove the first entry of the order."""
        key = self._order.popleft()
        count = self._stale.pop(key, 0)
        if not count:
            self._discard(key)
        elif count > 1:
            self._stale[key] = count - 1

    def _add_stale(self, key: bytes) -> None:
        self._stale[key] = self._stale.get(key, 0) + 1

    def _discard(self, key: bytes) -> None:
        del self._entries[key]
        self.delivered.pop(key, None)

    def _stamp(self, key: bytes) -> int:
        return int(_ENTRY.unpack(self._entries[key])[-1])

    def _position(self, key: bytes) -> Appended:
        return Appended._make(_ENTRY.unpack(self._entries[key])[:-1])
