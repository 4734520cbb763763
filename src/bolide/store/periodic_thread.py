"""A thread that runs a function periodically, and the signal that wakes it early."""

import contextlib
import logging
import threading
from collections.abc import Callable

log = logging.getLogger(__name__)


class PeriodicThread:
    """Runs `work` every `interval` seconds, or at once after `wake`.

    Exceptions raised by `work` are logged and the thread goes on.
    """

    def __init__(self, name: str, work: Callable[[], None], interval: Callable[[], float]) -> None:
        self._work = work
        self._interval = interval
        self._wake_up = Signal()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        self._wake_up.set()

    def pause(self, seconds: float) -> None:
        """Sleep inside `work`; `stop` ends the sleep early."""
        self._stopping.wait(seconds)

    @property
    def is_stopping(self) -> bool:
        """Whether `stop` was called: long work should end early."""
        return self._stopping.is_set()

    def stop(self) -> None:
        """Stop the thread and wait until the current round of `work` has finished."""
        self._stopping.set()
        self._wake_up.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._wake_up.wait(self._interval())
            try:
                self._work()
            except Exception:
                log.exception("%s failed; retrying in the next round", self._thread.name)


class Signal:
    """A binary semaphore: `set` releases one `wait`. Cheaper than `threading.Event`."""

    def __init__(self) -> None:
        self._unset = threading.Lock()
        self._unset.acquire()

    def set(self) -> None:
        if self._unset.locked():
            with contextlib.suppress(RuntimeError):  # another thread released the lock first
                self._unset.release()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for `set` and reset the signal; returns False on timeout."""
        return self._unset.acquire(timeout=-1 if timeout is None else timeout)
