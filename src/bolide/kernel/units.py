"""The newest units of a queue, in memory; `_units` has the compiled twin.

One thread at a time changes them, any thread reads. `_sends` appends to them itself and counts what
it appended, so that statistics and those who wait are told of many at once.
"""

import struct
from typing import Any

UNIT_SIZE = 20
BLANK_SIZE = 0x7FFF_FFFF
"""The size that a unit names whose record is lost; no record is that large."""

_UNIT = struct.Struct(">qiq")
_PLACE = struct.Struct(">qi")


class Units:
    """Units from `base` on."""

    __slots__ = ("_held", "fresh", "fresh_bytes", "is_changed", "is_closed", "owner")

    def __init__(self, owner: Any = None) -> None:
        self.owner = owner
        """Whose units they are, for who finds them touched."""
        self.is_closed = False
        """The queue is gone: nothing may be appended."""
        self.is_changed = False
        """Sends appended something, and the queue's table knows."""
        self.fresh = 0
        """Units appended by sends since `take_fresh`."""
        self.fresh_bytes = 0
        # Replaced as a whole, so that a reader on another thread sees one or the other.
        self._held = (0, bytearray())

    @property
    def base(self) -> int:
        return self._held[0]

    @property
    def end(self) -> int:
        base, data = self._held
        return base + len(data) // UNIT_SIZE

    @property
    def size(self) -> int:
        """Bytes that they take."""
        return len(self._held[1])

    def append(self, units: bytes | bytearray) -> None:
        """Add whole units at the end."""
        self._held[1].extend(units)

    def add(self, physical_offset: int, size: int, code: int) -> int:
        """Add one that a send brought; returns its queue offset."""
        base, data = self._held
        data.extend(_UNIT.pack(physical_offset, size, code))
        self.fresh += 1
        self.fresh_bytes += size
        return base + len(data) // UNIT_SIZE - 1

    def take_fresh(self) -> tuple[int, int]:
        """How many units were added since the last call, and the bytes of their records."""
        fresh = self.fresh, self.fresh_bytes
        self.fresh = self.fresh_bytes = 0
        return fresh

    def reset(self, base: int, units: bytes | bytearray = b"") -> None:
        """Hold these instead, from `base` on."""
        self._held = (base, bytearray(units))

    def take(self, queue_offset: int, count: int) -> bytearray:
        """The bytes of units from an offset on; none if it is below `base`."""
        base, data = self._held
        at = queue_offset - base
        return data[at * UNIT_SIZE : (at + max(count, 0)) * UNIT_SIZE] if at >= 0 else bytearray()

    def drop_below(self, queue_offset: int) -> None:
        """Let go of the units below an offset."""
        base, data = self._held
        if queue_offset > base:
            self._held = (queue_offset, data[(queue_offset - base) * UNIT_SIZE :])

    def cut(self, queue_offset: int) -> None:
        """Let go of the units from an offset on."""
        base, data = self._held
        self._held = (base, data[: max(queue_offset - base, 0) * UNIT_SIZE])

    def end_below(self, physical_offset: int) -> int:
        """The offset behind the last unit whose record ends at or below a position of the log."""
        base, data = self._held
        at = len(data) - UNIT_SIZE  # read once: units are appended meanwhile
        while at >= 0:
            start, size = _PLACE.unpack_from(data, at)
            if start + size <= physical_offset or size == BLANK_SIZE:
                break
            at -= UNIT_SIZE
        return base + at // UNIT_SIZE + 1
