"""What may be done next with each key of a queue: values in, steps out.

A lane holds the messages of one key that were pulled and are not done, in the queue's order. One
step of a lane at a time is under way; lanes know nothing of each other. Where failing keys are
parked, what is set aside comes before what was pulled later, also across restarts:

- of a parked key every message is set aside behind those that are there already;
- of one that resumes, what was set aside and what was pulled are taken in the order of their
  offsets, and nothing is taken before everything before it has been pulled: after a crash messages
  come again that lie before the first one set aside. If that takes long, what is pulled meanwhile
  is set aside too, so that other keys need not wait for it.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice

from bolide.client.consumer.parking.parked_keys import Entry, ParkedKey, ParkedKeys
from bolide.model.message import StoredMessage


@dataclass(frozen=True, slots=True)
class Consume:
    """Call the handler with these."""

    messages: Sequence[StoredMessage]


@dataclass(frozen=True, slots=True)
class Pass:
    """The message is set aside already: it is done."""

    message: StoredMessage


@dataclass(frozen=True, slots=True)
class SetAside:
    """Write the message to the park topic."""

    message: StoredMessage
    error: str
    since_ms: int | None
    """None if it is the first of its key."""


@dataclass(frozen=True, slots=True)
class Replay:
    """Call the handler with what was set aside."""

    entry: Entry


@dataclass(frozen=True, slots=True)
class Bury:
    """Make a dead letter of what was set aside."""

    entry: Entry


@dataclass(frozen=True, slots=True)
class ParkAgain:
    """Write that the key failed while it resumed."""

    error: str


@dataclass(frozen=True, slots=True)
class Refresh:
    """Write again what the broker will soon delete as too old."""

    entries: Sequence[Entry]
    dead_through: int | None
    """None unless the key resumes, which is to be written again too."""


_MOST_HELD_UP = 500
"""How far others may be ahead of a key that resumes before what it waits with is set aside too."""

Step = Consume | Pass | SetAside | Replay | Bury | ParkAgain | Refresh


def order_key(message: StoredMessage) -> str:
    """The sharding key, else the first of its keys, else none: such messages share a lane."""
    return message.sharding_key or next(iter(message.keys), "")


@dataclass(slots=True)
class _Lane:
    waiting: deque[StoredMessage] = field(default_factory=deque)
    poison: str | None = None
    """The error for which the first of it is to be parked."""
    is_busy: bool = False
    is_stale: bool = False


class KeyScheduler:
    """The lanes of one held queue.

    Args:
        parked: what is set aside; it changes as the park topic is read.
        horizon: tells the offset before which everything has been pulled.
    """

    def __init__(self, parked: ParkedKeys, horizon: Callable[[], int]) -> None:
        self.parked = parked
        self._horizon = horizon
        self._lanes: dict[str, _Lane] = {}
        self._touched: dict[str, None] = {}  # since they were ready last

    def arrived(self, messages: Iterable[StoredMessage]) -> None:
        """Take in what was pulled, in the queue's order."""
        for message in messages:
            key = order_key(message)
            self._lane(key).waiting.append(message)
            self._touched[key] = None

    def ready(self) -> list[str]:
        """Keys of which no step is under way, and one may have become possible."""
        touched, self._touched = self._touched, {}
        keys = touched | dict.fromkeys(self.parked.resuming)
        return [key for key in keys if not self._lane(key).is_busy]

    def begin(self, key: str) -> None:
        self._lane(key).is_busy = True

    def end(self, key: str) -> None:
        """Nothing of the key is under way any more."""
        lane = self._lane(key)
        lane.is_busy = False
        if lane.waiting or lane.is_stale or lane.poison is not None:
            self._touched[key] = None
        else:
            del self._lanes[key]

    def next(self, key: str, most: int) -> Step | None:
        """The next step for a key, with at most so many messages; None if it has to wait."""
        lane, parked = self._lane(key), self.parked.find(key)
        if parked is None:
            return _flowing(lane, most)
        if not parked.is_resuming:
            lane.poison = None  # also if whoever wrote it did not hear of it
        if lane.is_stale:
            dead_through = parked.dead_through if parked.is_resuming else None
            return Refresh(list(parked.entries.values()), dead_through)
        if lane.waiting and lane.waiting[0].queue_offset in parked.entries:
            return Pass(lane.waiting[0])
        return self._resuming(lane, parked, most) if parked.is_resuming else _parked(lane, parked)

    def done(self, key: str, count: int) -> None:
        """The first messages that waited are done: handled, set aside or passed by."""
        lane = self._lane(key)
        for _ in range(count):
            lane.waiting.popleft()

    def again(self, key: str, messages: Sequence[StoredMessage]) -> None:
        """The first messages that waited failed; these take their places."""
        waiting = self._lane(key).waiting
        for at, message in enumerate(messages):
            waiting[at] = message

    def poisoned(self, key: str, error: str) -> None:
        """The first message, of those that wait or of those set aside, failed for good."""
        self._lane(key).poison = error

    def is_parked_now(self, key: str) -> None:
        """What `poisoned` asked for was written."""
        self._lane(key).poison = None

    def stale(self, keys: Iterable[str]) -> None:
        """The records of these keys are to be written again."""
        for key in keys:
            self._lane(key).is_stale = True
            self._touched[key] = None

    def refreshed(self, key: str) -> None:
        self._lane(key).is_stale = False

    def _resuming(self, lane: _Lane, parked: ParkedKey, most: int) -> Step | None:
        if lane.poison is not None:
            return ParkAgain(lane.poison)
        entry = parked.first
        if lane.waiting and lane.waiting[0].queue_offset < entry.offset:
            some = islice(lane.waiting, most)
            return Consume([each for each in some if each.queue_offset < entry.offset])
        if entry.offset >= self._horizon():
            return None
        if lane.waiting and self._holds_up(lane.waiting[0], parked):
            return SetAside(lane.waiting[0], parked.error, parked.since_ms)
        return Bury(entry) if entry.offset <= parked.dead_through else Replay(entry)

    def _holds_up(self, message: StoredMessage, parked: ParkedKey) -> bool:
        """Whether other keys would soon wait for this one, which has much to catch up with."""
        is_late = self._horizon() - message.queue_offset > _MOST_HELD_UP
        return is_late and len(parked.entries) > 1

    def _lane(self, key: str) -> _Lane:
        lane = self._lanes.get(key)
        if lane is None:
            lane = self._lanes[key] = _Lane()
        return lane


def _flowing(lane: _Lane, most: int) -> Step | None:
    lane.is_stale = False
    if not lane.waiting:
        return None
    if lane.poison is not None:
        return SetAside(lane.waiting[0], lane.poison, None)
    return Consume(list(islice(lane.waiting, most)))


def _parked(lane: _Lane, parked: ParkedKey) -> Step | None:
    if not lane.waiting:
        return None
    return SetAside(lane.waiting[0], parked.error, parked.since_ms)
