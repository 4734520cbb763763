"""Read operations of a store, common to the file store and the memory store."""

import os
from functools import cache
from typing import NamedTuple, Protocol

from bolide.config import ConfigCell
from bolide.kernel import read_record
from bolide.kernel.units import BLANK_SIZE, UNIT_SIZE
from bolide.protocol.headers.offsets import Boundary
from bolide.protocol.record import RECORD_HEAD, Record, is_record_magic, store_time
from bolide.protocol.record_errors import BadRecord
from bolide.protocol.tags import indexed_keys
from bolide.store.batch_queue import BatchQueue
from bolide.store.batch_reading import batch_offset_at, read_batches
from bolide.store.compaction.topic_compaction import TopicCompaction
from bolide.store.config import StoreConfig
from bolide.store.errors import StoreClosed
from bolide.store.reading import (
    EVERYTHING,
    MessageFilter,
    ReadableLog,
    ReadableQueue,
    ReadLimits,
    ReadResult,
    read_queue,
)

FOREVER = 2**63 - 1
MIN_RECORD = 80
"""Bytes of every record, whatever it holds; the store time is among them."""


class StoreSizes(NamedTuple):
    """Sizes and counts of a store. Queue files are sparse and take less space than their length."""

    log_files: int
    log_bytes: int
    """From the first record retained to the last one readable."""
    queues: int
    messages: int
    """Messages in queues; half messages, for example, are in none."""
    queue_files: int
    index_files: int
    index_bytes: int


class ReadableQueues(Protocol):
    @property
    def keys(self) -> list[tuple[bytes, int]]: ...

    def find(self, topic: bytes, queue_id: int) -> ReadableQueue | None: ...


class Queries:
    """The read operations of a store, built on its log and queues.

    Every method raises StoreClosed if the store is not open.
    """

    config: ConfigCell[StoreConfig]
    log: ReadableLog
    queues: ReadableQueues
    compaction: TopicCompaction | None = None
    _open = False

    def read(
        self,
        topic: str,
        queue_id: int,
        queue_offset: int,
        limits: ReadLimits | None = None,
        wanted: MessageFilter = EVERYTHING,
        *,
        may_block: bool = True,
    ) -> ReadResult:
        """Read a queue from an offset on; the default limits are RocketMQ's.

        Raises:
            NotInMemory: the read needs the disk and may not block: repeat it on a thread.
        """
        queue = self.find_queue(topic, queue_id)
        if limits is None:
            limits = self._usual_limits(queue, queue_offset, may_block=may_block)
        if self.compaction and topic in self.compaction.topics:
            found = self.compaction.read(
                topic, queue_id, queue_offset, limits, wanted, may_block=may_block
            )
            if found is not None:
                return found
        wanted = self._by_units(wanted, topic, queue_id, may_block=may_block)
        if isinstance(queue, BatchQueue):
            return read_batches(self.log, queue, queue_offset, limits, wanted, may_block=may_block)
        return read_queue(self.log, queue, queue_offset, limits, wanted, may_block=may_block)

    def _usual_limits(
        self, queue: ReadableQueue | None, queue_offset: int, *, may_block: bool
    ) -> ReadLimits:
        """Limits by age: old messages may be on the disk only, so fewer are read at once."""
        config = self.config.value
        scanned = config.max_filter_bytes // UNIT_SIZE
        physical_offset = self._find_unit(queue, queue_offset, may_block=may_block)
        if physical_offset is None or self._is_recent(physical_offset):
            count, size = config.max_transfer_count_memory, config.max_transfer_bytes_memory
        else:
            count, size = config.max_transfer_count_disk, config.max_transfer_bytes_disk
        return ReadLimits(count, size, scanned)

    def _find_unit(
        self, queue: ReadableQueue | None, queue_offset: int, *, may_block: bool
    ) -> int | None:
        """Return the physical offset of a queue's message, or None if there is none."""
        if queue is None:
            return None
        end = queue.end_below(self.log.readable, may_block=may_block)
        if not queue.min_offset <= queue_offset < end:
            return None
        unit = next(queue.read(queue_offset, 1, may_block=may_block), None)
        return unit.physical_offset if unit else None

    def _is_recent(self, physical_offset: int) -> bool:
        """Whether a position is in the newest part of the log, which fits into memory."""
        distance = self.log.written - physical_offset
        return distance <= self.config.value.memory_ratio * _memory()

    def _by_units(
        self, wanted: MessageFilter, topic: str, queue_id: int, *, may_block: bool
    ) -> MessageFilter:
        """Adapt a filter to the tags codes stored in the units of a queue."""
        return wanted

    def record_at(self, physical_offset: int, *, may_block: bool = True) -> memoryview | None:
        """Return the record that begins at a log position, or None if none does."""
        self._require_open()
        head = self.log.read(physical_offset, RECORD_HEAD.size, may_block=may_block)
        if head is None:
            return None
        size, magic, place = RECORD_HEAD.unpack(head)
        # Offsets come from clients and may point anywhere.
        if place != physical_offset or not is_record_magic(magic):
            return None
        data = self.log.read(physical_offset, size, may_block=may_block)
        return data if data is not None and _is_record(data, physical_offset) else None

    def message_at(self, physical_offset: int, *, may_block: bool = True) -> memoryview | None:
        """Return the record that begins at a log position and is in its queue, or None.

        For positions that clients name: the body of a message may have bytes that look like a
        record, even one of another topic, but no queue refers to them.

        Raises:
            NotInMemory: the call needs the disk and may not block.
        """
        data = self.record_at(physical_offset, may_block=may_block)
        if data is None:
            return None
        record = read_record(data)
        assert isinstance(record, Record)
        queue = self.find_queue(record.topic, record.queue_id)
        place = self._find_unit(queue, record.queue_offset, may_block=may_block)
        return data if place == physical_offset else None

    def find(
        self,
        topic: str,
        key: str,
        *,
        limit: int | None = None,
        begin: int = 0,
        end: int = FOREVER,
        unconfirmed: bool = False,
    ) -> list[memoryview]:
        """Return records of a topic by key or unique key, stored between two times (ms). Blocks.

        Newest first. The index stores hashes; records with another key of the same hash, perhaps
        of another topic, are left out.

        Args:
            unconfirmed: return also what consumers may not read yet.
        """
        self._require_open()
        config = self.config.value
        limit = min(limit or config.default_query_max, config.max_query_batch)
        places = self._find_positions(topic, key, limit, begin, end)
        found = [(place, self.record_at(place)) for place in places]
        readable = self.log.written if unconfirmed else self.log.readable
        return [
            record
            for place, record in found
            if record is not None and place + len(record) <= readable and _has(record, topic, key)
        ]

    def min_offset(self, topic: str, queue_id: int) -> int:
        queue = self.find_queue(topic, queue_id)
        low = queue.min_offset if queue else 0
        if self.compaction and topic in self.compaction.topics:
            copied = self.compaction.min_offset(topic, queue_id)
            return low if copied is None else min(low, copied)
        return low

    def max_offset(self, topic: str, queue_id: int) -> int:
        """Queue offset behind the last readable message."""
        queue = self.find_queue(topic, queue_id)
        return queue.end_below(self.log.readable) if queue else 0

    def is_recent(
        self, topic: str, queue_id: int, queue_offset: int, *, may_block: bool = True
    ) -> bool:
        """Whether a message exists and is new enough to be in memory.

        Raises:
            NotInMemory: the call needs the disk and may not block.
        """
        queue = self.find_queue(topic, queue_id)
        physical_offset = self._find_unit(queue, queue_offset, may_block=may_block)
        return physical_offset is not None and self._is_recent(physical_offset)

    def topics(self) -> set[str]:
        """Topics that have queues in the store, whether or not the broker has a configuration."""
        self._require_open()
        return {topic.decode(errors="replace") for topic, _ in self.queues.keys}

    def offset_at(
        self, topic: str, queue_id: int, timestamp: int, boundary: Boundary = Boundary.LOWER
    ) -> int:
        """Return the queue offset for a store time in milliseconds. Blocks.

        LOWER: the first message stored then or later; the maximum offset if all are older.
        UPPER: the last message stored then or before; 0 if all are newer.
        A batch queue has RocketMQ's own rules for it (`batch_offset_at`).
        """
        queue = self.find_queue(topic, queue_id)
        if queue is None:
            return 0
        if isinstance(queue, BatchQueue):
            found = batch_offset_at(queue, timestamp, boundary)
            return min(found, queue.end_below(self.log.readable))
        first, end = queue.min_offset, queue.end_below(self.log.readable)
        later = timestamp if boundary is Boundary.LOWER else timestamp + 1
        low, high = first, end
        while low < high:
            middle = (low + high) // 2
            if self._stored_from(queue, middle, end) < later:
                low = middle + 1
            else:
                high = middle
        if boundary is Boundary.LOWER:
            return low
        return low - 1 if low > first else 0

    def earliest_time(self, topic: str, queue_id: int) -> int:
        """Store time (ms) of a queue's first message, or -1. Blocks."""
        queue = self.find_queue(topic, queue_id)
        if queue is None or queue.min_offset >= queue.end_below(self.log.readable):
            return -1
        return self._stored_at(queue, queue.min_offset)

    def stored_at(self, topic: str, queue_id: int, queue_offset: int) -> int:
        """Store time (ms) of a message, or -1. Blocks."""
        queue = self.find_queue(topic, queue_id)
        if queue is None or not queue.min_offset <= queue_offset < queue.end_below(
            self.log.readable
        ):
            return -1
        return self._stored_at(queue, queue_offset)

    def unit_stored_at(self, topic: str, queue_id: int, queue_offset: int) -> int:
        """As `stored_at`, reading the head of the record only. Blocks."""
        queue = self.find_queue(topic, queue_id)
        unit = None if queue is None else next(queue.read(queue_offset, 1), None)
        if unit is None or unit.size < MIN_RECORD:
            return -1
        head = self.log.read(unit.physical_offset, MIN_RECORD)
        return -1 if head is None else store_time(head)

    def wanted_units(self, wanted: MessageFilter, topic: str, queue_id: int) -> MessageFilter:
        """A filter for the tags codes in the units of a queue."""
        return self._by_units(wanted, topic, queue_id, may_block=True)

    def earliest_log_time(self) -> int:
        """Store time (ms) of the oldest message, or -1. Blocks."""
        return self._timestamp_at(self.log.min_offset)

    def index_end(self) -> tuple[int, int]:
        """Store time (ms) and physical offset of the newest record in the key index, or zeros."""
        return 0, 0

    # ---- for subclasses

    def _find_positions(self, topic: str, key: str, limit: int, begin: int, end: int) -> list[int]:
        """Physical offsets by key, newest first."""
        raise NotImplementedError

    def _require_open(self) -> None:
        if not self._open:
            raise StoreClosed

    def find_queue(self, topic: str, queue_id: int) -> ReadableQueue | None:
        self._require_open()
        return self.queues.find(topic.encode(), queue_id)

    # ---- inside

    def _stored_at(self, queue: ReadableQueue, queue_offset: int) -> int:
        unit = next(queue.read(queue_offset, 1), None)
        if unit is None or unit.size == BLANK_SIZE:
            return -1
        return self._timestamp_at(unit.physical_offset)

    def _stored_from(self, queue: ReadableQueue, queue_offset: int, end: int) -> int:
        """Store time of the first message from an offset on, skipping blank units."""
        for each in range(queue_offset, end):
            unit = next(queue.read(each, 1), None)
            if unit is None:
                return -1
            if unit.size != BLANK_SIZE:
                return self._timestamp_at(unit.physical_offset)
        return FOREVER

    def _timestamp_at(self, physical_offset: int) -> int:
        data = self.record_at(physical_offset)
        if data is None:
            return -1
        record = read_record(data)
        return record.store_timestamp if isinstance(record, Record) else -1


def _is_record(data: memoryview, physical_offset: int) -> bool:
    try:
        record = read_record(data)
    except BadRecord:
        return False
    return isinstance(record, Record) and record.physical_offset == physical_offset


def _has(data: memoryview, topic: str, key: str) -> bool:
    """Whether a record is of a topic and indexed by a key."""
    record = read_record(data)
    if not isinstance(record, Record) or record.topic != topic:
        return False
    return key in indexed_keys(record.decode_properties())


@cache
def _memory() -> int:
    """Bytes of physical memory."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
