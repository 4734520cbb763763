"""Open half messages: a bitmap, the lookup of copies, and recovery at start.

A half message is identified by its queue offset and open unless its bit is set. New halves
therefore need no entry, and a million halves take 128 kB.

Copies of a half are found through the key index by the unique id of the message. Without an index
only the half at hand is known, and check-back may ask once more than necessary.
"""

import re
from array import array
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

from bolide.broker.transactions.half_messages import Half, Op
from bolide.kernel import read_record
from bolide.model.message import TransactionType, transaction_type
from bolide.model.names import HALF_TOPIC, OP_HALF_TOPIC, TRANS_CHECK_MAX_TIME_TOPIC
from bolide.model.properties import PropertyName
from bolide.protocol.record import Record
from bolide.protocol.record_errors import BadRecord
from bolide.store.contract import Store
from bolide.store.reading import ReadLimits

_NOT_FULL = re.compile(b"[^\xff]", re.DOTALL)
_TRIM_AT = 4096
"""Bytes removed at a time."""
_BLOCK = 1024
_MAX_COPIES = 64
_READ_LIMITS = ReadLimits(max_count=512, max_size=4 * 1024 * 1024, max_scanned=512)
_MIN_OPS_READ = 2000
"""Op messages read at a start, to know the outcome of the latest transactions."""


class OpenHalves:
    """Bitmap of closed halves by queue offset; belongs to one event loop."""

    def __init__(self, first: int = 0) -> None:
        self._base = first & ~7
        self._bits = bytearray()
        for queue_offset in range(self._base, first):
            self.close(queue_offset)

    def copy(self) -> "OpenHalves":
        """A snapshot for another thread."""
        copied = OpenHalves()
        copied._base, copied._bits = self._base, bytearray(self._bits)
        return copied

    def is_open(self, queue_offset: int) -> bool:
        at = queue_offset - self._base
        if at < 0:
            return False
        byte = at >> 3
        return byte >= len(self._bits) or not self._bits[byte] >> (at & 7) & 1

    def close(self, queue_offset: int) -> None:
        at = queue_offset - self._base
        if at < 0:
            return
        byte = at >> 3
        if byte >= len(self._bits):
            self._bits.extend(bytes(byte + 1 - len(self._bits)))
        self._bits[byte] |= 1 << (at & 7)

    def reopen(self, queue_offset: int) -> None:
        """Undo a `close`, however long ago it was."""
        if queue_offset < self._base:
            more = (self._base - (queue_offset & ~7)) >> 3
            self._bits[:0] = b"\xff" * more
            self._base -= more * 8
        at = queue_offset - self._base
        if at >> 3 < len(self._bits):
            self._bits[at >> 3] &= ~(1 << (at & 7))

    def next_open(self, queue_offset: int) -> int:
        """Return the first open offset from `queue_offset` on; it may not be stored yet."""
        at = max(queue_offset - self._base, 0)
        while at & 7 and at >> 3 < len(self._bits) and self._bits[at >> 3] >> (at & 7) & 1:
            at += 1
        if at & 7 or at >> 3 >= len(self._bits):
            return self._base + at
        found = _NOT_FULL.search(self._bits, at >> 3)
        if found is None:
            return self._base + len(self._bits) * 8
        byte = self._bits[found.start()]
        return self._base + found.start() * 8 + _lowest_clear(byte)

    @property
    def first(self) -> int:
        """The first open offset."""
        return self.next_open(self._base)

    def trim(self) -> None:
        """Free the memory of offsets before the first open one."""
        spare = (self.first - self._base) >> 3
        if spare >= _TRIM_AT:
            del self._bits[:spare]
            self._base += spare * 8

    def between(self, begin: int, end: int) -> Iterator[int]:
        """Yield the open offsets of a range."""
        queue_offset = self.next_open(begin)
        while queue_offset < end:
            yield queue_offset
            queue_offset = self.next_open(queue_offset + 1)

    def count(self, end: int) -> int:
        """Return the number of open halves before `end`."""
        first = self.first
        if end <= first:
            return 0
        low, high = first - self._base, end - self._base
        bits = int.from_bytes(self._bits[low >> 3 : (high + 7) >> 3], "little")
        width = high - (low & ~7)
        closed = (bits & ((1 << width) - 1)) >> (low & 7)
        return high - low - closed.bit_count()


class OpPositions:
    """Tracks how far back a restart must read the op queue.

    An op message that names only halves before the first open one is not needed.
    """

    def __init__(self, first: int = 0) -> None:
        self._base = first
        self._highest_half = array("q")
        """Highest half offset named by each op message, by position in the op queue."""

    def record(self, position: int, highest_half: int) -> None:
        """Record the op message at a position; it replaces one lost by the store."""
        at = position - self._base
        if at < 0:
            return
        del self._highest_half[at:]
        self._highest_half.extend([-1] * (at - len(self._highest_half)))
        self._highest_half.append(highest_half)

    def first_needed(self, first_open: int) -> int:
        """Return the position from which a restart must read; drop the entries before it."""
        highest, unneeded = self._highest_half, 0
        # There may be hundreds of thousands: skip them in blocks.
        while (
            unneeded + _BLOCK <= len(highest)
            and max(highest[unneeded : unneeded + _BLOCK]) < first_open
        ):
            unneeded += _BLOCK
        while unneeded < len(highest) and highest[unneeded] < first_open:
            unneeded += 1
        del highest[:unneeded]
        self._base += unneeded
        return self._base


def _lowest_clear(byte: int) -> int:
    return ((~byte & (byte + 1)) & 0xFF).bit_length() - 1


class Lineage:
    """Finds the copies of a half in the store; all methods block."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def find_newest(self, half: Half, opened: OpenHalves) -> Half | None:
        """Return the half of the same transaction that is open, or that was set aside and not
        resumed; None if there is none."""
        halves = self._copies(half) + ([] if half.is_set_aside else [half])
        newest = max(halves, key=_position, default=None)
        if newest is not None and opened.is_open(newest.queue_offset):
            return newest
        aside = self._copies(half, TRANS_CHECK_MAX_TIME_TOPIC) + (
            [half] if half.is_set_aside else []
        )
        last = max(aside, key=_position, default=None)
        if last is None or (newest is not None and _position(newest) > _position(last)):
            return None
        return last

    def find_before(self, half: Half) -> Half | None:
        """Return the half that this one is a copy of."""
        if half.origin == half.queue_offset:
            return None
        older = [each for each in self._copies(half) if _position(each) < _position(half)]
        return max(older, key=_position, default=None)

    def _copies(self, half: Half, topic: str = HALF_TOPIC) -> list[Half]:
        if not half.unique_id:
            return []
        records = self._store.find(topic, half.unique_id, limit=_MAX_COPIES, unconfirmed=True)
        found = [each for data in records if (each := Half.find(data))]
        return [each for each in found if _is_same(each, half)]


def _position(half: Half) -> int:
    return half.record.physical_offset


def _is_same(half: Half, other: Half) -> bool:
    """Whether two halves belong to one transaction; one set aside by RocketMQ has no origin."""
    if (half.unique_id, half.topic) != (other.unique_id, other.topic):
        return False
    return half.origin is None or other.origin is None or half.origin == other.origin


class RecoveredHalves(NamedTuple):
    """State recovered from the half and op queues."""

    opened: OpenHalves
    ops: OpPositions
    ends: dict[int, TransactionType]
    """Outcomes by queue offset of the first half, for the latest transactions only."""


class InterruptedClosing(NamedTuple):
    """A closed half whose op message is missing after a crash."""

    half: Half
    state: TransactionType


def read_ops(store: Store, first: int, position: int) -> RecoveredHalves:
    """Recover the open halves, starting at the progress of both queues. Blocks."""
    recovered = RecoveredHalves(OpenHalves(first), OpPositions(position), {})
    end, halves = store.max_offset(OP_HALF_TOPIC, 0), store.max_offset(HALF_TOPIC, 0)
    begin = max(min(position, end - _MIN_OPS_READ), store.min_offset(OP_HALF_TOPIC, 0))
    for record in read_all(store, OP_HALF_TOPIC, begin, end):
        op = Op.read(record)
        # Ignore offsets beyond the queue: they are invalid and would allocate memory.
        half_offsets = [queue_offset for queue_offset in op.half_offsets if queue_offset < halves]
        for queue_offset in half_offsets:
            recovered.opened.close(queue_offset)
        recovered.ops.record(record.queue_offset, max(half_offsets, default=-1))
        if op.origin is not None and op.state is not TransactionType.NONE:
            recovered.ends[op.origin] = op.state
    return recovered


def find_interrupted_closing(
    store: Store, lineage: Lineage, opened: OpenHalves, last_record: int
) -> InterruptedClosing | None:
    """Find the half that the last record before a crash was about to close. Blocks.

    An op message follows its record immediately, so only the last one can be missing.
    """
    data = None if last_record < 0 else store.record_at(last_record)
    try:
        record = None if data is None else read_record(bytes(data))
    except BadRecord:
        return None
    if not isinstance(record, Record):
        return None
    if record.topic == HALF_TOPIC:
        half, state = lineage.find_before(Half(record)), TransactionType.NONE
    else:
        half, state = _find_half_of(store, record), TransactionType.COMMIT
    if half is None or half.is_set_aside or not opened.is_open(half.queue_offset):
        return None
    return InterruptedClosing(half, state)


def _find_half_of(store: Store, record: Record) -> Half | None:
    """Return the half of a committed message."""
    if transaction_type(record.sys_flag) is not TransactionType.COMMIT:
        return None
    half = Half.find(store.record_at(record.prepared_transaction_offset))
    unique_id = record.decode_properties().get(PropertyName.UNIQUE_ID)
    return half if half is not None and half.unique_id == unique_id else None


def read_all(store: Store, topic: str, begin: int, end: int) -> Iterator[Record]:
    """Yield the records of queue 0 of a topic from `begin` to before `end`. Blocks."""
    while begin < end:
        found = store.read(topic, 0, begin, _READ_LIMITS)
        for data in found.records:
            with suppress(BadRecord):
                record = read_record(bytes(data))
                if isinstance(record, Record):
                    yield record
        if found.next_offset <= begin:
            return
        begin = found.next_offset
