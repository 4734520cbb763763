"""Decides the next step for each key of a queue: values in, steps out, no I/O.

The scheduler holds, per key, the messages that were pulled and are not done, in queue order. At
most one step per key is in flight; keys do not affect each other. Where failing keys are parked,
parked messages precede messages pulled later, also across restarts:

- Every message of a parked key is parked behind those that are parked already.
- For a key that resumes, parked and pulled messages are handled in the order of their queue
  offsets, and only after everything before them was pulled: after a crash, messages that precede
  the first parked one are pulled again. If resuming takes long, messages pulled meanwhile are
  parked too, so that other keys need not wait.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice

from bolide.client.consumer.parking.parked_keys import ParkedKey, ParkedKeys, ParkedMessage
from bolide.model.message import StoredMessage

_MAX_LAG = 500
"""Offsets by which a resuming key may lag behind the pulls before its new messages are parked."""


@dataclass(frozen=True, slots=True)
class CallHandler:
    """Call the handler with these messages."""

    messages: Sequence[StoredMessage]


@dataclass(frozen=True, slots=True)
class SkipParked:
    """Finish a message without a call: it is parked already."""

    message: StoredMessage


@dataclass(frozen=True, slots=True)
class ParkMessage:
    """Write the message to the park topic."""

    message: StoredMessage
    error: str
    since_ms: int | None
    """When the key was parked; None if this message is the first of its key."""


@dataclass(frozen=True, slots=True)
class ReplayParked:
    """Call the handler with a parked message."""

    entry: ParkedMessage


@dataclass(frozen=True, slots=True)
class DeadLetterParked:
    """Send a parked message to the dead letters."""

    entry: ParkedMessage


@dataclass(frozen=True, slots=True)
class ParkKeyAgain:
    """Record that the key failed while it resumed."""

    error: str


@dataclass(frozen=True, slots=True)
class RewriteParked:
    """Append parked records again before the broker's retention deletes them."""

    entries: Sequence[ParkedMessage]
    dead_through: int | None
    """The offset of the RESUME record to repeat; None if the key does not resume."""


Step = (
    CallHandler
    | SkipParked
    | ParkMessage
    | ReplayParked
    | DeadLetterParked
    | ParkKeyAgain
    | RewriteParked
)


def order_key(message: StoredMessage) -> str:
    """The sharding key, else the first message key, else "": messages without keys share one."""
    return message.sharding_key or next(iter(message.keys), "")


@dataclass(slots=True)
class _KeyQueue:
    waiting: deque[StoredMessage] = field(default_factory=deque)
    poison: str | None = None
    """The error for which the first message is to be parked."""
    is_busy: bool = False
    needs_rewrite: bool = False


class KeyScheduler:
    """Schedules the keys of one held queue.

    Args:
        parked: the parked messages; changes as the park topic is read.
        horizon: returns the queue offset before which everything has been pulled.
    """

    def __init__(self, parked: ParkedKeys, horizon: Callable[[], int]) -> None:
        self.parked = parked
        self._horizon = horizon
        self._keys: dict[str, _KeyQueue] = {}
        self._touched: dict[str, None] = {}  # since the last call of `ready`, in order

    def add(self, messages: Iterable[StoredMessage]) -> None:
        """Add pulled messages, in queue order."""
        for message in messages:
            key = order_key(message)
            self._queue(key).waiting.append(message)
            self._touched[key] = None

    def ready(self) -> list[str]:
        """Keys without a step in flight for which a step may have become possible."""
        touched, self._touched = self._touched, {}
        keys = touched | dict.fromkeys(self.parked.resuming)
        return [key for key in keys if not self._queue(key).is_busy]

    def begin(self, key: str) -> None:
        self._queue(key).is_busy = True

    def end(self, key: str) -> None:
        """No step of the key is in flight any more."""
        queue = self._queue(key)
        queue.is_busy = False
        if queue.waiting or queue.needs_rewrite or queue.poison is not None:
            self._touched[key] = None
        else:
            del self._keys[key]

    def next(self, key: str, limit: int) -> Step | None:
        """The next step for a key, with at most `limit` messages; None if the key must wait."""
        queue, parked = self._queue(key), self.parked.find(key)
        if parked is None:
            return _step_of_unparked(queue, limit)
        if not parked.is_resuming:
            queue.poison = None  # the PARK record was stored, even if its reply was lost
        if queue.needs_rewrite:
            dead_through = parked.dead_through if parked.is_resuming else None
            return RewriteParked(list(parked.entries.values()), dead_through)
        if queue.waiting and queue.waiting[0].queue_offset in parked.entries:
            return SkipParked(queue.waiting[0])
        if parked.is_resuming:
            return self._step_of_resuming(queue, parked, limit)
        return _step_of_parked(queue, parked)

    def done(self, key: str, count: int) -> None:
        """Remove the first waiting messages: they were handled, parked or skipped."""
        queue = self._queue(key)
        for _ in range(count):
            queue.waiting.popleft()

    def replace_first(self, key: str, messages: Sequence[StoredMessage]) -> None:
        """Replace the first waiting messages, which failed, by copies to be tried again."""
        waiting = self._queue(key).waiting
        for index, message in enumerate(messages):
            waiting[index] = message

    def set_poison(self, key: str, error: str) -> None:
        """The first message, waiting or parked, has used up its retries: park the key."""
        self._queue(key).poison = error

    def clear_poison(self, key: str) -> None:
        """The record requested by `set_poison` was written."""
        self._queue(key).poison = None

    def request_rewrite(self, keys: Iterable[str]) -> None:
        """Have the records of these keys written again."""
        for key in keys:
            self._queue(key).needs_rewrite = True
            self._touched[key] = None

    def rewritten(self, key: str) -> None:
        self._queue(key).needs_rewrite = False

    def _step_of_resuming(self, queue: _KeyQueue, parked: ParkedKey, limit: int) -> Step | None:
        if queue.poison is not None:
            return ParkKeyAgain(queue.poison)
        entry = parked.first
        if queue.waiting and queue.waiting[0].queue_offset < entry.queue_offset:
            some = islice(queue.waiting, limit)
            return CallHandler([each for each in some if each.queue_offset < entry.queue_offset])
        if entry.queue_offset >= self._horizon():
            return None
        if queue.waiting and self._lags(queue.waiting[0], parked):
            return ParkMessage(queue.waiting[0], parked.error, parked.since_ms)
        if entry.queue_offset <= parked.dead_through:
            return DeadLetterParked(entry)
        return ReplayParked(entry)

    def _lags(self, message: StoredMessage, parked: ParkedKey) -> bool:
        """Whether flow control would soon make other keys wait for this resuming key."""
        is_late = self._horizon() - message.queue_offset > _MAX_LAG
        return is_late and len(parked.entries) > 1

    def _queue(self, key: str) -> _KeyQueue:
        queue = self._keys.get(key)
        if queue is None:
            queue = self._keys[key] = _KeyQueue()
        return queue


def _step_of_unparked(queue: _KeyQueue, limit: int) -> Step | None:
    queue.needs_rewrite = False
    if not queue.waiting:
        return None
    if queue.poison is not None:
        return ParkMessage(queue.waiting[0], queue.poison, None)
    return CallHandler(list(islice(queue.waiting, limit)))


def _step_of_parked(queue: _KeyQueue, parked: ParkedKey) -> Step | None:
    if not queue.waiting:
        return None
    return ParkMessage(queue.waiting[0], parked.error, parked.since_ms)
