"""Copies the messages of compaction topics into their own logs, and compacts these logs.

One thread does both, for all queues in turn: it copies every second what is new, and
compacts a queue each `compactionScheduleInternal` milliseconds. Reads use the compaction log below
the offset up to which messages have been copied, and the consume queue from there on, so that a
consumer never waits for the copy.
"""

import logging
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

from bolide.kernel.units import BLANK_SIZE
from bolide.model.properties import PropertyName
from bolide.private_files import make_directory
from bolide.protocol.record import decode_property_bytes, property_bytes, store_time
from bolide.protocol.record_errors import BadRecord
from bolide.store.compaction.compactor import compact, read_keyed
from bolide.store.compaction.positions import Positions
from bolide.store.compaction.queue_log import QueueLog
from bolide.store.compaction.recovery import open_queue
from bolide.store.compaction.segments import Entry, FileSizes
from bolide.store.config import StoreConfig
from bolide.store.consume_queue import ConsumeQueue, Unit
from bolide.store.disk import Disk
from bolide.store.errors import NotInMemory, StoreError
from bolide.store.layout import is_directory_name
from bolide.store.periodic_thread import PeriodicThread
from bolide.store.reading import MessageFilter, ReadLimits, ReadResult, ReadStatus

log = logging.getLogger(__name__)

_ROUND = 1.0
"""Seconds between two rounds of the thread."""
_BATCH = 64
"""Messages copied at once."""
_PAUSE = 0.001
"""Seconds of rest between two batches, in which other threads run."""

QueueKey = tuple[str, int]


class SourceLog(Protocol):
    """The part of `CommitLog` that is used here."""

    flushed: int

    @property
    def readable(self) -> int: ...

    def read(self, physical_offset: int, size: int) -> memoryview | None: ...


class SourceQueues(Protocol):
    """The part of `QueueTable` that is used here."""

    @property
    def keys(self) -> list[tuple[bytes, int]]: ...

    def find(self, topic: bytes, queue_id: int) -> ConsumeQueue | None: ...


class TopicCompaction:
    """The compaction topics of a store. `topics` may be read on any thread."""

    def __init__(
        self,
        root: Path,
        commit_log: SourceLog,
        queues: SourceQueues,
        *,
        config: Callable[[], StoreConfig],
        disk: Disk,
    ) -> None:
        self.topics: set[str] = set()
        """Names of the compaction topics; the broker adds and discards them."""
        self._root = root / "compaction"
        self._commit_log = commit_log
        self._queues = queues
        self._config = config
        self._disk = disk
        self._positions = Positions(self._root / "position-checkpoint", disk)
        self._logs: dict[QueueKey, QueueLog] = {}
        self._work_lock = threading.RLock()  # one thread at a time copies, compacts or removes
        self._open_lock = threading.Lock()  # guards the opening of logs; taken after the first
        self._topic = ""  # the one that is worked on
        self._due: dict[QueueKey, float] = {}
        self._failing: dict[QueueKey, str] = {}
        self._next_sync = 0.0
        self._is_clean = False
        self._thread = PeriodicThread("store-compaction", self.run, lambda: _ROUND)
        self._background = self._is_running = False

    # ---- life

    def load(self, *, clean: bool) -> None:
        """Read the table of positions. `clean`: the store was closed cleanly. Blocks."""
        self._is_clean = clean
        if self._config().compaction_enabled:
            self._positions.load()

    def add(self, topic: str) -> None:
        """Treat a topic as a compaction topic from now on; unless `enableCompaction` is off.

        The thread starts with the first topic.
        """
        if self._config().compaction_enabled:
            self.topics.add(topic)
            self._start_thread()

    def discard(self, topic: str) -> None:
        self.topics.discard(topic)

    def start(self, *, background: bool) -> None:
        """Begin to work. Without `background` there is no thread: `run` does its work."""
        self._background = background
        self._start_thread()

    def _start_thread(self) -> None:
        if self._background and self.topics and not self._is_running:
            self._is_running = True
            self._thread.start()

    def stop(self) -> None:
        """Stop the thread; a compaction that runs is given up. Blocks."""
        self._background = False
        if self._is_running:
            self._thread.stop()
            self._is_running = False

    def finish(self) -> None:
        """Copy and sync what is left, before the store is closed. Blocks."""
        self._next_sync = 0.0
        for key in self._keys():
            self._attempt(key, self._copy)
        self._sync_all()

    def open_all(self) -> None:
        """Open the logs of all compaction topics. Blocks.

        A log that cannot be opened is reported; its pulls fail until it can.
        """
        for key in self._keys():
            self._attempt(key, lambda _: None)

    def remove_topic(self, topic: str, aside: Path) -> None:
        """Remove the logs of a topic; their directories are moved to `aside` first. Blocks.

        It is no compaction topic from then on, until it is added again.
        """
        self.topics.discard(topic)  # ends a compaction of one of its queues
        if not is_directory_name(topic):
            return
        directories = [self._root / name / topic for name in ("compactionLog", "compactionCq")]
        is_open = any(key[0] == topic for key in list(self._logs))
        if not is_open and not any(directory.exists() for directory in directories):
            return
        with self._work_lock, self._open_lock:
            for key in [key for key in self._logs if key[0] == topic]:
                del self._logs[key]
                self._due.pop(key, None)
            self._positions.forget(topic)
            for directory in filter(Path.exists, directories):
                target = aside / directory.parent.name
                make_directory(target)
                directory.rename(target / "topic")
        shutil.rmtree(aside, ignore_errors=True)

    # ---- reading

    def read(
        self,
        topic: str,
        queue_id: int,
        queue_offset: int,
        limits: ReadLimits,
        wanted: MessageFilter,
        *,
        may_block: bool,
    ) -> ReadResult | None:
        """Read messages that have been copied; None if the consume queue has to be read.

        Raises:
            NotInMemory: the read may not block.
            OSError: the files cannot be read.
            DamagedFile: the files contradict each other.
        """
        queue = self._queues.find(topic.encode(), queue_id)
        if queue is None:
            return None
        copied = self._logs.get((topic, queue_id))
        if copied is None or queue_offset < copied.copied:
            if not may_block:
                raise NotInMemory(self._root / "compactionLog" / topic, queue_offset)
            if copied is None or copied.is_stale:
                copied = self._open((topic, queue_id))
        if queue_offset >= copied.copied:
            return None
        end = copied.copied
        found = copied.read(queue_offset, limits, wanted)
        if found is None:  # the last messages that were copied are gone
            found = ReadResult(ReadStatus.NO_MATCHED_MESSAGE, end)
        low = copied.min_offset
        found.min_offset = queue.min_offset if low is None else min(low, queue.min_offset)
        found.max_offset = queue.end_below(self._commit_log.readable, may_block=may_block)
        return found

    def min_offset(self, topic: str, queue_id: int) -> int | None:
        """Queue offset of the first message in the log of a queue; None if there is none."""
        copied = self._logs.get((topic, queue_id))
        return copied.min_offset if copied else None

    def find_record(self, topic: str, physical_offset: int, unique_id: str | None) -> bytes | None:
        """Return the record at a position in the log of any queue of a topic. Blocks.

        Positions of different queues coincide: `unique_id` tells their messages apart.
        """
        for key, copied in list(self._logs.items()):
            if key[0] == topic and (data := copied.record_at(physical_offset)) is not None:
                properties = decode_property_bytes(property_bytes(data))
                if unique_id in (None, properties.get(PropertyName.UNIQUE_ID)):
                    return data
        return None

    @property
    def max_record(self) -> int:
        """Size in bytes of the largest record that fits into a file."""
        return self._sizes().max_record

    # ---- retention

    def is_copied(self, physical_offset: int) -> bool:
        """Whether all messages below a commit log position have been copied and are on the disk."""
        for key in self._keys():
            copied, queue = self._logs.get(key), self._queue(key)
            if queue is None:
                continue
            unit = queue.unit(max(copied.synced if copied else 0, queue.min_offset))
            if unit is not None and unit.physical_offset < physical_offset:
                self._next_sync = 0.0
                self._thread.wake()
                return False
        return True

    # ---- the thread

    def run(self) -> None:
        """Copy what is new, and compact the queues whose time has come. Blocks."""
        for key in self._keys():
            if not self._thread.is_stopping:
                self._attempt(key, self._copy)
        self._sync_all()
        interval = self._config().compaction_interval
        for key in self._keys():
            if self._thread.is_stopping:
                return
            now = time.monotonic()
            if now >= self._due.setdefault(key, now + interval) and self._is_flushed(key):
                self._attempt(key, self._compact)
                self._due[key] = time.monotonic() + interval

    def compact_all(self) -> None:
        """Compact all queues now. Blocks."""
        for key in self._keys():
            self._attempt(key, self._compact)

    def _is_flushed(self, key: QueueKey) -> bool:
        """Whether the commit log is on the disk as far as a compaction would look.

        Otherwise a power cut could lose a message for whose sake an older one is gone already.
        """
        copied, queue = self._logs.get(key), self._queue(key)
        if copied is None or queue is None or len(copied.segments) < 2:
            return True
        unit = queue.unit(copied.segments[-2].last)
        return unit is None or unit.physical_offset + unit.size <= self._commit_log.flushed

    def _attempt(self, key: QueueKey, work: Callable[[QueueLog], object]) -> None:
        """Work on a queue; a failure is logged, and the next round tries again."""
        try:
            with self._work_lock:
                self._topic = key[0]
                work(self._open(key))
        except _Stopping:
            return
        except (OSError, StoreError, BadRecord) as exc:
            reason = str(exc)
            if self._failing.get(key) != reason:
                log.warning("the compaction log of %s, queue %s, stays as it is: %s", *key, reason)
            self._failing[key] = reason
        else:
            if self._failing.pop(key, None):
                log.info("the compaction log of %s, queue %s, works again", *key)

    def _open(self, key: QueueKey) -> QueueLog:
        with self._open_lock:
            found = self._logs.get(key)
            if found is None or found.is_stale:
                self._logs.pop(key, None)
                found = open_queue(
                    self._root, *key, self._sizes(), self._disk, clean=self._is_clean
                )
                self._fit(found, key)
                self._logs[key] = found
            return found

    def _fit(self, copied: QueueLog, key: QueueKey) -> None:
        """Cut off messages that the consume queue does not have, and correct the position."""
        queue = self._queue(key)
        end = queue.max_offset if queue else 0
        if copied.max_offset > end:
            log.warning("%s, queue %s: the log ends at %s, cutting its copy", *key, end)
            copied.truncate(end)
        # Tombstones at the end may have been removed: only a position behind the queue is wrong.
        if self._positions.get(*key) >= (end if copied.max_offset else 0):
            self._positions.set(*key, copied.max_offset - 1)
        # Messages up to the position were compacted: those that are missing are gone for good.
        copied.copied = max(copied.copied, self._positions.get(*key) + 1)

    def _copy(self, copied: QueueLog) -> None:
        queue = self._queue((copied.topic, copied.queue_id))
        if queue is None:
            return
        end = queue.end_below(self._commit_log.readable)
        # A batch may have been written in part before the disk refused the rest.
        begin = max(copied.copied, copied.max_offset, queue.min_offset)
        while begin < end:
            units = list(queue.read(begin, min(_BATCH, end - begin)))
            if not units:
                break
            copied.append(list(self._entries(begin, units, copied)), begin + len(units))
            begin += len(units)
            self._pause()

    def _entries(self, first: int, units: list[Unit], copied: QueueLog) -> Iterator[Entry]:
        for queue_offset, unit in enumerate(units, first):
            if unit.size == BLANK_SIZE:
                continue
            view = self._commit_log.read(unit.physical_offset, unit.size)
            if view is None:
                continue  # retention deleted it while compaction was off
            record = bytes(view)
            del view
            try:
                keyed = read_keyed(record)
            except BadRecord as exc:
                log.warning("the record at %s is not copied: %s", unit.physical_offset, exc)
                continue
            if len(record) > copied.sizes.max_record:
                log.error(
                    "the record at %s is not copied: it is larger than a compaction log file",
                    unit.physical_offset,
                )
            elif keyed.keys:
                yield Entry(record, queue_offset, keyed.tags_code, store_time(record))

    def _sync_all(self) -> None:
        now = time.monotonic()
        if now < self._next_sync:
            return
        self._next_sync = now + self._config().queue_flush_thorough_interval
        for key in list(self._logs):
            if key[0] in self.topics:
                self._attempt(key, lambda copied: copied.sync())

    def _compact(self, copied: QueueLog) -> None:
        key = copied.topic, copied.queue_id
        copied.sync()
        is_complete = False
        while not is_complete:
            position = self._positions.get(*key)
            try:
                done = compact(copied, position, self._config().offset_map_bytes, self._pause)
            except BaseException:
                if not copied.is_stale:
                    copied.discard()
                raise
            if done is None:
                return
            self._disk.step("before-position")
            self._positions.set(*key, done.position)
            log.info(
                "compacted %s, queue %s, up to offset %s: %s messages kept, %s removed",
                *key, done.position, done.kept, done.removed,
            )  # fmt: skip
            is_complete = done.is_complete

    # ---- inside

    def _pause(self) -> None:
        """Let other threads run; raises _Stopping if the thread is to stop or its topic is gone."""
        if self._is_running:
            self._thread.pause(_PAUSE)
            if self._thread.is_stopping or self._topic not in self.topics:
                raise _Stopping

    def _keys(self) -> list[QueueKey]:
        """The queues of compaction topics."""
        if not self.topics:
            return []
        found = ((os.fsdecode(topic), queue_id) for topic, queue_id in self._queues.keys)
        return [key for key in found if key[0] in self.topics]

    def _queue(self, key: QueueKey) -> ConsumeQueue | None:
        return self._queues.find(os.fsencode(key[0]), key[1])

    def _sizes(self) -> FileSizes:
        config = self._config()
        return FileSizes.of(config.compaction_file_size, config.compaction_queue_file_size)


class _Stopping(Exception):
    """The store is being closed, or the topic removed."""
