"""The calls by which the store changes files: the one seam where tests put faults and crashes."""

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path

from bolide import snapshot

_ZEROS = bytes(1024 * 1024)


class Disk:
    """The real disk. All of it blocks; none of it holds the interpreter while it waits."""

    def allocate(self, path: Path, size: int) -> int:
        """Create a file whose every byte has its place on the disk; returns a descriptor.

        A store into a mapping of a file that is only sparse kills the process on a full disk.
        """
        return self._create(path, lambda descriptor: _reserve(descriptor, size))

    def create_sparse(self, path: Path, size: int) -> int:
        """Create a file of that length for `write`, which can say that the disk is full."""
        return self._create(path, lambda descriptor: os.ftruncate(descriptor, size))

    def write(self, descriptor: int, data: bytes | bytearray | memoryview, at: int) -> None:
        view = memoryview(data)
        while view:
            done = os.pwrite(descriptor, view, at)
            view, at = view[done:], at + done

    def zero(self, descriptor: int, start: int, end: int) -> None:
        """Make bytes zero, where they are not a hole already."""
        while start < end:
            try:
                start = os.lseek(descriptor, start, os.SEEK_DATA)
            except OSError as exc:
                if exc.errno == errno.ENXIO:  # only a hole is left
                    return
                raise
            hole = min(os.lseek(descriptor, start, os.SEEK_HOLE), end)
            while start < hole:
                size = min(hole - start, len(_ZEROS))
                self.write(descriptor, memoryview(_ZEROS)[:size], start)
                start += size

    def sync(self, descriptor: int) -> None:
        """Wait until what was written is on the disk; stores into mappings count as written."""
        _fdatasync(descriptor)

    def sync_directory(self, path: Path) -> None:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def remove(self, path: Path) -> None:
        path.unlink(missing_ok=True)

    def replace(self, path: Path, data: bytes) -> None:
        """Replace a small file whole."""
        snapshot.replace(path, data)

    def used_ratio(self, path: Path) -> float:
        """How full the partition is, from 0 to 1, as users without privileges see it."""
        usage = shutil.disk_usage(path)
        return 1 - usage.free / max(usage.used + usage.free, 1)

    def step(self, name: str) -> None:
        """A moment at which a crash is of interest; tests stop the process here."""

    def _create(self, path: Path, fill: Callable[[int], None]) -> int:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fill(descriptor)
            self.sync_directory(path.parent)
        except BaseException:
            os.close(descriptor)
            path.unlink(missing_ok=True)
            raise
        return descriptor


def _reserve(descriptor: int, size: int) -> None:
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(descriptor, 0, size)
        return
    for start in range(0, size, len(_ZEROS)):  # macOS
        os.pwrite(descriptor, memoryview(_ZEROS)[: size - start], start)


_fdatasync: Callable[[int], None] = getattr(os, "fdatasync", os.fsync)
