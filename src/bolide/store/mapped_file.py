"""One file of fixed length, mapped whole: a commit log file or an index file."""

import mmap
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bolide.store.disk import Disk
from bolide.store.errors import DamagedFile

_POPULATE_WRITE = 23  # Linux 5.14
_DONTNEED = 4


class MappedFile:
    """Bytes that reading and writing go to directly; writes reach the disk by `sync`.

    Views of `view` keep the mapping alive: `close` gives up its own and fails while others live.
    """

    def __init__(self, path: Path, descriptor: int, size: int, *, random: bool = False) -> None:
        self.path = path
        self.size = size
        self.descriptor = descriptor
        self._mapping = mmap.mmap(descriptor, size)
        if random and hasattr(mmap, "MADV_RANDOM"):
            # Read-ahead into a hole costs 200 times as much as the page that is asked for.
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
        """The position of the first such bytes, -1 if there are none."""
        return self._mapping.find(data, start, end)

    def populate(self, start: int, end: int) -> None:
        """Bring pages into memory, writable, so that stores do not fault. Blocks."""
        self._advise(_POPULATE_WRITE, start, end)

    def release(self, start: int, end: int) -> None:
        """Give pages back; they stay in the page cache as long as the system likes."""
        self._advise(_DONTNEED, start, end)

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Keep the descriptor open for a while. Raises ValueError if it is closed."""
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
        """Give the file up; False while somebody still reads from it."""
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
        """Give the file up but for its mapping, which goes with the last view of it.

        False while somebody uses the descriptor.
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
        # What lies around the file is somebody else's memory.
        start, end = max(start - start % mmap.PAGESIZE, 0), min(end, self.size)
        if sys.platform != "linux" or start >= end:
            return
        with self._address() as address:
            # What it cannot do it need not do: a page fault does the same later. mmap.madvise
            # would hold the interpreter.
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
