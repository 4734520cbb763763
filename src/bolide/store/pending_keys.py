"""Keys of messages in the log that are not in the index yet."""

import struct
import threading
from collections.abc import Iterable
from contextlib import AbstractContextManager

from bolide.store.commit_log import CommitLog
from bolide.store.disk import Disk
from bolide.store.health import KEY_INDEX, Health
from bolide.store.key_index import KeyIndex

_ITEM = struct.Struct(">Iqq")


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
        self._settling = threading.Lock()  # items go into the index in the order of the log
        self._items = bytearray()
        self.items = self._items if index is not None else None
        """For who adds items itself, as `Scan.keys` has them; None: there is no index."""

    def add(self, hashes: Iterable[int], physical_offset: int, timestamp: int) -> None:
        if self._index:
            for value in hashes:
                self._items += _ITEM.pack(value, physical_offset, timestamp)

    def settle(self, least: int = 1) -> bool:
        """Put what is readable into the index; says whether all of that worked. May block.

        A full disk is kept in mind as a reason to take no more messages.

        Args:
            least: fewer keys than that wait for more.
        """
        if len(self._items) < least * _ITEM.size or self._index is None:
            return True
        with self._settling:
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
