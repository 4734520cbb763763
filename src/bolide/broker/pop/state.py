"""Leases of all popped queues, changed only by events so that the journal can rebuild them.

The state does no I/O. Its clock is monotonic: when the wall clock is set back, expiry times keep
their distance from now.
"""

import heapq
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator

from bolide.broker.pop.events import (
    Acknowledged,
    Adopted,
    Changed,
    Event,
    OrderAcknowledged,
    OrderChanged,
    OrderPopped,
    Popped,
    QueueName,
    Removed,
    Repositioned,
)
from bolide.broker.pop.pop_queue import Checkpoint, Lease, OrderedPop, PopQueue

_MIN_COMPACTED = 1024


class LeaseHeap:
    """Heap of lease expiries; entries that ended or were rescheduled are skipped."""

    def __init__(self, lease: Collection[Lease]) -> None:
        self._leases = lease
        self._heap: list[tuple[int, int, Lease]] = []
        self._pushed = 0

    @property
    def next_due(self) -> int | None:
        """When the next lease expires."""
        self._tidy()
        return self._heap[0][0] if self._heap else None

    def add(self, lease: Lease) -> None:
        """Add a lease by its `due`, or reschedule it."""
        self._pushed += 1
        heapq.heappush(self._heap, (lease.due, self._pushed, lease))
        if len(self._heap) > 2 * len(self._leases) + _MIN_COMPACTED:
            self._heap = [(each.due, at, each) for at, each in enumerate(self._leases)]
            self._pushed = len(self._heap)
            heapq.heapify(self._heap)

    def pop_due(self, now: int) -> Iterator[Lease]:
        """Remove and yield the expired leases."""
        self._tidy()
        while self._heap and self._heap[0][0] <= now:
            yield heapq.heappop(self._heap)[2]
            self._tidy()

    def clear(self) -> None:
        self._heap.clear()

    def _tidy(self) -> None:
        while self._heap:
            due, _, lease = self._heap[0]
            if lease in self._leases and lease.due == due:
                return
            heapq.heappop(self._heap)


class PopState:
    """Queues by name, and their leases in journal order and by expiry."""

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        self._wall = now
        self._last = self._skew = 0
        self.queues: dict[QueueName, PopQueue] = {}
        self.changed: set[QueueName] = set()
        """Queues whose lowest unacknowledged offset may have changed."""
        self.orders_changed = False
        """Whether an ordered pop has changed."""
        self._leases: OrderedDict[Lease, None] = OrderedDict()
        self._expiries = LeaseHeap(self._leases)

    # ---- time, in milliseconds

    @property
    def now(self) -> int:
        """Current time; never decreases."""
        wall = int(self._wall() * 1000)
        self._skew = max(self._skew, self._last - wall)
        self._last = wall + self._skew
        return self._last

    @property
    def next_due(self) -> int | None:
        """When the next lease expires."""
        return self._expiries.next_due

    def overdue(self, now: int) -> int:
        """How many leases have expired and wait to be revived. Any thread may call it."""
        return sum(lease.due <= now for lease in list(self._leases))

    def due_leases(self) -> Iterator[Lease]:
        """Yield each expired lease once; the caller reschedules it with `schedule` or
        acknowledges it."""
        return self._expiries.pop_due(self.now)

    def schedule(self, lease: Lease, milliseconds: int) -> None:
        """Let a lease expire this long from now."""
        lease.due = self.now + milliseconds
        self._expiries.add(lease)

    def is_blocked(self, queue: PopQueue, attempt_id: str | None) -> bool:
        """Whether an ordered pop blocks this attempt; a retry with the same attempt id passes."""
        order = queue.order
        if order is None or not order.pending_count:
            return False
        again = order.info.attempt_id is not None and order.info.attempt_id == attempt_id
        return not again and self.now < order.due

    # ---- leases

    def __len__(self) -> int:
        return len(self._leases)

    @property
    def oldest(self) -> Lease | None:
        """The lease with the oldest journal record."""
        return next(iter(self._leases), None)

    def by_age(self) -> Iterator[Lease]:
        """Iterate over the leases, oldest record first; the state must not change meanwhile."""
        return iter(self._leases)

    def find(self, queue: QueueName, start: int, pop_time: int) -> Checkpoint | None:
        found = self.queues.get(queue)
        return found.checkpoints.get((start, pop_time)) if found else None

    def lease_of(self, event: Event) -> Lease | None:
        """Return the lease that an event created, if it still exists."""
        match event:
            case Popped():
                return self.find(event.queue, event.start, event.pop_time)
            case Changed():
                return self.find(event.queue, event.offset, event.new_pop_time)
            case OrderPopped():
                found = self.queues.get(event.queue)
                return found.order if found and found.order and found.order.pending_count else None
            case _:
                return None

    def require(self, queue: QueueName, next_offset: int = 0) -> PopQueue:
        """Return the queue, creating it if needed."""
        found = self.queues.get(queue)
        if found is None:
            found = self.queues[queue] = PopQueue(queue, next_offset)
        return found

    # ---- events

    def apply(self, event: Event, journal_offset: int) -> None:
        """Apply an event stored at this offset of the journal."""
        if isinstance(event, Removed):
            self._remove(event)
            return
        queue = self.require(event.queue)
        self.changed.add(event.queue)
        self.orders_changed |= queue.order is not None or isinstance(event, OrderPopped)
        match event:
            case Popped():
                queue.next_offset = event.next_offset
                self._add(queue, event, journal_offset)
            case Acknowledged():
                self._acknowledge(queue, event.start, event.pop_time, event.offsets)
            case Changed():
                self._change(queue, event, journal_offset)
            case Repositioned():
                self._clear(queue)
                queue.next_offset = event.offset
            case OrderPopped():
                queue.next_offset = event.next_offset
                self._set_order(queue, event, journal_offset)
            case OrderAcknowledged():
                self._acknowledge_order(queue, event)
            case OrderChanged():
                self._change_order(queue, event)

    def record_rewrite(self, lease: Lease, journal_offset: int) -> None:
        """The lease was written again, at a later offset of the journal."""
        lease.journal_offset = journal_offset
        self._leases.move_to_end(lease)

    def acknowledge_below(self, queue: PopQueue, offset: int) -> None:
        """Acknowledge everything below an offset that another broker or a reset has moved past."""
        for checkpoint in list(queue.checkpoints.values()):
            if not checkpoint.is_adopted:
                below = [each for each in checkpoint.unacknowledged if each < offset]
                self._acknowledge(queue, checkpoint.start, checkpoint.pop_time, below)
        if queue.order is not None:
            for each in queue.order.info.unacknowledged:
                if each < offset:
                    self._acknowledge_order(
                        queue, OrderAcknowledged(*queue.name, queue.order.info.pop_time, each)
                    )

    def forget_all(self) -> None:
        self.queues.clear()
        self.changed.clear()
        self._leases.clear()
        self._expiries.clear()

    # ---- inside

    def _add(self, queue: PopQueue, event: Popped, journal_offset: int) -> None:
        known = queue.checkpoints.get((event.start, event.pop_time))
        if known is not None:
            self._forget(known)
        if event.distances:
            checkpoint = Checkpoint(
                queue, event.start, event.pop_time, event.invisible_time, event.offsets
            )
            checkpoint.is_adopted = isinstance(event, Adopted)
            queue.add(checkpoint)
            self._register(checkpoint, journal_offset)

    def _change(self, queue: PopQueue, event: Changed, journal_offset: int) -> None:
        # The queue may have advanced since the event was created, but it never goes back.
        queue.next_offset = max(queue.next_offset, event.next_offset)
        before = queue.checkpoints.get((event.start, event.pop_time))
        self._acknowledge(queue, event.start, event.pop_time, [event.offset])
        checkpoint = Checkpoint(
            queue, event.offset, event.new_pop_time, event.invisible_time, [event.offset]
        )
        checkpoint.is_adopted = before is not None and before.is_adopted
        queue.add(checkpoint)
        self._register(checkpoint, journal_offset)

    def _acknowledge(self, queue: PopQueue, start: int, pop_time: int, offsets: list[int]) -> None:
        checkpoint = queue.checkpoints.get((start, pop_time))
        if checkpoint is None:
            return
        for offset in offsets:
            checkpoint.acknowledge(offset)
        if not checkpoint.pending_bits:
            self._forget(checkpoint)

    def _forget(self, checkpoint: Checkpoint) -> None:
        checkpoint.queue.in_flight -= checkpoint.pending_bits.bit_count()
        checkpoint.pending_bits = 0
        self._leases.pop(checkpoint, None)
        checkpoint.queue.drop(checkpoint)

    def _clear(self, queue: PopQueue) -> None:
        queue.epoch += 1
        for checkpoint in list(queue.checkpoints.values()):
            self._forget(checkpoint)
        if queue.order is not None:
            self._leases.pop(queue.order, None)
            queue.order = None

    def _remove(self, event: Removed) -> None:
        for name in list(self.queues):
            if event.topic in {"", name[0]} and event.group in {"", name[1]}:
                self._clear(self.queues.pop(name))
                self.changed.discard(name)

    def _set_order(self, queue: PopQueue, event: OrderPopped, journal_offset: int) -> None:
        if queue.order is not None:
            self._leases.pop(queue.order, None)
        queue.order = OrderedPop(queue, event.info)
        if queue.order.pending_count:
            self._register(queue.order, journal_offset)

    def _acknowledge_order(self, queue: PopQueue, event: OrderAcknowledged) -> None:
        order = queue.order
        if order is None or order.info.pop_time != event.pop_time:
            return
        if event.offset in order.info.offsets:
            order.info.acknowledge(event.offset)
        if order.info.is_done:
            self._leases.pop(order, None)
        else:
            self.schedule(order, order.time_left(self.now))

    def _change_order(self, queue: PopQueue, event: OrderChanged) -> None:
        order = queue.order
        if order is None or order.info.pop_time != event.pop_time:
            return
        order.info.next_visible = {
            **(order.info.next_visible or {}), event.offset: event.visible_at
        }  # fmt: skip
        if order.pending_count:
            self.schedule(order, order.time_left(self.now))

    def _register(self, lease: Lease, journal_offset: int) -> None:
        lease.journal_offset = journal_offset
        self._leases[lease] = None
        self._leases.move_to_end(lease)
        self.schedule(lease, lease.time_left(self.now))
