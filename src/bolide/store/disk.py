"""All calls by which the store changes files; tests inject faults and crashes here."""

import contextlib
import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path

from bolide import snapshot
from bolide.private_files import FILE_MODE, make_directory

_ZEROS = bytes(1024 * 1024)
_DESCRIPTORS = Path("/proc/self/fd")
_NO_TMPFILE = {errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOENT}
"""Errors of a file system that does not support O_TMPFILE."""


class Disk:
    """The real disk. Every method blocks; none holds the GIL while it waits."""

    def allocate(self, path: Path, size: int) -> int:
        """Create a file with all its blocks allocated; returns a descriptor.

        On a full disk a store into a mapping of a sparse file would kill the process (SIGBUS).
        """
        if not path.parent.exists():
            make_directory(path.parent)
            self.sync_directory(path.parent.parent)
        descriptor, aside = _open_aside(path)
        try:
            _reserve(descriptor, size)
            self.sync(descriptor)  # the length is durable before the file gets its name
            self.step("allocated")
            _name(descriptor, aside, path)
            self.sync_directory(path.parent)
            # Reopened by name: /proc would list the first descriptor as a deleted file.
            return os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except BaseException:
            with contextlib.suppress(OSError):
                (aside or path).unlink(missing_ok=True)
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)
            raise
        finally:
            os.close(descriptor)

    def create_sparse(self, path: Path, size: int) -> int:
        """Create a sparse file of that length, for `write`, which can report a full disk.

        Until its directory is synced a power cut may lose the file's name.
        """
        make_directory(path.parent)
        return _create(path, lambda descriptor: os.ftruncate(descriptor, size))

    def write(self, descriptor: int, data: bytes | bytearray | memoryview, at: int) -> None:
        view = memoryview(data)
        while view:
            done = os.pwrite(descriptor, view, at)
            view, at = view[done:], at + done

    def zero(self, descriptor: int, start: int, end: int) -> None:
        """Zero a range of bytes, skipping holes."""
        for first, last in data_ranges(descriptor, start, end):
            for at in range(first, last, len(_ZEROS)):
                self.write(descriptor, memoryview(_ZEROS)[: last - at], at)

    def sync(self, descriptor: int) -> None:
        """Wait until all writes are on the disk, including stores into mappings."""
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
        """Replace a small file atomically."""
        snapshot.replace(path, data, self.step)

    def used_ratio(self, path: Path) -> float:
        """Used share of the partition, from 0 to 1, as unprivileged users see it."""
        usage = shutil.disk_usage(path)
        return 1 - usage.free / max(usage.used + usage.free, 1)

    def step(self, name: str) -> None:
        """A named crash point: tests stop the process here."""


def data_ranges(descriptor: int, start: int, end: int) -> list[tuple[int, int]]:
    """Return the parts of a file that are not holes.

    Blocks that are allocated but never written are holes until they are read: then they are in
    the page cache and count as data. So the ranges are collected before the caller reads any.
    """
    found: list[tuple[int, int]] = []
    while start < end:
        try:
            first = os.lseek(descriptor, start, os.SEEK_DATA)
        except OSError as exc:
            if exc.errno == errno.ENXIO:  # only a hole is left
                break
            raise
        start = min(os.lseek(descriptor, first, os.SEEK_HOLE), end)
        if first < start:
            found.append((first, start))
    return found


def aside_of(directory: Path) -> str:
    """Prefix of the temporary names of files that are being made for a directory."""
    return f".{directory.name}-"


def _open_aside(path: Path) -> tuple[int, Path | None]:
    """Open a new temporary file; `_name` gives it its final name once it is complete.

    RocketMQ refuses a directory that contains a file of another length. An unnamed file
    (O_TMPFILE) leaves nothing behind after a crash. Without support for those the file is made
    beside the directory, if both are on the same file system.
    """
    if hasattr(os, "O_TMPFILE") and _DESCRIPTORS.exists():
        try:
            return os.open(path.parent, os.O_RDWR | os.O_TMPFILE | os.O_CLOEXEC, FILE_MODE), None
        except OSError as exc:
            if exc.errno not in _NO_TMPFILE:
                raise
    beside = path.parent.parent
    one_disk = beside.stat().st_dev == path.parent.stat().st_dev
    aside = beside / (aside_of(path.parent) + path.name) if one_disk else path
    return os.open(aside, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, FILE_MODE), aside


def _name(descriptor: int, aside: Path | None, path: Path) -> None:
    if aside:
        aside.replace(path)
        return
    path.unlink(missing_ok=True)  # a leftover that could not be removed earlier
    # os.link follows the symbolic link only if a directory descriptor is given.
    os.link(_DESCRIPTORS / str(descriptor), path, src_dir_fd=descriptor, follow_symlinks=True)


def _create(path: Path, fill: Callable[[int], None]) -> int:
    flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
    descriptor = os.open(path, flags, FILE_MODE)
    try:
        fill(descriptor)
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
