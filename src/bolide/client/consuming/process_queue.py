"""What was pulled of one queue and is not done yet, and how far the queue may be committed."""

import math
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from bolide.model.message import StoredMessage


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
