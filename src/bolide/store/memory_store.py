"""A message store in memory, for tests and embedded brokers.

It accepts the same drafts as `MessageStore` and returns the same offsets, bytes, statuses and
errors. There are no files, but physical offsets skip the rest of a log file that would be full.
"""

import struct
import threading
import time
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Self

from bolide.config import ConfigCell
from bolide.kernel import SCHEDULE_TOPIC, Units, describe, write_record
from bolide.kernel.units import UNIT
from bolide.protocol.record import MIN_BLANK_SIZE, RecordDraft
from bolide.protocol.record_errors import RecordTooLarge
from bolide.protocol.record_seal import seal_record
from bolide.protocol.tags import index_hash
from bolide.store import config as settings
from bolide.store.appending import (
    NOT_QUEUED,
    ROLLBACK,
    TRANSACTION,
    Appended,
    AppendRoom,
    check_one_queue,
    delivery_time,
    is_inner_batch,
    measure,
    refuse_inner_batches,
    with_end,
    with_inner_base,
    with_seal_room,
)
from bolide.store.batch_queue import BATCH_UNIT_SIZE, BatchQueue, BatchUnit, inner_count
from bolide.store.config import StoreConfig, delay_levels
from bolide.store.consume_queue import Unit
from bolide.store.descriptors import DescriptorCache
from bolide.store.disk import Disk
from bolide.store.flusher import Flushed, Listener
from bolide.store.health import Health
from bolide.store.queries import Queries
from bolide.store.queue_table import check_queue

_MAX_RESERVED = 256 * 1024
"""Bytes of records per reservation."""
_KEY_ITEM = struct.Struct(">Iqq")


class MemoryStore(Queries):
    """A thread-safe store in memory; appends are serialized by a lock."""

    log: "MemoryLog"
    queues: "MemoryQueues"

    def __init__(
        self,
        config: StoreConfig | ConfigCell[StoreConfig] | None = None,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        if not isinstance(config, ConfigCell):
            config = ConfigCell(config or StoreConfig(), settings.check)
        self.config = config
        self._clock = clock
        self._lock = threading.Lock()  # serializes appends
        self._room = AppendRoom()  # guarded by the lock
        self._delays = delay_levels(config.value.message_delay_level)
        self._seal = config.value.append_record_crc
        self._listeners: list[Listener] = []
        self.health = Health()
        self.log = MemoryLog(config.value.commit_log_file_size)
        self.queues = MemoryQueues()
        self._index: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)

    def __enter__(self) -> Self:
        self._open = True
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        with self._lock:
            self._open = False

    # ---- appending

    def append(self, draft: RecordDraft) -> Appended:
        return self.append_batch((draft,))[0]

    def append_batch(self, drafts: Sequence[RecordDraft]) -> list[Appended]:
        is_inner = len(drafts) == 1 and is_inner_batch(drafts[0])
        if not is_inner:
            refuse_inner_batches(drafts)
        given, (drafts, sizes) = drafts, self._measured(drafts)
        check_one_queue(drafts)
        with self._lock:
            self._require_open()
            self.health.check()
            queue = self.queues.require(drafts[0].topic, drafts[0].queue_id)
            if is_inner:
                if not queue.is_batched:
                    refuse_inner_batches(drafts)
                drafts, sizes = self._measured([with_inner_base(given[0], queue.max_offset)])
            self.log.reserve(sum(sizes))
            now = int(self._clock() * 1000)
            appended = [self._put(*each, now) for each in zip(drafts, sizes, strict=True)]
        for listener in self._listeners:
            listener(Flushed(appended[-1].end))
        return appended

    def _measured(self, drafts: Sequence[RecordDraft]) -> tuple[list[RecordDraft], list[int]]:
        ready = list(map(with_seal_room if self._seal else with_end, drafts))
        limit = self.config.value.max_message_size
        return ready, [measure(draft, limit) for draft in ready]

    @property
    def takes_raw_records(self) -> bool:
        return not self._seal

    def reserve(self) -> AppendRoom | None:
        self._lock.acquire()
        if not self._open or self.health.causes:
            self._lock.release()
            return None
        room = self._room
        room.physical_offset = room.readable_from = self.log.written
        room.size = self.log.room(_MAX_RESERVED)
        room.target, room.at = bytearray(room.size), 0
        room.timestamp = int(self._clock() * 1000)
        room.keys = bytearray() if self.config.value.index_enabled else None
        return room

    def tail(self, topic: bytes, queue_id: int) -> Units:
        with self._lock:
            queue = self.queues.require(topic, queue_id)
            if queue.is_batched:
                raise ValueError(f"the units of topic {topic!r} stand for batches")
            return queue.tail

    def publish(
        self, room: AppendRoom, size: int, count: int, last_record: int, changed: Sequence[Units]
    ) -> tuple[int, int]:
        try:
            self.log.put_all(memoryview(room.target)[:size])
            for value, physical_offset, timestamp in _KEY_ITEM.iter_unpack(room.keys or b""):
                self._index[value].append((physical_offset, timestamp))
            log_end = self.log.written
        finally:
            self._lock.release()
        if size:
            for listener in self._listeners:
                listener(Flushed(log_end))
        return log_end, 0

    def _put(self, draft: RecordDraft, size: int, timestamp: int) -> Appended:
        queue = self.queues.require(draft.topic, draft.queue_id)
        kind = draft.sys_flag & TRANSACTION
        queued = kind not in NOT_QUEUED
        queue_offset = queue.max_offset if queued else 0
        physical_offset = self.log.written
        record = bytearray(size)
        write_record(record, 0, draft, queue_offset, physical_offset, timestamp)
        if self._seal:
            seal_record(record)
        code, hashes = describe(draft.topic, draft.properties)
        if draft.topic == SCHEDULE_TOPIC:
            code = delivery_time(draft, timestamp, code, self._delays)
        self.log.put(bytes(record))
        if queued and isinstance(queue, BatchQueue):
            place = physical_offset, size, code, timestamp, queue_offset
            queue.add(BatchUnit(*place, inner_count(draft)))
        elif queued:
            queue.tail.append(UNIT.pack(physical_offset, size, code))
        if self.config.value.index_enabled and kind != ROLLBACK:
            for value in hashes:
                self._index[value].append((physical_offset, timestamp))
        return Appended(physical_offset, size, queue_offset, timestamp, 0)

    def end_burst(self) -> bool:
        return True

    # ---- durability: a record in memory counts as flushed

    @property
    def flushed(self) -> int:
        return self.log.written

    @property
    def sound_end(self) -> int:
        return self.log.written

    def wait_flushed(self, appended: Appended, timeout: float | None = None) -> bool:
        return appended.end <= self.flushed

    def on_flushed(self, listener: Listener) -> None:
        """Call `listener` after every append, on the appending thread."""
        self._listeners.append(listener)

    def off_flushed(self, listener: Listener) -> None:
        self._listeners = [each for each in self._listeners if each != listener]

    def flush(self) -> bool:
        return True

    # ---- removal

    def trim(self, physical_offset: int) -> None:
        """Remove the messages before a log position."""
        with self._lock:
            self.log.trim(physical_offset)
            for queue in self.queues:
                queue.raise_minimum(self.log.min_offset)
            for positions in self._index.values():
                del positions[: bisect_left(positions, (physical_offset, 0))]

    def remove_topic(self, topic: str) -> int:
        with self._lock:
            return self.queues.remove_topic(topic.encode())

    def set_batched(self, topic: str, *, is_batched: bool) -> None:
        name = topic.encode()
        with self._lock:
            if is_batched is not (name in self.queues.batch_topics):
                self.queues.remove_topic(name)
                self.queues.batch_topics ^= {name}

    def _find_positions(self, topic: str, key: str, limit: int, begin: int, end: int) -> list[int]:
        positions = self._index.get(index_hash(topic, key), [])
        fitting = (
            physical_offset
            for physical_offset, stored in reversed(positions)
            if begin <= stored <= end
        )
        return list(dict.fromkeys(fitting))[:limit]


class MemoryLog:
    """Records by physical offset. Appends must be serialized; any thread may read."""

    def __init__(self, file_size: int) -> None:
        self._file_size = file_size
        self._records: dict[int, bytes] = {}
        self.min_offset = 0
        self.written = 0
        self.last_record = -1

    @property
    def readable(self) -> int:
        """Everything written: a memory store has no replicas."""
        return self.written

    def items(self) -> list[tuple[int, bytes]]:
        """All records with their physical offsets."""
        return list(self._records.items())

    def reserve(self, size: int) -> None:
        """Roll over to the next file if the current one has no room for `size` bytes."""
        if size + MIN_BLANK_SIZE > self._file_size:
            raise RecordTooLarge("record", size, self._file_size - MIN_BLANK_SIZE)
        left = -self.written % self._file_size or self._file_size
        if size + MIN_BLANK_SIZE > left:
            self.written += left

    def put(self, record: bytes) -> None:
        self._records[self.written] = record
        self.last_record = self.written
        self.written += len(record)

    def room(self, most: int) -> int:
        """Bytes that fit into the current file, at most `most`."""
        left = -self.written % self._file_size or self._file_size
        return max(min(left - MIN_BLANK_SIZE, most), 0)

    def put_all(self, records: memoryview) -> None:
        """Append whole records that are stored back to back."""
        while records:
            size = int.from_bytes(records[:4])
            self.put(bytes(records[:size]))
            records = records[size:]

    def trim(self, physical_offset: int) -> None:
        for start in [start for start in self._records if start < physical_offset]:
            del self._records[start]
        self.min_offset = next(iter(self._records), self.written)

    def is_hot(self, physical_offset: int) -> bool:
        return True

    def find_file(self, physical_offset: int) -> None:
        """Always None: the log has no files."""

    def read(self, physical_offset: int, size: int, *, may_block: bool = True) -> memoryview | None:
        record = self._records.get(physical_offset, b"")
        return memoryview(record)[:size] if 0 <= size <= len(record) and record else None

    def read_block(
        self, physical_offset: int, least: int, most: int, *, may_block: bool
    ) -> memoryview | None:
        return self.read(physical_offset, least, may_block=may_block)


class MemoryQueue:
    """A consume queue; it keeps all its units."""

    is_batched = False

    def __init__(self) -> None:
        self.tail = Units(self)
        self.min_offset = 0

    @property
    def max_offset(self) -> int:
        return self.tail.end

    def read(self, queue_offset: int, count: int, *, may_block: bool = True) -> Iterator[Unit]:
        return map(Unit._make, UNIT.iter_unpack(self.units(queue_offset, count)))

    def units(self, queue_offset: int, count: int, may_block: bool = True) -> bytearray:
        return self.tail.take(queue_offset, count)

    def end_below(self, physical_offset: int, *, may_block: bool = True) -> int:
        return self.tail.end

    def raise_minimum(self, physical_offset: int) -> None:
        positions = [unit.physical_offset for unit in self.read(0, self.max_offset)]
        self.min_offset = bisect_left(positions, physical_offset)


class MemoryQueues:
    def __init__(self) -> None:
        self._queues: dict[tuple[bytes, int], MemoryQueue | BatchQueue] = {}
        self._descriptors = DescriptorCache()
        self.batch_topics: set[bytes] = set()

    def __iter__(self) -> Iterator[MemoryQueue | BatchQueue]:
        return iter(list(self._queues.values()))

    @property
    def keys(self) -> list[tuple[bytes, int]]:
        return list(self._queues)

    def find(self, topic: bytes, queue_id: int) -> MemoryQueue | BatchQueue | None:
        return self._queues.get((topic, queue_id))

    def require(self, topic: bytes, queue_id: int) -> MemoryQueue | BatchQueue:
        """Find or create a queue. Raises ValueError for a name that a file store would refuse."""
        found = self._queues.get((topic, queue_id))
        if found is None:
            check_queue(topic, queue_id)
            is_batched = topic in self.batch_topics
            found = self._queues[topic, queue_id] = (
                self._new_batch_queue() if is_batched else MemoryQueue()
            )
        return found

    def _new_batch_queue(self) -> BatchQueue:
        """A queue that is never written to files keeps all its units in memory."""
        return BatchQueue(Path(), BATCH_UNIT_SIZE, disk=Disk(), descriptors=self._descriptors)

    def remove_topic(self, topic: bytes) -> int:
        keys = [key for key in self._queues if key[0] == topic]
        for key in keys:
            self._queues.pop(key).tail.is_closed = True
        return len(keys)
