"""The lock that keeps a second broker out of a store."""

import fcntl
import os
import threading
from pathlib import Path

from bolide.private_files import FILE_MODE
from bolide.store.errors import StoreInUse

_TEXT = b"lock"
_held: set[Path] = set()  # a POSIX lock does not exclude other users in the same process
_guard = threading.Lock()  # guards _held


class StoreLock:
    """An exclusive lock on the first byte of `lock`, as RocketMQ takes it."""

    def __init__(self, path: Path) -> None:
        self._path = path.resolve()
        self._descriptor = -1

    def acquire(self) -> None:
        """Raises StoreInUse if the lock is taken."""
        with _guard:
            if self._path in _held:
                raise StoreInUse(self._path)
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
            try:
                # Not flock: Java's FileLock is a POSIX lock, and neither kind excludes the other.
                fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
                os.pwrite(descriptor, _TEXT, 0)
            except OSError as exc:
                os.close(descriptor)
                if isinstance(exc, BlockingIOError | PermissionError):
                    raise StoreInUse(self._path) from exc
                raise
            self._descriptor = descriptor
            _held.add(self._path)

    def release(self) -> None:
        with _guard:
            if self._descriptor >= 0:
                os.close(self._descriptor)
                self._descriptor = -1
                _held.discard(self._path)
