"""Parameters and results of scanning records."""

from dataclasses import dataclass, field
from enum import Enum, IntEnum
from typing import NamedTuple


class Check(IntEnum):
    """Which checksums of a record are verified."""

    NONE = 0
    BODY = 1
    SEAL = 2
    """The whole record, by its CRC property; the body CRC is then not verified."""


class Stop(Enum):
    """Why a scan ended."""

    END = "end"
    BLANK = "blank"
    """A blank record: the log continues in the next file."""
    EMPTY = "empty"
    """Zeros instead of a record: nothing has been written there."""
    DAMAGED = "damaged"
    FULL = "full"
    """The target of the records is full."""
    BATCH = "batch"
    """An inner batch, which the caller unwraps."""


class QueueRun(NamedTuple):
    """Entries of one queue with consecutive queue offsets."""

    topic: bytes
    queue_id: int
    queue_offset: int
    """Queue offset of the first entry."""
    entries: bytes
    """Units of 20 bytes in the format of a consume queue file (`ConsumeQueue`)."""


@dataclass(frozen=True, slots=True)
class Scan:
    """Result of a scan; positions refer to the buffer, timestamps are store times in ms."""

    end: int
    """Position behind the last valid record."""
    stop: Stop
    reason: str
    """The defect of the record at `end` if `stop` is DAMAGED."""
    count: int
    first_timestamp: int
    last_timestamp: int
    runs: list[QueueRun]
    """In the order of their first entries; a gap in a queue's offsets begins another run."""
    keys: bytes
    """Items of 20 bytes, `>Iqq`: key hash, physical offset, store timestamp; for `put_keys`."""
    batches: list[int] = field(default_factory=list)
    """Positions of inner batches, which have no entries in `runs`."""
