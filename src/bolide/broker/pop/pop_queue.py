"""What is given away of one queue to one group, and not settled yet."""

import heapq

from bolide.broker.pop.events import Adopted, OrderPopped, Popped, QueueName
from bolide.broker.pop.ordered import OrderInfo


class Checkpoint:
    """Messages that one pop took. Times are in milliseconds.

    Of its messages those are left whose bits in `left` are set; without any it is over.
    """

    __slots__ = (
        "due", "invisible_time", "is_adopted", "left", "offsets", "pop_time", "queue", "start",
        "written",
    )  # fmt: skip

    def __init__(
        self, queue: "PopQueue", start: int, pop_time: int, invisible_time: int, offsets: list[int]
    ) -> None:
        self.queue = queue
        self.start = start
        self.pop_time = pop_time
        self.invisible_time = invisible_time
        self.offsets = tuple(offsets)
        self.left = (1 << len(offsets)) - 1
        self.is_adopted = False
        """Whether another broker gave it away."""
        self.due = 0
        """When it is over for the consumer, by the clock of the state."""
        self.written = 0
        """Which record of the journal it is in."""

    def left_at(self, now: int) -> int:
        """Milliseconds until it is over; not more than its whole time, whatever time it is of."""
        return max(min(self.invisible_time, self.pop_time + self.invisible_time - now), 0)

    @property
    def unsettled(self) -> list[int]:
        left = self.left
        return [offset for at, offset in enumerate(self.offsets) if left >> at & 1]

    @property
    def low(self) -> int:
        return self.offsets[(self.left & -self.left).bit_length() - 1]

    def has(self, offset: int) -> bool:
        """Whether a message is of this pop and not settled."""
        return offset in self.offsets and bool(self.left >> self.offsets.index(offset) & 1)

    def settle(self, offset: int) -> bool:
        """False if there is nothing to settle."""
        if not self.has(offset):
            return False
        self.left &= ~(1 << self.offsets.index(offset))
        self.queue.in_flight -= 1
        return True

    def event(self) -> Popped:
        """What the journal has to say of it, as it is now."""
        kind = Adopted if self.is_adopted else Popped
        return kind(
            *self.queue.name, self.start, self.pop_time, self.invisible_time,
            self.queue.next_offset, [offset - self.start for offset in self.unsettled],
        )  # fmt: skip


class Order:
    """A pop in order that a queue waits for."""

    __slots__ = ("due", "info", "queue", "written")

    def __init__(self, queue: "PopQueue", info: OrderInfo) -> None:
        self.queue = queue
        self.info = info
        self.due = 0
        self.written = 0

    def left_at(self, now: int) -> int:
        """As that of a checkpoint, for the message that takes longest."""
        return max((self._left_of(offset, now) for offset in self.info.unsettled), default=0)

    def _left_of(self, offset: int, now: int) -> int:
        over_at = self.info.visible_at(offset)
        lasts = over_at - self.info.pop_time
        left = over_at - now
        return max(min(left, lasts) if lasts > 0 else left, 0)

    @property
    def left(self) -> int:
        """Not 0 while there is something to settle."""
        return len(self.info.unsettled)

    def event(self) -> OrderPopped:
        return OrderPopped(*self.queue.name, self.queue.next_offset, self.info)


Live = Checkpoint | Order
"""What is not over."""


class PopQueue:
    """One queue for one group."""

    __slots__ = (
        "_lows", "_pushed", "checkpoints", "epoch", "in_flight", "is_busy", "name", "next_offset",
        "order", "published",
    )  # fmt: skip

    def __init__(self, name: QueueName, next_offset: int = 0) -> None:
        self.name = name
        self.next_offset = next_offset
        """Where the next pop begins."""
        self.published: int | None = None
        """What was last committed for the group by whoever keeps this."""
        self.epoch = 0
        """How often all of it was forgotten."""
        self.checkpoints: dict[tuple[int, int], Checkpoint] = {}
        """By start and pop time."""
        self.order: Order | None = None
        self.in_flight = 0
        """Messages that are not settled, apart from the order."""
        self.is_busy = False
        """Somebody reads it from the disk: all others pass on."""
        self._lows: list[tuple[int, int, Checkpoint]] = []
        self._pushed = 0

    def add(self, checkpoint: Checkpoint) -> None:
        self.checkpoints[checkpoint.start, checkpoint.pop_time] = checkpoint
        self.in_flight += checkpoint.left.bit_count()
        self._push(checkpoint)

    def drop(self, checkpoint: Checkpoint) -> None:
        """Take out one that is over."""
        key = (checkpoint.start, checkpoint.pop_time)
        if self.checkpoints.get(key) is checkpoint:
            del self.checkpoints[key]
        if len(self._lows) > 2 * len(self.checkpoints) + 16:
            self._lows = []
            for each in self.checkpoints.values():
                self._push(each)

    @property
    def low(self) -> int:
        """The lowest offset that is not settled; without any, where the next pop begins."""
        lows = self._lows
        low = self.next_offset
        while lows:
            noted, _, checkpoint = lows[0]
            if not checkpoint.left:
                heapq.heappop(lows)
            elif checkpoint.low > noted:
                heapq.heappop(lows)
                self._push(checkpoint)
            else:
                low = min(noted, low)
                break
        return min(low, *self.order.info.unsettled) if self.order and self.order.left else low

    def free_time(self, start: int, now: int) -> int:
        """Now, or as soon as may be: no two pops of the same have one time, and of two pops in
        order the later one has the later time, whatever the clock says."""
        if self.order is not None:
            now = max(now, self.order.info.pop_time + 1)
        while (start, now) in self.checkpoints:
            now += 1
        return now

    def _push(self, checkpoint: Checkpoint) -> None:
        self._pushed += 1
        heapq.heappush(self._lows, (checkpoint.low, self._pushed, checkpoint))
