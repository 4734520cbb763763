"""The calls by which the store changes files: the one seam where tests put faults and crashes."""

import contextlib
import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path

from bolide import snapshot

_ZEROS = bytes(1024 * 1024)
_DESCRIPTORS = Path("/proc/self/fd")
_NO_SUCH_FILES = {errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOENT}
"""What a file system answers that has no files without a name."""


class Disk:
    """The real disk. All of it blocks; none of it holds the interpreter while it waits."""

    def allocate(self, path: Path, size: int) -> int:
        """Create a file whose every byte has its place on the disk; returns a descriptor.

        A store into a mapping of a file that is only sparse kills the process on a full disk.
        """
        if not path.parent.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            self.sync_directory(path.parent.parent)
        descriptor, aside = _open_aside(path)
        try:
            _reserve(descriptor, size)
            self.sync(descriptor)  # its length, before it has a name
            self.step("allocated")
            _name(descriptor, aside, path)
            self.sync_directory(path.parent)
            # By its name: the system would show the first one as that of a deleted file for ever.
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
        """Create a file of that length for `write`, which can say that the disk is full.

        Its name may be lost in a power cut, until its directory is synced.
        """
        path.parent.mkdir(parents=True, exist_ok=True)
        return _create(path, lambda descriptor: os.ftruncate(descriptor, size))

    def write(self, descriptor: int, data: bytes | bytearray | memoryview, at: int) -> None:
        view = memoryview(data)
        while view:
            done = os.pwrite(descriptor, view, at)
            view, at = view[done:], at + done

    def zero(self, descriptor: int, start: int, end: int) -> None:
        """Make bytes zero, where they are not a hole already."""
        for first, last in data_ranges(descriptor, start, end):
            for at in range(first, last, len(_ZEROS)):
                self.write(descriptor, memoryview(_ZEROS)[: last - at], at)

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
        snapshot.replace(path, data, self.step)

    def used_ratio(self, path: Path) -> float:
        """How full the partition is, from 0 to 1, as users without privileges see it."""
        usage = shutil.disk_usage(path)
        return 1 - usage.free / max(usage.used + usage.free, 1)

    def step(self, name: str) -> None:
        """A moment at which a crash is of interest; tests stop the process here."""


def data_ranges(descriptor: int, start: int, end: int) -> list[tuple[int, int]]:
    """The parts of a file that are no holes.

    Allocated but never written is a hole, unless somebody has looked at it: then it is in the page
    cache and counts as data. So all of them are found before the caller touches any.
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
    """How files are named, beside a directory, that are made for it; then comes their own name."""
    return f".{directory.name}-"


def _open_aside(path: Path) -> tuple[int, Path | None]:
    """Open a new file that `_name` gives its name when it is whole.

    RocketMQ refuses a directory with a file of another length in it. Best is a file without any
    name, of which a crash leaves nothing; else one beside the directory, if that is on one disk.
    """
    if hasattr(os, "O_TMPFILE") and _DESCRIPTORS.exists():
        try:
            return os.open(path.parent, os.O_RDWR | os.O_TMPFILE | os.O_CLOEXEC, 0o644), None
        except OSError as exc:
            if exc.errno not in _NO_SUCH_FILES:
                raise
    beside = path.parent.parent
    one_disk = beside.stat().st_dev == path.parent.stat().st_dev
    aside = beside / (aside_of(path.parent) + path.name) if one_disk else path
    return os.open(aside, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644), aside


def _name(descriptor: int, aside: Path | None, path: Path) -> None:
    if aside:
        aside.replace(path)
        return
    path.unlink(missing_ok=True)  # left of one that could not be removed: nobody knows it
    # Only with a directory given does the call follow the link, whatever it is told.
    os.link(_DESCRIPTORS / str(descriptor), path, src_dir_fd=descriptor, follow_symlinks=True)


def _create(path: Path, fill: Callable[[int], None]) -> int:
    flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
    descriptor = os.open(path, flags, 0o644)
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
