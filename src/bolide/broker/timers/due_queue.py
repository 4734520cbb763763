"""In-memory heap of timers that are due soon, and the prefetch of their messages.

Slots up to `loaded_to` have been read; what comes into one of them later goes to memory as well.
`cursor` is the first slot of which something may be undelivered: a restart begins there.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Callable
from heapq import heappop, heappush
from typing import NamedTuple

from bolide.kernel import read_record
from bolide.model.properties import PropertyName
from bolide.protocol.record import Record
from bolide.protocol.record_errors import BadRecord
from bolide.remoting.tasks import uninterrupted
from bolide.store.message_store import MessageStore
from bolide.store.timers import LoadedSlots, TimerEntry, TimerFiles, TimerKey

LEAD_MS = 1000
"""How long before its time a slot is read."""

_MAX_IN_MEMORY = 50_000
"""Messages that are kept in memory; of a slot with more the rest is read later."""
_NEVER = 2**62
_KEPT_SLOTS = 2
"""How long a recall is known: RocketMQ may have put it into the slot before its message."""


class DueTimer(NamedTuple):
    """A message that is due soon; they sort by that."""

    due: int
    physical_offset: int
    slot: int
    waiting: TimerEntry


class _Read(NamedTuple):
    """What a thread has read, made ready: the loop has other things to do."""

    soon: list[DueTimer]
    by_slot: Counter[int]
    recalled: list[tuple[str, int]]
    last_slot: int
    boundary: TimerKey | None
    next_slot: int


class DueQueue:
    """Belongs to one event loop.

    Args:
        warm: called on a thread with what was read: tells which messages are recalled, and sees
            that the others can be read without the disk.
        sooner: called when something is due earlier than all else.
    """

    def __init__(
        self,
        files: TimerFiles,
        *,
        warm: Callable[[LoadedSlots], list[tuple[str, int]]],
        cursor: int,
        sooner: Callable[[], None],
    ) -> None:
        self.cursor = cursor
        self.loaded_to = cursor - 1
        self._files = files
        self._warm = warm
        self._sooner = sooner
        self._next_slot = cursor
        """None of those between the ones that were read and this one holds anything."""
        self._boundary: TimerKey | None = None
        self._read_ahead: deque[DueTimer] = deque()
        """In their order, as slots are."""
        self._came: list[DueTimer] = []
        """A heap: what came into a slot that had been read, or is tried again."""
        self._open: dict[int, int] = {}
        """How many of a slot that was read are not delivered yet."""
        self._recalled: dict[str, int] = {}
        self.held_at: int | None = None
        """A slot into which something is put at the moment: the cursor does not pass it."""

    def __len__(self) -> int:
        return len(self._read_ahead) + len(self._came)

    # ---- reading slots

    async def load(self, now_ms: int) -> bool:
        """Read what is due soon; says whether there is more of it that may be read at once."""
        target = self._files.number(now_ms + LEAD_MS)
        if self._boundary is not None:
            if not self._read_ahead and not self.is_full:
                slot = self.loaded_to
                self._take(await self._read(slot, slot, _MAX_IN_MEMORY, self._boundary))
        elif self.loaded_to < target and not self.is_full:
            if self._next_slot > target:
                self.loaded_to = target
            else:
                first, room = max(self._next_slot, self.loaded_to + 1), _MAX_IN_MEMORY - len(self)
                self._take(await self._read(first, target, room, None))
        return self._boundary is None and self.loaded_to < target and not self.is_full

    async def _read(self, first: int, last: int, limit: int, behind: TimerKey | None) -> "_Read":
        def read() -> _Read:
            loaded = self._files.load(first, last, limit, behind)
            soon = [self._soon_of(waiting) for waiting in loaded.waiting]
            return _Read(
                soon,
                Counter([each.slot for each in soon]),
                self._warm(loaded),
                loaded.last_slot,
                loaded.boundary,
                self._files.next_occupied(loaded.last_slot + 1) or _NEVER,
            )

        return await uninterrupted(asyncio.to_thread(read))

    def _soon_of(self, waiting: TimerEntry) -> DueTimer:
        slot = self._files.number(waiting.due)
        return DueTimer(waiting.due, waiting.physical_offset, slot, waiting)

    def _take(self, read: "_Read") -> None:
        self.loaded_to, self._boundary = read.last_slot, read.boundary
        self._next_slot = read.next_slot
        for key, slot in read.recalled:
            self.recall(key, slot)
        for slot, count in read.by_slot.items():
            self._open[slot] = self._open.get(slot, 0) + count
        self._read_ahead.extend(read.soon)
        if read.soon:
            self._sooner()

    # ---- what comes

    def arrived(self, waiting: TimerEntry, due: int) -> None:
        """Say that a message was put into its slot, and when it is due."""
        slot = self._files.number(waiting.due)
        if slot > self.loaded_to:
            self._next_slot = min(self._next_slot, slot)
            return
        if slot == self.loaded_to and self._boundary and waiting.key > self._boundary:
            return
        self._open[slot] = self._open.get(slot, 0) + 1
        self._push(DueTimer(due, waiting.physical_offset, slot, waiting))

    def recall(self, key: str, slot: int) -> None:
        self._recalled[key] = max(slot, self._recalled.get(key, slot))

    def is_recalled(self, topic: str, unique_id: str | None) -> bool:
        if not self._recalled or unique_id is None:
            return False
        # RocketMQ 5.2 to 5.4 name the topic too.
        return recall_key(topic, unique_id) in self._recalled or unique_id in self._recalled

    # ---- what goes

    def take(self, now_ms: int) -> DueTimer | None:
        """The next one that is due; `done` or `put_back` must follow."""
        first = self._first
        if first is None or first.due > now_ms:
            return None
        if self._came and self._came[0] is first:
            return heappop(self._came)
        return self._read_ahead.popleft()

    def put_back(self, soon: DueTimer, due: int | None = None) -> None:
        self._push(soon if due is None else soon._replace(due=due))

    def _push(self, soon: DueTimer) -> None:
        heappush(self._came, soon)
        if self._first is soon:
            self._sooner()

    @property
    def _first(self) -> DueTimer | None:
        """What is due first."""
        heads = [each[0] for each in (self._came, self._read_ahead) if each]
        return min(heads, default=None)

    def done(self, soon: DueTimer) -> None:
        self._open[soon.slot] -= 1
        if not self._open[soon.slot]:
            del self._open[soon.slot]

    def advance(self, now_ms: int) -> None:
        """Move to the first slot of which something may be undelivered."""
        last = self.loaded_to + 1 if self._boundary is None else self.loaded_to
        held = [] if self.held_at is None else [self.held_at]
        reached = min([last, self._files.number(now_ms), *held, *self._open])
        if reached <= self.cursor:
            return
        self.cursor = reached
        for key in [key for key, slot in self._recalled.items() if slot + _KEPT_SLOTS < reached]:
            del self._recalled[key]

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits, here or in the files."""
        return not len(self) and self._next_slot == _NEVER and self._boundary is None

    @property
    def is_full(self) -> bool:
        return len(self) >= _MAX_IN_MEMORY

    def until_due(self, now_ms: int) -> int | None:
        """Milliseconds until the first one is due; None if nothing is in memory."""
        first = self._first
        return None if first is None else max(first.due - now_ms, 0)

    def until_load(self, now_ms: int) -> int | None:
        """Milliseconds until there is something to read; None if that comes otherwise."""
        if self.is_full:
            return None
        if self._boundary is not None:
            return None if self._read_ahead else 0
        if self._next_slot == _NEVER:
            return None
        return max(self._next_slot * self._files.precision_ms - LEAD_MS - now_ms, 0)


def recall_key(topic: str, unique_id: str) -> str:
    """What TIMER_DEL_UNIQKEY says of a message."""
    return f"{topic}+{unique_id}"


def recalled_by(properties: dict[str, str]) -> str | None:
    return properties.get(PropertyName.TIMER_DELETE_UNIQUE_ID)


_MAX_PREFETCHED = 5000
"""Messages of one reading; of more than so many most wait for others anyway."""


class Prefetcher:
    def __init__(self, store: MessageStore, files: TimerFiles) -> None:
        self._store = store
        self._files = files

    def warm(self, loaded: LoadedSlots) -> list[tuple[str, int]]:
        """Bring messages into the page cache; returns what is recalled, with its slot. Blocks."""
        log = self._store.log
        for waiting in loaded.waiting[:_MAX_PREFETCHED]:
            if not log.is_hot(waiting.physical_offset):
                log.read(waiting.physical_offset, waiting.size)
        recalled = []
        for waiting in loaded.recalls:
            key = self._recalled(waiting.physical_offset)
            if key is not None:
                recalled.append((key, self._files.number(waiting.due)))
        return recalled

    def _recalled(self, place: int) -> str | None:
        data = self._store.record_at(place)
        try:
            record = read_record(data) if data is not None else None
        except BadRecord:
            return None
        return recalled_by(record.decode_properties()) if isinstance(record, Record) else None
