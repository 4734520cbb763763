"""The newest units of a consume queue, in memory; `_units` is the compiled version.

Changes must be serialized; any thread may read. The fast path for sends appends directly and counts
its units, so that statistics and long polling are updated once per burst.
"""

import struct
from typing import Any

UNIT = struct.Struct(">qiq")
"""Physical offset, size and tags code of a message; of a delayed one, its delivery time."""
UNIT_SIZE = UNIT.size
BLANK_SIZE = 0x7FFF_FFFF
"""Size in a unit whose record is lost; larger than any record."""

_PLACE = struct.Struct(">qi")


class Units:
    """Consecutive units of a queue, from queue offset `base` on."""

    __slots__ = ("_held", "fresh", "fresh_bytes", "is_changed", "is_closed", "owner")

    unit_size = UNIT_SIZE
    """A subclass may have longer units that begin alike."""

    def __init__(self, owner: Any = None) -> None:
        self.owner = owner
        """The queue of these units, for callers that only have the units."""
        self.is_closed = False
        """Set when the queue is removed; nothing may be appended then."""
        self.is_changed = False
        """Set when sends have appended units and the queue table has been notified."""
        self.fresh = 0
        """Units appended by sends since `take_fresh`."""
        self.fresh_bytes = 0
        # One tuple, replaced atomically, so that readers see a consistent pair.
        self._held = (0, bytearray())

    @property
    def base(self) -> int:
        return self._held[0]

    @property
    def end(self) -> int:
        base, data = self._held
        return base + len(data) // self.unit_size

    @property
    def size(self) -> int:
        """Size of the units in bytes."""
        return len(self._held[1])

    def append(self, units: bytes | bytearray) -> None:
        """Append whole units."""
        self._held[1].extend(units)

    def add(self, physical_offset: int, size: int, code: int) -> int:
        """Append the unit of a send; returns its queue offset."""
        base, data = self._held
        data.extend(UNIT.pack(physical_offset, size, code))
        self.fresh += 1
        self.fresh_bytes += size
        return base + len(data) // self.unit_size - 1

    def take_fresh(self) -> tuple[int, int]:
        """Return and reset the number of units added by sends and the bytes of their records."""
        fresh = self.fresh, self.fresh_bytes
        self.fresh = self.fresh_bytes = 0
        return fresh

    def reset(self, base: int, units: bytes | bytearray = b"") -> None:
        """Replace the content by these units, from `base` on."""
        self._held = (base, bytearray(units))

    def take(self, queue_offset: int, count: int) -> bytearray:
        """Return up to `count` units from a queue offset on; empty if it is below `base`."""
        base, data = self._held
        at = queue_offset - base
        return (
            data[at * self.unit_size : (at + max(count, 0)) * self.unit_size]
            if at >= 0
            else bytearray()
        )

    def drop_below(self, queue_offset: int) -> None:
        """Drop the units below a queue offset."""
        base, data = self._held
        if queue_offset > base:
            self._held = (queue_offset, data[(queue_offset - base) * self.unit_size :])

    def cut(self, queue_offset: int) -> None:
        """Drop the units from a queue offset on."""
        base, data = self._held
        self._held = (base, data[: max(queue_offset - base, 0) * self.unit_size])

    def end_below(self, physical_offset: int) -> int:
        """Queue offset behind the last unit whose record ends at or below a physical offset."""
        base, data = self._held
        at = len(data) - self.unit_size  # read once: units may be appended concurrently
        while at >= 0:
            start, size = _PLACE.unpack_from(data, at)
            if start + size <= physical_offset or size == BLANK_SIZE:
                break
            at -= self.unit_size
        return base + at // self.unit_size + 1
