"""Leases of one queue for one group: pops whose messages are not all acknowledged."""

import heapq

from bolide.broker.pop.events import Adopted, OrderPopped, Popped, QueueName
from bolide.broker.pop.ordered import OrderInfo


class Checkpoint:
    """The messages of one pop. Times are in milliseconds.

    `pending_bits` has one bit per message, set while the message is unacknowledged; the pop ends
    when no bit is set.
    """

    __slots__ = (
        "due", "invisible_time", "is_adopted", "journal_offset", "offsets", "pending_bits",
        "pop_time", "queue", "start",
    )  # fmt: skip

    def __init__(
        self, queue: "PopQueue", start: int, pop_time: int, invisible_time: int, offsets: list[int]
    ) -> None:
        self.queue = queue
        self.start = start
        self.pop_time = pop_time
        self.invisible_time = invisible_time
        self.offsets = tuple(offsets)
        self.pending_bits = (1 << len(offsets)) - 1
        self.is_adopted = False
        """Whether another broker issued this pop."""
        self.due = 0
        """When the lease expires, by the clock of the state."""
        self.journal_offset = 0
        """Queue offset of the journal record that holds this lease."""

    def time_left(self, now: int) -> int:
        """Milliseconds until the lease expires, limited to the invisible time in case the clock
        was set back."""
        return max(min(self.invisible_time, self.pop_time + self.invisible_time - now), 0)

    @property
    def unacknowledged(self) -> list[int]:
        pending = self.pending_bits
        return [offset for at, offset in enumerate(self.offsets) if pending >> at & 1]

    @property
    def low(self) -> int:
        return self.offsets[(self.pending_bits & -self.pending_bits).bit_length() - 1]

    def has(self, offset: int) -> bool:
        """Whether the message belongs to this pop and is unacknowledged."""
        return offset in self.offsets and bool(self.pending_bits >> self.offsets.index(offset) & 1)

    def acknowledge(self, offset: int) -> bool:
        """Acknowledge a message; return False if it is not pending."""
        if not self.has(offset):
            return False
        self.pending_bits &= ~(1 << self.offsets.index(offset))
        self.queue.in_flight -= 1
        return True

    def event(self) -> Popped:
        """Build the journal event that describes the current lease."""
        kind = Adopted if self.is_adopted else Popped
        return kind(
            *self.queue.name, self.start, self.pop_time, self.invisible_time,
            self.queue.next_offset, [offset - self.start for offset in self.unacknowledged],
        )  # fmt: skip


class OrderedPop:
    """The ordered pop in flight on a queue."""

    __slots__ = ("due", "info", "journal_offset", "queue")

    def __init__(self, queue: "PopQueue", info: OrderInfo) -> None:
        self.queue = queue
        self.info = info
        self.due = 0
        self.journal_offset = 0

    def time_left(self, now: int) -> int:
        """Milliseconds until the last of the unacknowledged messages becomes visible."""
        return max(
            (self._time_left_of(offset, now) for offset in self.info.unacknowledged), default=0
        )

    def _time_left_of(self, offset: int, now: int) -> int:
        over_at = self.info.visible_at(offset)
        lasts = over_at - self.info.pop_time
        left = over_at - now
        return max(min(left, lasts) if lasts > 0 else left, 0)

    @property
    def pending_count(self) -> int:
        """Number of unacknowledged messages."""
        return len(self.info.unacknowledged)

    def event(self) -> OrderPopped:
        return OrderPopped(*self.queue.name, self.queue.next_offset, self.info)


Lease = Checkpoint | OrderedPop


class PopQueue:
    """The pop state of one queue for one group."""

    __slots__ = (
        "_lows", "_pushed", "checkpoints", "epoch", "in_flight", "is_busy", "name", "next_offset",
        "order", "published",
    )  # fmt: skip

    def __init__(self, name: QueueName, next_offset: int = 0) -> None:
        self.name = name
        self.next_offset = next_offset
        """Queue offset at which the next pop begins."""
        self.published: int | None = None
        """The offset that the checkpointer last committed for the group."""
        self.epoch = 0
        """Incremented whenever all leases of the queue are dropped."""
        self.checkpoints: dict[tuple[int, int], Checkpoint] = {}  # by start and pop time
        self.order: OrderedPop | None = None
        self.in_flight = 0
        """Unacknowledged messages, except those of the ordered pop."""
        self.is_busy = False
        """Whether a pop is reading the queue; others skip it."""
        self._lows: list[tuple[int, int, Checkpoint]] = []
        self._pushed = 0

    def add(self, checkpoint: Checkpoint) -> None:
        self.checkpoints[checkpoint.start, checkpoint.pop_time] = checkpoint
        self.in_flight += checkpoint.pending_bits.bit_count()
        self._push(checkpoint)

    def drop(self, checkpoint: Checkpoint) -> None:
        """Remove a pop that has ended."""
        key = (checkpoint.start, checkpoint.pop_time)
        if self.checkpoints.get(key) is checkpoint:
            del self.checkpoints[key]
        if len(self._lows) > 2 * len(self.checkpoints) + 16:
            self._lows = []
            for each in self.checkpoints.values():
                self._push(each)

    @property
    def low(self) -> int:
        """The lowest unacknowledged offset, or `next_offset` if there is none."""
        lows = self._lows
        low = self.next_offset
        while lows:
            low_at_push, _, checkpoint = lows[0]
            if not checkpoint.pending_bits:
                heapq.heappop(lows)
            elif checkpoint.low > low_at_push:
                heapq.heappop(lows)
                self._push(checkpoint)
            else:
                low = min(low_at_push, low)
                break
        return (
            min(low, *self.order.info.unacknowledged)
            if self.order and self.order.pending_count
            else low
        )

    def will_adopt(self, committed: int | None) -> bool:
        """Whether the next pop begins at an offset that a pull consumer or a tool committed.

        With pops in flight only one ahead of them counts: a lower one would deliver them again.
        """
        if committed is None or committed == self.published:
            return False
        if self.checkpoints or (self.order is not None and self.order.pending_count > 0):
            return committed > self.next_offset
        return committed != self.next_offset

    def unique_pop_time(self, start: int, now: int) -> int:
        """Return the first free pop time at or after `now`.

        Pop times identify pops with the same start, and a later ordered pop has a later time,
        whatever the clock says.
        """
        if self.order is not None:
            now = max(now, self.order.info.pop_time + 1)
        while (start, now) in self.checkpoints:
            now += 1
        return now

    def _push(self, checkpoint: Checkpoint) -> None:
        self._pushed += 1
        heapq.heappush(self._lows, (checkpoint.low, self._pushed, checkpoint))
