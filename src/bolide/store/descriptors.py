"""Positional reads, and a bounded number of open files for very many consume queues."""

import os
import resource
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from bolide.store.errors import NotInMemory

_LEAST, _MOST = 512, 16_384
_RENEWAL = 16

_ONLY_CACHED: int | None = getattr(os, "RWF_NOWAIT", None)


def usual_limit() -> int:
    """Not half of the files that the process may have open: the rest is for connections."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MOST if soft == resource.RLIM_INFINITY else min(max(soft * 9 // 20, _LEAST), _MOST)


class DescriptorCache:
    """Keeps files open. Each descriptor serves one user at a time; any thread.

    All queues are written in turn: with more of them than fit, none would be open any more when
    its turn comes if the one used last took the place of the oldest. So it mostly does not.
    """

    def __init__(self, limit: int | None = None) -> None:
        self._limit = usual_limit() if limit is None else limit
        self._surpluses = 0
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
                # If a file went meanwhile the name may be another one's by now.
                current = removals == self._removals
                surplus = self._add(path, descriptor) if current else descriptor
            if surplus is not None:
                os.close(surplus)

    def keep(self, path: str, descriptor: int) -> None:
        """Take over an open descriptor that nobody uses."""
        with self._lock:
            surplus = self._add(path, descriptor)
        if surplus is not None:
            os.close(surplus)

    def _add(self, path: str, descriptor: int) -> int | None:
        """Returns the descriptor that has no room any more, if any."""
        surplus = self._idle.pop(path, None)
        if surplus is None and len(self._idle) >= self._limit:
            self._surpluses += 1
            if self._surpluses % _RENEWAL:
                return descriptor
            _, surplus = self._idle.popitem(last=False)
        self._idle[path] = descriptor
        return surplus

    def remove(self, path: str, remove: Callable[[], None]) -> None:
        """Remove a file or move it away; no descriptor of it is used again."""
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
    """Read bytes; fewer where the file ends.

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
    except OSError as exc:  # EAGAIN: not cached; EOPNOTSUPP: a file system that cannot tell
        raise NotInMemory(path, at) from exc
