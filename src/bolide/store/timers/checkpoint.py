"""The checkpoint of the timers: the file `config/timercheck` (`TimerCheckpoint`), 4096 bytes.

| Offset | Size | Field                                                                       |
| ------ | ---- | --------------------------------------------------------------------------- |
| 0      | 8    | time of the first slot that may hold undelivered entries, in milliseconds   |
| 8      | 8    | position up to which the timer log is on the disk                           |
| 16     | 8    | queue offset of the next message of the timer topic to put into a slot      |
| 24     | 8    | the same offset of the master                                               |
| 32     | 24   | version: state, time and counter                                            |

RocketMQ does not use the rest; Bolide keeps its recovery point there, at 1024:

| Offset | Size | Field                                                                       |
| ------ | ---- | --------------------------------------------------------------------------- |
| 0      | 8    | `bolide01`                                                                  |
| 8      | 24   | copy of the first three numbers; a mismatch means RocketMQ wrote since      |
| 32     | 8    | commit log position before which no entry of the open slots was delivered   |
| 40     | 8    | commit log position before which no message is pending                      |
| 48     | 4    | CRC-32 of the recovery point up to here                                     |
"""

import contextlib
import struct
from dataclasses import dataclass
from pathlib import Path
from zlib import crc32

from bolide.private_files import make_directory
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
    """Commit log positions that RocketMQ's format does not have."""

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
        """The part that is sent to replicas."""
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
        """A file that is too short counts as missing."""
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
        make_directory(self._path.parent)
        save_page(self._path, value.encode(), self._disk, step="before-timer-checkpoint")


def _decode_recovery_point(data: bytes, numbers: tuple[int, int, int]) -> TimerRecoveryPoint | None:
    found = data[_MARK_AT : _MARK_AT + _MARK.size]
    (crc,) = _CRC.unpack_from(data, _MARK_AT + _MARK.size)
    magic, time, position, queue, delivered_from, carried_to = _MARK.unpack(found)
    if magic != _MAGIC or crc != crc32(found) or (time, position, queue) != numbers:
        return None
    return TimerRecoveryPoint(delivered_from=delivered_from, carried_to=carried_to)
