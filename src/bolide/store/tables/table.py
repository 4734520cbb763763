"""A small table that lives in memory and is saved whole as JSON."""

import logging
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from bolide.protocol import fastjson
from bolide.store.disk import Disk
from bolide.store.errors import DamagedFile

log = logging.getLogger(__name__)

T = TypeVar("T")

_BARE_KEY = re.compile(rb"[{,]\s*-?[0-9]+\s*:")
_STRING_OR_BARE_KEY = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|(-?[0-9]+)(?=\s*:)', re.DOTALL)


@dataclass(frozen=True, slots=True)
class TableKind(Generic[T]):
    """What a table holds: `shape` made without arguments is the empty one.

    `encode` may run on another thread than the one that changes the table, so it copies maps by
    `list` before it walks them.
    """

    file_name: str
    shape: type[T]
    interval: float
    encode: Callable[[T], bytes]


class Table(Generic[T]):
    """The value of a table and its file.

    The file is replaced whole, and the one before is kept as `.bak`: after a crash either the old
    table or the new one is read. Java 5.x renames the file to `.bak` before it writes, so the
    backup alone counts too. Saving blocks; it may run on any one thread while others change the
    value and call `changed`.
    """

    def __init__(
        self,
        directory: Path,
        kind: TableKind[T],
        *,
        disk: Disk | None = None,
        interval: float | None = None,
    ) -> None:
        self.path = directory / kind.file_name
        self.value = kind.shape()
        self.interval = kind.interval if interval is None else interval
        self._kind = kind
        self._disk = disk or Disk()
        self._dirty = False
        self._damaged = False
        self._tried = -math.inf

    def load(self) -> None:
        """Read the file, or its backup where it is missing, empty or unreadable; none: empty.

        Raises:
            DamagedFile: there is one or a backup, but none that can be read.
        """
        backup = self.path.with_name(self.path.name + ".bak")
        faults = []
        for path in (self.path, backup):
            try:
                found = _read(path, self._kind.shape)
            except (OSError, fastjson.BadJson) as exc:
                faults.append((path, str(exc)))
                continue
            if found is not None:
                self._take(found, path, faults)
                return
        if faults:
            path, reason = faults[0]
            raise DamagedFile(
                path, f"{reason}; there is nothing else to read: mend it or move it away"
            )
        self.value = self._kind.shape()

    def changed(self) -> None:
        """Say that the value is another one now."""
        self._dirty = True

    def save_due(self, now: float) -> bool:
        """Save if it changed and the interval is over; `now` is in seconds of any clock.

        Raises:
            OSError: as `save`.
        """
        if not self._dirty or now - self._tried < self.interval:
            return False
        self._tried = now
        return self.save()

    def save(self) -> bool:
        """Write the table if it changed; False if it did not. Blocks.

        Raises:
            OSError: the old file is untouched; the next save tries again.
        """
        if not self._dirty:
            return False
        self._dirty = False  # first: what changes from here on is for the next time
        try:
            data = self._kind.encode(self.value)
            self._put_damaged_aside()
            self._disk.replace(self.path, data)
        except BaseException:
            self._dirty = True
            raise
        return True

    def _take(self, value: T, path: Path, faults: list[tuple[Path, str]]) -> None:
        self.value = value
        if path == self.path:
            return
        reason = faults[0][1] if faults else "it is missing or empty"
        log.warning("%s is read in place of %s: %s", path, self.path.name, reason)
        self._damaged = bool(faults)
        self._dirty = True

    def _put_damaged_aside(self) -> None:
        """Keep a file that could not be read from becoming the backup in place of the good one."""
        if self._damaged:
            self.path.replace(self.path.with_name(self.path.name + ".damaged"))
            self._damaged = False


def _read(path: Path, shape: type[T]) -> T | None:
    """The table in a file, None if there is no file or nothing in it."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    return fastjson.decode(_standard(data), shape) if data.strip() else None


def _standard(data: bytes) -> bytes:
    """The same with quotes around bare numbers that are keys: standard JSON is read much faster."""
    if not _BARE_KEY.search(data):
        return data
    return _STRING_OR_BARE_KEY.sub(lambda key: b'"%b"' % key[1] if key[1] else key[0], data)
