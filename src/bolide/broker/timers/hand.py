"""The hand over the timer wheel: what is due soon is in memory, the rest in the files.

Slots up to `loaded_to` have been read; what comes into one of them later goes to memory as well.
`cursor` is the first slot of which something may be undelivered: a restart begins there.
"""

import asyncio
from collections.abc import Callable
from heapq import heappop, heappush
from typing import NamedTuple

from bolide.model.properties import PropertyName
from bolide.remoting.uninterrupted import uninterrupted
from bolide.store.timers import Loaded, TimerFiles, Waiting, WaitingKey

LEAD_MS = 1000
"""How long before its time a slot is read."""

_MOST = 50_000
"""Messages that are kept in memory; of a slot with more the rest is read later."""
_NEVER = 2**62
_KEPT_SLOTS = 2
"""How long a recall is known: RocketMQ may have put it into the slot before its message."""


class Soon(NamedTuple):
    """A message that is due soon; they sort by that."""

    due: int
    physical_offset: int
    slot: int
    waiting: Waiting


class _Read(NamedTuple):
    loaded: Loaded
    recalled: list[tuple[str, int]]
    next_slot: int


class Hand:
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
        warm: Callable[[Loaded], list[tuple[str, int]]],
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
        self._boundary: WaitingKey | None = None
        self._soon: list[Soon] = []
        self._open: dict[int, int] = {}
        """How many of a slot that was read are not delivered yet."""
        self._recalled: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._soon)

    # ---- reading slots

    async def load(self, now_ms: int) -> bool:
        """Read what is due soon; says whether there is more of it that may be read at once."""
        target = self._files.number(now_ms + LEAD_MS)
        if self._boundary is not None:
            if not self._soon:
                slot = self.loaded_to
                self._take(await self._read(slot, slot, _MOST, self._boundary))
        elif self.loaded_to < target and len(self._soon) < _MOST:
            if self._next_slot > target:
                self.loaded_to = target
            else:
                first, room = max(self._next_slot, self.loaded_to + 1), _MOST - len(self._soon)
                self._take(await self._read(first, target, room, None))
        return self._boundary is None and self.loaded_to < target and len(self._soon) < _MOST

    async def _read(self, first: int, last: int, limit: int, behind: WaitingKey | None) -> "_Read":
        def read() -> _Read:
            loaded = self._files.load(first, last, limit, behind)
            next_slot = self._files.next_occupied(loaded.last_slot + 1)
            return _Read(loaded, self._warm(loaded), _NEVER if next_slot is None else next_slot)

        return await uninterrupted(asyncio.to_thread(read))

    def _take(self, read: "_Read") -> None:
        loaded = read.loaded
        self.loaded_to, self._boundary = loaded.last_slot, loaded.boundary
        self._next_slot = read.next_slot
        for key, slot in read.recalled:
            self.recall(key, slot)
        for waiting in loaded.waiting:
            self._add(waiting, waiting.due)

    # ---- what comes

    def arrived(self, waiting: Waiting, due: int) -> None:
        """Say that a message was put into its slot, and when it is due."""
        slot = self._files.number(waiting.due)
        if slot > self.loaded_to:
            self._next_slot = min(self._next_slot, slot)
            return
        if slot == self.loaded_to and self._boundary and waiting.key > self._boundary:
            return
        self._add(waiting, due)

    def recall(self, key: str, slot: int) -> None:
        self._recalled[key] = max(slot, self._recalled.get(key, slot))

    def is_recalled(self, topic: str, unique_id: str | None) -> bool:
        if not self._recalled or unique_id is None:
            return False
        # RocketMQ 5.2 to 5.4 name the topic too.
        return recall_key(topic, unique_id) in self._recalled or unique_id in self._recalled

    def _add(self, waiting: Waiting, due: int) -> None:
        slot = self._files.number(waiting.due)
        self._open[slot] = self._open.get(slot, 0) + 1
        self._push(Soon(due, waiting.physical_offset, slot, waiting))

    # ---- what goes

    def take(self, now_ms: int) -> Soon | None:
        """The next one that is due; `done` or `put_back` must follow."""
        if self._soon and self._soon[0].due <= now_ms:
            return heappop(self._soon)
        return None

    def put_back(self, soon: Soon, due: int | None = None) -> None:
        self._push(soon if due is None else soon._replace(due=due))

    def _push(self, soon: Soon) -> None:
        heappush(self._soon, soon)
        if self._soon[0] is soon:
            self._sooner()

    def done(self, soon: Soon) -> None:
        self._open[soon.slot] -= 1
        if not self._open[soon.slot]:
            del self._open[soon.slot]

    def advance(self, now_ms: int) -> None:
        """Move to the first slot of which something may be undelivered."""
        last = self.loaded_to + 1 if self._boundary is None else self.loaded_to
        reached = min([last, self._files.number(now_ms), *self._open])
        if reached <= self.cursor:
            return
        self.cursor = reached
        for key in [key for key, slot in self._recalled.items() if slot + _KEPT_SLOTS < reached]:
            del self._recalled[key]

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits, here or in the files."""
        return not self._soon and self._next_slot == _NEVER and self._boundary is None

    def until_due(self, now_ms: int) -> int | None:
        """Milliseconds until the first one is due; None if nothing is in memory."""
        return max(self._soon[0].due - now_ms, 0) if self._soon else None

    def until_load(self, now_ms: int) -> int | None:
        """Milliseconds until there is something to read; None if that comes otherwise."""
        if self._boundary is not None:
            return None if self._soon else 0
        if self._next_slot == _NEVER or len(self._soon) >= _MOST:
            return None
        return max(self._next_slot * self._files.precision_ms - LEAD_MS - now_ms, 0)


def recall_key(topic: str, unique_id: str) -> str:
    """What TIMER_DEL_UNIQKEY says of a message."""
    return f"{topic}+{unique_id}"


def recalled_by(properties: dict[str, str]) -> str | None:
    return properties.get(PropertyName.TIMER_DELETE_UNIQUE_ID)
