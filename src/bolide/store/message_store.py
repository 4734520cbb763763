"""The message store of a broker, in files.

The directory has RocketMQ's layout: `commitlog/` holds the messages, `consumequeue/` and `index/`
are derived from it, `checkpoint` records what has been flushed, `abort` exists while the store is
open and after a crash, and `lock` prevents a second broker from using the directory.
"""

import logging
import os
import shutil
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Self

from bolide.config import ConfigCell
from bolide.kernel import Check
from bolide.private_files import create_file, make_directory
from bolide.store import config as settings
from bolide.store.appending import (
    Appended,
    AppendRoom,
)
from bolide.store.checkpoint import CheckpointFile, RecoveryPoint, boot_id
from bolide.store.commit_log import CommitLog
from bolide.store.compaction.topic_compaction import TopicCompaction
from bolide.store.config import FlushMode, StoreConfig, delay_levels
from bolide.store.disk import Disk, aside_of
from bolide.store.errors import NotInMemory
from bolide.store.file_appends import Clock, FileAppends
from bolide.store.flusher import Flusher, Listener, reason_of
from bolide.store.health import COMMIT_LOG, Health
from bolide.store.key_index import KeyIndex, PendingKeys
from bolide.store.locking import StoreLock
from bolide.store.maintenance import StoreMaintenance
from bolide.store.queries import StoreSizes
from bolide.store.queue_ext import QueueExtensions
from bolide.store.queue_kinds import QueueKinds
from bolide.store.queue_table import QueueTable
from bolide.store.reading import MessageFilter
from bolide.store.recovery import LoadedStore, Progress, log_progress, recover
from bolide.store.replica_log import ReplicaLog
from bolide.store.retention import Retention
from bolide.store.tables import has_batch_queues, read_topics
from bolide.store.truncation import restart_store
from bolide.store.unsupported import refuse_unsupported

log = logging.getLogger(__name__)

_REMOVED = ".removed-"

_MANY_KEYS = 512
"""Index entries that are written as one batch, as each batch has a fixed cost."""


class MessageStore(FileAppends):
    """A thread-safe store in files; appends are serialized by a lock.

    Without `background` no threads are started; `flush` and `maintenance.run` do their work.
    """

    log: CommitLog
    queues: QueueTable
    compaction: TopicCompaction
    began_empty: bool
    """Whether there was neither a log nor a checkpoint when the store was opened."""

    def __init__(
        self,
        config: StoreConfig | ConfigCell[StoreConfig],
        *,
        clock: Clock = time.time,
        disk: Disk | None = None,
        progress: Progress | None = None,
        background: bool = True,
    ) -> None:
        self.config = (
            config if isinstance(config, ConfigCell) else ConfigCell(config, settings.check)
        )
        self._clock = clock
        self._disk = disk or Disk()
        self._progress = progress or log_progress()
        self._background = background
        self._used = False
        self._refusals = {}
        self._lock = threading.Lock()  # serializes appends
        self._room = AppendRoom()  # guarded by the lock
        self._build()
        self._apply_settings(self.config.value)
        self.config.on_change(self._apply_settings)

    def _apply_settings(self, config: StoreConfig) -> None:
        """Apply the settings that every append uses."""
        self._max_message_size = config.max_message_size
        self._flushes_each_burst = self._staged or not config.flush_timed
        self.log.read_ahead(enabled=config.data_read_ahead_enable)

    def _build(self) -> None:
        config, disk, root = self.config.value, self._disk, self.config.value.root
        settings.check(config)
        self._delays = delay_levels(config.message_delay_level)
        self._seal = config.append_record_crc
        self._staged = config.flush_mode is FlushMode.SYNC
        self.health = Health()
        self.log = CommitLog(
            config.log_directories,
            config.commit_log_file_size,
            disk=disk,
            staged=self._staged,
            new=config.new_log_directories,
        )
        self.queues = QueueTable(
            root / "consumequeue",
            config.consume_queue_file_size,
            disk=disk,
            batch_file_size=config.batch_queue_file_size,
        )
        self.index = (
            KeyIndex(
                root / "index",
                slots=config.max_hash_slots,
                capacity=config.max_index_entries,
                disk=disk,
                clock=self._clock,
            )
            if config.index_enabled
            else None
        )
        self.compaction = TopicCompaction(
            root, self.log, self.queues, config=lambda: self.config.value, disk=disk
        )
        self._extensions = QueueExtensions(root, config.queue_ext_file_size)
        self._keys = PendingKeys(
            self.log, self.index, lock=self._lock, health=self.health, disk=disk
        )
        self.kinds = QueueKinds(
            self.log,
            self.queues,
            lock=self._lock,
            delays=self._delays,
            end=lambda: self.replica.dispatched if self.replica.is_active else self.log.written,
            aside=self._aside,
            add_units=self._add_units,
            recount=self.recount_units,
        )
        self._checkpoint = CheckpointFile(root / "checkpoint", disk)
        self.flusher = Flusher(
            self.log,
            lock=self._lock,
            disk=disk,
            config=lambda: self.config.value,
            on_failure=self._flush_failed,
            afterwards=self._index_many,
        )
        self._lock_file = StoreLock(root / "lock")
        self._abort = root / "abort"
        self._lost_tail = root / "lostTail"

    # ---- life

    def __enter__(self) -> Self:
        """Open the store and recover it.

        Raises:
            StoreInUse: another process has the directory open.
            UnsupportedStore: the directory holds data of an unsupported kind.
            DamagedFile: a file cannot be repaired by recovery.
            ConfigError: the settings do not fit the directory.
            OSError: a file operation failed.
            RuntimeError: the store was opened before.
        """
        if self._used:
            raise RuntimeError("a store is opened once: make another for the next time")
        root = self.config.value.root
        if not root.exists():
            make_directory(root)
            self._disk.sync_directory(root.parent)
        self._lock_file.acquire()
        self._used = True
        try:
            self._start()
        except BaseException:
            self._release()
            raise
        self._open = True
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Flush everything and close all files. Blocks."""
        if not self._open:
            return
        with self._lock:
            self._open = False
        try:
            self.compaction.stop()
            ends_whole = self._ends_whole()
            if self.maintenance.stop() and ends_whole:
                self.compaction.finish()
                self._abort.unlink(missing_ok=True)
        finally:
            self._release()

    def _ends_whole(self) -> bool:
        """Cut the first part of a record that a replica ends with; whether that succeeded.

        With zeros for its properties it would count as a whole record when the store is opened.
        """
        try:
            self.cut_incomplete()
        except OSError as exc:
            log.warning("the end of the log cannot be cut: %s", exc)
            return False
        return True

    def _start(self) -> None:
        config, root = self.config.value, self.config.value.root
        refuse_unsupported(root)
        clean = not self._abort.exists()
        was_synced = not clean and FlushMode.SYNC.encode() in self._abort.read_bytes().split()
        self._remove_leftovers()
        self.log.load()
        topics = read_topics(root).topic_config_table
        self.queues.batch_topics = {
            name.encode() for name, topic in topics.items() if has_batch_queues(topic)
        }
        self.queues.load()
        if self.index:
            self.index.load()
        with create_file(self._abort) as file:
            file.write(f"{os.getpid()} {config.flush_mode}".encode())
            file.flush()
            os.fsync(file.fileno())
        self._disk.sync_directory(root)
        had_checkpoint, checkpoint = self._checkpoint.exists, self._checkpoint.load()
        point = checkpoint.recovery_point
        # With SYNC_FLUSH nothing was acknowledged, or reported to a master, before it was synced.
        if not (clean or was_synced or _same_boot(point)):
            self.note_lost_tail("it was not closed, and what was not on the disk may be gone")
        loaded = LoadedStore(
            log=self.log,
            queues=self.queues,
            index=self.index,
            checkpoint=checkpoint,
            check=_check_of(config),
            delays=self._delays,
            index_safe=config.index_safe,
            aside=root / "cut",
            on_skipped=self.kinds.note_skipped,
            note_lost_tail=self.note_lost_tail,
        )
        self.recovery = recover(loaded, clean=clean, progress=self._progress)
        self.kinds.recovered(
            lambda topic: (
                has_batch_queues(found)
                if (found := topics.get(topic.decode(errors="replace")))
                else None
            )
        )
        self.began_empty = not had_checkpoint and not self.log.end
        self._units = self.queues.units()
        self.compaction.load(clean=clean)
        self._start_maintenance()

    def _remove_leftovers(self) -> None:
        """Delete temporary files and half-removed queues left by a crash."""
        config = self.config.value
        for directory in (*config.log_directories, config.root / "index"):
            for path in directory.parent.glob(f"{aside_of(directory)}*"):
                path.unlink()
        for path in config.root.glob(f"{_REMOVED}*"):
            shutil.rmtree(path, ignore_errors=True)

    def _start_maintenance(self) -> None:
        self.maintenance = StoreMaintenance(
            self, lock=self._lock, checkpoint=self._checkpoint, disk=self._disk
        )
        self.retention = Retention(
            self.log,
            self.queues,
            self.index,
            health=self.health,
            config=lambda: self.config.value,
            disk=self._disk,
            clock=self._clock,
            pause=self.maintenance.pause,
        )
        self.retention.is_copied = self.compaction.is_copied
        self.replica = ReplicaLog(
            self.log,
            self.queues,
            self._keys,
            lock=self._lock,
            health=self.health,
            delays=self._delays,
            appended=self.maintenance.appended,
            add_units=self._add_units,
            kinds=self.kinds,
        )
        self.maintenance.start(background=self._background)
        self.compaction.start(background=self._background)

    def _release(self) -> None:
        with ExitStack() as last_first:
            last_first.callback(self._lock_file.release)
            if self.index:
                last_first.callback(self.index.close)
            last_first.callback(self.queues.close)
            last_first.callback(self.log.close)

    def _flush_failed(self, exc: BaseException) -> None:
        self.health.refuse(COMMIT_LOG, f"the commit log cannot be written: {reason_of(exc)}")
        if self._staged:  # staged messages were not readable; the flusher holds the lock
            self.log.rewind()
            # A former master's last group may fail after the store has begun to follow another.
            self.replica.dispatched = min(self.replica.dispatched, self.log.end)
            self.queues.rewind(self.log.written)
            self._keys.rewind(self.log.written)
            self._units = self.queues.units()

    # ---- reading

    def _by_units(
        self, wanted: MessageFilter, topic: str, queue_id: int, *, may_block: bool
    ) -> MessageFilter:
        if wanted.code is None or not self._extensions.exist:
            return wanted
        if not may_block:
            raise NotInMemory(self._extensions.directory, 0)
        return replace(wanted, code=self._extensions.through(wanted.code, topic, queue_id))

    def sizes(self) -> StoreSizes:
        """Return sizes and counts for statistics; iterates over all queues."""
        queues, written = list(self.queues), self.log.written
        index = self.index.sizes if self.index else []
        return StoreSizes(
            log_files=len(self.log.files),
            log_bytes=written - self.log.min_offset,
            queues=len(queues),
            messages=sum(queue.end_below(written) - queue.min_offset for queue in queues),
            queue_files=sum(queue.files for queue in queues),
            index_files=len(index),
            index_bytes=sum(index),
        )

    # ---- durability

    @property
    def flushed(self) -> int:
        """Log position up to which all data is on the disk."""
        return self.log.flushed

    @property
    def units(self) -> int:
        """Number of queue offsets assigned, over all queues."""
        return self._units

    def _add_units(self, count: int) -> None:
        self._units += count

    @property
    def sound_end(self) -> int:
        """End of the last whole record; the log of a replica may end within one."""
        return self.replica.dispatched if self.replica.is_active else self.log.end

    @property
    def may_have_lost_tail(self) -> bool:
        """Whether the log may lack messages at its end that were acknowledged.

        So it is after the system went down with the store open, and if the log is shorter than it
        was known to be. It stays so, over restarts, until `lost_tail_is_known`.
        """
        return self._lost_tail.exists()

    def note_lost_tail(self, reason: str) -> None:
        """The log may lack messages at its end. Blocks."""
        log.warning("the log may lack messages at its end: %s", reason)
        self._lost_tail.touch()
        self._disk.sync_directory(self.config.value.root)

    def lost_tail_is_known(self) -> None:
        """The controller has taken note that the log may lack messages."""
        self._lost_tail.unlink(missing_ok=True)

    @property
    def confirmed_before(self) -> int:
        """Position that was confirmed, in controller mode, when the store was last closed."""
        return min(self._checkpoint.value.confirm_offset, self.log.end)

    @property
    def reportable_end(self) -> int:
        """The end of what a replica promises to have: with SYNC_FLUSH what is on the disk."""
        return self.log.flushed if self._staged else self.log.end

    def restart_at(self, position: int) -> None:
        """Discard everything; the log goes on at a position where a file begins. Blocks."""
        restart_store(self, position)

    def finish_replication(self) -> None:
        """Take appends again after the log of a master was replicated. Blocks."""
        if self.replica.is_active:
            with self.exclusively():
                self.replica.finish()

    def cut_incomplete(self) -> None:
        """Cut what a replica received behind its last whole record. Blocks.

        Raises:
            OSError: the disk fails; the log is unchanged.
        """
        if self.replica.is_active:
            with self.exclusively():
                self.replica.cut_incomplete()

    @contextmanager
    def exclusively(self) -> Iterator[None]:
        """Keep flusher, maintenance and appends away, with everything in the files. Blocks."""
        with self.maintenance.paused(), self.flusher.paused(), self._lock:
            yield

    def forget_keys(self, position: int) -> None:
        """Drop pending keys of records behind a position. The caller has called `exclusively`."""
        self._keys.rewind(position)

    def recount_units(self) -> None:
        self._units = self.queues.units()

    def wait_flushed(self, appended: Appended, timeout: float | None = None) -> bool:
        """Wait until a message is on the disk; False on timeout (FLUSH_DISK_TIMEOUT). Blocks.

        Raises:
            StoreUnwritable: the message could not be written and was rolled back.
        """
        if timeout is None:
            timeout = self.config.value.sync_flush_timeout
        return self.flusher.wait(appended.end, appended.generation, timeout)

    def on_flushed(self, listener: Listener) -> None:
        """Call `listener` on the flusher's thread after every flush, successful or failed."""
        self.flusher.listen(listener)

    def off_flushed(self, listener: Listener) -> None:
        """Undo `on_flushed`."""
        self.flusher.unlisten(listener)

    def flush(self) -> bool:
        """Flush the log now; returns whether it succeeded. Blocks."""
        return self.flusher.flush()

    def end_burst(self) -> bool:
        """End a burst of appends: write index entries and, with SYNC_FLUSH, begin its flush.

        Fewer than `_MANY_KEYS` index entries stay pending until more arrive, a key is queried, or
        maintenance writes them, every second. A broker calls this once per iteration of its event
        loop.

        Returns:
            Whether the store is writable; if not, it refuses messages until it recovers.
        """
        if self._staged and self._background:
            self.flusher.wake()  # it writes the index entries after the records
            return self.health.writable
        indexed = self._keys.drain(_MANY_KEYS)
        if self._flushes_each_burst:
            self.flusher.wake()
        return indexed

    def _index_many(self) -> bool:
        return self._keys.drain(_MANY_KEYS)

    def index_keys(self) -> bool:
        """Write all pending index entries of readable messages; whether it succeeded. May block."""
        return self._keys.drain()

    def remove_topic(self, topic: str) -> int:
        """Remove a topic's queues; its messages stay in the log until retention. Blocks.

        Returns:
            The number of removed queues.
        """
        aside = self._aside()
        # First: its copies must not outlive the queues, or a new topic of that name would get them.
        self.compaction.remove_topic(topic, aside)
        with self._lock:
            count = self.queues.detach_topic(topic.encode(), aside)
            self._units = self.queues.units()
        if count:
            self.maintenance.checkpoint()
            shutil.rmtree(aside, ignore_errors=True)
        return count

    def _aside(self) -> Path:
        """A new path for files that are removed; what a crash leaves of them is deleted later."""
        return self.config.value.root / f"{_REMOVED}{time.monotonic_ns()}"

    def adopt_kinds(self, kinds: Mapping[str, bool | None], position: int) -> None:
        """Take over from the table of a master which topics exist, and their kinds. Blocks.

        Args:
            kinds, position: see `QueueKinds.adopt`.

        Raises:
            OSError: queues cannot be removed; the call has to be repeated.
        """
        aside = self._aside()
        for topic in [topic for topic, kind in kinds.items() if kind is None]:
            self.compaction.remove_topic(topic, aside)  # before its queues, as in `remove_topic`
            shutil.rmtree(aside, ignore_errors=True)
        if self.kinds.adopt({topic.encode(): kind for topic, kind in kinds.items()}, position):
            self.maintenance.checkpoint()  # it settles the queues first

    def set_batched(self, topic: str, *, is_batched: bool) -> None:
        """Set the kind of queues that a topic has; queues of the other kind are removed. Blocks.

        For a master, where the topic has no messages yet; see `adopt_kinds`.
        """
        name = topic.encode()
        if is_batched is (name in self.queues.batch_topics):
            return
        self.remove_topic(topic)  # what a deleted topic of that name left
        with self._lock:
            (self.queues.batch_topics.add if is_batched else self.queues.batch_topics.discard)(name)

    def index_end(self) -> tuple[int, int]:
        return (self.index.end_timestamp, self.index.end_offset) if self.index else (0, 0)

    def _find_positions(self, topic: str, key: str, limit: int, begin: int, end: int) -> list[int]:
        if self.index is None:
            return []
        self.index_keys()
        return self.index.find(topic, key, limit=limit, begin=begin, end=end)


def _same_boot(point: RecoveryPoint | None) -> bool:
    """Whether the system is the one that wrote a checkpoint, so that its page cache is whole."""
    return point is not None and bool(point.boot_id) and point.boot_id == boot_id()


def _check_of(config: StoreConfig) -> Check:
    if config.verify_record_crc:
        return Check.SEAL
    return Check.BODY if config.check_crc_on_recover else Check.NONE
