"""Which half messages are open: a bitmap, their copies, and how both are recovered at start.

Every half message has a number in its queue. It is open unless its bit is set; so a queue that
grows needs no word here, and a million of them take 128 kB.

They are found by the key index, as all of them have the unique id of the message. Without an index
only the half at hand is known; then brokers ask once more than they would have to.
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
"""Bytes that are cut off at a time."""
_TOGETHER = 1024


class OpenHalves:
    """Belongs to one event loop."""

    def __init__(self, first: int = 0) -> None:
        self._base = first & ~7
        self._bits = bytearray()
        for offset in range(self._base, first):
            self.close(offset)

    def is_open(self, offset: int) -> bool:
        at = offset - self._base
        if at < 0:
            return False
        byte = at >> 3
        return byte >= len(self._bits) or not self._bits[byte] >> (at & 7) & 1

    def close(self, offset: int) -> None:
        at = offset - self._base
        if at < 0:
            return
        byte = at >> 3
        if byte >= len(self._bits):
            self._bits.extend(bytes(byte + 1 - len(self._bits)))
        self._bits[byte] |= 1 << (at & 7)

    def reopen(self, offset: int) -> None:
        """Take back a `close`, however long ago it was."""
        if offset < self._base:
            more = (self._base - (offset & ~7)) >> 3
            self._bits[:0] = b"\xff" * more
            self._base -= more * 8
        at = offset - self._base
        if at >> 3 < len(self._bits):
            self._bits[at >> 3] &= ~(1 << (at & 7))

    def next_open(self, offset: int) -> int:
        """The first from `offset` on that is not closed; it may not have been stored yet."""
        at = max(offset - self._base, 0)
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
        """All before it are closed."""
        return self.next_open(self._base)

    def trim(self) -> None:
        """Forget what lies before the first."""
        spare = (self.first - self._base) >> 3
        if spare >= _TRIM_AT:
            del self._bits[:spare]
            self._base += spare * 8

    def between(self, begin: int, end: int) -> Iterator[int]:
        """The open ones of a range."""
        offset = self.next_open(begin)
        while offset < end:
            yield offset
            offset = self.next_open(offset + 1)

    def count(self, end: int) -> int:
        """How many are open before `end`."""
        first = self.first
        if end <= first:
            return 0
        low, high = first - self._base, end - self._base
        bits = int.from_bytes(self._bits[low >> 3 : (high + 7) >> 3], "little")
        width = high - (low & ~7)
        closed = (bits & ((1 << width) - 1)) >> (low & 7)
        return high - low - closed.bit_count()


class OpPositions:
    """How far the op queue is needed: an op message that names none but closed halves before the
    first open one is not."""

    def __init__(self, first: int = 0) -> None:
        self._base = first
        self._last_named = array("q")
        """By position in the op queue: the last half that the message there names."""

    def note(self, position: int, last_named: int) -> None:
        """Say what stands at a position; what stood there before was taken back."""
        at = position - self._base
        if at < 0:
            return
        del self._last_named[at:]
        self._last_named.extend([-1] * (at - len(self._last_named)))
        self._last_named.append(last_named)

    def first_needed(self, first_open: int) -> int:
        """The position from which on a restart must read, and forget those before it."""
        named, done = self._last_named, 0
        # Hundreds of thousands may be done with: most of them are passed over together.
        while done + _TOGETHER <= len(named) and max(named[done : done + _TOGETHER]) < first_open:
            done += _TOGETHER
        while done < len(named) and named[done] < first_open:
            done += 1
        del named[:done]
        self._base += done
        return self._base


def _lowest_clear(byte: int) -> int:
    return ((~byte & (byte + 1)) & 0xFF).bit_length() - 1


_MOST_COPIES = 64


class Lineage:
    """Looks into the store; everything blocks."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def find_newest(self, half: Half, opened: OpenHalves) -> Half | None:
        """The half of the same transaction that is open, or that was set aside and not taken up
        again; None if there is none."""
        halves = self._copies(half) + ([] if half.is_aside else [half])
        newest = max(halves, key=_place, default=None)
        if newest is not None and opened.is_open(newest.queue_offset):
            return newest
        aside = self._copies(half, TRANS_CHECK_MAX_TIME_TOPIC) + ([half] if half.is_aside else [])
        last = max(aside, key=_place, default=None)
        if last is None or (newest is not None and _place(newest) > _place(last)):
            return None
        return last

    def find_before(self, half: Half) -> Half | None:
        """The half that this one is a copy of."""
        if half.origin == half.queue_offset:
            return None
        older = [each for each in self._copies(half) if _place(each) < _place(half)]
        return max(older, key=_place, default=None)

    def _copies(self, half: Half, topic: str = HALF_TOPIC) -> list[Half]:
        if not half.unique_id:
            return []
        records = self._store.find(topic, half.unique_id, limit=_MOST_COPIES)
        found = [each for data in records if (each := Half.find(data))]
        return [each for each in found if _is_same(each, half)]


def _place(half: Half) -> int:
    return half.record.physical_offset


def _is_same(half: Half, other: Half) -> bool:
    """Whether two halves are of one transaction; one that RocketMQ set aside names no first one."""
    if (half.unique_id, half.topic) != (other.unique_id, other.topic):
        return False
    return half.origin is None or other.origin is None or half.origin == other.origin


_AT_ONCE = ReadLimits(max_count=512, max_size=4 * 1024 * 1024, max_scanned=512)
_READ_AT_LEAST = 2000
"""Op messages, to know how the last transactions ended."""


class Left(NamedTuple):
    """What the broker before left."""

    opened: OpenHalves
    ops: OpPositions
    ends: dict[int, TransactionType]
    """How transactions ended, by the number of their first half; the last ones only."""


class LastAct(NamedTuple):
    """A half that was done with, and whose op message is missing."""

    half: Half
    state: TransactionType


def read_ops(store: Store, first: int, position: int) -> Left:
    """Read which halves are open, from where both queues were done with. Blocks."""
    left = Left(OpenHalves(first), OpPositions(position), {})
    end, halves = store.max_offset(OP_HALF_TOPIC, 0), store.max_offset(HALF_TOPIC, 0)
    begin = max(min(position, end - _READ_AT_LEAST), store.min_offset(OP_HALF_TOPIC, 0))
    for record in read_all(store, OP_HALF_TOPIC, begin, end):
        op = Op.read(record)
        # One that is not stored yet is nonsense, and far ahead it would take memory.
        named = [offset for offset in op.named if offset < halves]
        for offset in named:
            left.opened.close(offset)
        left.ops.note(record.queue_offset, max(named, default=-1))
        if op.origin is not None and op.state is not TransactionType.NONE:
            left.ends[op.origin] = op.state
    return left


def find_last_act(
    store: Store, lineage: Lineage, opened: OpenHalves, last_record: int
) -> LastAct | None:
    """What the last record before a crash was the first part of. Blocks.

    An op message follows the message that it belongs to at once: only the last one can be missing.
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
    if half is None or half.is_aside or not opened.is_open(half.queue_offset):
        return None
    return LastAct(half, state)


def _find_half_of(store: Store, record: Record) -> Half | None:
    """The half of a message that was committed."""
    if transaction_type(record.sys_flag) is not TransactionType.COMMIT:
        return None
    half = Half.find(store.record_at(record.prepared_transaction_offset))
    unique_id = record.decode_properties().get(PropertyName.UNIQUE_ID)
    return half if half is not None and half.unique_id == unique_id else None


def read_all(store: Store, topic: str, begin: int, end: int) -> Iterator[Record]:
    """The records of queue 0 of a topic from `begin` to before `end`. Blocks."""
    while begin < end:
        found = store.read(topic, 0, begin, _AT_ONCE)
        for data in found.records:
            with suppress(BadRecord):
                record = read_record(bytes(data))
                if isinstance(record, Record):
                    yield record
        if found.next_offset <= begin:
            return
        begin = found.next_offset
