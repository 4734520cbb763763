"""All consume queues of a store, by topic and queue id."""

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from bolide.store.batch_queue import BATCH_DIRECTORY, BATCH_UNIT_SIZE, BatchQueue
from bolide.store.consume_queue import ConsumeQueue
from bolide.store.descriptors import DescriptorCache
from bolide.store.disk import Disk

QueueKey = tuple[bytes, int]
"""Topic as encoded in records, and queue id."""

_NO_DIRECTORIES = {"", ".", ".."}
_LONGEST_NAME = 255


class QueueTable:
    """Queue files are in `<directory>/<topic>/<queue id>/`. Appends hold the store's lock.

    Batch queues are in a directory of their own beside it. A topic has queues of one kind.
    """

    def __init__(
        self,
        directory: Path,
        file_size: int,
        *,
        disk: Disk,
        batch_file_size: int = 300_000 * BATCH_UNIT_SIZE,
    ) -> None:
        self._directory = directory
        self._file_size = file_size
        self._batch_directory = directory.with_name(BATCH_DIRECTORY)
        self._batch_file_size = batch_file_size
        self.batch_topics: set[bytes] = set()
        """Topics whose queues are batch queues; set before their first queue is made."""
        self._disk = disk
        self._descriptors = DescriptorCache()
        self._queues: dict[QueueKey, ConsumeQueue] = {}
        self._changed: set[ConsumeQueue] = set()
        self._unsynced: set[ConsumeQueue] = set()
        self._unnamed: set[ConsumeQueue] = set()
        self._names_lock = threading.Lock()  # held until the names of new files are synced
        self._files_lock = threading.Lock()  # serializes writing, syncing and removing files

    def __len__(self) -> int:
        return len(self._queues)

    def __iter__(self) -> Iterator[ConsumeQueue]:
        return iter(list(self._queues.values()))

    @property
    def keys(self) -> list[QueueKey]:
        return list(self._queues)

    def load(self) -> None:
        if self._batch_directory.exists():
            for topic in _directories(self._batch_directory):
                self.batch_topics.add(os.fsencode(topic.name))
                self._load_topic(topic)
        if self._directory.exists():
            for topic in _directories(self._directory):
                if os.fsencode(topic.name) not in self.batch_topics:
                    self._load_topic(topic)

    def _load_topic(self, topic: os.DirEntry[str]) -> None:
        for queue in _directories(topic.path):
            if queue.name.isdigit():
                self.require(os.fsencode(topic.name), int(queue.name)).load()

    def find(self, topic: bytes, queue_id: int) -> ConsumeQueue | None:
        return self._queues.get((topic, queue_id))

    def of(self, topic: bytes) -> list[ConsumeQueue]:
        """The queues of a topic."""
        return [queue for key, queue in self._queues.items() if key[0] == topic]

    def require(self, topic: bytes, queue_id: int) -> ConsumeQueue:
        """Return the queue; it is created if it does not exist.

        Raises:
            ValueError: the topic or queue id cannot name a directory.
        """
        key = topic, queue_id
        found = self._queues.get(key)
        if found is None:
            check_queue(topic, queue_id)
            found = self._queues[key] = self._new_queue(topic, queue_id)
        return found

    def _new_queue(self, topic: bytes, queue_id: int) -> ConsumeQueue:
        path = Path(os.fsdecode(topic), str(queue_id))
        if topic in self.batch_topics:
            return BatchQueue(
                self._batch_directory / path,
                self._batch_file_size,
                disk=self._disk,
                descriptors=self._descriptors,
            )
        return ConsumeQueue(
            self._directory / path,
            self._file_size,
            disk=self._disk,
            descriptors=self._descriptors,
        )

    def changed(self, queue: ConsumeQueue) -> None:
        """Record that a queue has units that are not in its files yet."""
        self._changed.add(queue)

    def take_changed(self) -> set[ConsumeQueue]:
        """Return the queues changed since the last call. The caller holds the store's lock."""
        changed, self._changed = self._changed, set()
        for queue in changed:
            queue.tail.is_changed = False
            queue.shrink()
        return changed

    def write(self, queues: Iterable[ConsumeQueue], physical_offset: int) -> None:
        """Write the units of records below a log position to the files. Blocks.

        Raises:
            OSError: the disk is full or fails; queues not written stay changed.
        """
        left = set(queues)
        try:
            for queue in list(left):
                with self._files_lock:
                    is_written = queue.write_below(physical_offset)
                    self._unsynced.add(queue)
                    if queue.has_new_files:
                        self._unnamed.add(queue)
                if is_written:
                    left.remove(queue)
        finally:
            for queue in left:
                self._changed.add(queue)

    def sync(self, least_pages: int = 0) -> None:
        """Sync the queues that have at least `least_pages` dirty pages. Blocks."""
        for queue in list(self._unsynced):
            if queue.dirty_pages >= least_pages:
                with self._files_lock:
                    queue.sync()
                    self._unsynced.discard(queue)

    def sync_names(self) -> None:
        """Sync the directories of new files: otherwise a power cut loses the files. Blocks.

        Raises:
            OSError: a directory cannot be synced; the next call tries again.
        """
        with self._names_lock:
            with self._files_lock:
                queues, self._unnamed = self._unnamed, set()
                for queue in queues:
                    queue.has_new_files = False
            try:
                self._sync_directories(queues)
            except OSError:
                with self._files_lock:
                    self._unnamed |= queues
                raise

    def _sync_directories(self, queues: Iterable[ConsumeQueue]) -> None:
        own = {Path(queue.directory) for queue in queues}
        above = {directory.parent for directory in own}
        around = {each for topic in above for each in (topic.parent, topic.parent.parent)}
        for directory in (*own, *above, *around):
            with self._files_lock, suppress(FileNotFoundError):  # its topic was removed
                self._disk.sync_directory(directory)

    def truncate(self, physical_offset: int, *, thoroughly: bool = False) -> None:
        """Drop the units of records at or behind a log position; see `ConsumeQueue.truncate`."""
        with self._files_lock:
            for queue in self:
                queue.truncate(physical_offset, thoroughly=thoroughly)

    def restart(self) -> None:
        """Drop all units: the log begins anew. The caller holds the store's lock."""
        with self._files_lock:
            for queue in self:
                queue.restart()

    def rewind(self, physical_offset: int) -> None:
        """Drop the units of records that were rolled back before they were written."""
        for queue in self:
            queue.rewind(physical_offset)

    def max_physical_offset(self) -> int:
        """Physical offset of the newest record that has a unit, or -1."""
        return max(map(_newest, self), default=-1)

    def raise_minimum(
        self, physical_offset: int, pause: Callable[[], object] = lambda: None
    ) -> None:
        """Trim all queues to the beginning of the log; calls `pause` after removals. Blocks."""
        for queue in self:
            with self._files_lock:
                queue.raise_minimum(physical_offset)
                removed = queue.remove_below(physical_offset)
            if removed:
                pause()

    def detach_topic(self, topic: bytes, aside: Path) -> int:
        """Drop a topic's queues and move their files to `aside`; returns the number of queues.

        The caller holds the store's lock; the call waits for running syncs. `aside` can be
        removed without the lock.
        """
        keys = [key for key in self._queues if key[0] == topic]
        with self._files_lock:
            for key in keys:
                self._detach(key)
            top = self._batch_directory if topic in self.batch_topics else self._directory
            directory = top / os.fsdecode(topic)
            if keys and directory.exists():
                directory.rename(aside)
            self.batch_topics.discard(topic)
        return len(keys)

    def _detach(self, key: QueueKey) -> ConsumeQueue:
        """Drop a queue. The caller holds `_files_lock`."""
        queue = self._queues.pop(key)
        self._changed.discard(queue)
        self._unsynced.discard(queue)
        self._unnamed.discard(queue)
        queue.detach()
        return queue

    def units(self) -> int:
        """Number of queue offsets assigned, over all queues."""
        return sum(queue.max_offset for queue in self)

    def close(self) -> None:
        self._descriptors.close()


def _newest(queue: ConsumeQueue) -> int:
    """Physical offset of the newest record of a queue, or -1."""
    unit = queue.unit(queue.max_offset - 1) if queue.max_offset else None
    return unit.physical_offset if unit else -1


def check_queue(topic: bytes, queue_id: int) -> None:
    """Raises ValueError if topic or queue id cannot be the name of a directory."""
    name = os.fsdecode(topic)
    if name in _NO_DIRECTORIES or "/" in name or "\0" in name or len(topic) > _LONGEST_NAME:
        raise ValueError(f"topic {name!r} cannot be the name of a directory")
    if queue_id < 0:
        raise ValueError(f"queue id {queue_id} is below 0")


def _directories(path: Path | str) -> list[os.DirEntry[str]]:
    with os.scandir(path) as entries:
        return [entry for entry in entries if entry.is_dir()]
