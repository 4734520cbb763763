"""Delivery of pops: where a pop begins, which queues it reads, and which messages it leases."""

import struct
import time
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from bolide.broker.background import COLD_READS, on_thread
from bolide.broker.consume.expiry import Expiring
from bolide.broker.metadata.offsets import OffsetTable
from bolide.broker.pop.events import (
    Event,
    OrderAcknowledged,
    OrderPopped,
    Popped,
    QueueName,
    Removed,
    Repositioned,
)
from bolide.broker.pop.journal import Journal
from bolide.broker.pop.ordered import OrderInfo, first_order_info
from bolide.broker.pop.pop_queue import PopQueue
from bolide.broker.pop.queue_order import QueueOrder
from bolide.broker.pop.state import PopState
from bolide.broker.settings.config import BrokerConfig
from bolide.config import ConfigCell
from bolide.model.names import is_retry_topic
from bolide.protocol.bodies.topics import TopicConfig
from bolide.protocol.headers.pop import PopHeader
from bolide.protocol.inner_batch import unwrap_records
from bolide.store.config import StoreConfig
from bolide.store.contract import Store
from bolide.store.errors import NotInMemory
from bolide.store.reading import MessageFilter, ReadLimits, ReadResult

FROM_START = 0
"""Init mode of groups that begin at the start of a queue."""
_MAX_SCANNED = 800
_MAX_LEASES = 1_000_000
"""Pops in flight over all queues; more would exhaust memory."""
_QUEUE_OFFSET = struct.Struct(">20xq")


class Positions:
    """Reconciles the pop state with the committed offsets of groups; belongs to one event loop."""

    def __init__(
        self,
        state: PopState,
        journal: Journal,
        *,
        offsets: OffsetTable,
        store: Store,
        cell: ConfigCell[BrokerConfig],
    ) -> None:
        self._state = state
        self._journal = journal
        self._offsets = offsets
        self._store = store
        self._cell = cell

    def require(self, name: QueueName, init_mode: int) -> tuple[PopQueue, int]:
        """Return the queue, positioned within the store, and the end of the queue.

        Raises:
            StoreUnwritable, StoreClosed: the queue must be repositioned and the journal cannot
                be written.
        """
        topic, group, queue_id = name
        queue = self._state.queues.get(name)
        if queue is None or self._offsets.claim_reset(group, topic, queue_id) is not None:
            queue = self._position(name, init_mode)
        committed = self._offsets.find(group, topic, queue_id)
        if committed is not None and committed != queue.published:
            self._adopt_committed(queue, committed)
        high = self._store.max_offset(topic, queue_id)
        if queue.next_offset > high:  # the end of the log was lost
            self._reposition(queue, high)
        elif queue.next_offset < high:
            low = self._store.min_offset(topic, queue_id)
            queue.next_offset = max(queue.next_offset, low)
        return queue, high

    def peek(self, name: QueueName) -> int:
        """Return the offset at which a pop would begin, without side effects."""
        topic, group, queue_id = name
        low, high = self._store.min_offset(topic, queue_id), self._store.max_offset(topic, queue_id)
        queue = self._state.queues.get(name)
        committed = self._offsets.find(group, topic, queue_id)
        if queue is not None and not queue.will_adopt(committed):
            offset = queue.next_offset
        else:
            offset = committed or 0
        return min(max(offset, low), high)

    def record_progress(self, queue: PopQueue) -> None:
        """Record how far the group has read, as pulls do."""
        topic, group, queue_id = queue.name
        self._offsets.pulled(group, topic, queue_id, queue.next_offset)

    def forget(self, topic: str, group: str) -> None:
        """Drop all queues of a topic or of a group; the other name is empty."""
        if any(topic in {"", name[0]} and group in {"", name[1]} for name in self._state.queues):
            self._journal.append_or_defer(Removed(topic, group, -1))

    # ---- inside

    def _position(self, name: QueueName, init_mode: int) -> PopQueue:
        """Position a queue that is new or was reset."""
        topic, group, queue_id = name
        self._offsets.claim_reset(group, topic, queue_id)
        committed = self._offsets.find(group, topic, queue_id)
        if committed is None or committed < 0:
            committed = self._initial(topic, queue_id, init_mode)
            self._offsets.commit(group, topic, queue_id, committed)
        self._journal.append([Repositioned(*name, committed)])
        queue = self._state.queues[name]
        queue.published = committed
        return queue

    def _initial(self, topic: str, queue_id: int, init_mode: int) -> int:
        low, high = self._store.min_offset(topic, queue_id), self._store.max_offset(topic, queue_id)
        if init_mode == FROM_START or is_retry_topic(topic):
            return low
        young = self._cell.value.init_pop_offset_by_check_msg_in_mem and low <= 0
        if young and self._is_recent(topic, queue_id):
            return 0
        return max(high - 1, 0)

    def _is_recent(self, topic: str, queue_id: int) -> bool:
        try:
            return self._store.is_recent(topic, queue_id, 0, may_block=False)
        except NotInMemory:
            return False

    def _adopt_committed(self, queue: PopQueue, committed: int) -> None:
        """Adopt an offset committed by a pull consumer or a tool."""
        if queue.will_adopt(committed):
            self._reposition(queue, committed)
        queue.published = committed

    def _reposition(self, queue: PopQueue, offset: int) -> None:
        self._journal.append([Repositioned(*queue.name, offset)])

    def reset(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        """Reposition queues after a reset by an administrator, dropping their leases."""
        for queue_id, offset in offsets.items():
            queue = self._state.queues.get((topic, group, queue_id))
            if queue is not None:
                self._journal.append_or_defer(Repositioned(*queue.name, offset))
                queue.published = offset


@dataclass(slots=True)
class AdmittedPop:
    """A pop that passed admission."""

    header: PopHeader
    topic: TopicConfig
    wanted: MessageFilter
    peer: str
    begun: float


class QueueRead(NamedTuple):
    """A read that a pop needs."""

    topic: str
    queue_id: int
    queue_offset: int
    limits: ReadLimits
    wanted: MessageFilter


class QueueBatch(NamedTuple):
    """Messages of one queue in a pop."""

    queue: PopQueue
    epoch: int
    start: int
    found: ReadResult
    offsets: list[int]

    @property
    def topic(self) -> str:
        return self.queue.name[0]

    @property
    def queue_id(self) -> int:
        return self.queue.name[2]

    @property
    def is_valid(self) -> bool:
        """False if the queue was repositioned while the disk was read."""
        return self.queue.epoch == self.epoch


@dataclass(slots=True)
class PopResult:
    """The messages of a pop, over all queues."""

    pop_time: int = 0
    rest: int = 0
    """Messages left behind in the visited queues."""
    hit_scan_limit: bool = False
    """Whether the scan limit ended the pop: another attempt gets further."""
    batches: list[QueueBatch] = field(default_factory=list)
    orders: list[tuple[QueueBatch, OrderInfo]] = field(default_factory=list)
    visited: list[PopQueue] = field(default_factory=list)

    @property
    def count(self) -> int:
        return sum(len(batch.offsets) for batch in self.batches)

    @property
    def size(self) -> int:
        return sum(batch.found.size for batch in self.batches)


PopSteps = Generator[QueueRead, ReadResult, PopResult]


@dataclass(frozen=True, slots=True, kw_only=True)
class PopDelivery:
    """Reads and leases messages for pops; belongs to one event loop."""

    cell: ConfigCell[BrokerConfig]
    store_cell: ConfigCell[StoreConfig]
    store: Store
    state: PopState
    journal: Journal
    positions: Positions
    order: QueueOrder
    expiring: Expiring
    now: Callable[[], float] = time.time

    def read(self, reading: QueueRead, *, may_block: bool) -> ReadResult:
        """Raises NotInMemory if the disk is needed and the call may not block."""
        return self.store.read(*reading, may_block=may_block)

    async def read_cold(self, reading: QueueRead) -> ReadResult:
        """As `read`, in a worker thread; the records are copied."""

        def read() -> ReadResult:
            found = self.read(reading, may_block=True)
            found.records = [memoryview(bytes(record)) for record in found.records]
            return found

        return await on_thread(COLD_READS, read)

    def steps(self, admitted: AdmittedPop) -> PopSteps:
        """Pop as a generator: yields the reads it needs and expects their results.

        Raises:
            StoreUnwritable, StoreClosed: nothing is leased.
        """
        result = PopResult()
        try:
            for topic, queue_id in self.order.queues(admitted.header, admitted.topic):
                yield from self._visit(admitted, result, topic, queue_id)
            result.batches = [batch for batch in result.batches if batch.is_valid]
            if result.batches:
                self._lease(admitted, result)
        finally:
            for queue in result.visited:
                queue.is_busy = False
        return result

    def _visit(
        self, admitted: AdmittedPop, result: PopResult, topic: str, queue_id: int
    ) -> Generator[QueueRead, ReadResult, None]:
        header = admitted.header
        name = (topic, header.consumer_group, queue_id)
        queue, end = self.positions.require(name, header.init_mode)
        if header.order and self.state.is_blocked(queue, header.attempt_id):
            return  # messages behind an ordered pop are no reason to poll again
        begin = queue.low if header.order else queue.next_offset
        behind = end - begin
        if behind <= 0:
            return
        if queue.is_busy or result.count >= header.max_msg_nums or self._is_over_limit(queue):
            result.rest += behind
            return
        queue.is_busy, epoch = True, queue.epoch
        result.visited.append(queue)
        limits = self._limits(header, result)
        found = yield QueueRead(
            topic, queue_id, begin, limits, self.expiring.wanted(topic, admitted.wanted)
        )
        if queue.epoch != epoch:  # repositioned while the disk was read
            result.rest += behind
            return
        result.rest += max(found.max_offset - found.next_offset, 0)
        if found.inner_count:
            _unwrap_batches(found, begin)
        if found.records:
            offsets = [int(_QUEUE_OFFSET.unpack_from(record)[0]) for record in found.records]
            result.batches.append(QueueBatch(queue, epoch, begin, found, offsets))
        else:
            self._skip(queue, begin, found.next_offset)
            after = queue.low if header.order else queue.next_offset
            result.hit_scan_limit |= begin < after < found.max_offset

    def _skip(self, queue: PopQueue, begin: int, end: int) -> None:
        """Skip messages that are all filtered out or expired."""
        if queue.order is not None:
            info = queue.order.info
            unwanted = [offset for offset in info.unacknowledged if begin <= offset < end]
            if unwanted:
                self.journal.append(
                    [OrderAcknowledged(*queue.name, info.pop_time, offset) for offset in unwanted]
                )
        if end > queue.next_offset:
            queue.next_offset = end
            self.state.changed.add(queue.name)

    def _is_over_limit(self, queue: PopQueue) -> bool:
        config = self.cell.value
        if len(self.state) >= _MAX_LEASES:
            return True
        return (
            config.enable_pop_message_threshold
            and queue.in_flight > config.pop_inflight_message_threshold
        )

    def _limits(self, header: PopHeader, result: PopResult) -> ReadLimits:
        config, store = self.cell.value, self.store_cell.value
        size = config.max_pull_bytes
        if config.transfer_limits_given:
            size = store.max_transfer_bytes_memory
        count = max(header.max_msg_nums - result.count, 1)
        return ReadLimits(count, max(size - result.size, 1), _MAX_SCANNED)

    # ---- leasing

    def _lease(self, admitted: AdmittedPop, result: PopResult) -> None:
        result.pop_time = self.state.now
        # Twice: a later batch may advance the time to one that an earlier queue has in use.
        for batch in (*result.batches, *result.batches):
            result.pop_time = batch.queue.unique_pop_time(batch.start, result.pop_time)
        events: list[Event] = [
            self._lease_event(admitted, result, batch) for batch in result.batches
        ]
        self.journal.append(events)
        for batch in result.batches:
            self.positions.record_progress(batch.queue)

    def _lease_event(self, admitted: AdmittedPop, result: PopResult, batch: QueueBatch) -> Event:
        header, next_offset = admitted.header, batch.found.next_offset
        if header.order:
            info = self._next_order_info(batch, header, result.pop_time)
            result.orders.append((batch, info))
            return OrderPopped(*batch.queue.name, next_offset, info)
        invisible = max(header.invisible_time, 0)
        distances = [offset - batch.start for offset in batch.offsets]
        return Popped(
            *batch.queue.name, batch.start, result.pop_time, invisible, next_offset, distances
        )

    def _next_order_info(self, batch: QueueBatch, header: PopHeader, pop_time: int) -> OrderInfo:
        invisible = max(header.invisible_time, 0)
        if batch.queue.order is None:
            return first_order_info(header.attempt_id, pop_time, invisible, batch.offsets)
        before = batch.queue.order.info
        return before.next_order_info(header.attempt_id, pop_time, invisible, batch.offsets)


def _unwrap_batches(found: ReadResult, begin: int) -> None:
    """Take the messages out of inner batches: each one has a lease of its own.

    RocketMQ pops a batch as one message, whose body none of its clients unwraps.
    """
    data = unwrap_records(b"".join(found.records), begin)
    view = memoryview(data)
    found.records, at = [], 0
    while at < len(view):
        size = int.from_bytes(view[at : at + 4])
        found.records.append(view[at : at + size])
        at += size
    found.size = len(data)
