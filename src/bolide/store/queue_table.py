"""All consume queues of a store, by topic and queue id."""

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from bolide.store.consume_queue import ConsumeQueue
from bolide.store.descriptors import DescriptorCache
from bolide.store.disk import Disk

QueueKey = tuple[bytes, int]
"""Topic as it stands in records, and queue id."""

_NO_DIRECTORIES = {"", ".", ".."}
_LONGEST_NAME = 255


class QueueTable:
    """Files lie at `<directory>/<topic>/<queue id>/`. Appends hold the store's lock."""

    def __init__(self, directory: Path, file_size: int, *, disk: Disk) -> None:
        self._directory = directory
        self._file_size = file_size
        self._disk = disk
        self._descriptors = DescriptorCache()
        self._queues: dict[QueueKey, ConsumeQueue] = {}
        self._changed: set[ConsumeQueue] = set()
        self._unsynced: set[ConsumeQueue] = set()
        self._unnamed: set[ConsumeQueue] = set()
        self._naming = threading.Lock()  # who finds nothing to sync may rely on it
        self._upkeep = threading.Lock()  # one thread at a time writes, syncs and removes files

    def __len__(self) -> int:
        return len(self._queues)

    def __iter__(self) -> Iterator[ConsumeQueue]:
        return iter(list(self._queues.values()))

    @property
    def keys(self) -> list[QueueKey]:
        return list(self._queues)

    def load(self) -> None:
        if not self._directory.exists():
            return
        for topic in _directories(self._directory):
            for queue in _directories(topic.path):
                if queue.name.isdigit():
                    self.require(os.fsencode(topic.name), int(queue.name)).load()

    def find(self, topic: bytes, queue_id: int) -> ConsumeQueue | None:
        return self._queues.get((topic, queue_id))

    def require(self, topic: bytes, queue_id: int) -> ConsumeQueue:
        """The queue, made if it is not there.

        Raises:
            ValueError: no directory can have that name.
        """
        key = topic, queue_id
        found = self._queues.get(key)
        if found is None:
            check_queue(topic, queue_id)
            directory = self._directory / os.fsdecode(topic) / str(queue_id)
            found = self._queues[key] = ConsumeQueue(
                directory, self._file_size, disk=self._disk, descriptors=self._descriptors
            )
        return found

    def changed(self, queue: ConsumeQueue) -> None:
        """Note that a queue has units that are not in its files."""
        self._changed.add(queue)

    def take_changed(self) -> set[ConsumeQueue]:
        """The queues noted since the last call. Hold the store's lock."""
        changed, self._changed = self._changed, set()
        for queue in changed:
            queue.tail.is_changed = False
            queue.shrink()
        return changed

    def write(self, queues: Iterable[ConsumeQueue], physical_offset: int) -> None:
        """Put the units of records below a position into the files. Blocks.

        Raises:
            OSError: the disk is full or fails; queues not written stay noted.
        """
        left = set(queues)
        try:
            for queue in list(left):
                with self._upkeep:
                    queue.write(queue.end_below(physical_offset))
                    self._unsynced.add(queue)
                    if queue.has_new_files:
                        self._unnamed.add(queue)
                if queue.written == queue.max_offset:
                    left.remove(queue)
        finally:
            for queue in left:
                self._changed.add(queue)

    def sync(self, least_pages: int = 0) -> None:
        """Bring units written to the disk, of the queues with at least so many pages. Blocks."""
        for queue in list(self._unsynced):
            if queue.dirty_pages >= least_pages:
                with self._upkeep:
                    queue.sync()
                    self._unsynced.discard(queue)

    def sync_names(self) -> None:
        """Bring the names of new files to the disk: without them a power cut takes the files.

        Blocks. Raises OSError.
        """
        with self._naming:
            with self._upkeep:
                queues, self._unnamed = self._unnamed, set()
                for queue in queues:
                    queue.has_new_files = False
            try:
                self._sync_directories(queues)
            except OSError:
                with self._upkeep:
                    self._unnamed |= queues
                raise

    def _sync_directories(self, queues: Iterable[ConsumeQueue]) -> None:
        own = {Path(queue.directory) for queue in queues}
        above = {directory.parent for directory in own}
        around = {self._directory, self._directory.parent} if own else set()
        for directory in (*own, *above, *around):
            with self._upkeep, suppress(FileNotFoundError):  # its topic was removed
                self._disk.sync_directory(directory)

    def truncate(self, physical_offset: int, *, thoroughly: bool = False) -> None:
        """Drop the units of records at or behind a position of the log."""
        with self._upkeep:
            for queue in self:
                queue.truncate(physical_offset, thoroughly=thoroughly)

    def rewind(self, physical_offset: int) -> None:
        """Forget the units of records that were taken back before they were written."""
        for queue in self:
            queue.rewind(physical_offset)

    def max_physical_offset(self) -> int:
        """The newest record that has a unit, -1 if none has."""
        last = (queue.unit(queue.max_offset - 1) for queue in self if queue.max_offset)
        return max((unit.physical_offset for unit in last if unit), default=-1)

    def raise_minimum(
        self, physical_offset: int, pause: Callable[[], object] = lambda: None
    ) -> None:
        """Trim all queues to what the log still has; `pause` follows where files went. Blocks."""
        for queue in self:
            with self._upkeep:
                queue.raise_minimum(physical_offset)
                removed = queue.remove_below(physical_offset)
            if removed:
                pause()

    def detach_topic(self, topic: bytes, aside: Path) -> int:
        """Let go of a topic's queues, their files moved to `aside`; returns how many there were.

        Hold the store's lock: it waits for a few queues' syncs. Who removes `aside` need not.
        """
        keys = [key for key in self._queues if key[0] == topic]
        with self._upkeep:
            for key in keys:
                queue = self._queues.pop(key)
                self._changed.discard(queue)
                self._unsynced.discard(queue)
                self._unnamed.discard(queue)
                queue.detach()
            directory = self._directory / os.fsdecode(topic)
            if keys and directory.exists():
                directory.rename(aside)
        return len(keys)

    def units(self) -> int:
        """The offsets given away, over all queues."""
        return sum(queue.max_offset for queue in self)

    def close(self) -> None:
        self._descriptors.close()


def check_queue(topic: bytes, queue_id: int) -> None:
    """Raises ValueError if these cannot be names of directories."""
    name = os.fsdecode(topic)
    if name in _NO_DIRECTORIES or "/" in name or "\0" in name or len(topic) > _LONGEST_NAME:
        raise ValueError(f"topic {name!r} cannot be the name of a directory")
    if queue_id < 0:
        raise ValueError(f"queue id {queue_id} is below 0")


def _directories(path: Path | str) -> list[os.DirEntry[str]]:
    with os.scandir(path) as entries:
        return [entry for entry in entries if entry.is_dir()]
