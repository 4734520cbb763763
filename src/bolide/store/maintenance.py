"""Background maintenance of a file store.

One thread writes consume queues to their files, writes checkpoints, applies retention and retries
operations that failed. A second thread allocates the next commit log file and populates pages
ahead of the log's end.
"""

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING

from bolide.store.checkpoint import Checkpoint, CheckpointFile, RecoveryPoint, boot_id
from bolide.store.disk import Disk
from bolide.store.health import COMMIT_LOG, CONSUME_QUEUES, LOG_FILES
from bolide.store.key_index import IndexRecoveryPoint
from bolide.store.periodic_thread import PeriodicThread

if TYPE_CHECKING:
    from bolide.store.message_store import MessageStore

log = logging.getLogger(__name__)

_CHECKPOINT_BYTES = 64 * 1024 * 1024
"""Bytes of log written since the last checkpoint that trigger the next one."""

_DUTY_CYCLE = 10
"""Checkpoints take at most one in this many seconds, and so does writing the queues: with very
many queues each of the two takes a second."""
_SLOW_WRITE, _LONGEST_PAUSE = 0.05, 10.0
"""Seconds: a write of the queues longer than the first is followed by a pause, which is never
longer than the second."""


class StoreMaintenance:
    def __init__(
        self,
        store: "MessageStore",
        *,
        lock: AbstractContextManager[bool],
        checkpoint: CheckpointFile,
        disk: Disk,
    ) -> None:
        self._store = store
        self._lock = lock
        self._checkpoint = checkpoint
        self._disk = disk
        # Serializes checkpoints and queue writes: a recovery point must not cover units that
        # another thread is still writing.
        self._checkpoint_lock = threading.RLock()
        self._thread = PeriodicThread("store-maintenance", self.run, self._interval)
        self._preparing = PeriodicThread("store-prepare", self._prepare, lambda: 3600.0)
        self._background = False
        self._last_checkpoint = self._last_clean = time.monotonic()
        self._checkpoint_took = self._next_writing = 0.0
        self._wake_at = store.log.end + _CHECKPOINT_BYTES
        self.notify_from = 0
        """End of the log from which `appended` has to be called."""

    def start(self, *, background: bool) -> None:
        self._background = background
        if background:
            self._store.flusher.start()
            self._thread.start()
            self._preparing.start()
            if self._store.recovery.records:
                self._wake_at = 0
                self._thread.wake()

    def stop(self) -> bool:
        """Write everything to disk; returns whether the store counts as cleanly closed. Blocks."""
        if self._background:
            self._preparing.stop()
            self._thread.stop()
            self._store.flusher.stop()
        return self.checkpoint()

    def pause(self, seconds: float) -> None:
        if self._background:
            self._thread.pause(seconds)

    def appended(self, physical_offset: int) -> None:
        """Wake the threads if the log has grown far enough; must be cheap.

        Called with the physical offset of the last record appended at or above `notify_from`.
        """
        if physical_offset >= self._store.log.prepare_at:
            self._preparing.wake()
        if physical_offset >= self._wake_at:
            self._wake_at = physical_offset + _CHECKPOINT_BYTES
            self._thread.wake()
        self.notify_from = min(self._store.log.prepare_at, self._wake_at)

    def run(self) -> None:
        """Run one round. Blocks."""
        store, config, now = self._store, self._store.config.value, time.monotonic()
        if not store.health.writable:
            self._resume()
        store.end_burst()
        store.index_keys()
        written = self._may_write(now) and self._write_queues()
        point = self._checkpoint.value.recovery_point
        begin = store.log.min_offset if store.log.files else store.log.end
        behind = store.log.end - max(begin, point.position if point else 0)
        waited = now - self._last_checkpoint
        far = behind >= _CHECKPOINT_BYTES and waited >= _DUTY_CYCLE * self._checkpoint_took
        if far or waited >= config.queue_flush_thorough_interval:
            self.checkpoint()
        elif written:
            # After a failure only a sync of every queue shows that the disk works again.
            least = config.queue_flush_least_pages if store.health.writable else 0
            self._sync_queues(least)
        if now - self._last_clean >= config.clean_interval or not store.health.writable:
            self._last_clean = now
            store.retention.run()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Write the queues, then hold back rounds of maintenance. Blocks."""
        with self._checkpoint_lock:
            self._write_queues()
            yield

    def checkpoint(self) -> bool:
        """Sync everything and save the checkpoint; returns whether that succeeded. Blocks."""
        with self._checkpoint_lock:
            begun = time.monotonic()
            try:
                return self._checkpoint_now()
            finally:
                self._checkpoint_took = time.monotonic() - begun

    def withdraw_checkpoint(self, position: int) -> None:
        """Remove what the checkpoint says of the log behind a position, before a cut. Blocks.

        Recovery would take the log to reach the recovery point, with a hole from the cut on, and
        what was confirmed to be lost.

        Raises:
            OSError: the checkpoint cannot be written.
        """
        with self._checkpoint_lock:
            self._checkpoint.withdraw(position)

    def _checkpoint_now(self) -> bool:
        store = self._store
        try:
            end, last, timestamp, units = self._settled_state()
        except OSError as exc:
            log.warning("queues of another kind cannot be removed: %s", exc)
            return False
        self._last_checkpoint = time.monotonic()
        if not (store.flush() and self._write_queues() and self._sync_queues()):
            return False
        if not store.index_keys():
            return False
        try:
            index = store.index.flush() if store.index else IndexRecoveryPoint()
            self._disk.step("mid-checkpoint")
            self._checkpoint.save(
                Checkpoint(
                    log_timestamp=timestamp,
                    queue_timestamp=timestamp,
                    index_timestamp=index.end_timestamp,
                    master_flushed_offset=self._checkpoint.value.master_flushed_offset,
                    confirm_offset=min(end, store.log.readable),
                    recovery_point=RecoveryPoint(
                        position=end,
                        last_record=last,
                        units=units,
                        index=index,
                        boot_id=boot_id(),
                    ),
                )
            )
        except OSError as exc:
            log.warning("the checkpoint cannot be written: %s", exc)
            return False
        return True

    def _settled_state(self) -> tuple[int, int, int, int]:
        """Return end, last record, its time and units of the log once each record has its unit."""
        store = self._store
        while True:
            store.kinds.settle()
            with self._lock:
                if not store.kinds.is_settled:
                    continue  # more records have come
                if not store.log.files:  # it may begin anywhere when the store is opened again
                    return 0, -1, store.log.last_timestamp, store.units
                last, timestamp = store.log.last_record, store.log.last_timestamp
                return store.sound_end, last, timestamp, store.units

    def _interval(self) -> float:
        return self._store.config.value.queue_flush_interval

    def _prepare(self) -> None:
        try:
            self._store.log.prepare()
        except OSError as exc:
            log.warning("no room for the next log file: %s", exc)

    def _may_write(self, now: float) -> bool:
        return now >= self._next_writing or not self._store.health.writable

    def _write_queues(self) -> bool:
        store, begun = self._store, time.monotonic()
        try:
            with self._checkpoint_lock:
                with self._lock:
                    changed = store.queues.take_changed()
                store.queues.write(changed, store.log.written)
        except OSError as exc:
            store.health.refuse(CONSUME_QUEUES, f"the consume queues cannot be written: {exc}")
            return False
        took = time.monotonic() - begun
        pause = min(_DUTY_CYCLE * took, _LONGEST_PAUSE) if took > _SLOW_WRITE else 0.0
        self._next_writing = begun + pause
        return True

    def _sync_queues(self, least_pages: int = 0) -> bool:
        try:
            self._store.queues.sync(least_pages)
            if not least_pages:
                self._store.queues.sync_names()
        except OSError as exc:
            self._store.health.refuse(
                CONSUME_QUEUES, f"the consume queues cannot be written: {exc}"
            )
            return False
        if least_pages == 0:
            self._store.health.allow(CONSUME_QUEUES)
        return True

    def _resume(self) -> None:
        """Retry the operations that failed; each success clears its cause."""
        store = self._store
        attempts = {LOG_FILES: store.log.make_spare, COMMIT_LOG: store.flusher.mend}
        for cause, attempt in attempts.items():
            if cause in store.health.causes:
                try:
                    attempt()
                except OSError as exc:
                    log.debug("%s: still %r", cause, exc)
                else:
                    store.health.allow(cause)
