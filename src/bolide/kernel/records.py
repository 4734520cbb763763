"""Encoding and scanning of records in plain Python: the reference and fallback for `_records`."""

import struct
from dataclasses import dataclass, field
from typing import NamedTuple

from bolide.kernel.index_entries import find_keys, put_keys, rebuild_slots
from bolide.kernel.results import Check, QueueRun, Scan, Stop
from bolide.kernel.units import UNIT
from bolide.model.message import SysFlag
from bolide.model.properties import PropertyName, delay_level_of
from bolide.protocol.property_string import decode_properties
from bolide.protocol.record import (
    FIXED_SIZE,
    MAGIC_V2,
    MAX_BODY_SIZE,
    Blank,
    Buffer,
    Placement,
    Record,
    RecordDraft,
    body_crc,
    encode_record,
    place_record,
    read_record,
)
from bolide.protocol.record_errors import BadRecord
from bolide.protocol.record_seal import check_seal
from bolide.protocol.tags import index_hash, indexed_keys, tags_code

SCHEDULE_TOPIC = b"SCHEDULE_TOPIC_XXXX"

_SIZE_FIELD = 4
_KEY_ITEM = struct.Struct(">Iqq")
_TRANSACTION = int(SysFlag.ROLLBACK)  # both bits of the transaction type
_PREPARED = int(SysFlag.PREPARED)
_INNER_BATCH = int(SysFlag.INNER_BATCH)
_LONG = 1 << 63

__all__ = [
    "body_crc",
    "describe",
    "find_keys",
    "put_keys",
    "read_record",
    "rebuild_slots",
    "record_size",
    "scan",
    "write_record",
]


def record_size(draft: RecordDraft, max_body_size: int = MAX_BODY_SIZE) -> int:
    """Return the size of a record and validate the draft, so that `write_record` cannot fail on it.

    Raises:
        RecordTooLarge: the body is over the limit, or the topic or the properties do not fit.
        struct.error: a number does not fit its field.
    """
    return len(encode_record(draft, max_body_size))


def write_record(
    target: bytearray | memoryview,
    position: int,
    draft: RecordDraft,
    queue_offset: int,
    physical_offset: int,
    store_timestamp: int,
) -> int:
    """Write a complete record over zeros; returns its size.

    The size field is written last, in one store: if the process is killed before, it remains 0.

    Raises:
        ValueError: the record does not fit; nothing is written, as for the errors of `record_size`.
    """
    record = encode_record(draft, len(draft.body))
    place = Placement(queue_offset, physical_offset, store_timestamp)
    return write_encoded(target, position, record, place)


def write_encoded(
    target: bytearray | memoryview, position: int, record: bytearray, place: Placement
) -> int:
    """As `write_record`, for an encoded record without its placement."""
    place_record(record, 0, place)
    size = len(record)
    if position < 0 or position + size > len(target):
        raise ValueError(f"{size} bytes do not fit at {position} of {len(target)}")
    body_at = position + _SIZE_FIELD
    target[body_at : position + size] = memoryview(record)[_SIZE_FIELD:]
    target[position:body_at] = memoryview(record)[:_SIZE_FIELD]
    return size


def describe(topic: bytes, properties: Buffer) -> tuple[int, tuple[int, ...]]:
    """Return the tags code of a message and the hashes of its index keys."""
    return _codes(topic, decode_properties(str(properties, "utf-8", "replace")))


def scan(  # noqa: PLR0913  one call per log file
    buffer: Buffer,
    position: int,
    end: int,
    physical_offset: int,
    *,
    check: Check = Check.BODY,
    delays: tuple[int, ...] = (),
    keys: bool = True,
) -> Scan:
    """Scan records from `position` to `end`, and derive their queue entries and index keys.

    A record is valid if its lengths add up, its physical offset matches its position, and `check`
    succeeds; the last record may extend past `end`.

    Args:
        physical_offset: physical offset of the buffer's position 0.
        delays: milliseconds per delay level, the first one unused. The queue entry of a message in
            the schedule topic holds its delivery time. Empty: no levels.
        keys: whether to collect `Scan.keys`.

    Raises:
        ValueError: the positions are outside of the buffer.
    """
    refuse_outside(len(buffer), position, end, physical_offset)
    collector = _ScanCollector(delays, keys)
    halt = Halt(Stop.END, "")
    while position < end:
        record = judge(buffer, position, physical_offset, check)
        if isinstance(record, Halt):
            halt = record
            break
        collector.add(record, _raw_topic(buffer, position, record), position)
        position += record.size
    return Scan(
        position,
        halt.stop,
        halt.reason,
        collector.count,
        collector.first_timestamp,
        collector.last_timestamp,
        [run.cut() for run in collector.runs],
        bytes(collector.items),
        collector.batches,
    )


class Halt(NamedTuple):
    """Why a scan stops at a position."""

    stop: Stop
    reason: str


def judge(buffer: Buffer, position: int, physical_offset: int, check: Check) -> Record | Halt:
    """Read and check the record at a position, or return why it is not valid."""
    if buffer[position : position + 8] == bytes(8):
        return Halt(Stop.EMPTY, "")
    try:
        record = read_record(buffer, position, check_crc=check is Check.BODY)
        if isinstance(record, Blank):
            return Halt(Stop.BLANK, "")
        if check is Check.SEAL:
            check_seal(buffer, position)
    except BadRecord as exc:
        return Halt(Stop.DAMAGED, exc.reason)
    if record.physical_offset != physical_offset + position:
        there = f"its physical offset is {record.physical_offset}"
        return Halt(Stop.DAMAGED, f"{there}, but it lies at {physical_offset + position}")
    return record


def refuse_outside(size: int, position: int, end: int, physical_offset: int) -> None:
    if position < 0 or end > size or not 0 <= physical_offset < _LONG - size:
        raise ValueError(f"from {position} to {end} of {size} bytes at {physical_offset}")


@dataclass(slots=True)
class _Run:
    topic: bytes
    queue_id: int
    queue_offset: int
    entries: bytearray = field(default_factory=bytearray)

    @property
    def next_offset(self) -> int:
        return self.queue_offset + len(self.entries) // UNIT.size

    def cut(self) -> QueueRun:
        return QueueRun(self.topic, self.queue_id, self.queue_offset, bytes(self.entries))


@dataclass(slots=True)
class _ScanCollector:
    """The queue entries and keys collected by a scan."""

    delays: tuple[int, ...]
    wants_keys: bool
    count: int = 0
    first_timestamp: int = 0
    last_timestamp: int = 0
    runs: list[_Run] = field(default_factory=list)
    items: bytearray = field(default_factory=bytearray)
    batches: list[int] = field(default_factory=list)
    _growing: dict[tuple[bytes, int], _Run] = field(default_factory=dict)

    def add(self, record: Record, topic: bytes, position: int) -> None:
        properties = record.decode_properties()
        code, hashes = _codes(topic, properties)
        kind = record.sys_flag & _TRANSACTION
        if kind in {_PREPARED, _TRANSACTION}:
            pass
        elif record.sys_flag & _INNER_BATCH:
            self.batches.append(position)
        else:
            due = self._delivery_time(record, topic, properties)
            entry = UNIT.pack(record.physical_offset, record.size, code if due is None else due)
            self._run(topic, record.queue_id, record.queue_offset).entries += entry
        if self.wants_keys and kind != _TRANSACTION:
            for each in hashes:
                self.items += _KEY_ITEM.pack(each, record.physical_offset, record.store_timestamp)
        if not self.count:
            self.first_timestamp = record.store_timestamp
        self.last_timestamp = record.store_timestamp
        self.count += 1

    def _run(self, topic: bytes, queue_id: int, queue_offset: int) -> _Run:
        run = self._growing.get((topic, queue_id))
        if run is None or queue_offset != run.next_offset:
            run = self._growing[topic, queue_id] = _Run(topic, queue_id, queue_offset)
            self.runs.append(run)
        return run

    def _delivery_time(
        self, record: Record, topic: bytes, properties: dict[str, str]
    ) -> int | None:
        """Return the delivery time of a delayed message; None for other messages."""
        if topic != SCHEDULE_TOPIC or len(self.delays) < 2:
            return None
        level = delay_level_of(properties)
        if not level:
            return None
        due = record.store_timestamp + self.delays[min(level, len(self.delays) - 1)]
        return (due + _LONG) % (2 * _LONG) - _LONG  # corrupt times overflow as in Java


def _codes(topic: bytes, properties: dict[str, str]) -> tuple[int, tuple[int, ...]]:
    name = str(topic, "utf-8", "replace")
    hashes = tuple(index_hash(name, key) for key in indexed_keys(properties))
    return tags_code(properties.get(PropertyName.TAGS)), hashes


def _raw_topic(buffer: Buffer, position: int, record: Record) -> bytes:
    """Return the raw topic: two different invalid UTF-8 names may decode to the same text."""
    end = position + record.size - len(record.properties) - 2
    hosts_and_body = len(record.born_host) + len(record.store_host) + len(record.body)
    length_at = position + FIXED_SIZE + hosts_and_body
    return bytes(buffer[length_at + (2 if record.magic == MAGIC_V2 else 1) : end])
