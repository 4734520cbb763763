"""Brings the log to the disk: now and then, or in groups that senders wait for.

ASYNC_FLUSH: every interval, if enough pages are new. SYNC_FLUSH: the thread takes all records that
wait in memory, writes and syncs them at once, and tells who waits; what arrives meanwhile is the
next group. If that fails the whole group is refused and taken back, as if never appended.
"""

import contextlib
import logging
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import NamedTuple

from bolide.store.commit_log import CommitLog, LogFile, Pending
from bolide.store.config import FlushMode, StoreConfig
from bolide.store.disk import Disk
from bolide.store.errors import StoreUnwritable
from bolide.store.periodic_thread import Signal

log = logging.getLogger(__name__)

_PAGE = 4096
_KEPT_FAILURES = 100


class Flushed(NamedTuple):
    """What listeners are told: the position on the disk, and why what lay behind it was refused."""

    position: int
    failure: StoreUnwritable | None = None


Listener = Callable[[Flushed], None]


class Flusher:
    """Flushes on a thread of its own, or where `flush` is called.

    `on_failure` is called when a flush has failed, with the lock held if records were lost;
    `afterwards` on the thread, when a group is on the disk and all who wait for it were told.
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
        # Fixed: a change of the setting takes effect when the store is opened the next time.
        self._grouped = config().flush_mode is FlushMode.SYNC
        self._on_failure = on_failure
        self._afterwards = afterwards
        self._flushing = threading.Lock()  # one flush at a time
        self._wanted = Signal()
        self._waiting = 0
        self._news = threading.Condition()  # guards generation; notified after each flush
        self._listeners: list[Listener] = []
        self._thread: threading.Thread | None = None
        self._stopping = False
        self._last_flush = time.monotonic()
        self.generation = 0
        """Counts failures: a position given away before one is void if it was not flushed then."""
        self.failed = False
        # What was flushed then, and why the rest was not; by generation.
        self._failures: dict[int, tuple[int, StoreUnwritable]] = {}

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="store-flush", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Flush what is left and end the thread."""
        self._stopping = True
        self._wanted.set()
        if self._thread:
            self._thread.join()
            self._thread = None

    def listen(self, listener: Listener) -> None:
        self._listeners.append(listener)

    def wake(self) -> None:
        self._wanted.set()

    def wait(self, position: int, generation: int, timeout: float) -> bool:
        """Wait until a position is on the disk; False if that takes longer. Blocks.

        Raises:
            StoreUnwritable: the group with it could not be written and was taken back.
        """
        if self._thread is None:
            with contextlib.suppress(Exception):  # told of below
                self.flush()
        else:
            self.wake()
        with self._news:
            self._waiting += 1
            self._news.wait_for(
                lambda: self._log.flushed >= position or self.generation != generation, timeout
            )
            self._waiting -= 1
            if self.generation != generation:
                flushed, failure = self._failures.get(generation, (-1, None))
                if position > flushed:
                    raise failure or StoreUnwritable("the commit log could not be written")
            return self._log.flushed >= position

    def flush(self) -> bool:
        """Bring all there is to the disk; says whether that worked. Blocks."""
        with self._flushing:
            if self.failed:
                return False  # the system may call pages clean that never reached the disk
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
        self._tell(Flushed(end))
        return True

    def mend(self) -> None:
        """After a failure: write again what the disk may lack, erase what was taken back. Blocks.

        Raises:
            OSError: the disk still fails.
        """
        with self._flushing:
            if not self.failed:
                return
            with self._lock:  # an append that was let in before the failure is done now
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
            asked = self._wanted.wait(None if self._grouped else config.flush_interval)
            if asked or self._due(config):
                self._flush_and_go_on()
        self._flush_and_go_on()

    def _flush_and_go_on(self) -> None:
        try:
            if self.flush() and self._grouped:
                self._afterwards()
        except Exception:
            log.exception("the flusher failed and goes on")

    def _due(self, config: StoreConfig) -> bool:
        new_pages = (self._log.written - self._log.flushed) // _PAGE
        waited = time.monotonic() - self._last_flush
        return new_pages >= config.flush_least_pages or waited >= config.flush_thorough_interval

    def _write(self, pending: list[Pending]) -> None:
        while pending:
            file, at, _ = pending[0]
            # Records of one file follow each other without a gap.
            data = b"".join([item.data for item in pending if item.file is file])
            self._disk.write(file.descriptor, data, at)
            pending = [item for item in pending if item.file is not file]

    def _unsynced_files(self, end: int) -> list[LogFile]:
        start = self._log.flushed
        last = self._log.files[-1]
        if last.start <= start:
            return [last]
        return [file for file in self._log.files if file.end > start and file.start < end]

    def _erase(self, pending: list[Pending]) -> None:
        """Take a refused group out of the files again: after a crash nobody may find it."""
        for item in pending:
            with contextlib.suppress(Exception):  # `mend` does it when the disk works again
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
            with self._news:
                if self._grouped:
                    self._failures[self.generation] = self._log.flushed, failure
                    self._failures.pop(self.generation - _KEPT_FAILURES, None)
                    self.generation += 1
                self._news.notify_all()
            self._tell_listeners(Flushed(self._log.flushed, failure))

    def _tell(self, flushed: Flushed) -> None:
        if self._waiting:
            with self._news:
                self._news.notify_all()
        self._tell_listeners(flushed)

    def _tell_listeners(self, flushed: Flushed) -> None:
        for listener in self._listeners:
            try:
                listener(flushed)
            except Exception:
                log.exception("a listener of the flusher failed")


def reason_of(exc: BaseException) -> str:
    """Words for an error; few but the system's own have any."""
    return str(exc) if isinstance(exc, OSError) else repr(exc)
