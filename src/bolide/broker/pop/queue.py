"""What is given away of one queue to one group, and not settled yet."""

import heapq

from bolide.broker.pop.events import OrderPopped, Popped, QueueName
from bolide.broker.pop.orders import OrderInfo


class Checkpoint:
    """Messages that one pop took. Times are in milliseconds.

    Of its messages those are left whose bits in `left` are set; without any it is over.
    """

    __slots__ = (
        "due",
        "invisible_time",
        "left",
        "offsets",
        "pop_time",
        "queue",
        "start",
        "written",
    )

    def __init__(
        self, queue: "PopQueue", start: int, pop_time: int, invisible_time: int, offsets: list[int]
    ) -> None:
        self.queue = queue
        self.start = start
        self.pop_time = pop_time
        self.invisible_time = invisible_time
        self.offsets = tuple(offsets)
        self.left = (1 << len(offsets)) - 1
        self.due = 0
        """When it is over for the consumer, by the clock of the state."""
        self.written = 0
        """Which record of the journal it is in."""

    @property
    def over_at(self) -> int:
        return self.pop_time + self.invisible_time

    @property
    def lasts(self) -> int:
        return max(self.invisible_time, 0)

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
        return Popped(
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

    @property
    def over_at(self) -> int:
        return self.info.free_at

    @property
    def lasts(self) -> int:
        return max(self.info.free_at - self.info.pop_time, 0)

    @property
    def left(self) -> int:
        """Not 0 while there is something to settle."""
        return len(self.info.unsettled)

    def event(self) -> OrderPopped:
        return OrderPopped(*self.queue.name, self.queue.next_offset, self.info)


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

    def is_free(self, start: int, pop_time: int) -> bool:
        """Whether no pop has this name yet."""
        if self.order is not None and self.order.info.pop_time == pop_time:
            return False
        return (start, pop_time) not in self.checkpoints

    def _push(self, checkpoint: Checkpoint) -> None:
        self._pushed += 1
        heapq.heappush(self._lows, (checkpoint.low, self._pushed, checkpoint))
