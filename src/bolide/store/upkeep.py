"""Threads that do something now and then, and at once when they are woken."""

import contextlib
import logging
import threading
from collections.abc import Callable

log = logging.getLogger(__name__)


class Signal:
    """A mark that one thread sets and another waits for and takes away; cheaper than an Event."""

    def __init__(self) -> None:
        self._unset = threading.Lock()
        self._unset.acquire()

    def set(self) -> None:
        if self._unset.locked():
            with contextlib.suppress(RuntimeError):  # another thread was faster
                self._unset.release()

    def take(self, timeout: float | None = None) -> bool:
        """Wait for the mark; False if it was not set in time."""
        return self._unset.acquire(timeout=-1 if timeout is None else timeout)


class Upkeep:
    """Calls `work` every `interval` seconds; what it raises is logged, and it goes on."""

    def __init__(self, name: str, work: Callable[[], None], interval: Callable[[], float]) -> None:
        self._work = work
        self._interval = interval
        self._wanted = Signal()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        self._wanted.set()

    def pause(self, seconds: float) -> None:
        """Wait inside a round, not longer than until `stop`."""
        self._stopping.wait(seconds)

    def stop(self) -> None:
        self._stopping.set()
        self._wanted.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._wanted.take(self._interval())
            try:
                self._work()
            except Exception:
                log.exception("%s failed and is tried again", self._thread.name)
