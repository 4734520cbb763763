"""The checkpoint file: positions up to which the store is known to be on the disk.

4096 bytes (`StoreCheckpoint`): at 0, 8 and 16 the store times, in milliseconds, up to which the
log, the consume queues and the index were flushed, at 24 and 32 positions of replication. RocketMQ
does not use the rest; Bolide keeps its recovery point there, at 1024:

| Offset | Size | Field                                                                     |
| ------ | ---- | ------------------------------------------------------------------------- |
| 0      | 8    | `bolide01`                                                                |
| 8      | 24   | copy of the three store times; a mismatch means RocketMQ wrote since      |
| 32     | 8    | position of the log up to which log, queues and index are on the disk     |
| 40     | 8    | physical offset of the last record below it, -1 if unknown                |
| 48     | 8    | queue units below it, over all queues                                     |
| 56     | 8    | entry count of the newest index file, 0 without one                       |
| 64     | 8    | its end offset                                                            |
| 72     | 8    | its end timestamp                                                         |
| 80     | 17   | its name                                                                  |
| 97     | 36   | boot id of the system: while it is the same, the page cache survived      |
| 133    | 4    | CRC-32 of the recovery point up to here                                   |
"""

import contextlib
import os
import struct
from dataclasses import dataclass, field, replace
from pathlib import Path
from zlib import crc32

from bolide.private_files import FILE_MODE
from bolide.store.disk import Disk
from bolide.store.key_index import IndexRecoveryPoint

_SIZE = 4096
_TIMES = struct.Struct(">qqqqq")
_MARK = struct.Struct(">8sqqqqqqqqq17s36s")
_CRC = struct.Struct(">I")
_MARK_AT = 1024
_MAGIC = b"bolide01"
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")

_SAFETY_MS = 3000


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryPoint:
    """All records below `position`, their queue units and index entries are on the disk."""

    position: int
    last_record: int
    units: int
    index: IndexRecoveryPoint = field(default_factory=IndexRecoveryPoint)
    boot_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    log_timestamp: int = 0
    queue_timestamp: int = 0
    index_timestamp: int = 0
    master_flushed_offset: int = 0
    confirm_offset: int = 0
    recovery_point: RecoveryPoint | None = None

    @property
    def safe_timestamp(self) -> int:
        """Store time up to which records are in log and queues, by RocketMQ's rule."""
        return max(min(self.log_timestamp, self.queue_timestamp) - _SAFETY_MS, 0)

    @property
    def synced_end(self) -> int:
        """Position up to which the log was on the disk: no crash makes it end before."""
        return max(self.confirm_offset, self.recovery_point.position if self.recovery_point else 0)

    def encode(self) -> bytes:
        times = self.log_timestamp, self.queue_timestamp, self.index_timestamp
        head = _TIMES.pack(*times, self.master_flushed_offset, self.confirm_offset)
        recovery_point = (
            _encode_recovery_point(self.recovery_point, times) if self.recovery_point else b""
        )
        return (head.ljust(_MARK_AT, b"\0") + recovery_point).ljust(_SIZE, b"\0")

    @classmethod
    def decode(cls, data: bytes) -> "Checkpoint":
        """A file that is too short counts as missing."""
        if len(data) < _SIZE:
            return cls()
        log, queue, index, master, confirm = _TIMES.unpack_from(data)
        return cls(
            log_timestamp=log,
            queue_timestamp=queue,
            index_timestamp=index,
            master_flushed_offset=master,
            confirm_offset=confirm,
            recovery_point=_decode_recovery_point(data, (log, queue, index)),
        )


class CheckpointFile:
    def __init__(self, path: Path, disk: Disk) -> None:
        self._path = path
        self._disk = disk
        self.value = Checkpoint()

    @property
    def exists(self) -> bool:
        return self._path.exists()

    def load(self) -> Checkpoint:
        with contextlib.suppress(FileNotFoundError):
            self.value = Checkpoint.decode(self._path.read_bytes())
        return self.value

    def save(self, value: Checkpoint) -> None:
        """Blocks."""
        save_page(self._path, value.encode(), self._disk, step="before-checkpoint")
        self.value = value

    def void_recovery_point(self) -> None:
        """Remove the recovery point before an operation that invalidates it. Blocks."""
        if self.value.recovery_point:
            self.save(replace(self.value, recovery_point=None))

    def withdraw(self, position: int) -> None:
        """Remove what is said of the log behind a position, before it is cut there. Blocks."""
        value, point = self.value, self.value.recovery_point
        if value.synced_end > position:
            self.save(
                replace(
                    value,
                    confirm_offset=max(min(value.confirm_offset, position), 0),
                    recovery_point=point if point and point.position <= position else None,
                )
            )


def save_page(path: Path, data: bytes, disk: Disk, *, step: str) -> None:
    """Write a small file in place with a single write. Blocks.

    Args:
        step: name of the crash point before the write, for tests.
    """
    new = not path.exists()
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
    try:
        disk.step(step)
        disk.write(descriptor, data, 0)
        disk.sync(descriptor)
    finally:
        os.close(descriptor)
    if new:
        disk.sync_directory(path.parent)


def boot_id() -> str:
    """Identifier of the current boot of the system; empty if the system has none."""
    try:
        return _BOOT_ID.read_text().strip()[:36]
    except OSError:
        return ""


def _encode_recovery_point(recovery_point: RecoveryPoint, times: tuple[int, int, int]) -> bytes:
    index = recovery_point.index
    data = _MARK.pack(
        _MAGIC, *times, recovery_point.position, recovery_point.last_record, recovery_point.units,
        index.count, index.end_offset, index.end_timestamp, index.name.encode(),
        recovery_point.boot_id.encode(),
    )  # fmt: skip
    return data + _CRC.pack(crc32(data))


def _decode_recovery_point(data: bytes, times: tuple[int, int, int]) -> RecoveryPoint | None:
    found = data[_MARK_AT : _MARK_AT + _MARK.size]
    (crc,) = _CRC.unpack_from(data, _MARK_AT + _MARK.size)
    magic, log, queue, index, position, last, units, count, end, end_time, name, boot = (
        _MARK.unpack(found)
    )
    if magic != _MAGIC or crc != crc32(found) or (log, queue, index) != times:
        return None
    return RecoveryPoint(
        position=position,
        last_record=last,
        units=units,
        index=IndexRecoveryPoint(name.rstrip(b"\0").decode(), count, end, end_time),
        boot_id=boot.rstrip(b"\0").decode(),
    )
