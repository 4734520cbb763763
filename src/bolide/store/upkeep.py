"""A thread that calls a function now and then, and at once when it is woken."""

import logging
import threading
from collections.abc import Callable

log = logging.getLogger(__name__)


class Upkeep:
    """Calls `work` every `interval` seconds; what it raises is logged, and it goes on."""

    def __init__(self, name: str, work: Callable[[], None], interval: Callable[[], float]) -> None:
        self._work = work
        self._interval = interval
        self._wanted = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        if not self._wanted.is_set():
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
            self._wanted.wait(self._interval())
            self._wanted.clear()
            try:
                self._work()
            except Exception:
                log.exception("%s failed and is tried again", self._thread.name)
