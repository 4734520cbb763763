"""Pops: where a pop begins, which queues it reads, and what it takes from them."""

import asyncio
import random
import struct
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from bolide.broker.consume.expiry import Expiring
from bolide.broker.metadata.offsets import OffsetTable
from bolide.broker.pop.events import (
    Event,
    OrderPopped,
    OrderSettled,
    Placed,
    Popped,
    QueueName,
    Removed,
)
from bolide.broker.pop.journal import Journal
from bolide.broker.pop.ordered import OrderInfo, ordered
from bolide.broker.pop.pop_queue import PopQueue
from bolide.broker.pop.revival import Retries
from bolide.broker.pop.state import PopState
from bolide.broker.settings.config import BrokerConfig
from bolide.config import ConfigCell
from bolide.model.names import is_retry_topic
from bolide.protocol.bodies.topics import TopicConfig
from bolide.protocol.headers.pop import PopHeader
from bolide.store.config import StoreConfig
from bolide.store.contract import Store
from bolide.store.errors import NotInMemory
from bolide.store.reading import Found, ReadLimits, Wanted

FROM_START = 0
"""The init mode of groups that begin at the start of a queue."""


class Positions:
    """Brings the state together with the offsets of groups; belongs to one event loop."""

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
        offsets.on_placed = self._placed
        offsets.on_removed = self.forget

    def require(self, name: QueueName, init_mode: int) -> tuple[PopQueue, int]:
        """The queue, its next offset within what the store has, and where it ends.

        Raises:
            StoreUnwritable, StoreClosed: it is to begin elsewhere, and that cannot be written.
        """
        topic, group, queue_id = name
        queue = self._state.queues.get(name)
        if queue is None or self._offsets.take_reset(group, topic, queue_id) is not None:
            queue = self._begin(name, init_mode)
        committed = self._offsets.find(group, topic, queue_id)
        if committed is not None and committed != queue.published:
            self._follow(queue, committed)
        high = self._store.max_offset(topic, queue_id)
        if queue.next_offset > high:  # the end of the log was lost
            self._place(queue, high)
        elif queue.next_offset < high:
            low = self._store.min_offset(topic, queue_id)
            queue.next_offset = max(queue.next_offset, low)
        return queue, high

    def peek(self, name: QueueName) -> int:
        """Where a pop would begin; changes nothing."""
        topic, group, queue_id = name
        low, high = self._store.min_offset(topic, queue_id), self._store.max_offset(topic, queue_id)
        queue = self._state.queues.get(name)
        committed = self._offsets.find(group, topic, queue_id)
        if queue is not None and committed in {None, queue.published}:
            offset = queue.next_offset
        else:
            offset = committed or 0
        return min(max(offset, low), high)

    def popped(self, queue: PopQueue) -> None:
        """Note how far the group is, as for pulls."""
        topic, group, queue_id = queue.name
        self._offsets.pulled(group, topic, queue_id, queue.next_offset)

    def forget(self, topic: str, group: str) -> None:
        """All queues of a topic, or of a group, are gone; the other name is empty."""
        if any(topic in {"", name[0]} and group in {"", name[1]} for name in self._state.queues):
            self._journal.insist(Removed(topic, group, -1))

    # ---- inside

    def _begin(self, name: QueueName, init_mode: int) -> PopQueue:
        """A queue that is new here, or was put elsewhere."""
        topic, group, queue_id = name
        self._offsets.take_reset(group, topic, queue_id)
        committed = self._offsets.find(group, topic, queue_id)
        if committed is None or committed < 0:
            committed = self._initial(topic, queue_id, init_mode)
            self._offsets.commit(group, topic, queue_id, committed)
        self._journal.append([Placed(*name, committed)])
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

    def _follow(self, queue: PopQueue, committed: int) -> None:
        """Somebody else committed for the group: consumers that pull, or a tool."""
        is_live = bool(queue.checkpoints) or (queue.order is not None and queue.order.left > 0)
        if committed > queue.next_offset or (not is_live and committed != queue.next_offset):
            self._place(queue, committed)
        queue.published = committed

    def _place(self, queue: PopQueue, offset: int) -> None:
        self._journal.append([Placed(*queue.name, offset)])

    def _placed(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        """An administrator sent the group elsewhere: what it has in hand is not waited for."""
        for queue_id, offset in offsets.items():
            queue = self._state.queues.get((topic, group, queue_id))
            if queue is not None:
                self._journal.insist(Placed(*queue.name, offset))
                queue.published = offset


_SCANNED = 800
_MOST_LIVE = 1_000_000
"""Pops that are not over, in all queues: beyond, memory would run out before any disk."""
_QUEUE_OFFSET = struct.Struct(">20xq")


@dataclass(slots=True)
class Ask:
    """One pop that was admitted."""

    header: PopHeader
    topic: TopicConfig
    wanted: Wanted
    peer: str
    begun: float


class Reading(NamedTuple):
    """What is to be read for a pop."""

    topic: str
    queue_id: int
    offset: int
    limits: ReadLimits
    wanted: Wanted


class Take(NamedTuple):
    """What a pop takes of one queue."""

    queue: PopQueue
    epoch: int
    start: int
    found: Found
    offsets: list[int]

    @property
    def topic(self) -> str:
        return self.queue.name[0]

    @property
    def queue_id(self) -> int:
        return self.queue.name[2]

    @property
    def is_valid(self) -> bool:
        """False if somebody put the queue elsewhere while the disk was read."""
        return self.queue.epoch == self.epoch


@dataclass(slots=True)
class Taken:
    """What a pop takes in all."""

    pop_time: int = 0
    rest: int = 0
    """Messages that it leaves, as far as it looked."""
    goes_on: bool = False
    """Whether another look gets further: it has seen as many unwanted ones as it may at once."""
    takes: list[Take] = field(default_factory=list)
    orders: list[tuple[Take, OrderInfo]] = field(default_factory=list)
    visited: list[PopQueue] = field(default_factory=list)

    @property
    def count(self) -> int:
        return sum(len(take.offsets) for take in self.takes)

    @property
    def size(self) -> int:
        return sum(take.found.size for take in self.takes)


Steps = Generator[Reading, Found, Taken]


@dataclass(frozen=True, slots=True, kw_only=True)
class PopDelivery:
    """Takes messages for pops; belongs to one event loop."""

    cell: ConfigCell[BrokerConfig]
    store_cell: ConfigCell[StoreConfig]
    store: Store
    state: PopState
    journal: Journal
    positions: Positions
    retries: Retries
    expiring: Expiring
    now: Callable[[], float] = time.time

    def read(self, reading: Reading, *, may_block: bool) -> Found:
        """Raises NotInMemory if the disk is needed and the call may not block."""
        return self.store.read(*reading, may_block=may_block)

    async def read_cold(self, reading: Reading) -> Found:
        """As `read`; what it found stays as it is."""

        def read() -> Found:
            found = self.read(reading, may_block=True)
            found.records = [memoryview(bytes(record)) for record in found.records]
            return found

        return await asyncio.to_thread(read)

    def steps(self, ask: Ask) -> Steps:
        """Take what there is: yields what is to be read, wants to be sent what was found.

        Raises:
            StoreUnwritable, StoreClosed: nothing is taken.
        """
        taken = Taken()
        try:
            for topic, queue_id in self._queues(ask):
                yield from self._visit(ask, taken, topic, queue_id)
            taken.takes = [take for take in taken.takes if take.is_valid]
            if taken.takes:
                self._note(ask, taken)
        finally:
            for queue in taken.visited:
                queue.is_busy = False
        return taken

    def _queues(self, ask: Ask) -> Iterator[tuple[str, int]]:
        """Those to look at: from any queue on, and the retries first or last."""
        header, topic = ask.header, ask.topic
        normal = [(topic.topic_name, header.queue_id)]
        if header.queue_id < 0:
            normal = list(_rotated(topic))
        if header.order:
            return iter(normal)
        retries = [
            place
            for config in self.retries.readable(header.consumer_group, topic.topic_name)
            for place in _rotated(config)
        ]
        first = random.randrange(100) < self.cell.value.pop_from_retry_probability  # noqa: S311
        return iter([*retries, *normal] if first else [*normal, *retries])

    def _visit(
        self, ask: Ask, taken: Taken, topic: str, queue_id: int
    ) -> Generator[Reading, Found, None]:
        header = ask.header
        name = (topic, header.consumer_group, queue_id)
        queue, end = self.positions.require(name, header.init_mode)
        if header.order and self.state.is_blocked(queue, header.attempt_id):
            return  # what waits there is no reason to look again
        begin = queue.low if header.order else queue.next_offset
        behind = end - begin
        if behind <= 0:
            return
        if queue.is_busy or taken.count >= header.max_msg_nums or self._has_too_many(queue):
            taken.rest += behind
            return
        queue.is_busy, epoch = True, queue.epoch
        taken.visited.append(queue)
        limits = self._limits(header, taken)
        found = yield Reading(
            topic, queue_id, begin, limits, self.expiring.wanted(topic, ask.wanted)
        )
        if queue.epoch != epoch:  # while the disk was read, somebody put it elsewhere
            taken.rest += behind
            return
        taken.rest += max(found.max_offset - found.next_offset, 0)
        if found.records:
            offsets = [int(_QUEUE_OFFSET.unpack_from(record)[0]) for record in found.records]
            taken.takes.append(Take(queue, epoch, begin, found, offsets))
        else:
            self._pass_over(queue, begin, found.next_offset)
            after = queue.low if header.order else queue.next_offset
            taken.goes_on |= begin < after < found.max_offset

    def _pass_over(self, queue: PopQueue, begin: int, end: int) -> None:
        """Nobody wants any of what lies between: it is filtered out, or has expired."""
        if queue.order is not None:
            info = queue.order.info
            unwanted = [offset for offset in info.unsettled if begin <= offset < end]
            if unwanted:
                self.journal.append(
                    [OrderSettled(*queue.name, info.pop_time, offset) for offset in unwanted]
                )
        if end > queue.next_offset:
            queue.next_offset = end
            self.state.changed.add(queue.name)

    def _has_too_many(self, queue: PopQueue) -> bool:
        config = self.cell.value
        if len(self.state) >= _MOST_LIVE:
            return True
        return (
            config.enable_pop_message_threshold
            and queue.in_flight > config.pop_inflight_message_threshold
        )

    def _limits(self, header: PopHeader, taken: Taken) -> ReadLimits:
        config, store = self.cell.value, self.store_cell.value
        size = config.max_pull_bytes
        if config.transfer_limits_given:
            size = store.max_transfer_bytes_memory
        count = max(header.max_msg_nums - taken.count, 1)
        return ReadLimits(count, max(size - taken.size, 1), _SCANNED)

    # ---- what was taken

    def _note(self, ask: Ask, taken: Taken) -> None:
        taken.pop_time = self.state.now
        for take in (*taken.takes, *taken.takes):  # twice: the last may be in the way of the first
            taken.pop_time = take.queue.free_time(take.start, taken.pop_time)
        events: list[Event] = [self._event(ask, taken, take) for take in taken.takes]
        self.journal.append(events)
        for take in taken.takes:
            self.positions.popped(take.queue)

    def _event(self, ask: Ask, taken: Taken, take: Take) -> Event:
        header, next_offset = ask.header, take.found.next_offset
        if header.order:
            info = self._ordered(take, header, taken.pop_time)
            taken.orders.append((take, info))
            return OrderPopped(*take.queue.name, next_offset, info)
        invisible = max(header.invisible_time, 0)
        distances = [offset - take.start for offset in take.offsets]
        return Popped(
            *take.queue.name, take.start, taken.pop_time, invisible, next_offset, distances
        )

    def _ordered(self, take: Take, header: PopHeader, pop_time: int) -> OrderInfo:
        invisible = max(header.invisible_time, 0)
        if take.queue.order is None:
            return ordered(header.attempt_id, pop_time, invisible, take.offsets)
        before = take.queue.order.info
        return before.followed_by(header.attempt_id, pop_time, invisible, take.offsets)


def _rotated(topic: TopicConfig) -> Iterator[tuple[str, int]]:
    count = topic.read_queue_nums
    first = random.randrange(count) if count else 0  # noqa: S311
    return ((topic.topic_name, (first + at) % count) for at in range(count))
