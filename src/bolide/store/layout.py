"""The files of a store directory and their lengths, from the settings or from the files."""

import os
import re
import struct
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from bolide.kernel import Check
from bolide.kernel.index_entries import ENTRY_SIZE, HEADER_SIZE, SLOT_SIZE
from bolide.kernel.units import UNIT_SIZE
from bolide.store.batch_queue import BATCH_DIRECTORY
from bolide.store.config import StoreConfig, delay_levels
from bolide.store.descriptors import read_at
from bolide.store.errors import DamagedFile
from bolide.store.index_file import index_file_size

_INDEX_NAME = re.compile(r"[0-9]{17}")
_INDEX_HEADER = struct.Struct(">qqqqii")
_ENTRY_HEAD = struct.Struct(">Iq")
_SAMPLED_ENTRIES = 500
"""Entries by which a guessed shape of an index file is scored."""


class IndexShape(NamedTuple):
    slots: int
    capacity: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    root: Path
    log_directories: tuple[Path, ...]
    log_file_size: int
    queue_file_size: int
    batch_queue_file_size: int
    index: IndexShape | None
    """None without an index, or if the shape cannot be derived from its files."""
    delays: tuple[int, ...]
    """Milliseconds of each delay level."""
    check: Check
    config: StoreConfig | None
    """None if the layout was derived from the files."""

    @classmethod
    def of(cls, config: StoreConfig) -> "Layout":
        return cls(
            root=config.root,
            log_directories=config.log_directories,
            log_file_size=config.commit_log_file_size,
            queue_file_size=config.consume_queue_file_size,
            batch_queue_file_size=config.batch_queue_file_size,
            index=IndexShape(config.max_hash_slots, config.max_index_entries)
            if config.index_enabled
            else None,
            delays=delay_levels(config.message_delay_level),
            check=Check.SEAL if config.verify_record_crc else Check.BODY,
            config=config,
        )

    @classmethod
    def read_off(cls, root: Path) -> "Layout":
        """Derive the layout from the names and lengths of the files.

        Raises:
            DamagedFile: the directory has no commit log.
        """
        directory = root / "commitlog"
        if not directory.is_dir():
            raise DamagedFile(root, "is no store directory: there is no commitlog in it")
        defaults = StoreConfig()
        return cls(
            root=root,
            log_directories=(directory,),
            log_file_size=_file_size([_numbered(directory)], defaults.commit_log_file_size),
            queue_file_size=_file_size(
                (_numbered(queue) for _, _, queue in queue_directories(root)),
                defaults.consume_queue_file_size,
            ),
            batch_queue_file_size=_file_size(
                (_numbered(queue) for _, _, queue in queue_directories(root, BATCH_DIRECTORY)),
                defaults.batch_queue_file_size,
            ),
            index=_index_shape(root, defaults),
            delays=delay_levels(defaults.message_delay_level),
            check=Check.BODY,
            config=None,
        )

    @property
    def log_files(self) -> list[Path]:
        """Log files in order, without empty ones."""
        found = [path for directory in self.log_directories for path in _numbered(directory)]
        return sorted(filter(_length, found), key=lambda path: path.name)

    @property
    def index_files(self) -> list[Path]:
        directory = self.root / "index"
        if not directory.is_dir():
            return []
        return sorted(path for path in directory.iterdir() if _INDEX_NAME.fullmatch(path.name))


def is_directory_name(topic: str) -> bool:
    """Whether a topic can be the name of a directory, and not a path to another place."""
    return topic not in {"", ".", ".."} and "/" not in topic and "\0" not in topic


def queue_directories(root: Path, name: str = "consumequeue") -> Iterator[tuple[str, int, Path]]:
    """Yield topic, queue id and directory of each consume queue."""
    top = root / name
    for topic in sorted(top.iterdir()) if top.is_dir() else ():
        if topic.is_dir():
            for queue in sorted(topic.iterdir()):
                if queue.name.isdigit() and queue.is_dir():
                    yield topic.name, int(queue.name), queue


def _numbered(directory: Path) -> list[Path]:
    if not directory.is_dir():
        return []
    return sorted(path for path in directory.iterdir() if path.name.isdigit())


def _length(path: Path) -> int:
    return path.stat().st_size


def _file_size(sequences: Iterable[list[Path]], default: int) -> int:
    """Return the distance between two file names, or else the most common file length."""
    lengths: Counter[int] = Counter()
    for paths in sequences:
        starts = [int(path.name) for path in paths]
        distances = [after - before for before, after in pairwise(starts)]
        if distances:
            return min(distances)
        lengths.update(length for length in map(_length, paths) if length)
    return lengths.most_common(1)[0][0] if lengths else default


def _index_shape(root: Path, defaults: StoreConfig) -> IndexShape | None:
    usual = IndexShape(defaults.max_hash_slots, defaults.max_index_entries)
    directory = root / "index"
    paths = [path for path in _numbered(directory) if _INDEX_NAME.fullmatch(path.name)]
    for path in paths:
        if _length(path) == index_file_size(*usual):
            return usual
        if found := _shape_of(path):
            return found
    return None


def _shape_of(path: Path) -> IndexShape | None:
    """Derive the number of slots by searching for the newest entry, which its slot points to.

    Entries of one message have the same physical offset, so a wrong shape may fit by chance: the
    candidate consistent with the most entries wins.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        data = read_at(descriptor, os.fstat(descriptor).st_size, 0)
    finally:
        os.close(descriptor)
    if len(data) < HEADER_SIZE:
        return None
    *_, end_offset, _, count = _INDEX_HEADER.unpack_from(data)
    newest = count - 1
    found: list[IndexShape] = []
    wanted, at = struct.pack(">q", end_offset), HEADER_SIZE
    while newest > 0 and (at := data.find(wanted, at + 1)) >= 0:
        slots_size = at - 4 - newest * ENTRY_SIZE - HEADER_SIZE
        slots = slots_size // SLOT_SIZE
        rest = len(data) - HEADER_SIZE - slots_size
        if slots < 1 or slots_size % SLOT_SIZE or rest % ENTRY_SIZE or rest <= newest * ENTRY_SIZE:
            continue
        if _slot_of(data, slots, newest) == newest:
            found.append(IndexShape(slots, rest // ENTRY_SIZE))
    return max(found, key=lambda shape: _agreeing(data, shape.slots, newest), default=None)


def _agreeing(data: bytearray, slots: int, newest: int) -> int:
    """Count the last entries that can be in the chain of their slot."""
    entries = range(max(newest - _SAMPLED_ENTRIES, 1), newest + 1)
    return sum(number <= _slot_of(data, slots, number) <= newest for number in entries)


def _slot_of(data: bytearray, slots: int, number: int) -> int:
    """Return the newest entry in the slot of an entry."""
    entry_at = HEADER_SIZE + slots * SLOT_SIZE + number * ENTRY_SIZE
    key_hash, _ = _ENTRY_HEAD.unpack_from(data, entry_at)
    slot_at = HEADER_SIZE + key_hash % slots * SLOT_SIZE
    return int.from_bytes(data[slot_at : slot_at + SLOT_SIZE])


def queue_file_starts(directory: Path) -> list[int]:
    return [int(path.name) for path in _numbered(directory) if _length(path) >= UNIT_SIZE]
