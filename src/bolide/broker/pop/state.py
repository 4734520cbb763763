"""Unacknowledged pops of all queues; changed by events only, so that the journal can rebuild it.

It does no I/O. The clock never goes back here: where the machine's does, what was due stays due as
long after now as it was.
"""

import heapq
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator

from bolide.broker.pop.events import (
    Adopted,
    Changed,
    Event,
    OrderChanged,
    OrderPopped,
    OrderSettled,
    Placed,
    Popped,
    QueueName,
    Removed,
    Settled,
)
from bolide.broker.pop.pop_queue import Checkpoint, Live, Order, PopQueue

_LEAST_COMPACTED = 1024


class RevivalTimes:
    """Those of `live`, the earliest first; what is not live any more, or is due at another time by
    now, is passed over."""

    def __init__(self, live: Collection[Live]) -> None:
        self._live = live
        self._heap: list[tuple[int, int, Live]] = []
        self._pushed = 0

    @property
    def first(self) -> int | None:
        """When the next one is due."""
        self._tidy()
        return self._heap[0][0] if self._heap else None

    def add(self, live: Live) -> None:
        """Take one by its `due`, also one that was due at another time."""
        self._pushed += 1
        heapq.heappush(self._heap, (live.due, self._pushed, live))
        if len(self._heap) > 2 * len(self._live) + _LEAST_COMPACTED:
            self._heap = [(each.due, at, each) for at, each in enumerate(self._live)]
            self._pushed = len(self._heap)
            heapq.heapify(self._heap)

    def take(self, now: int) -> Iterator[Live]:
        """Take out those that are due."""
        self._tidy()
        while self._heap and self._heap[0][0] <= now:
            yield heapq.heappop(self._heap)[2]
            self._tidy()

    def clear(self) -> None:
        self._heap.clear()

    def _tidy(self) -> None:
        while self._heap:
            due, _, live = self._heap[0]
            if live in self._live and live.due == due:
                return
            heapq.heappop(self._heap)


class PopState:
    """The queues by name, and what is live of them in the order of the journal and of time."""

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        self._wall = now
        self._last = self._skew = 0
        self.queues: dict[QueueName, PopQueue] = {}
        self.changed: set[QueueName] = set()
        """Queues whose lowest offset may be another one now."""
        self.orders_changed = False
        """Whether anything happened to a pop in order."""
        self._live: OrderedDict[Live, None] = OrderedDict()
        self._dues = RevivalTimes(self._live)

    # ---- time, in milliseconds

    @property
    def now(self) -> int:
        """Never less than before."""
        wall = int(self._wall() * 1000)
        self._skew = max(self._skew, self._last - wall)
        self._last = wall + self._skew
        return self._last

    @property
    def next_due(self) -> int | None:
        """When the next one is over."""
        return self._dues.first

    def due(self) -> Iterator[Live]:
        """Those whose time is over, each once: whoever takes one has it `wait` or settles it."""
        return self._dues.take(self.now)

    def wait(self, live: Live, milliseconds: int) -> None:
        """Have one be due so much later than now."""
        live.due = self.now + milliseconds
        self._dues.add(live)

    def is_blocked(self, queue: PopQueue, attempt_id: str | None) -> bool:
        """Whether a queue is closed to this attempt at a pop in order; one that is made again gets
        through."""
        order = queue.order
        if order is None or not order.left:
            return False
        again = order.info.attempt_id is not None and order.info.attempt_id == attempt_id
        return not again and self.now < order.due

    # ---- what is live

    def __len__(self) -> int:
        return len(self._live)

    @property
    def oldest(self) -> Live | None:
        """The one that the journal has had for the longest time."""
        return next(iter(self._live), None)

    def by_age(self) -> Iterator[Live]:
        """What is live, the oldest first; nothing may change meanwhile."""
        return iter(self._live)

    def find(self, queue: QueueName, start: int, pop_time: int) -> Checkpoint | None:
        found = self.queues.get(queue)
        return found.checkpoints.get((start, pop_time)) if found else None

    def live_of(self, event: Event) -> Live | None:
        """What an event has brought to life, if it still lives."""
        match event:
            case Popped():
                return self.find(event.queue, event.start, event.pop_time)
            case Changed():
                return self.find(event.queue, event.offset, event.new_pop_time)
            case OrderPopped():
                found = self.queues.get(event.queue)
                return found.order if found and found.order and found.order.left else None
            case _:
                return None

    def require(self, queue: QueueName, next_offset: int = 0) -> PopQueue:
        """The queue, made if it is not there."""
        found = self.queues.get(queue)
        if found is None:
            found = self.queues[queue] = PopQueue(queue, next_offset)
        return found

    # ---- events

    def apply(self, event: Event, written: int) -> None:
        """Take an event that is in a record of the journal."""
        if isinstance(event, Removed):
            self._remove(event)
            return
        queue = self.require(event.queue)
        self.changed.add(event.queue)
        self.orders_changed |= queue.order is not None or isinstance(event, OrderPopped)
        match event:
            case Popped():
                queue.next_offset = event.next_offset
                self._add(queue, event, written)
            case Settled():
                self._settle(queue, event.start, event.pop_time, event.offsets)
            case Changed():
                self._change(queue, event, written)
            case Placed():
                self._clear(queue)
                queue.next_offset = event.offset
            case OrderPopped():
                queue.next_offset = event.next_offset
                self._order(queue, event, written)
            case OrderSettled():
                self._settle_order(queue, event)
            case OrderChanged():
                self._change_order(queue, event)

    def rewritten(self, live: Live, written: int) -> None:
        """What the journal has of it is in a later record now."""
        live.written = written
        self._live.move_to_end(live)

    def settle_below(self, queue: PopQueue, offset: int) -> None:
        """Another broker looked after what lies below, or nobody wants it any more."""
        for checkpoint in list(queue.checkpoints.values()):
            if not checkpoint.is_adopted:
                below = [each for each in checkpoint.unsettled if each < offset]
                self._settle(queue, checkpoint.start, checkpoint.pop_time, below)
        if queue.order is not None:
            for each in queue.order.info.unsettled:
                if each < offset:
                    self._settle_order(
                        queue, OrderSettled(*queue.name, queue.order.info.pop_time, each)
                    )

    def forget_all(self) -> None:
        self.queues.clear()
        self.changed.clear()
        self._live.clear()
        self._dues.clear()

    # ---- inside

    def _add(self, queue: PopQueue, event: Popped, written: int) -> None:
        known = queue.checkpoints.get((event.start, event.pop_time))
        if known is not None:
            self._forget(known)
        if event.distances:
            checkpoint = Checkpoint(
                queue, event.start, event.pop_time, event.invisible_time, event.offsets
            )
            checkpoint.is_adopted = isinstance(event, Adopted)
            queue.add(checkpoint)
            self._enter(checkpoint, written)

    def _change(self, queue: PopQueue, event: Changed, written: int) -> None:
        # It may have moved on since the event was made, but never has it gone back.
        queue.next_offset = max(queue.next_offset, event.next_offset)
        before = queue.checkpoints.get((event.start, event.pop_time))
        self._settle(queue, event.start, event.pop_time, [event.offset])
        checkpoint = Checkpoint(
            queue, event.offset, event.new_pop_time, event.invisible_time, [event.offset]
        )
        checkpoint.is_adopted = before is not None and before.is_adopted
        queue.add(checkpoint)
        self._enter(checkpoint, written)

    def _settle(self, queue: PopQueue, start: int, pop_time: int, offsets: list[int]) -> None:
        checkpoint = queue.checkpoints.get((start, pop_time))
        if checkpoint is None:
            return
        for offset in offsets:
            checkpoint.settle(offset)
        if not checkpoint.left:
            self._forget(checkpoint)

    def _forget(self, checkpoint: Checkpoint) -> None:
        checkpoint.queue.in_flight -= checkpoint.left.bit_count()
        checkpoint.left = 0
        self._live.pop(checkpoint, None)
        checkpoint.queue.drop(checkpoint)

    def _clear(self, queue: PopQueue) -> None:
        queue.epoch += 1
        for checkpoint in list(queue.checkpoints.values()):
            self._forget(checkpoint)
        if queue.order is not None:
            self._live.pop(queue.order, None)
            queue.order = None

    def _remove(self, event: Removed) -> None:
        for name in list(self.queues):
            if event.topic in {"", name[0]} and event.group in {"", name[1]}:
                self._clear(self.queues.pop(name))
                self.changed.discard(name)

    def _order(self, queue: PopQueue, event: OrderPopped, written: int) -> None:
        if queue.order is not None:
            self._live.pop(queue.order, None)
        queue.order = Order(queue, event.info)
        if queue.order.left:
            self._enter(queue.order, written)

    def _settle_order(self, queue: PopQueue, event: OrderSettled) -> None:
        order = queue.order
        if order is None or order.info.pop_time != event.pop_time:
            return
        if event.offset in order.info.offsets:
            order.info.settle(event.offset)
        if order.info.is_done:
            self._live.pop(order, None)
        else:
            self.wait(order, order.left_at(self.now))

    def _change_order(self, queue: PopQueue, event: OrderChanged) -> None:
        order = queue.order
        if order is None or order.info.pop_time != event.pop_time:
            return
        order.info.next_visible = {
            **(order.info.next_visible or {}), event.offset: event.visible_at
        }  # fmt: skip
        if order.left:
            self.wait(order, order.left_at(self.now))

    def _enter(self, live: Live, written: int) -> None:
        live.written = written
        self._live[live] = None
        self._live.move_to_end(live)
        self.wait(live, live.left_at(self.now))
