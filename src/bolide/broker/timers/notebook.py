"""Writes down how far a timer is, so that a restart goes on there."""

import threading
import time
from collections.abc import Callable
from typing import NamedTuple

from bolide.store.contract import Store
from bolide.store.timers import TimerCheckpoint, TimerFiles, TimerMark

_IDLE = 10.0
"""Seconds between two notes while nothing but time goes on."""


class Progress(NamedTuple):
    """How far a timer is; all of one moment."""

    read_time: int
    queue_offset: int
    log_position: int
    delivered_from: int
    carried_to: int
    delivered: int
    """How many, since the start."""


class Notebook:
    """`progress` is set on the event loop; `save` may run on any thread."""

    def __init__(self, store: Store, files: TimerFiles, now: Callable[[], float]) -> None:
        self.progress: Progress | None = None
        self.checkpoint = TimerCheckpoint()
        """As it was last written down."""
        self._store = store
        self._files = files
        self._now = now
        self._saved: Progress | None = None
        self._saved_at = 0.0
        self._saving = threading.Lock()  # one file, one writer

    def save(self, *, at_once: bool = False) -> None:
        """Write it down, when what was delivered is on the disk. Blocks."""
        with self._saving:
            progress = self.progress
            if progress is None or not self._files.is_open or not self._is_due(progress, at_once):
                return
            if self._store.flush():
                self.checkpoint = self._written_down(progress)
                self._files.save(self.checkpoint)
                self._saved, self._saved_at = progress, time.monotonic()

    def _is_due(self, progress: Progress, at_once: bool) -> bool:
        saved = self._saved
        if saved is None or progress == saved:
            return saved is None
        # What else is appended to the log moves `delivered_from` on, and is of no interest.
        now = progress._replace(read_time=saved.read_time, delivered_from=saved.delivered_from)
        return at_once or now != saved or time.monotonic() - self._saved_at >= _IDLE

    def _written_down(self, progress: Progress) -> TimerCheckpoint:
        before = self.checkpoint
        return TimerCheckpoint(
            read_time=progress.read_time,
            log_position=progress.log_position,
            queue_offset=progress.queue_offset,
            master_queue_offset=progress.queue_offset,
            state_version=before.state_version,
            timestamp=int(self._now() * 1000),
            counter=before.counter + 1,
            mark=TimerMark(delivered_from=progress.delivered_from, carried_to=progress.carried_to),
        )
