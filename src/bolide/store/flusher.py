"""Flushes the commit log: periodically, or by group commit.

ASYNC_FLUSH: the thread syncs the log every interval if enough pages are dirty. SYNC_FLUSH (group
commit): the thread writes and syncs all records pending in memory at once and wakes the waiting
senders; records that arrive meanwhile form the next group. If a group fails, all its appends are
refused and rolled back.
"""

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import NamedTuple

from bolide.store.commit_log import CommitLog, LogFile, PendingWrite
from bolide.store.config import FlushMode, StoreConfig
from bolide.store.disk import Disk
from bolide.store.errors import StoreUnwritable
from bolide.store.periodic_thread import Signal

log = logging.getLogger(__name__)

_PAGE = 4096
_KEPT_FAILURES = 100


class Flushed(NamedTuple):
    """Event for listeners: the flushed position, and why records behind it were refused."""

    position: int
    failure: StoreUnwritable | None = None
    generation: int = 0
    """With a failure: appends of an earlier generation than this, behind the position, are void."""


Listener = Callable[[Flushed], None]


class Flusher:
    """Flushes on a thread of its own, or on the caller's in `flush`.

    `on_failure` is called after a failed flush, with the lock held if a group is rolled back;
    `afterwards` runs on the thread once a group is flushed and its waiters are notified.
    """

    def __init__(
        self,
        log: CommitLog,
        *,
        lock: AbstractContextManager[bool],
        disk: Disk,
        config: Callable[[], StoreConfig],
        on_failure: Callable[[BaseException], None],
        afterwards: Callable[[], object] = lambda: None,
    ) -> None:
        self._log = log
        self._lock = lock
        self._disk = disk
        self._config = config
        # Fixed: a change of the setting takes effect the next time the store is opened.
        self._grouped = config().flush_mode is FlushMode.SYNC
        self._on_failure = on_failure
        self._afterwards = afterwards
        self._flushing = threading.Lock()  # one flush at a time
        self._wake_up = Signal()
        self._waiting = 0
        self._flush_done = threading.Condition()  # guards generation; notified after each flush
        self._listeners: list[Listener] = []
        self._thread: threading.Thread | None = None
        self._stopping = False
        self._last_flush = time.monotonic()
        self.generation = 0
        """Number of failures. An append of an earlier generation is void unless it was flushed."""
        self.failed = False
        # By generation: the flushed position when it failed, and why.
        self._failures: dict[int, tuple[int, StoreUnwritable]] = {}

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="store-flush", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Flush the remaining records and stop the thread."""
        self._stopping = True
        self._wake_up.set()
        if self._thread:
            self._thread.join()
            self._thread = None

    def listen(self, listener: Listener) -> None:
        self._listeners.append(listener)

    def unlisten(self, listener: Listener) -> None:
        self._listeners = [each for each in self._listeners if each != listener]

    def wake(self) -> None:
        self._wake_up.set()

    def wait(self, position: int, generation: int, timeout: float) -> bool:
        """Wait until a position is flushed; returns False on timeout. Blocks.

        Raises:
            StoreUnwritable: the group of this append failed and was rolled back.
        """
        if self._thread is None:
            with contextlib.suppress(Exception):  # the failure is raised below
                self.flush()
        else:
            self.wake()
        with self._flush_done:
            self._waiting += 1
            self._flush_done.wait_for(
                lambda: self._log.flushed >= position or self.generation != generation, timeout
            )
            self._waiting -= 1
            if self.generation != generation:
                flushed, failure = self._failures.get(generation, (-1, None))
                if position > flushed:
                    raise failure or StoreUnwritable("the commit log could not be written")
            return self._log.flushed >= position

    def flush(self) -> bool:
        """Flush everything appended so far; returns whether that succeeded. Blocks."""
        with self._flushing:
            if self.failed:
                return False  # the system may treat pages as clean that never reached the disk
            with self._lock:
                pending, end = self._log.take_pending()
            if end == self._log.flushed:
                return True
            try:
                self._write(pending)
                self._disk.step("mid-flush")
                for file in self._unsynced_files(end):
                    self._disk.sync(file.descriptor)
            except BaseException as exc:
                self._erase(pending)
                self._fail(exc)
                if not isinstance(exc, OSError):
                    raise
                return False
            self._log.written = max(self._log.written, end)
            self._log.flushed = end
            self._last_flush = time.monotonic()
        self._notify(Flushed(end))
        return True

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Flush, then hold back further flushes. Blocks."""
        self.flush()
        with self._flushing:
            yield

    def mend(self) -> None:
        """Recover from a failure: rewrite unsynced records, erase those rolled back. Blocks.

        Raises:
            OSError: the disk still fails.
        """
        with self._flushing:
            if not self.failed:
                return
            with self._lock:  # waits for an append that began before the failure
                start, end = self._log.flushed, self._log.written
            for file in self._unsynced_files(end):
                at, stop = max(start, file.start) - file.start, min(end, file.end) - file.start
                self._disk.write(file.descriptor, file.view[at:stop], at)
                self._disk.sync(file.descriptor)
            self._log.erase_behind(end)
            self.failed = False

    def _run(self) -> None:
        while not self._stopping:
            config = self._config()
            woken = self._wake_up.wait(None if self._grouped else config.flush_interval)
            if woken or self._due(config):
                self._flush_and_go_on()
        self._flush_and_go_on()

    def _flush_and_go_on(self) -> None:
        try:
            if self.flush() and self._grouped:
                self._afterwards()
        except Exception:
            log.exception("a flush failed unexpectedly; the flusher continues")

    def _due(self, config: StoreConfig) -> bool:
        new_pages = (self._log.written - self._log.flushed) // _PAGE
        waited = time.monotonic() - self._last_flush
        return new_pages >= config.flush_least_pages or waited >= config.flush_thorough_interval

    def _write(self, pending: list[PendingWrite]) -> None:
        while pending:
            file, at, _ = pending[0]
            # Pending records of one file are contiguous.
            data = b"".join([item.data for item in pending if item.file is file])
            self._disk.write(file.descriptor, data, at)
            pending = [item for item in pending if item.file is not file]

    def _unsynced_files(self, end: int) -> list[LogFile]:
        start = self._log.flushed
        last = self._log.files[-1]
        if last.start <= start:
            return [last]
        return [file for file in self._log.files if file.end > start and file.start < end]

    def _erase(self, pending: list[PendingWrite]) -> None:
        """Zero a refused group in the files, so that recovery does not find it."""
        for item in pending:
            # Whatever fails here, the waiters must be notified; `mend` erases the group later.
            with contextlib.suppress(Exception):
                self._disk.write(item.file.descriptor, bytes(len(item.data)), item.at)

    def _fail(self, exc: BaseException) -> None:
        failure = StoreUnwritable(f"the commit log cannot be written: {reason_of(exc)}")
        self.failed = True
        try:
            if self._grouped:
                with self._lock:
                    self._on_failure(exc)
            else:
                self._on_failure(exc)
        finally:
            with self._flush_done:
                if self._grouped:
                    self._failures[self.generation] = self._log.flushed, failure
                    self._failures.pop(self.generation - _KEPT_FAILURES, None)
                    self.generation += 1
                self._flush_done.notify_all()
            self._notify_listeners(Flushed(self._log.flushed, failure, self.generation))

    def _notify(self, flushed: Flushed) -> None:
        if self._waiting:
            with self._flush_done:
                self._flush_done.notify_all()
        self._notify_listeners(flushed)

    def _notify_listeners(self, flushed: Flushed) -> None:
        for listener in self._listeners:
            try:
                listener(flushed)
            except Exception:
                log.exception("a flush listener failed")


def reason_of(exc: BaseException) -> str:
    """Text for an error: only the messages of OSErrors are readable."""
    return str(exc) if isinstance(exc, OSError) else repr(exc)
