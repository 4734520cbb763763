"""A queue held by a consumer: messages in process, commit position, flow limits and lock state."""

import asyncio
import math
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from bolide.model.message import StoredMessage
from bolide.model.message_queue import MessageQueue
from bolide.protocol.bodies.consumers import HeldQueue as HeldQueueStatus


class ProcessQueue:
    """Messages in process, by queue offset.

    Messages arrive in offset order and finish in any order. The committed offset is the smallest
    unfinished one, so that a crash repeats messages rather than losing them.
    """

    __slots__ = ("_messages", "_order", "next_offset", "size")

    def __init__(self, next_offset: int) -> None:
        self.next_offset = next_offset
        """The offset of the next pull."""
        self.size = 0
        """Total bytes of the bodies in process."""
        self._messages: dict[int, StoredMessage] = {}
        self._order: deque[int] = deque()

    def __len__(self) -> int:
        return len(self._messages)

    def __contains__(self, queue_offset: int) -> bool:
        return queue_offset in self._messages

    @property
    def unfinished(self) -> int:
        """The smallest unfinished offset: everything before it may be committed."""
        return self._order[0] if self._order else self.next_offset

    @property
    def newest(self) -> int:
        """The largest offset in process, or 0."""
        return self._order[-1] if self._order else 0

    @property
    def span(self) -> int:
        """Distance between the first and the last offset in process."""
        return self._order[-1] - self._order[0] if self._order else 0

    def first(self, count: int) -> list[StoredMessage]:
        """The first unfinished messages; only for queues whose messages finish in order."""
        return [self._messages[offset] for offset in islice(self._order, count)]

    def all(self) -> list[StoredMessage]:
        """All unfinished messages, in order."""
        return [self._messages[offset] for offset in self._order if offset in self._messages]

    def replace(self, message: StoredMessage) -> None:
        """Replace the message with the same offset, if it is in process."""
        if message.queue_offset in self._messages:
            self._messages[message.queue_offset] = message

    def put(self, messages: Sequence[StoredMessage], next_offset: int) -> Sequence[StoredMessage]:
        """Add the result of a pull; return the messages at or after the previous `next_offset`."""
        if messages and messages[0].queue_offset < self.next_offset:
            messages = [each for each in messages if each.queue_offset >= self.next_offset]
        offsets = [message.queue_offset for message in messages]
        self._messages.update(zip(offsets, messages, strict=True))
        self._order.extend(offsets)
        self.size += sum([len(message.body) for message in messages])
        self.next_offset = max(self.next_offset, next_offset)
        return messages

    def done(self, messages: Iterable[StoredMessage]) -> None:
        """Remove finished messages; unknown ones are ignored."""
        in_process, order = self._messages, self._order
        removed = [in_process.pop(message.queue_offset, None) for message in messages]
        self.size -= sum([len(message.body) for message in removed if message is not None])
        while order and order[0] not in in_process:
            order.popleft()


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowLimits:
    """Flow control: how much of one queue a consumer buffers before it stops pulling.

    None disables a limit.
    """

    count: int | None = 1000
    size: int | None = 100 * 1024 * 1024
    span: int | None = 2000
    topic_count: int | None = None
    """For all queues of a topic together; replaces `count`."""
    topic_size: int | None = None

    def reached(self, held: ProcessQueue, *, in_order: bool = False) -> str | None:
        """Describe the limit that is exceeded, or return None if pulling may continue."""
        if self.count is not None and len(held) > self.count:
            return f"{len(held)} messages, the limit is {self.count}"
        if self.size is not None and held.size > self.size:
            return f"{held.size} bytes, the limit is {self.size}"
        if self.span is not None and not in_order and held.span > self.span:
            return f"offsets {held.span} apart, the limit is {self.span}"
        return None

    def room(self, held: ProcessQueue) -> float:
        """How many more messages may be buffered."""
        return math.inf if self.count is None else self.count - len(held)

    @property
    def is_shared(self) -> bool:
        """Whether a limit applies to a topic as a whole."""
        return self.topic_count is not None or self.topic_size is not None

    def shared(self, queues: int) -> "FlowLimits":
        """The limits of one queue if a topic has this many."""
        return replace(
            self,
            count=_share(self.topic_count, queues, self.count),
            size=_share(self.topic_size, queues, self.size),
        )


def _share(whole: int | None, among: int, otherwise: int | None) -> int | None:
    return otherwise if whole is None else max(1, whole // max(1, among))


LOCK_LIFE = 30.0
"""Seconds after which a consumer treats an unrenewed lock as lost; brokers keep it for 60."""


class HeldQueue:
    """A queue for as long as a consumer holds it without interruption.

    A dropped queue is never revived: holding the queue again creates a new `HeldQueue`.
    """

    def __init__(self, queue: MessageQueue, start: int, now: Callable[[], float]) -> None:
        self.queue = queue
        self.process = ProcessQueue(start)
        self.in_flight: set[object] = set()
        """Handler calls and other work that must end before the queue is idle."""
        self.last_pull = self.last_consume = now()
        self.locked_at: float | None = None
        self.is_granted: Callable[[], bool] = lambda: True
        """Whether the lock was granted on the current connection to the broker."""
        self.pulling: asyncio.Task[None] | None = None
        """Cancelled when the queue is dropped."""
        self.consuming: asyncio.Task[None] | None = None
        """The ordered delivery loop, if any; ends by itself when the queue is dropped."""
        self.is_keyed = False
        """Whether order is kept per key rather than per queue."""
        self.on_arrival: Callable[[Sequence[StoredMessage]], None] = lambda _messages: None
        """Receives pulled messages if the queue is delivered in order."""
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
        """Whether this consumer certainly holds the broker's lock."""
        is_fresh = self.locked_at is not None and self._now() - self.locked_at < LOCK_LIFE
        return is_fresh and self.is_granted()

    @property
    def is_lost(self) -> bool:
        """Whether no handler may begin: the queue was dropped, or its lock may have been lost."""
        return self.is_dropped or (self.locked_at is not None and not self.is_locked)

    def accept(
        self, messages: Sequence[StoredMessage], next_offset: int
    ) -> Sequence[StoredMessage]:
        """Add the result of a pull; return the messages that are new."""
        fresh = self.process.put(messages, next_offset)
        self._changed.set()
        return fresh

    def done(self, messages: Sequence[StoredMessage]) -> None:
        self.process.done(messages)
        self.last_consume = self._now()
        self._changed.set()

    def begin(self, call: object) -> None:
        self.in_flight.add(call)
        self._idle.clear()

    def end(self, call: object) -> None:
        self.in_flight.discard(call)
        self.last_consume = self._now()
        if not self.in_flight:
            self._idle.set()

    def drop(self) -> None:
        """Stop pulling and starting handlers; calls in flight continue."""
        self._dropped.set()
        self._changed.set()
        if self.pulling is not None:
            self.pulling.cancel()

    def wake(self) -> None:
        """Make `wait_for_change` return, because a condition outside the queue changed."""
        self._changed.set()

    async def wait_for_change(self) -> None:
        """Wait until messages arrive or finish, the queue is dropped, or `wake` is called."""
        self._changed.clear()
        await self._changed.wait()

    async def sleep(self, seconds: float) -> None:
        """Like `asyncio.sleep`, but returns early when the queue is dropped."""
        try:
            async with asyncio.timeout(seconds):
                await self._dropped.wait()
        except TimeoutError:
            pass

    async def wait_until_idle(self) -> None:
        """Wait until no call is in flight."""
        await self._idle.wait()

    def status(self) -> HeldQueueStatus:
        """The status shown by `mqadmin consumerStatus`; times in milliseconds."""
        process = self.process
        count = len(process)
        return HeldQueueStatus(
            commit_offset=process.unfinished,
            cached_msg_min_offset=process.unfinished if count else 0,
            cached_msg_max_offset=process.newest,
            cached_msg_count=count,
            cached_msg_size_in_mib=process.size // (1024 * 1024),
            locked=self.is_locked,
            last_lock_timestamp=int((self.locked_at or 0) * 1000),
            droped=self.is_dropped,
            last_pull_timestamp=int(self.last_pull * 1000),
            last_consume_timestamp=int(self.last_consume * 1000),
        )
