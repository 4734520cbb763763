"""In-memory queue of timers that are due soon, and the prefetch of their messages.

Slots up to `loaded_to` have been read; timers added to one of them later go to memory as well.
`cursor` is the first slot that may hold undelivered timers: a restart resumes there.
"""

from collections import Counter, deque
from collections.abc import Callable
from heapq import heappop, heappush
from typing import NamedTuple

from bolide.broker.background import TIMERS, on_thread
from bolide.kernel import read_record
from bolide.model.properties import PropertyName
from bolide.protocol.record import Record
from bolide.protocol.record_errors import BadRecord
from bolide.remoting.tasks import uninterrupted
from bolide.store.message_store import MessageStore
from bolide.store.timers import LoadedSlots, TimerEntry, TimerFiles, TimerKey

LEAD_MS = 1000
"""How long before its time a slot is read, in milliseconds."""

_MAX_IN_MEMORY = 50_000
"""Timers held in memory; the rest of a larger slot is read later."""
_MAX_PREFETCHED = 5000
"""Messages prefetched per read; with more, most wait for others anyway."""
_NEVER = 2**62
_RECALL_RETENTION_SLOTS = 2
"""Slots for which a recall is retained: RocketMQ may have put it into the slot before its
message."""


class DueTimer(NamedTuple):
    """A timer that is due soon; sorts by due time."""

    due: int
    physical_offset: int
    slot: int
    entry: TimerEntry


class _LoadedTimers(NamedTuple):
    """Timers read and prepared by a worker thread."""

    timers: list[DueTimer]
    by_slot: Counter[int]
    recalled: list[tuple[str, int]]
    last_slot: int
    boundary: TimerKey | None
    next_slot: int


class DueQueue:
    """Queue of timers due soon; belongs to one event loop.

    Args:
        prefetch: called on a worker thread with loaded slots; returns the recalls among them and
            brings the messages of the others into memory.
        on_earlier: called when a new timer is due before all others.
    """

    def __init__(
        self,
        files: TimerFiles,
        *,
        prefetch: Callable[[LoadedSlots], list[tuple[str, int]]],
        cursor: int,
        on_earlier: Callable[[], None],
    ) -> None:
        self.cursor = cursor
        self.loaded_to = cursor - 1
        self._files = files
        self._prefetch = prefetch
        self._on_earlier = on_earlier
        self._next_slot = cursor
        """No slot between `loaded_to` and this one holds a timer."""
        self._boundary: TimerKey | None = None
        self._read_ahead: deque[DueTimer] = deque()
        """Timers read from the files, in slot order."""
        self._pushed: list[DueTimer] = []
        """Heap of timers added to a slot after it was read, and of retried ones."""
        self._open: dict[int, int] = {}
        """Undelivered timers by slot, for slots that were read."""
        self._recalled: dict[str, int] = {}
        self._late: dict[int, int] = {}
        """By physical offset, the times of undelivered timers that are in a later slot."""
        self.pinned_slot: int | None = None
        """A slot that is being written; the cursor does not pass it."""

    def __len__(self) -> int:
        return len(self._read_ahead) + len(self._pushed)

    # ---- reading slots

    async def load(self, now_ms: int) -> bool:
        """Read the slots due soon; return whether more can be read at once."""
        target = self._files.number(now_ms + LEAD_MS)
        if self._boundary is not None:
            if not self._read_ahead and not self.is_full:
                slot = self.loaded_to
                self._add_loaded(await self._read(slot, slot, _MAX_IN_MEMORY, self._boundary))
        elif self.loaded_to < target and not self.is_full:
            if self._next_slot > target:
                self.loaded_to = target
            else:
                first, room = max(self._next_slot, self.loaded_to + 1), _MAX_IN_MEMORY - len(self)
                self._add_loaded(await self._read(first, target, room, None))
        return self._boundary is None and self.loaded_to < target and not self.is_full

    async def _read(
        self, first: int, last: int, limit: int, behind: TimerKey | None
    ) -> "_LoadedTimers":
        def read() -> _LoadedTimers:
            loaded = self._files.load(first, last, limit, behind)
            timers = [self._due_timer(entry) for entry in loaded.waiting]
            return _LoadedTimers(
                timers,
                Counter([each.slot for each in timers]),
                self._prefetch(loaded),
                loaded.last_slot,
                loaded.boundary,
                self._files.next_occupied(loaded.last_slot + 1) or _NEVER,
            )

        return await uninterrupted(on_thread(TIMERS, read))

    def _due_timer(self, entry: TimerEntry) -> DueTimer:
        slot = self._files.number(entry.due)
        return DueTimer(entry.due, entry.physical_offset, slot, entry)

    def _add_loaded(self, read: "_LoadedTimers") -> None:
        self.loaded_to, self._boundary = read.last_slot, read.boundary
        self._next_slot = read.next_slot
        for key, slot in read.recalled:
            self.recall(key, slot)
        for slot, count in read.by_slot.items():
            self._open[slot] = self._open.get(slot, 0) + count
        self._read_ahead.extend(read.timers)
        if read.timers:
            self._on_earlier()

    # ---- adding

    def add(self, entry: TimerEntry, due: int) -> None:
        """Add a timer that was just written to its slot."""
        slot = self._files.number(entry.due)
        if slot > self.loaded_to:
            self._next_slot = min(self._next_slot, slot)
            return
        if slot == self.loaded_to and self._boundary and entry.key > self._boundary:
            return
        self._open[slot] = self._open.get(slot, 0) + 1
        self._push(DueTimer(due, entry.physical_offset, slot, entry))

    def recall(self, key: str, slot: int) -> None:
        self._recalled[key] = max(slot, self._recalled.get(key, slot))

    def is_recalled(self, topic: str, unique_id: str | None) -> bool:
        if not self._recalled or unique_id is None:
            return False
        return recall_key(topic, unique_id) in self._recalled

    # ---- removing

    def pop_due(self, now_ms: int) -> DueTimer | None:
        """Remove the next due timer; the caller must `complete` it or `put_back`."""
        first = self._first
        if first is None or first.due > now_ms:
            return None
        if self._pushed and self._pushed[0] is first:
            return heappop(self._pushed)
        return self._read_ahead.popleft()

    def put_back(self, timer: DueTimer, due: int | None = None) -> None:
        self._push(timer if due is None else timer._replace(due=due))

    def _push(self, timer: DueTimer) -> None:
        heappush(self._pushed, timer)
        if self._first is timer:
            self._on_earlier()

    @property
    def _first(self) -> DueTimer | None:
        heads = [each[0] for each in (self._pushed, self._read_ahead) if each]
        return min(heads, default=None)

    def note_late(self, physical_offset: int, due: int) -> None:
        """Record a timer whose time had passed when it got its slot, until it is delivered."""
        self._late[physical_offset] = due

    @property
    def earliest_late(self) -> int | None:
        """Earliest time (ms) of the undelivered timers that were late."""
        return min(self._late.values(), default=None)

    def complete(self, timer: DueTimer) -> None:
        self._late.pop(timer.physical_offset, None)
        self._open[timer.slot] -= 1
        if not self._open[timer.slot]:
            del self._open[timer.slot]

    def advance(self, now_ms: int) -> None:
        """Advance the cursor to the first slot that may hold undelivered timers."""
        last = self.loaded_to + 1 if self._boundary is None else self.loaded_to
        pinned = [] if self.pinned_slot is None else [self.pinned_slot]
        reached = min([last, self._files.number(now_ms), *pinned, *self._open])
        if reached <= self.cursor:
            return
        self.cursor = reached
        for key in [
            key for key, slot in self._recalled.items() if slot + _RECALL_RETENTION_SLOTS < reached
        ]:
            del self._recalled[key]

    @property
    def is_empty(self) -> bool:
        """Whether no timer is pending, in memory or in the files."""
        return not len(self) and self._next_slot == _NEVER and self._boundary is None

    @property
    def is_full(self) -> bool:
        return len(self) >= _MAX_IN_MEMORY

    def until_due(self, now_ms: int) -> int | None:
        """Milliseconds until the first timer is due; None if memory holds none."""
        first = self._first
        return None if first is None else max(first.due - now_ms, 0)

    def until_load(self, now_ms: int) -> int | None:
        """Milliseconds until a slot can be read; None if that depends on deliveries or arrivals."""
        if self.is_full:
            return None
        if self._boundary is not None:
            return None if self._read_ahead else 0
        if self._next_slot == _NEVER:
            return None
        return max(self._next_slot * self._files.precision_ms - LEAD_MS - now_ms, 0)


def recall_key(topic: str, unique_id: str) -> str:
    """What identifies a message that is recalled; no topic has a plus sign in its name."""
    return f"{topic}+{unique_id}"


def recalled_by(properties: dict[str, str]) -> str | None:
    """The `recall_key` of the message that a timer message recalls; None if it recalls none.

    A message recalls others of its own topic only: whoever sends it may send to that one. RocketMQ
    5.2 to 5.4 write the topic in front of the unique id, others only if a setting says so.
    """
    key = properties.get(PropertyName.TIMER_DELETE_UNIQUE_ID)
    if key is None:
        return None
    topic = properties.get(PropertyName.REAL_TOPIC, "")
    return key if key.startswith(recall_key(topic, "")) else recall_key(topic, key)


class Prefetcher:
    """Brings messages of due timers into the page cache, on a worker thread."""

    def __init__(self, store: MessageStore, files: TimerFiles) -> None:
        self._store = store
        self._files = files

    def prefetch(self, loaded: LoadedSlots) -> list[tuple[str, int]]:
        """Prefetch messages; return the keys of recalled messages with their slots. Blocks."""
        log = self._store.log
        for entry in loaded.waiting[:_MAX_PREFETCHED]:
            if not log.is_hot(entry.physical_offset):
                log.read(entry.physical_offset, entry.size)
        recalled = []
        for entry in loaded.recalls:
            key = self._recalled(entry.physical_offset)
            if key is not None:
                recalled.append((key, self._files.number(entry.due)))
        return recalled

    def _recalled(self, physical_offset: int) -> str | None:
        data = self._store.record_at(physical_offset)
        try:
            record = read_record(data) if data is not None else None
        except BadRecord:
            return None
        return recalled_by(record.decode_properties()) if isinstance(record, Record) else None
