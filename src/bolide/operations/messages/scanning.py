"""Reads the queues of a topic in blocks and merges them by store time, in both directions.

Each queue has a reader with what it found so far and with a frontier: the store time up to which it
has looked. A message is next if no other queue can still come up with one before it: if it is the
first of what all queues have found, and every queue without a find has its frontier behind it. So
pages are in order however unevenly the messages that match are spread. A scan stops when it has
enough or when its time is over; the readers tell where it stopped.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import Generic, TypeVar

from bolide.admin.messages import Messages, PulledMessages
from bolide.errors import BolideError
from bolide.model.message import StoredMessage
from bolide.operations.messages.cursors import Spot
from bolide.operations.messages.filters import MessageFilter
from bolide.operations.views import Failure, failure_of
from bolide.protocol.bodies.message_queue import MessageQueue
from bolide.protocol.refusals import Refusal
from bolide.protocol.tags import ALL

T = TypeVar("T")

_PULLED = 32
"""Messages asked for at once; brokers return no more by default."""
_FIRST_BLOCK = 8
_LARGEST_BLOCK = 1024
_LARGEST_PUSHED_BLOCK = 16 * 1024
"""Queue entries of a block that the broker filters: it sends only what matches."""
_BLOCK_BYTES = 4 * 1024 * 1024
"""About the most that a block transfers; no more than one pull of it is in memory."""
_AT_ONCE = 8


@dataclass(slots=True)
class _Found(Generic[T]):
    time_ms: int
    offset: int
    value: T


@dataclass(slots=True)
class _Seen:
    """What a block consisted of, whether it was wanted or not."""

    count: int = 0
    size: int = 0
    first_ms: int = 0
    last_ms: int = 0

    def add(self, got: Sequence[StoredMessage]) -> None:
        if got:
            self.first_ms = self.first_ms if self.count else got[0].store_timestamp
            self.last_ms = got[-1].store_timestamp
            self.count += len(got)
            self.size += sum(each.size for each in got)


@dataclass(slots=True)
class QueueReader(Generic[T]):
    """Reads one queue from a spot on."""

    topic: str
    spot: Spot
    ascending: bool
    position: int = 0
    """Like that of the spot: where the next block begins."""
    found: deque[_Found[T]] = field(default_factory=deque)
    frontier_ms: int | None = None
    """It has looked at everything up to this store time; None before its first block."""
    failure: BolideError | None = None
    _block: int = _FIRST_BLOCK
    _begin: int = 0
    _refuses_filter: bool = False

    def __post_init__(self) -> None:
        self.position = min(max(self.spot.position, self.spot.low), self.spot.high)
        self._begin = self.position

    @property
    def queue(self) -> MessageQueue:
        return MessageQueue(self.topic, self.spot.broker, self.spot.queue_id)

    @property
    def is_at_end(self) -> bool:
        """Whether everything in the range was looked at."""
        end = self.spot.high if self.ascending else self.spot.low
        return self.position >= end if self.ascending else self.position <= end

    @property
    def is_lagging(self) -> bool:
        """Whether it has no find, and may have one later."""
        return not self.found and not self.is_at_end and self.failure is None

    @property
    def stop(self) -> Spot:
        """Where the next scan begins: before the first find that was not taken."""
        position = self.position
        if self.found:
            position = self.found[0].offset + (0 if self.ascending else 1)
        return Spot(
            broker=self.spot.broker,
            queue_id=self.spot.queue_id,
            position=position,
            low=self.spot.low,
            high=self.spot.high,
        )

    @property
    def scanned(self) -> int:
        """Messages between the first position and where the next scan begins."""
        return abs(self.stop.position - self._begin)

    @property
    def remaining(self) -> int:
        position = self.stop.position
        return max(self.spot.high - position if self.ascending else position - self.spot.low, 0)

    @property
    def rank(self) -> tuple[str, int]:
        """Orders messages of the same millisecond, so that both directions agree."""
        return self.spot.broker, self.spot.queue_id

    def may_precede(self, other: "QueueReader[T]") -> bool:
        """Whether what it has not looked at yet may come before the first find of another queue."""
        if self.frontier_ms is None:
            return True
        mine, theirs = (self.frontier_ms, self.rank), (other.found[0].time_ms, other.rank)
        return mine < theirs if self.ascending else mine > theirs

    async def read_block(
        self,
        messages: Messages,
        wanted: MessageFilter,
        keep: Callable[[StoredMessage], T],
        *,
        with_frontier: bool,
    ) -> None:
        """Look at the next messages; an error becomes `failure`."""
        pushes = wanted.pushed and not self._refuses_filter
        try:
            try:
                await self._read(messages, wanted, keep, pushes=pushes)
            except Refusal:
                if not pushes:
                    raise
                self._refuses_filter, pushes = True, False
                await self._read(messages, wanted, keep, pushes=False)
            if with_frontier and pushes and self.is_lagging:
                await self._probe_frontier(messages)
        except BolideError as exc:
            self.failure = exc

    async def _read(
        self,
        messages: Messages,
        wanted: MessageFilter,
        keep: Callable[[StoredMessage], T],
        *,
        pushes: bool,
    ) -> None:
        """Read one pull forwards, or a block backwards, of which only the finds are kept."""
        begin, end = self.position, self.spot.high
        if not self.ascending:
            begin, end = max(self.position - self._block, self.spot.low), self.position
        at, seen, found = begin, _Seen(), list[_Found[T]]()
        while at < end:
            got, at = await self._pull(messages, wanted, at, end, pushes=pushes)
            seen.add(got)
            found.extend(
                _Found(each.store_timestamp, each.queue_offset, keep(each))
                for each in got
                if wanted.matches(each)
            )
            if self.ascending:
                break
        self.position = at if self.ascending else begin
        self.found.extend(found if self.ascending else reversed(found))
        if seen.count and not pushes:
            self.frontier_ms = seen.last_ms if self.ascending else seen.first_ms
        self._resize(seen, pushes=pushes)

    async def _pull(
        self, messages: Messages, wanted: MessageFilter, low: int, high: int, *, pushes: bool
    ) -> tuple[list[StoredMessage], int]:
        """Messages of a part of the queue, and where the part that was looked at ends."""
        answer = await messages.pull(
            self.queue,
            low,
            min(_PULLED, high - low),
            tags=wanted.tags if pushes else ALL,
            sql=wanted.sql if pushes else "",
        )
        # A record with several messages begins before the offset that was asked for.
        got = [each for each in answer.messages if low <= each.queue_offset < high]
        return got, min(_end_of(answer, low, high), high)

    def _resize(self, seen: "_Seen", *, pushes: bool) -> None:
        """Read larger blocks while nothing is found, and smaller ones of large messages."""
        grown = max(self._block, _PULLED) if self.found else self._block * 4
        self._block = min(grown, _LARGEST_PUSHED_BLOCK if pushes else _LARGEST_BLOCK)
        if seen.count and not pushes:
            average = max(seen.size // seen.count, 1)
            self._block = min(self._block, max(_BLOCK_BYTES // average, 1))

    async def _probe_frontier(self, messages: Messages) -> None:
        """Learn the store time of the last entry that the broker has looked at."""
        at = max(self.position - 1, self.spot.low) if self.ascending else self.position
        for each in (await messages.pull(self.queue, at, 1)).messages:
            self.frontier_ms = each.store_timestamp


def _end_of(answer: PulledMessages, low: int, high: int) -> int:
    """Where a pull would go on; nothing is left if that is no progress."""
    if answer.next_offset > low:
        return answer.next_offset
    return answer.messages[-1].queue_offset + 1 if answer.messages else high


@dataclass(slots=True)
class Scan(Generic[T]):
    """A scan of some queues of a topic."""

    messages: Messages
    wanted: MessageFilter
    keep: Callable[[StoredMessage], T]
    """Makes of a message what the scan returns, and so what it holds in memory."""
    readers: list[QueueReader[T]]

    @property
    def scanned(self) -> int:
        return sum(each.scanned for each in self.readers)

    @property
    def is_complete(self) -> bool:
        """Whether everything was looked at and taken."""
        return all(each.is_at_end and not each.found for each in self.readers)

    @property
    def remaining(self) -> int:
        return sum(each.remaining for each in self.readers)

    @property
    def reached_ms(self) -> int | None:
        """The store time up to which all queues were looked at; None before all have begun."""
        open_ones = [each for each in self.readers if not each.is_at_end or each.found]
        times = [
            each.found[0].time_ms if each.found else each.frontier_ms
            for each in open_ones
            if each.failure is None
        ]
        known = [time for time in times if time is not None]
        if not known or len(known) < len(times):
            return None
        return min(known) if self._ascending else max(known)

    @property
    def failures(self) -> list[Failure]:
        """One for each broker."""
        found = {
            each.spot.broker: failure_of(each.spot.broker, each.failure)
            for each in self.readers
            if each.failure is not None
        }
        return [found[name] for name in sorted(found)]

    async def take(self, count: int, *, seconds: float) -> list[T]:
        """The next messages in order, as many as are found in that time.

        At least one block of each queue that is in the way is read, whatever the time.
        """
        deadline = monotonic() + seconds
        taken: list[T] = []
        while True:
            lagging = self._take_ready(taken, count)
            if len(taken) >= count or not lagging or (taken and monotonic() > deadline):
                return taken
            await self._read_blocks(lagging)
            if monotonic() > deadline:
                self._take_ready(taken, count)
                return taken

    def _take_ready(self, taken: list[T], count: int) -> list[QueueReader[T]]:
        """Move what is next to `taken`; return the readers that have to look first."""
        while len(taken) < count:
            filled = [each for each in self.readers if each.found]
            lagging = [each for each in self.readers if each.is_lagging]
            if not filled:
                return lagging
            first = self._first(filled)
            if in_the_way := [each for each in lagging if each.may_precede(first)]:
                return in_the_way
            taken.append(first.found.popleft().value)
        return []

    def _first(self, filled: Iterable[QueueReader[T]]) -> QueueReader[T]:
        choose = min if self._ascending else max
        return choose(filled, key=lambda each: (each.found[0].time_ms, each.rank))

    @property
    def _ascending(self) -> bool:
        return not self.readers or self.readers[0].ascending

    async def _read_blocks(self, readers: Sequence[QueueReader[T]]) -> None:
        limit = asyncio.Semaphore(_AT_ONCE)
        with_frontier = len(self.readers) > 1

        async def read(reader: QueueReader[T]) -> None:
            async with limit:
                await reader.read_block(
                    self.messages, self.wanted, self.keep, with_frontier=with_frontier
                )

        async with asyncio.TaskGroup() as group:
            for each in readers:
                group.create_task(read(each))
