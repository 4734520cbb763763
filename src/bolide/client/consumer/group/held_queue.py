"""A queue while a consumer holds it: its messages in process, and its commit position."""

import asyncio
import math
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from bolide.model.message import StoredMessage
from bolide.model.message_queue import MessageQueue
from bolide.protocol.bodies.consumers import HeldQueue as ShownQueue


class ProcessQueue:
    """Messages under way, by queue offset.

    Offsets only ever rise, and messages are done in any order; what is committed is the smallest
    offset not done, so that a crash repeats messages rather than losing them.
    """

    __slots__ = ("_messages", "_order", "next_offset", "size")

    def __init__(self, next_offset: int) -> None:
        self.next_offset = next_offset
        """Where the next pull begins."""
        self.size = 0
        """Bytes of the bodies held."""
        self._messages: dict[int, StoredMessage] = {}
        self._order: deque[int] = deque()

    def __len__(self) -> int:
        return len(self._messages)

    def __contains__(self, queue_offset: int) -> bool:
        return queue_offset in self._messages

    @property
    def unfinished(self) -> int:
        """The smallest offset that is not done: everything before it may be committed."""
        return self._order[0] if self._order else self.next_offset

    @property
    def newest(self) -> int:
        """The largest offset held, or 0 without any."""
        return self._order[-1] if self._order else 0

    @property
    def span(self) -> int:
        """How far apart the first and the last message held are."""
        return self._order[-1] - self._order[0] if self._order else 0

    def first(self, count: int) -> list[StoredMessage]:
        """The first messages in order, for those who take them one after the other."""
        return [self._messages[offset] for offset in islice(self._order, count)]

    def all(self) -> list[StoredMessage]:
        """Everything that is not done, in order."""
        return [self._messages[offset] for offset in self._order if offset in self._messages]

    def replace(self, message: StoredMessage) -> None:
        """Put a changed message in the place of the one with its offset, if that is held."""
        if message.queue_offset in self._messages:
            self._messages[message.queue_offset] = message

    def put(self, messages: Sequence[StoredMessage], next_offset: int) -> Sequence[StoredMessage]:
        """Take in what a pull found, in order; return what lies at or beyond where it began."""
        if messages and messages[0].queue_offset < self.next_offset:
            messages = [each for each in messages if each.queue_offset >= self.next_offset]
        offsets = [message.queue_offset for message in messages]
        self._messages.update(zip(offsets, messages, strict=True))
        self._order.extend(offsets)
        self.size += sum([len(message.body) for message in messages])
        self.next_offset = max(self.next_offset, next_offset)
        return messages

    def done(self, messages: Iterable[StoredMessage]) -> None:
        """Let go of messages; those not held any more are passed over."""
        held, order = self._messages, self._order
        gone = [held.pop(message.queue_offset, None) for message in messages]
        self.size -= sum([len(message.body) for message in gone if message is not None])
        while order and order[0] not in held:
            order.popleft()


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowLimits:
    """How much of one queue a consumer holds before it stops pulling; None is no limit."""

    count: int | None = 1000
    size: int | None = 100 * 1024 * 1024
    span: int | None = 2000
    topic_count: int | None = None
    """For all queues of a topic together; takes the place of `count`."""
    topic_size: int | None = None

    def reached(self, held: ProcessQueue, *, in_order: bool = False) -> str | None:
        """Say what is over its limit, or None while pulling may go on."""
        if self.count is not None and len(held) > self.count:
            return f"{len(held)} messages, the limit is {self.count}"
        if self.size is not None and held.size > self.size:
            return f"{held.size} bytes, the limit is {self.size}"
        if self.span is not None and not in_order and held.span > self.span:
            return f"offsets {held.span} apart, the limit is {self.span}"
        return None

    def room(self, held: ProcessQueue) -> float:
        """How many messages more may be held."""
        return math.inf if self.count is None else self.count - len(held)

    @property
    def is_shared(self) -> bool:
        """Whether there are limits for a topic as a whole."""
        return self.topic_count is not None or self.topic_size is not None

    def shared(self, queues: int) -> "FlowLimits":
        """The limits of one of so many queues of a topic."""
        return replace(
            self,
            count=_share(self.topic_count, queues, self.count),
            size=_share(self.topic_size, queues, self.size),
        )


def _share(whole: int | None, among: int, otherwise: int | None) -> int | None:
    return otherwise if whole is None else max(1, whole // max(1, among))


LOCK_LIFE = 30.0
"""Seconds after which a consumer takes its own lock for lost; the broker keeps it for 60."""


class HeldQueue:
    """One tenure of a queue. Once dropped it stays so: the queue is held anew as another one."""

    def __init__(self, queue: MessageQueue, start: int, now: Callable[[], float]) -> None:
        self.queue = queue
        self.process = ProcessQueue(start)
        self.jobs: set[object] = set()
        """Calls handed to workers and not settled, and whatever else must end first."""
        self.last_pull = self.last_consume = now()
        self.locked_at: float | None = None
        self.is_granted: Callable[[], bool] = lambda: True
        """Whether the broker can still know of the lock."""
        self.pulling: asyncio.Task[None] | None = None
        """Cancelled when the queue is dropped."""
        self.consuming: asyncio.Task[None] | None = None
        """Ends by itself when the queue is dropped."""
        self.is_keyed = False
        """Whether only the order of each key is kept."""
        self.arrived: Callable[[Sequence[StoredMessage]], None] = lambda _messages: None
        """Told what was pulled, if the queue is consumed in order."""
        self._now = now
        self._dropped = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._changed = asyncio.Event()

    @property
    def is_dropped(self) -> bool:
        return self._dropped.is_set()

    @property
    def is_locked(self) -> bool:
        """Whether the broker's lock is ours for certain."""
        is_fresh = self.locked_at is not None and self._now() - self.locked_at < LOCK_LIFE
        return is_fresh and self.is_granted()

    @property
    def is_lost(self) -> bool:
        """Whether no more handlers may begin: dropped, or its lock may be another's by now."""
        return self.is_dropped or (self.locked_at is not None and not self.is_locked)

    def take(self, messages: Sequence[StoredMessage], next_offset: int) -> Sequence[StoredMessage]:
        """Take in what a pull found; those that are new."""
        fresh = self.process.put(messages, next_offset)
        self._changed.set()
        return fresh

    def done(self, messages: Sequence[StoredMessage]) -> None:
        self.process.done(messages)
        self.last_consume = self._now()
        self._changed.set()

    def begin(self, job: object) -> None:
        self.jobs.add(job)
        self._idle.clear()

    def end(self, job: object) -> None:
        self.jobs.discard(job)
        self.last_consume = self._now()
        if not self.jobs:
            self._idle.set()

    def drop(self) -> None:
        """Pull no more and start no more handlers; those under way go on."""
        self._dropped.set()
        self._changed.set()
        if self.pulling is not None:
            self.pulling.cancel()

    def wake(self) -> None:
        """Something outside changed: those who wait for a change look again."""
        self._changed.set()

    async def change(self) -> None:
        """Wait until messages came or went, or the queue was dropped."""
        self._changed.clear()
        await self._changed.wait()

    async def sleep(self, seconds: float) -> None:
        """As asyncio.sleep, but wakes when the queue is dropped."""
        try:
            async with asyncio.timeout(seconds):
                await self._dropped.wait()
        except TimeoutError:
            pass

    async def idle(self) -> None:
        """Wait until nothing is under way."""
        await self._idle.wait()

    def shown(self) -> ShownQueue:
        """As `consumerStatus` of mqadmin shows it; times become milliseconds."""
        process = self.process
        held = len(process)
        return ShownQueue(
            commit_offset=process.unfinished,
            cached_msg_min_offset=process.unfinished if held else 0,
            cached_msg_max_offset=process.newest,
            cached_msg_count=held,
            cached_msg_size_in_mib=process.size // (1024 * 1024),
            locked=self.is_locked,
            last_lock_timestamp=int((self.locked_at or 0) * 1000),
            droped=self.is_dropped,
            last_pull_timestamp=int(self.last_pull * 1000),
            last_consume_timestamp=int(self.last_consume * 1000),
        )
