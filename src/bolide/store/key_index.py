"""The key index: finds messages by topic and key or unique key (`IndexService`).

A sequence of `IndexFile`s, named by their creation time. The index is derived from the commit log:
lost or doubtful entries are dropped and put again from `end_offset` on, that record included.

After a crash the caller decides which entries to trust. If only the process died: `mend`. If the
system went down: `restore` the recovery point of the last `flush`, or without one `drop_after` the
checkpoint's time, as Java does. In each case `truncate` then drops the entries that point past the
end of the log.
"""

import logging
import os
import re
import struct
import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from bolide.kernel.index_entries import ITEM_SIZE
from bolide.protocol.record import Buffer
from bolide.protocol.tags import index_hash
from bolide.store.commit_log import CommitLog
from bolide.store.disk import Disk
from bolide.store.errors import DamagedFile, StoreClosed
from bolide.store.health import KEY_INDEX, Health
from bolide.store.index_file import IndexFile

logger = logging.getLogger(__name__)

_NAME = re.compile(r"[0-9]{17}")
_ITEM = struct.Struct(">Iqq")
_PLACE = struct.Struct(">Iq")  # key hash and physical offset of an item


@dataclass(frozen=True, slots=True)
class IndexRecoveryPoint:
    """What a flush made durable: `count` entries of one file, and all files before it."""

    name: str = ""
    count: int = 0
    end_offset: int = 0
    end_timestamp: int = 0


class KeyIndex:
    """Thread-safe: one lock guards the files and their list; it is not held during a sync."""

    def __init__(
        self,
        directory: Path,
        *,
        slots: int,
        capacity: int,
        disk: Disk,
        clock: Callable[[], float] = time.time,
    ) -> None:
        if slots < 1 or capacity < 2:
            raise ValueError(f"an index file of {slots} slots and {capacity} entries holds nothing")
        self._directory = directory
        self._slots = slots
        self._capacity = capacity
        self._disk = disk
        self._clock = clock
        self._lock = threading.Lock()
        self._files: list[IndexFile] = []
        self._closed = False

    def load(self) -> None:
        """Open the files. A file of another length is removed, with all newer ones: entries can
        only be rebuilt from the log, in order.
        """
        with self._lock:
            paths = self._paths()
            for number, path in enumerate(paths):
                try:
                    self._files.append(IndexFile.open(path, self._slots, self._capacity))
                except DamagedFile as exc:
                    logger.warning("the key index is rebuilt from here on: %s", exc)
                    for each in paths[number:]:
                        self._disk.remove(each)
                    break

    @property
    def end_offset(self) -> int:
        """Physical offset of the newest record in the index, 0 if there is none.

        All records before it are in the index; after a crash keys of that record may be missing.
        """
        with self._lock:
            return self._end_offset()

    @property
    def end_timestamp(self) -> int:
        """Store time of the newest record in the index, in milliseconds."""
        with self._lock:
            return max((file.end_timestamp for file in self._files), default=0)

    @property
    def sizes(self) -> list[int]:
        """Bytes of each file on the disk, oldest first."""
        with self._lock:
            return [file.size for file in self._files]

    def has(self, name: str) -> bool:
        """Whether a file of that name exists."""
        with self._lock:
            return any(file.path.name == name for file in self._files)

    def put(self, keys: Buffer) -> None:
        """Add items as `Scan.keys` holds them, in the order of the log.

        Idempotent: items already in the index are skipped, so a part of the log may be put again.

        Raises:
            OSError: there is no room for a new file. Items put before that stay; put the same
                items again later.
        """
        with self._lock:
            if self._closed:
                raise StoreClosed
            rest = memoryview(keys)[self._known(keys) :]
            while rest:
                added = self._writable().put(rest)
                rest = rest[added * ITEM_SIZE :]

    def find(self, topic: str, key: str, *, limit: int, begin: int, end: int) -> list[int]:
        """Return physical offsets of records stored from `begin` to `end` (ms), newest first.

        Two keys may share a hash: the caller compares the record.
        """
        key_hash = index_hash(topic, key)
        found: dict[int, None] = {}
        with self._lock:
            for file in reversed(self._files):
                if file.overlaps(begin, end):
                    found |= dict.fromkeys(file.find(key_hash, limit, begin, end))
                if len(found) >= limit or (not file.empty and file.begin_timestamp < begin):
                    break
        return list(found)[:limit]

    def flush(self) -> IndexRecoveryPoint:
        """Sync everything put so far; returns the recovery point reached. Blocks.

        Raises:
            OSError: the disk failed; the previous recovery point stays valid.
        """
        with self._lock:
            point = self._recovery_point()
            dirty = [file for file in self._files if file.dirty]
            for file in dirty:
                if file.doubtful:
                    file.write_again(self._disk)
            # Duplicated descriptors: a file may be trimmed while it is synced.
            descriptors = [os.dup(file.descriptor) for file in dirty]
            for file in dirty:
                file.dirty = False
                file.doubtful = False
        try:
            for descriptor in descriptors:
                self._disk.sync(descriptor)
        except OSError:
            for file in dirty:
                file.dirty = file.doubtful = True
            raise
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
        return point

    def mend(self) -> int:
        """Undo the uncounted entries of a killed process; returns their number."""
        with self._lock:
            return self._files[-1].mend() if self._files else 0

    def restore(self, point: IndexRecoveryPoint) -> None:
        """Return to the recovery point of a flush; later bytes may be garbage."""
        with self._lock:
            self._drop([file for file in self._files if file.path.name > point.name])
            if self._files and self._files[-1].path.name == point.name:
                newest = self._files[-1]
                newest.restore(point.count, point.end_timestamp, point.end_offset, self._disk)

    def drop_after(self, timestamp: int) -> None:
        """Remove the first file that ends after a store time (ms), and all newer ones."""
        with self._lock:
            late = [file.end_timestamp > timestamp for file in self._files]
            if True in late:
                self._drop(self._files[late.index(True) :])

    def truncate(self, end: int) -> None:
        """Drop the entries of records at or behind physical offset `end`, where the log was cut."""
        with self._lock:
            while self._files and self._end_offset() >= end:
                self._files[-1].truncate(end)
                if not self._files[-1].empty:
                    break
                self._drop(self._files[-1:])

    def trim(self, min_offset: int) -> None:
        """Remove files whose records are all below `min_offset`, but never the newest."""
        with self._lock:
            kept = [file.end_offset >= min_offset for file in self._files[:-1]]
            self._drop(self._files[: kept.index(True) if True in kept else len(kept)])

    def clear(self) -> None:
        with self._lock:
            self._drop(list(self._files))

    def close(self) -> None:
        """Close the files without a sync; `flush` first for durability."""
        with self._lock:
            self._closed = True
            while self._files:
                self._files.pop().close()

    def _paths(self) -> list[Path]:
        if not self._directory.is_dir():
            return []
        return sorted(path for path in self._directory.iterdir() if _NAME.fullmatch(path.name))

    def _end_offset(self) -> int:
        # A file whose first write was lost in a crash says 0; the file before it has the offset.
        return max((file.end_offset for file in self._files), default=0)

    def _known(self, keys: Buffer) -> int:
        """Return the number of leading bytes whose items are already in the index."""
        if not self._files or not keys:
            return 0
        items, end = range(0, len(keys), ITEM_SIZE), self._end_offset()
        first = bisect_left(items, end, key=lambda at: _PLACE.unpack_from(keys, at)[1])
        there = self._files[-1].keys_of_last()
        # Some keys of the newest record may be in the index: keys are put in this order.
        while first < len(items):
            key_hash, offset = _PLACE.unpack_from(keys, items[first])
            if offset != end or key_hash not in there:
                break
            first += 1
        return ITEM_SIZE * first

    def _writable(self) -> IndexFile:
        if not self._files or self._files[-1].full:
            path = self._directory / self._next_name()
            file = IndexFile.create(path, self._slots, self._capacity, self._disk)
            if self._files:
                file.follow(self._files[-1])
            self._files.append(file)
        return self._files[-1]

    def _next_name(self) -> str:
        """Local time in milliseconds, but always greater than the previous name."""
        now = self._clock()
        name = time.strftime("%Y%m%d%H%M%S", time.localtime(now)) + f"{int(now * 1000) % 1000:03d}"
        if self._files and name <= self._files[-1].path.name:
            return f"{int(self._files[-1].path.name) + 1:017d}"
        return name

    def _recovery_point(self) -> IndexRecoveryPoint:
        if not self._files:
            return IndexRecoveryPoint()
        newest = self._files[-1]
        return IndexRecoveryPoint(
            newest.path.name, newest.count, newest.end_offset, newest.end_timestamp
        )

    def _drop(self, files: list[IndexFile]) -> None:
        for file in files:
            self._disk.remove(file.path)
            self._files.remove(file)
            file.close()


class PendingKeys:
    """Keys of records in the log that are not in the index yet.

    Appends add keys under the store's lock; `drain` moves them to the index after a burst.
    """

    def __init__(
        self,
        log: CommitLog,
        index: KeyIndex | None,
        *,
        lock: AbstractContextManager[bool],
        health: Health,
        disk: Disk,
    ) -> None:
        self._log = log
        self._index = index
        self._lock = lock
        self._health = health
        self._disk = disk
        self._draining = threading.Lock()  # serializes drains: items enter the index in log order
        self._items = bytearray()
        self.items = self._items if index is not None else None
        """Buffer for callers that add items in the format of `Scan.keys`; None without an index."""

    def add(self, hashes: Iterable[int], physical_offset: int, timestamp: int) -> None:
        if self._index:
            for value in hashes:
                self._items += _ITEM.pack(value, physical_offset, timestamp)

    def drain(self, least: int = 1) -> bool:
        """Put keys of readable records into the index; returns whether that worked. May block.

        After a failure the store refuses appends until a later call succeeds.

        Args:
            least: with fewer pending keys the call does nothing.
        """
        if len(self._items) < least * _ITEM.size or self._index is None:
            return True
        with self._draining:
            with self._lock:
                items = bytes(self._items[: self._below(self._log.written)])
            if not items:
                return True
            self._disk.step("before-index")
            try:
                self._index.put(items)
            except OSError as exc:
                self._health.refuse(KEY_INDEX, f"the key index cannot be written: {exc}")
                return False
            with self._lock:
                del self._items[: len(items)]
            self._health.allow(KEY_INDEX)
            return True

    def rewind(self, physical_offset: int) -> None:
        """Drop the keys of records that were rolled back. The caller holds the store's lock."""
        del self._items[self._below(physical_offset) :]

    def _below(self, physical_offset: int) -> int:
        end = len(self._items)
        while end:
            _, place, _ = _ITEM.unpack_from(self._items, end - _ITEM.size)
            if place < physical_offset:
                break
            end -= _ITEM.size
        return end
