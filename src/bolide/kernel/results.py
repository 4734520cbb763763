"""What a walk over records is asked for and what it finds."""

from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import NamedTuple


class Check(IntEnum):
    """What of a record is compared with its checksums."""

    NONE = 0
    BODY = 1
    SEAL = 2
    """The whole record, by its CRC property; the body's own CRC is then not looked at."""


class Stop(Enum):
    """Why a walk ended."""

    END = "end"
    BLANK = "blank"
    """A blank record: the log goes on in the next file."""
    EMPTY = "empty"
    """Zeros where a record would begin: nothing was ever written there."""
    DAMAGED = "damaged"
    FULL = "full"
    """No room is left for what the records are taken into."""


class QueueRun(NamedTuple):
    """Entries for one queue with consecutive queue offsets."""

    topic: bytes
    queue_id: int
    queue_offset: int
    """That of the first entry."""
    entries: bytes
    """Units of 20 bytes as a consume queue file holds them (`ConsumeQueue`)."""


@dataclass(frozen=True, slots=True)
class Scan:
    """What was found; positions are those of the buffer, timestamps store times in ms."""

    end: int
    """The position behind the last sound record."""
    stop: Stop
    reason: str
    """What is wrong with the record at `end`, where `stop` is DAMAGED."""
    count: int
    first_timestamp: int
    last_timestamp: int
    runs: list[QueueRun]
    """In the order of their first entries; a queue has a second run where offsets jump."""
    keys: bytes
    """Items of 20 bytes, `>Iqq`: key hash, physical offset, store timestamp; for `put_keys`."""
