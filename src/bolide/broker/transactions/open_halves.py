"""Which half messages are open: one bit for each, from the first that may be on.

Every half message has a number in its queue. It is open unless its bit is set; so a queue that
grows needs no word here, and a million of them take 128 kB.
"""

import re
from array import array
from collections.abc import Iterator

_NOT_FULL = re.compile(b"[^\xff]", re.DOTALL)
_TRIM_AT = 4096
"""Bytes that are cut off at a time."""
_TOGETHER = 1024


class OpenHalves:
    """Belongs to one event loop."""

    def __init__(self, first: int = 0) -> None:
        self._base = first & ~7
        self._bits = bytearray()
        for offset in range(self._base, first):
            self.close(offset)

    def is_open(self, offset: int) -> bool:
        at = offset - self._base
        if at < 0:
            return False
        byte = at >> 3
        return byte >= len(self._bits) or not self._bits[byte] >> (at & 7) & 1

    def close(self, offset: int) -> None:
        at = offset - self._base
        if at < 0:
            return
        byte = at >> 3
        if byte >= len(self._bits):
            self._bits.extend(bytes(byte + 1 - len(self._bits)))
        self._bits[byte] |= 1 << (at & 7)

    def reopen(self, offset: int) -> None:
        """Take back a `close`, however long ago it was."""
        if offset < self._base:
            more = (self._base - (offset & ~7)) >> 3
            self._bits[:0] = b"\xff" * more
            self._base -= more * 8
        at = offset - self._base
        if at >> 3 < len(self._bits):
            self._bits[at >> 3] &= ~(1 << (at & 7))

    def next_open(self, offset: int) -> int:
        """The first from `offset` on that is not closed; it may not have been stored yet."""
        at = max(offset - self._base, 0)
        while at & 7 and at >> 3 < len(self._bits) and self._bits[at >> 3] >> (at & 7) & 1:
            at += 1
        if at & 7 or at >> 3 >= len(self._bits):
            return self._base + at
        found = _NOT_FULL.search(self._bits, at >> 3)
        if found is None:
            return self._base + len(self._bits) * 8
        byte = self._bits[found.start()]
        return self._base + found.start() * 8 + _lowest_clear(byte)

    @property
    def first(self) -> int:
        """All before it are closed."""
        return self.next_open(self._base)

    def trim(self) -> None:
        """Forget what lies before the first."""
        spare = (self.first - self._base) >> 3
        if spare >= _TRIM_AT:
            del self._bits[:spare]
            self._base += spare * 8

    def between(self, begin: int, end: int) -> Iterator[int]:
        """The open ones of a range."""
        offset = self.next_open(begin)
        while offset < end:
            yield offset
            offset = self.next_open(offset + 1)

    def count(self, end: int) -> int:
        """How many are open before `end`."""
        first = self.first
        if end <= first:
            return 0
        low, high = first - self._base, end - self._base
        bits = int.from_bytes(self._bits[low >> 3 : (high + 7) >> 3], "little")
        width = high - (low & ~7)
        closed = (bits & ((1 << width) - 1)) >> (low & 7)
        return high - low - closed.bit_count()


class OpPositions:
    """How far the op queue is needed: an op message that names none but closed halves before the
    first open one is not."""

    def __init__(self, first: int = 0) -> None:
        self._base = first
        self._last_named = array("q")
        """By position in the op queue: the last half that the message there names."""

    def note(self, position: int, last_named: int) -> None:
        """Say what stands at a position; what stood there before was taken back."""
        at = position - self._base
        if at < 0:
            return
        del self._last_named[at:]
        self._last_named.extend([-1] * (at - len(self._last_named)))
        self._last_named.append(last_named)

    def first_needed(self, first_open: int) -> int:
        """The position from which on a restart must read, and forget those before it."""
        named, done = self._last_named, 0
        # Hundreds of thousands may be done with: most of them are passed over together.
        while done + _TOGETHER <= len(named) and max(named[done : done + _TOGETHER]) < first_open:
            done += _TOGETHER
        while done < len(named) and named[done] < first_open:
            done += 1
        del named[:done]
        self._base += done
        return self._base


def _lowest_clear(byte: int) -> int:
    return ((~byte & (byte + 1)) & 0xFF).bit_length() - 1
