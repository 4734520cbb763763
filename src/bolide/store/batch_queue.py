"""The batch consume queue: where the batches of one queue with `queue.type=BatchCQ` lie in the log.

Each unit stands for one record, which holds one message or an inner batch of them
(`BatchConsumeQueue`). Unit n stands at byte n * 46 of the files laid end to end:

| Offset | Size | Field                                                      |
| ------ | ---- | ---------------------------------------------------------- |
| 0      | 8    | physical offset of the record                              |
| 8      | 4    | its size; 0 or less: the queue ends here                   |
| 12     | 8    | tags code of the record, a signed long                     |
| 20     | 8    | store time of the record in milliseconds                   |
| 28     | 8    | queue offset of the first message in the record            |
| 36     | 2    | number of messages in the record                           |
| 38     | 4    | position after compaction; -1 in a queue without it        |
| 42     | 4    | reserved, 0                                                |

Queue offsets count messages, so a unit is found by binary search. Everything else is as in
`ConsumeQueue`, whose files this class uses by unit number.
"""

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterator, Mapping
from itertools import islice
from typing import NamedTuple

from bolide.kernel import QueueRun, Scan
from bolide.kernel.units import UNIT as PLAIN_UNIT
from bolide.kernel.units import Units as PlainUnits
from bolide.model.message import SysFlag
from bolide.model.properties import LONG_DIGITS, PropertyName, parse_number
from bolide.protocol.record import Record, RecordDraft, decode_property_bytes
from bolide.protocol.tags import tags_code
from bolide.store.consume_queue import ConsumeQueue, Unit

BATCH_DIRECTORY = "batchconsumequeue"
BATCH_UNIT = struct.Struct(">qiqqqhii")
BATCH_UNIT_SIZE = BATCH_UNIT.size
MAX_BATCH = 0x7FFF
"""Messages in one record: their number is a signed short."""

_NOT_COMPACTED = -1
_INNER_BATCH = int(SysFlag.INNER_BATCH)
_FOREVER = 2**63 - 1


class BatchUnit(NamedTuple):
    """A decoded unit; `base` is the queue offset of its first message."""

    physical_offset: int
    size: int
    tags_code: int
    store_timestamp: int
    base: int
    messages: int
    compacted_position: int = _NOT_COMPACTED
    reserved: int = 0

    @property
    def end(self) -> int:
        """Queue offset behind its last message."""
        return self.base + self.messages

    def encode(self) -> bytes:
        return BATCH_UNIT.pack(*self)


class BatchUnits(PlainUnits):
    """The newest units of a batch queue, in memory."""

    __slots__ = ()
    unit_size = BATCH_UNIT_SIZE


class BatchQueue(ConsumeQueue):
    """The units of one batch queue; offsets are those of messages, numbers those of units.

    `first_offset`, `written` and `synced` are unit numbers.
    """

    __slots__ = ("_next_offset",)

    unit_size = BATCH_UNIT_SIZE
    is_batched = True

    def _new_tail(self) -> BatchUnits:
        self._next_offset = 0
        return BatchUnits(self)

    @property
    def max_offset(self) -> int:
        return self._next_offset

    def add(self, unit: BatchUnit) -> None:
        """Append the unit of a record whose first message has the queue's next offset, or more."""
        self.append(unit.encode())
        self._next_offset = unit.end

    def replay(self, unit: BatchUnit) -> None:
        """Append a unit from the log again, unless the queue has it already."""
        if unit.base >= self._next_offset:
            if self._next_offset == 0:
                self.min_offset = unit.base
            self.add(unit)

    def batches(
        self, queue_offset: int, count: int, *, may_block: bool = True
    ) -> Iterator[BatchUnit]:
        """Return up to `count` units from the one that holds a queue offset on.

        Raises:
            NotInMemory: the units are not cached, and the call may not block.
        """
        number = self._number_of(queue_offset, may_block=may_block)
        data = self._numbered(number, count, may_block) if number >= 0 else b""
        return map(BatchUnit._make, BATCH_UNIT.iter_unpack(data))

    def read(self, queue_offset: int, count: int, *, may_block: bool = True) -> Iterator[Unit]:
        """Return the unit of up to `count` messages each, from an offset on."""
        found = self.batches(queue_offset, count, may_block=may_block)
        places = (
            Unit(batch.physical_offset, batch.size, batch.tags_code)
            for batch in found
            for _ in range(max(batch.base, queue_offset), batch.end)
        )
        return islice(places, count)

    def units(self, queue_offset: int, count: int, may_block: bool = True) -> bytearray:
        """Raises RuntimeError: the units of a batch queue are not those of a plain one."""
        raise RuntimeError("a batch queue has no units of 20 bytes: read its batches")

    def unit(self, queue_offset: int) -> Unit | None:
        return next(self.read(queue_offset, 1), None)

    def end_below(self, physical_offset: int, *, may_block: bool = True) -> int:
        number = self._number_below(physical_offset, may_block=may_block)
        return self._end_of(number - 1, may_block=may_block)

    def number_at(self, timestamp: int, *, after: bool = False) -> int:
        """Number of the first unit stored at a time (ms) or later; with `after`, only later."""
        search = bisect_right if after else bisect_left
        low = self.first_offset
        return low + search(range(low, self.tail.end), timestamp, key=self._time_of)

    def batch_at(self, number: int, *, may_block: bool = True) -> BatchUnit | None:
        """Return a unit by its number.

        Raises:
            NotInMemory: the unit is not cached, and the call may not block.
        """
        data = self._numbered(number, 1, may_block) if number >= self.first_offset else b""
        return BatchUnit._make(BATCH_UNIT.unpack(data)) if data else None

    # ---- files

    def load(self) -> None:
        super().load()
        self._settle()
        first = self.batch_at(self.first_offset)
        self.min_offset = first.base if first else 0

    def truncate(self, physical_offset: int, *, thoroughly: bool) -> None:
        super().truncate(physical_offset, thoroughly=thoroughly)
        self._settle()
        self.min_offset = min(self.min_offset, self._next_offset)

    def rewind(self, physical_offset: int) -> None:
        super().rewind(physical_offset)
        self._settle()

    def restart(self) -> None:
        super().restart()
        self._next_offset = 0

    def raise_minimum(self, physical_offset: int) -> None:
        """Move `min_offset` to the first record at or behind a log position."""
        low = self.first_offset
        number = low + bisect_left(range(low, self.tail.end), physical_offset, key=self._place_of)
        first = self.batch_at(number)
        self.min_offset = max(self.min_offset, first.base if first else self._next_offset)

    # ---- inside

    def _reset(self, sound: Callable[[Unit], bool]) -> None:
        super()._reset(sound)
        last = self.batch_at(self.tail.end - 1)
        if last and last.compacted_position != _NOT_COMPACTED:  # cut off in its last bytes
            self.tail.cut(self.tail.end - 1)
            self.written = min(self.written, self.tail.end)

    def _settle(self) -> None:
        """Derive the next offset from the last unit."""
        self._next_offset = self._end_of(self.tail.end - 1)

    def _end_of(self, number: int, *, may_block: bool = True) -> int:
        batch = self.batch_at(number, may_block=may_block)
        return batch.end if batch else 0

    def _number_of(self, queue_offset: int, *, may_block: bool) -> int:
        """Number of the unit that holds an offset, or of the next one; -1 if there is none."""

        def end_of(number: int) -> int:
            data = self._numbered(number, 1, may_block)
            return BatchUnit._make(BATCH_UNIT.unpack(data)).end if data else _FOREVER

        if queue_offset >= self._next_offset:
            return -1
        # Most readers are at the end, where units are in memory.
        low = self.first_offset
        if low < self.tail.base and end_of(self.tail.base) <= queue_offset:
            low = self.tail.base
        return low + bisect_right(range(low, self.tail.end), queue_offset, key=end_of)

    def _place_of(self, number: int) -> int:
        batch = self.batch_at(number)
        return batch.physical_offset if batch else _FOREVER

    def _time_of(self, number: int) -> int:
        batch = self.batch_at(number)
        return batch.store_timestamp if batch else _FOREVER


def unit_of(record: Record) -> BatchUnit:
    """Return the unit of a record, as a Java broker derives it from the log."""
    properties = record.decode_properties()
    base, count = record.queue_offset, 1
    if record.sys_flag & _INNER_BATCH and (claimed := _inner_place(properties)):
        base, count = claimed
    code = tags_code(properties.get(PropertyName.TAGS))
    place = record.physical_offset, record.size, code, record.store_timestamp
    return BatchUnit(*place, base, count)


def inner_count(draft: RecordDraft) -> int:
    """Number of messages in a draft: those of an inner batch, or one."""
    if not draft.sys_flag & _INNER_BATCH:
        return 1
    text = decode_property_bytes(draft.properties).get(PropertyName.INNER_COUNT)
    count = parse_number(text) or 0
    if not 0 < count <= MAX_BATCH:
        raise ValueError(f"an inner batch has 1 to {MAX_BATCH} messages, not {text}")
    return count


def _inner_place(properties: Mapping[str, str]) -> tuple[int, int] | None:
    base = parse_number(properties.get(PropertyName.INNER_BASE), LONG_DIGITS)
    count = parse_number(properties.get(PropertyName.INNER_COUNT))
    if base is None or not count or count > MAX_BATCH:
        return None
    return base, count


class QueuedBatch(NamedTuple):
    """A unit, and the batch queue it belongs to."""

    topic: bytes
    queue_id: int
    unit: BatchUnit


class SkippedBatch(NamedTuple):
    """An inner batch that has no unit, as its topic has no batch queues."""

    topic: bytes
    queue_id: int
    physical_offset: int


class SplitScan(NamedTuple):
    """What a scan found, by kind of queue; batches are in the order of the log."""

    runs: list[QueueRun]
    batches: list[QueuedBatch]
    skipped: list[SkippedBatch]


def split_batches(
    scan: Scan, batch_topics: Collection[bytes], read: Callable[[int], Record], base: int = 0
) -> SplitScan:
    """Divide the result of a scan into the runs of plain queues and the units of batch queues.

    A scan reports inner batches by position and all other records as runs of plain units. Records
    of a topic with batch queues that are no inner batches hold one message each.
    Inner batches in topics without batch queues have no unit: they are left of a deleted topic, or
    a replica does not know yet that the topic has batch queues.

    Args:
        read: returns the record at a physical offset that the scan has found sound.
        base: physical offset of the scanned buffer's position 0.
    """
    if not batch_topics and not scan.batches:
        return SplitScan(scan.runs, [], [])
    runs, places = [], [base + position for position in scan.batches]
    for run in scan.runs:
        if run.topic in batch_topics:
            places += [place for place, _, _ in PLAIN_UNIT.iter_unpack(run.entries)]
        else:
            runs.append(run)
    batches: list[QueuedBatch] = []
    skipped: list[SkippedBatch] = []
    for record in map(read, sorted(places)):
        topic = record.topic.encode(errors="replace")
        if topic in batch_topics:
            batches.append(QueuedBatch(topic, record.queue_id, unit_of(record)))
        else:
            skipped.append(SkippedBatch(topic, record.queue_id, record.physical_offset))
    return SplitScan(runs, batches, skipped)
