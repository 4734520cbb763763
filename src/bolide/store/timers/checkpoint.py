"""How far timers are: the file `config/timercheck` (`TimerCheckpoint`), 4096 bytes.

| Offset | Size | Field                                                                       |
| ------ | ---- | --------------------------------------------------------------------------- |
| 0      | 8    | time of the first slot that may hold something undelivered, in milliseconds |
| 8      | 8    | position of the timer log up to which it is on the disk                     |
| 16     | 8    | number of the next message of the timer's topic to put into a slot          |
| 24     | 8    | the same number of the master                                               |
| 32     | 24   | version: state, time and counter                                            |

RocketMQ leaves the rest alone, and there stands our mark, at 1024:

| Offset | Size | Field                                                                       |
| ------ | ---- | --------------------------------------------------------------------------- |
| 0      | 8    | `bolide01`                                                                  |
| 8      | 24   | the first three numbers again: if RocketMQ wrote since, the mark is void    |
| 32     | 8    | position of the commit log before which nothing of the open slots went out  |
| 40     | 8    | position of the commit log before which no message waits any more           |
| 48     | 4    | CRC-32 of the mark up to here                                               |
"""

import contextlib
import struct
from dataclasses import dataclass
from pathlib import Path
from zlib import crc32

from bolide.store.checkpoint import save_page
from bolide.store.disk import Disk

_SIZE = 4096
_HEAD = struct.Struct(">qqqqqqq")
_MARK = struct.Struct(">8sqqqqq")
_CRC = struct.Struct(">I")
_MARK_AT = 1024
_MAGIC = b"bolide01"


@dataclass(frozen=True, slots=True, kw_only=True)
class TimerRecoveryPoint:
    """What RocketMQ does not write down."""

    delivered_from: int = 0
    carried_to: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TimerCheckpoint:
    read_time: int = 0
    log_position: int = 0
    queue_offset: int = 0
    master_queue_offset: int = 0
    state_version: int = 0
    timestamp: int = 0
    counter: int = 0
    recovery_point: TimerRecoveryPoint | None = None

    @property
    def head(self) -> bytes:
        """As replicas get it."""
        return _HEAD.pack(
            self.read_time, self.log_position, self.queue_offset, self.master_queue_offset,
            self.state_version, self.timestamp, self.counter,
        )  # fmt: skip

    def encode(self) -> bytes:
        recovery_point = b""
        if self.recovery_point:
            numbers = self.read_time, self.log_position, self.queue_offset
            own = self.recovery_point.delivered_from, self.recovery_point.carried_to
            recovery_point = _MARK.pack(_MAGIC, *numbers, *own)
            recovery_point += _CRC.pack(crc32(recovery_point))
        return (self.head.ljust(_MARK_AT, b"\0") + recovery_point).ljust(_SIZE, b"\0")

    @classmethod
    def decode(cls, data: bytes) -> "TimerCheckpoint":
        """A file that is too short says nothing, as one that is missing."""
        if len(data) < _SIZE:
            return cls()
        time, position, queue, master, state, timestamp, counter = _HEAD.unpack_from(data)
        return cls(
            read_time=time,
            log_position=position,
            queue_offset=queue,
            master_queue_offset=master,
            state_version=state,
            timestamp=timestamp,
            counter=counter,
            recovery_point=_decode_recovery_point(data, (time, position, queue)),
        )


class TimerCheckpointFile:
    def __init__(self, path: Path, disk: Disk) -> None:
        self._path = path
        self._disk = disk

    @property
    def exists(self) -> bool:
        return self._path.exists()

    def load(self) -> TimerCheckpoint | None:
        with contextlib.suppress(FileNotFoundError):
            return TimerCheckpoint.decode(self._path.read_bytes())
        return None

    def save(self, value: TimerCheckpoint) -> None:
        """Blocks."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        save_page(self._path, value.encode(), self._disk, step="before-timer-checkpoint")


def _decode_recovery_point(data: bytes, numbers: tuple[int, int, int]) -> TimerRecoveryPoint | None:
    found = data[_MARK_AT : _MARK_AT + _MARK.size]
    (crc,) = _CRC.unpack_from(data, _MARK_AT + _MARK.size)
    magic, time, position, queue, delivered_from, carried_to = _MARK.unpack(found)
    if magic != _MAGIC or crc != crc32(found) or (time, position, queue) != numbers:
        return None
    return TimerRecoveryPoint(delivered_from=delivered_from, carried_to=carried_to)
