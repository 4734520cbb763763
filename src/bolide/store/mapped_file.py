"""A memory-mapped file of fixed length: a commit log file or an index file."""

import mmap
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from bolide.store.disk import Disk
from bolide.store.errors import DamagedFile

_POPULATE_WRITE = 23  # Linux 5.14
_DONTNEED = 4


class MappedFile:
    """A file read and written through its mapping; `Disk.sync` makes stores durable.

    Slices of `view` keep the mapping alive: `close` fails while any of them exists.
    """

    def __init__(self, path: Path, descriptor: int, size: int, *, random: bool = False) -> None:
        self.path = path
        self.size = size
        self.descriptor = descriptor
        self._mapping = mmap.mmap(descriptor, size)
        if random and hasattr(mmap, "MADV_RANDOM"):
            # Read-ahead into a hole costs 200 times as much as the page requested.
            self._mapping.madvise(mmap.MADV_RANDOM)
        self.view = memoryview(self._mapping)
        self._users = 0
        self._users_lock = threading.Lock()  # guards _users and descriptor

    @classmethod
    def create(cls, path: Path, size: int, disk: Disk, *, random: bool = False) -> "MappedFile":
        return cls(path, disk.allocate(path, size), size, random=random)

    @classmethod
    def open(cls, path: Path, size: int, *, random: bool = False) -> "MappedFile":
        """Raises DamagedFile if the file has another length."""
        found = path.stat().st_size
        if found != size:
            raise DamagedFile(path, f"is {found} bytes long, the settings say {size}")
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        return cls(path, descriptor, size, random=random)

    def find(self, data: bytes, start: int, end: int) -> int:
        """Return the position of the first occurrence, or -1."""
        return self._mapping.find(data, start, end)

    def populate(self, start: int, end: int) -> None:
        """Fault pages in for writing, so that later stores do not fault. Blocks."""
        self._advise(_POPULATE_WRITE, start, end)

    def release(self, start: int, end: int) -> None:
        """Unmap pages; the system keeps them in the page cache as it sees fit."""
        self._advise(_DONTNEED, start, end)

    def read_ahead(self, *, enabled: bool) -> None:
        """Set whether the system reads pages ahead: through the mapping and the descriptor."""
        if hasattr(mmap, "MADV_RANDOM"):
            self._mapping.madvise(mmap.MADV_NORMAL if enabled else mmap.MADV_RANDOM)
        if hasattr(os, "posix_fadvise"):
            advice = os.POSIX_FADV_NORMAL if enabled else os.POSIX_FADV_RANDOM
            with suppress(ValueError), self.in_use():  # a file that is just being removed
                os.posix_fadvise(self.descriptor, 0, 0, advice)

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Keep the descriptor open inside the block. Raises ValueError if it is closed."""
        with self._users_lock:
            if self.descriptor < 0:
                raise ValueError(f"{self.path} is closed")
            self._users += 1
        try:
            yield
        finally:
            with self._users_lock:
                self._users -= 1

    def close(self) -> bool:
        """Close mapping and descriptor; returns False while a reader uses either."""
        with self._users_lock:
            if self._users:
                return False
            try:
                self.view.release()
                self._mapping.close()
            except BufferError:
                return False
            self._close_descriptor()
            return True

    def abandon(self) -> bool:
        """Close the descriptor only; the mapping is freed with the last slice of `view`.

        Returns False while a reader uses the descriptor.
        """
        with self._users_lock:
            if not self._users:
                self._close_descriptor()
            return not self._users

    def _close_descriptor(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1

    def _advise(self, advice: int, start: int, end: int) -> None:
        # Clamped: memory around the mapping belongs to others.
        start, end = max(start - start % mmap.PAGESIZE, 0), min(end, self.size)
        if sys.platform != "linux" or start >= end:
            return
        with self._address() as address:
            # Errors are ignored: a page fault has the same effect later. mmap.madvise would hold
            # the GIL.
            _madvise(address + start, end - start, advice)

    @contextmanager
    def _address(self) -> Iterator[int]:
        import ctypes  # noqa: PLC0415  only threads of a running store need it

        held = ctypes.c_char.from_buffer(self._mapping)
        try:
            yield ctypes.addressof(held)
        finally:
            del held


def _madvise(address: int, length: int, advice: int) -> None:
    import ctypes  # noqa: PLC0415

    libc = ctypes.CDLL(None)
    libc.madvise(ctypes.c_void_p(address), ctypes.c_size_t(length), ctypes.c_int(advice))
