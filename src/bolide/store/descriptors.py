"""Positional reads, and a cache of open descriptors that bounds the open consume queue files."""

import os
import resource
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from bolide.store.errors import NotInMemory

_LEAST, _MOST = 512, 16_384
_EVICTION_INTERVAL = 16

_ONLY_CACHED: int | None = getattr(os, "RWF_NOWAIT", None)


def usual_limit() -> int:
    """45 % of the process's limit on open files; connections need the rest."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MOST if soft == resource.RLIM_INFINITY else min(max(soft * 9 // 20, _LEAST), _MOST)


class DescriptorCache:
    """Keeps up to `limit` files open. Thread-safe; each descriptor serves one user at a time.

    Queues are written round-robin. With more queues than descriptors LRU eviction would close
    each file just before its next use, so a full cache mostly rejects the newcomer and evicts
    the oldest descriptor only once in `_EVICTION_INTERVAL` times.
    """

    def __init__(self, limit: int | None = None) -> None:
        self._limit = usual_limit() if limit is None else limit
        self._overflows = 0
        self._idle: OrderedDict[str, int] = OrderedDict()
        self._removals = 0
        self._lock = threading.Lock()  # guards _idle and _removals

    @contextmanager
    def use(self, path: str) -> Iterator[int]:
        with self._lock:
            descriptor = self._idle.pop(path, None)
            removals = self._removals
        if descriptor is None:
            descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            yield descriptor
        finally:
            with self._lock:
                # If a file was removed meanwhile, the name may belong to another file by now.
                current = removals == self._removals
                surplus = self._add(path, descriptor) if current else descriptor
            if surplus is not None:
                os.close(surplus)

    def add(self, path: str, descriptor: int) -> None:
        """Put an open descriptor that is not in use into the cache."""
        with self._lock:
            surplus = self._add(path, descriptor)
        if surplus is not None:
            os.close(surplus)

    def _add(self, path: str, descriptor: int) -> int | None:
        """Return the descriptor to close because the cache is full, if any."""
        surplus = self._idle.pop(path, None)
        if surplus is None and len(self._idle) >= self._limit:
            self._overflows += 1
            if self._overflows % _EVICTION_INTERVAL:
                return descriptor
            _, surplus = self._idle.popitem(last=False)
        self._idle[path] = descriptor
        return surplus

    def remove(self, path: str, remove: Callable[[], None]) -> None:
        """Call `remove`, which removes or moves a file, and drop the file's descriptor."""
        with self._lock:
            self._removals += 1
            remove()
            descriptor = self._idle.pop(path, None)
        if descriptor is not None:
            os.close(descriptor)

    def close(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, OrderedDict()
        for descriptor in idle.values():
            os.close(descriptor)


def read_at(
    descriptor: int, size: int, at: int, *, may_block: bool = True, path: Path | str = ""
) -> bytearray:
    """Read `size` bytes, or fewer at the end of the file.

    Raises:
        NotInMemory: the bytes are not in the page cache, and the call may not wait for the disk.
    """
    buffer = bytearray(size)
    view, done = memoryview(buffer), 0
    while done < size:
        count = _read_into(descriptor, view[done:], at + done, may_block=may_block, path=path)
        if count == 0:
            break
        done += count
    view.release()
    del buffer[done:]
    return buffer


def _read_into(
    descriptor: int, view: memoryview, at: int, *, may_block: bool, path: Path | str
) -> int:
    if may_block:
        return os.preadv(descriptor, [view], at)
    if _ONLY_CACHED is None:
        raise NotInMemory(path, at)
    try:
        return os.preadv(descriptor, [view], at, _ONLY_CACHED)
    except OSError as exc:  # EAGAIN: not cached; EOPNOTSUPP: unknown on this file system
        raise NotInMemory(path, at) from exc
