"""Rewrites a compaction log so that only the newest message of each key is left.

As in RocketMQ, the last segment, which is being written, is never touched. A message goes if a
newer one has the same keys (the whole text of the property KEYS), or if its body is empty: such a
message deletes its key and is itself removed. The map from keys to their newest offsets is bounded;
when it is full, the pass considers the messages up to there and retains all later ones, and the
next pass goes on behind them.
"""

from collections.abc import Callable
from hashlib import md5
from typing import NamedTuple

from bolide.errors import BolideError
from bolide.model.message import SysFlag
from bolide.model.properties import PropertyName
from bolide.protocol.compression import decompress
from bolide.protocol.record import Record, read_record
from bolide.protocol.tags import tags_code
from bolide.store.compaction.queue_log import QueueLog
from bolide.store.compaction.segments import Entry, Segment, SparseUnit

_ENTRY_BYTES = 192
"""Memory of one entry of the map: digest, offset and slot, in CPython."""
_MIN_ENTRIES = 100
_BATCH = 64
"""Records examined at once."""
_SMALL_BODY = 64
"""Compressed bodies that may be empty when decompressed are shorter."""

Pause = Callable[[], None]
"""Called between batches of records; raises to stop the compaction."""


class Keyed(NamedTuple):
    """What a compaction looks at in a record."""

    keys: str
    tags_code: int
    has_body: bool


class Compacted(NamedTuple):
    position: int
    """Queue offset of the last message considered."""
    kept: int
    removed: int
    is_complete: bool
    """False if the map was too small: another pass has to follow."""


def read_keyed(data: bytes | bytearray | memoryview) -> Keyed:
    """Read keys, tags code and whether there is a body.

    Raises:
        BadRecord: the record is not sound.
    """
    record = read_record(data)
    assert isinstance(record, Record)
    properties = record.decode_properties()
    keys = properties.get(PropertyName.KEYS, "")
    code = tags_code(properties.get(PropertyName.TAGS))
    return Keyed(keys if keys.strip() else "", code, _has_body(record))


def compact(log: QueueLog, position: int, map_bytes: int, pause: Pause) -> Compacted | None:
    """Run one pass over all segments but the last; None if it has nothing to do. Blocks.

    Raises:
        OSError: a file operation failed; see `QueueLog.replace`.
    """
    segments = log.segments[:-1]
    if not any(each.last > position for each in segments):
        return None
    newest = NewestOffsets(max(map_bytes // _ENTRY_BYTES, _MIN_ENTRIES))
    is_complete = _fill(newest, segments, position, pause)
    end = log.segments[-1].start
    writer = log.new_writer()
    kept = removed = 0
    batch: list[Entry] = []
    for segment in segments:
        for unit, data in segment.records():
            keyed = read_keyed(data)
            if newest.retains(unit, keyed):
                kept += 1
                entry = Entry(data, unit.queue_offset, keyed.tags_code, unit.store_timestamp)
                batch.append(entry)
            else:
                removed += 1
            if not (kept + removed) % _BATCH:
                writer.append(batch)
                batch = []
                pause()
    writer.append(batch)
    log.replace(writer, end)
    return Compacted(max(newest.last, position), kept, removed, is_complete)


class NewestOffsets:
    """The newest queue offset of each key, up to the offset `last`; holds digests of the keys."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._offsets: dict[bytes, int] = {}
        self.last = -1

    def add(self, keys: str, queue_offset: int) -> bool:
        """Add a message; returns False, and adds nothing, if the map is full."""
        digest = _digest(keys)
        if digest not in self._offsets and len(self._offsets) >= self._capacity:
            return False
        self._offsets[digest] = queue_offset
        self.last = queue_offset
        return True

    def retains(self, unit: SparseUnit, keyed: Keyed) -> bool:
        """Whether a message stays: it is newer than the map, or the newest of its key."""
        if unit.queue_offset > self.last:
            return True
        if not keyed.keys or not keyed.has_body:
            return False
        return unit.queue_offset >= self._offsets.get(_digest(keyed.keys), -1)


def _fill(newest: NewestOffsets, segments: list[Segment], position: int, pause: Pause) -> bool:
    """Add the messages behind a position; returns whether all of them fitted."""
    for segment in segments:
        if segment.last <= position:
            continue
        for number, (unit, data) in enumerate(segment.records()):
            if number % _BATCH == 0:
                pause()
            if unit.queue_offset > position and not newest.add(
                read_keyed(data).keys, unit.queue_offset
            ):
                return False
    return True


def _digest(keys: str) -> bytes:
    return md5(keys.encode(errors="replace"), usedforsecurity=False).digest()


def _has_body(record: Record) -> bool:
    """Whether the body, decompressed, has bytes."""
    if not record.sys_flag & SysFlag.COMPRESSED or not 0 < len(record.body) < _SMALL_BODY:
        return bool(record.body)
    try:
        return bool(decompress(record.body, record.sys_flag))
    except BolideError:
        return True
