"""The key index: finds messages by topic and key or unique key (`IndexService`).

A sequence of `IndexFile`s, named by the time they were begun. All of it follows from the log: what
is lost or doubtful is dropped and put again from `end_offset` on, that record included.

After a start that follows a crash the caller says what may be trusted. The process was killed but
the system ran on: `mend`. The system went down: `restore` what the last `flush` had made sure of,
or without such a mark `drop_after` the checkpoint's time, as Java does. In each case `truncate`
then forgets what points past the end of the log.
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
    """How far the index is on the disk for sure: `count` of one file, and the files before it."""

    name: str = ""
    count: int = 0
    end_offset: int = 0
    end_timestamp: int = 0


class KeyIndex:
    """Safe for threads: one lock guards the files and their list. No lock is held over a sync."""

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
        """Open what is there. A file of another length goes, with all newer ones: the log is the
        only place from which its entries can come back, and they come back in order.
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

        All records before it are in the index; of itself a key may be missing after a crash.
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
        """Whether there is a file of that name."""
        with self._lock:
            return any(file.path.name == name for file in self._files)

    def put(self, keys: Buffer) -> None:
        """Add items as `Scan.keys` holds them, in the order of the log.

        Those that are there already are left out, so a part of the log may be put again.

        Raises:
            OSError: there is no room for a new file. What was put until then stays; put the same
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
        """Bring everything put so far to the disk; returns how far that is. Blocks.

        Raises:
            OSError: the disk failed; nothing new is sure.
        """
        with self._lock:
            mark = self._mark()
            dirty = [file for file in self._files if file.dirty]
            for file in dirty:
                if file.doubtful:
                    file.write_again(self._disk)
            # Descriptors of our own: a file may be trimmed while it is synced.
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
        return mark

    def mend(self) -> int:
        """Take back what a killed process left half done; returns how many entries that were."""
        with self._lock:
            return self._files[-1].mend() if self._files else 0

    def restore(self, mark: IndexRecoveryPoint) -> None:
        """Go back to what a flush had made sure of; all later bytes may be anything."""
        with self._lock:
            self._drop([file for file in self._files if file.path.name > mark.name])
            if self._files and self._files[-1].path.name == mark.name:
                newest = self._files[-1]
                newest.restore(mark.count, mark.end_timestamp, mark.end_offset, self._disk)

    def drop_after(self, timestamp: int) -> None:
        """Remove the first file that ends after a store time (ms), and all newer ones."""
        with self._lock:
            late = [file.end_timestamp > timestamp for file in self._files]
            if True in late:
                self._drop(self._files[late.index(True) :])

    def truncate(self, end: int) -> None:
        """Forget records at or behind physical offset `end`, where the log was cut."""
        with self._lock:
            while self._files and self._end_offset() >= end:
                self._files[-1].truncate(end)
                if not self._files[-1].empty:
                    break
                self._drop(self._files[-1:])

    def trim(self, min_offset: int) -> None:
        """Remove files whose records are all before the log's begin, but never the newest."""
        with self._lock:
            kept = [file.end_offset >= min_offset for file in self._files[:-1]]
            self._drop(self._files[: kept.index(True) if True in kept else len(kept)])

    def clear(self) -> None:
        with self._lock:
            self._drop(list(self._files))

    def close(self) -> None:
        """Give the files up as they are; `flush` first for what must outlive the system."""
        with self._lock:
            self._closed = True
            while self._files:
                self._files.pop().close()

    def _paths(self) -> list[Path]:
        if not self._directory.is_dir():
            return []
        return sorted(path for path in self._directory.iterdir() if _NAME.fullmatch(path.name))

    def _end_offset(self) -> int:
        # A file whose begin was cut off by a crash says 0; the one before it knows.
        return max((file.end_offset for file in self._files), default=0)

    def _known(self, keys: Buffer) -> int:
        """Bytes of items at the front that are in the index already."""
        if not self._files or not keys:
            return 0
        items, end = range(0, len(keys), ITEM_SIZE), self._end_offset()
        first = bisect_left(items, end, key=lambda at: _PLACE.unpack_from(keys, at)[1])
        there = self._files[-1].keys_of_last()
        # Of the newest record some keys may be there: they were put in this order.
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
        """Local time to the millisecond, but greater than the name before, whatever the clock."""
        now = self._clock()
        name = time.strftime("%Y%m%d%H%M%S", time.localtime(now)) + f"{int(now * 1000) % 1000:03d}"
        if self._files and name <= self._files[-1].path.name:
            return f"{int(self._files[-1].path.name) + 1:017d}"
        return name

    def _mark(self) -> IndexRecoveryPoint:
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
    """Filled by appends, which hold the store's lock, and emptied right behind them."""

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
        self._draining = threading.Lock()  # items go into the index in the order of the log
        self._items = bytearray()
        self.items = self._items if index is not None else None
        """For who adds items itself, as `Scan.keys` has them; None: there is no index."""

    def add(self, hashes: Iterable[int], physical_offset: int, timestamp: int) -> None:
        if self._index:
            for value in hashes:
                self._items += _ITEM.pack(value, physical_offset, timestamp)

    def drain(self, least: int = 1) -> bool:
        """Put what is readable into the index; says whether all of that worked. May block.

        A full disk is kept in mind as a reason to take no more messages.

        Args:
            least: fewer keys than that wait for more.
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
        """Forget messages that were taken back. Hold the store's lock."""
        del self._items[self._below(physical_offset) :]

    def _below(self, physical_offset: int) -> int:
        end = len(self._items)
        while end:
            _, place, _ = _ITEM.unpack_from(self._items, end - _ITEM.size)
            if place < physical_offset:
                break
            end -= _ITEM.size
        return end
