"""Faults inside a broker process: a disk that is full, fails or is slow, and a wrong clock.

The faults are in a file that another process writes, named by the environment variable
BOLIDE_CHAOS_FAULTS. The broker looks at it about every 20 ms.
"""

import errno
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from bolide.store.disk import Disk

FAULTS_VARIABLE = "BOLIDE_CHAOS_FAULTS"
_LOOK_EVERY = 0.02

CLOCK_SHIFT = 30.0
"""Seconds by which the clock of a broker is shifted at most."""


class Faults(msgspec.Struct, frozen=True, kw_only=True):
    """What is wrong with a process; the defaults are: nothing."""

    is_disk_full: bool = False
    """Files cannot grow (ENOSPC); what is allocated can be written."""
    is_sync_failing: bool = False
    """fsync raises EIO."""
    sync_delay: float = 0.0
    """Seconds that each fsync takes longer."""
    clock_shift: float = 0.0
    """Seconds by which the wall clock is ahead."""

    def write(self, path: Path) -> None:
        """Put it into a file; a reader finds the old or the new faults."""
        aside = path.with_name(f"{path.name}.tmp")
        aside.write_bytes(msgspec.json.encode(self))
        aside.replace(path)


class FaultFile:
    """The current content of the file; a missing or damaged file means no faults."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.faults = Faults()

    def look(self) -> None:
        try:
            self.faults = msgspec.json.decode(self._path.read_bytes(), type=Faults)
        except (OSError, msgspec.MsgspecError):
            self.faults = Faults()

    def watch(self) -> None:
        """Look again and again, in a thread that ends with the process."""

        def repeat() -> None:
            while True:
                self.look()
                time.sleep(_LOOK_EVERY)

        self.look()
        threading.Thread(target=repeat, name="chaos-faults", daemon=True).start()


def faulty_disk(file: FaultFile) -> type[Disk]:
    """The class of a disk that has the faults of the file."""

    class FaultyDisk(Disk):
        def allocate(self, path: Path, size: int) -> int:
            self._require_room(path)
            return super().allocate(path, size)

        def create_sparse(self, path: Path, size: int) -> int:
            self._require_room(path)
            return super().create_sparse(path, size)

        def replace(self, path: Path, data: bytes) -> None:
            self._require_room(path)
            super().replace(path, data)

        def write(self, descriptor: int, data: bytes | bytearray | memoryview, at: int) -> None:
            if file.faults.is_disk_full and _is_hole(descriptor, at, len(data)):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            super().write(descriptor, data, at)

        def sync(self, descriptor: int) -> None:
            faults = file.faults
            time.sleep(faults.sync_delay)
            if faults.is_sync_failing:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            super().sync(descriptor)

        def _require_room(self, path: Path) -> None:
            if file.faults.is_disk_full:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    return FaultyDisk


def shifted(clock: Callable[[], float], file: FaultFile) -> Callable[[], float]:
    """A wall clock that is ahead by the shift of the file."""
    return lambda: clock() + file.faults.clock_shift


def _is_hole(descriptor: int, at: int, size: int) -> bool:
    """Whether a write would need new blocks; a file of zero blocks per byte is sparse."""
    found = os.fstat(descriptor)
    return at + size > found.st_size or found.st_blocks * 512 < found.st_size
