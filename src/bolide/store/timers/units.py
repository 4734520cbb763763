"""What stands in a timer log: a unit for each message that waits (`TimerLog`), 52 bytes.

| Offset | Size | Field                                                                   |
| ------ | ---- | ----------------------------------------------------------------------- |
| 0      | 4    | 52                                                                      |
| 4      | 8    | position of the unit before it in the same slot, -1 without one         |
| 12     | 4    | magic: 1; with 2 it goes into the timer again then; with 4 a recall     |
| 16     | 8    | when it was written, in milliseconds                                    |
| 24     | 4    | how long after that it is due, in milliseconds                          |
| 28     | 8    | physical offset of the message                                          |
| 36     | 4    | size of the message                                                     |
| 40     | 4    | Java's hash of the name of the topic it belongs to                      |
| 44     | 8    | 0                                                                       |
"""

import struct
from typing import Final, NamedTuple

UNIT: Final = struct.Struct(">iqiqiqiiq")
UNIT_SIZE: Final = UNIT.size
NOWHERE: Final = -1

PLAIN: Final = 1
ROLL: Final = 2
DELETE: Final = 4
_MAGIC_BITS: Final = 0xF
_FARTHEST: Final = 2**31 - 1

WaitingKey = tuple[int, int]
"""When a message is due, and where it lies: the order of delivery."""


class Waiting(NamedTuple):
    """A message that waits; they sort by when they are due, then as they came."""

    due: int
    """Milliseconds since 1970: what says in which slot it stands."""
    physical_offset: int
    size: int
    magic: int
    written: int
    topic_hash: int

    @property
    def key(self) -> WaitingKey:
        return self.due, self.physical_offset

    @property
    def is_recall(self) -> bool:
        """Whether it names another message that is not to be delivered."""
        return self.magic & (DELETE | ROLL) == DELETE

    def encode(self, previous: int) -> bytes:
        # The distance has four bytes; of what is so late the time of writing is told wrong.
        written = max(min(self.written, self.due + _FARTHEST), self.due - _FARTHEST)
        return UNIT.pack(
            UNIT_SIZE, previous, self.magic, written, self.due - written,
            self.physical_offset, self.size, self.topic_hash, 0,
        )  # fmt: skip


def decode_unit(data: bytes, at: int = 0) -> tuple[int, Waiting] | None:
    """The position of the unit before it and what waits; None if that is no unit."""
    if len(data) - at < UNIT_SIZE:
        return None
    size, previous, magic, written, delay, place, length, topic, _ = UNIT.unpack_from(data, at)
    if size != UNIT_SIZE or magic & ~_MAGIC_BITS or magic == 0:
        return None
    return previous, Waiting(written + delay, place, length, magic, written, topic)
