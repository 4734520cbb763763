"""Carries what still waits forward in the log, before the file it lies in goes.

RocketMQ's way, to put everything into the timer again within two days, does for the usual three
days of retention. With less, or on a full disk, files are asked for earlier: then all that waits
in one of them is put into the timer again first.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from bolide.broker.produce.durability import Durability
from bolide.broker.produce.intake import Intake
from bolide.broker.timers.delivery import rolled_draft
from bolide.broker.timers.due_queue import DueQueue
from bolide.broker.timers.enqueue import USUAL_WINDOW_MS, TimerEnqueue
from bolide.kernel import read_record
from bolide.model.names import TIMER_TOPIC
from bolide.protocol.codes import ResponseCode
from bolide.protocol.record import Record
from bolide.protocol.record_errors import BadRecord
from bolide.remoting.tasks import uninterrupted
from bolide.store.appending import Appended
from bolide.store.errors import StoreUnwritable
from bolide.store.message_store import MessageStore
from bolide.store.timers import TimerFiles

log = logging.getLogger(__name__)

_DOUBT_MS = 12 * 3600 * 1000
"""How late RocketMQ may have put a message into its slot, or how far clocks may have gone back."""
_CHUNK = 64
_CHUNK_BYTES = 1024 * 1024


class _Chunk(NamedTuple):
    records: list[tuple[int, bytes]]
    """Slots, and what waits in them."""
    next_slot: int | None
    """None: that was all."""


class LogRollover:
    """Belongs to one event loop; `may_go` is for the store's thread."""

    def __init__(  # noqa: PLR0913  it reads, writes and asks how far the others are
        self,
        store: MessageStore,
        intake: Intake,
        durability: Durability,
        *,
        files: TimerFiles,
        due_queue: DueQueue,
        enqueuer: TimerEnqueue,
        window_ms: int,
        store_host: bytes,
        carried_to: int,
        save: Callable[[], Awaitable[None]],
    ) -> None:
        self.carried_to = carried_to
        """Nothing waits that lies before this place of the log."""
        self._store = store
        self._intake = intake
        self._durability = durability
        self._files = files
        self._due_queue = due_queue
        self._enqueuer = enqueuer
        self._window_ms = window_ms
        self._store_host = store_host
        self._save = save
        self._next_slot: int | None = None
        self._barrier = 0
        self._moved: set[int] = set()
        self._unsafe: set[int] = set()
        """Those of them whose copy may yet be taken back."""
        self._is_to_repeat = False

    def is_carried(self, place: int) -> bool:
        """Whether the message there waits elsewhere now."""
        return place < self.carried_to or (place in self._moved and place not in self._unsafe)

    async def step(self, end: int) -> bool:
        """Carry some of what lies before a place; says whether there is more to do at once."""
        if end <= self.carried_to or (self._enqueuer.behind and self._enqueuer.reached < end):
            return False
        if self._is_to_repeat:
            self._is_to_repeat, self._next_slot = False, self._due_queue.cursor
        elif self._next_slot is None and not self._moved and not self._barrier:
            if await asyncio.to_thread(self._is_free, end):
                await self._finish(end)
                return False
            self._next_slot = self._due_queue.loaded_to + 1
        if self._next_slot is not None:
            chunk = await uninterrupted(asyncio.to_thread(self._collect, self._next_slot, end))
            self._carry(chunk)
            return True
        if self._due_queue.cursor > self._barrier and not self._unsafe:
            await self._finish(end)
        return False

    async def _finish(self, end: int) -> None:
        # The file may go as soon as it is said so: the copies must be on the disk by then.
        if not await asyncio.to_thread(self._store.flush) or self._is_to_repeat:
            return
        if self._moved:
            log.info("carried %s messages that wait forward in the log", len(self._moved))
        self.carried_to, self._barrier = end, 0
        self._moved.clear()
        await self._save()
        await asyncio.to_thread(self._files.trim, self._store.log.min_offset)

    def _is_free(self, end: int) -> bool:
        """Whether nothing that lies before a place can wait any more."""
        queue = self._store.find_queue(TIMER_TOPIC, 0)
        first = self._store.min_offset(TIMER_TOPIC, 0)
        low, high = first, self._store.max_offset(TIMER_TOPIC, 0)
        while queue and low < high:  # the first message that lies behind the place
            middle = (low + high) // 2
            unit = next(queue.read(middle, 1), None)
            if unit is not None and unit.physical_offset < end:
                low = middle + 1
            else:
                high = middle
        if low == first:
            return True
        stored = self._store.stored_at(TIMER_TOPIC, 0, low - 1)
        reached = self._due_queue.cursor * self._files.precision_ms
        return 0 <= stored < reached - max(self._window_ms, USUAL_WINDOW_MS) - _DOUBT_MS

    def _collect(self, first: int, end: int) -> _Chunk:
        records: list[tuple[int, bytes]] = []
        size = 0
        for slot, waiting in self._files.pages(first):
            for each in waiting:
                if each.physical_offset < end and each.physical_offset not in self._moved:
                    data = self._store.record_at(each.physical_offset)
                    if data is not None:
                        records.append((slot, bytes(data)))
                        size += len(data)
            if len(records) >= _CHUNK or size >= _CHUNK_BYTES:
                return _Chunk(records, slot + 1)
        return _Chunk(records, None)

    def _carry(self, chunk: _Chunk) -> None:
        self._barrier = max(self._barrier, self._due_queue.loaded_to)
        for slot, data in chunk.records:
            record = _readable(data)
            # What was read into memory meanwhile is delivered in a moment.
            if record is None or slot <= self._due_queue.loaded_to:
                continue
            draft = rolled_draft(record, record.decode_properties(), self._store_host)
            appended = self._store.append(draft, makes_room=True)
            self._intake.touch(TIMER_TOPIC, 0, appended.end)
            self._moved.add(record.physical_offset)
            self._unsafe.add(record.physical_offset)
            self._watch(record.physical_offset, appended)
        self._next_slot = chunk.next_slot

    def _watch(self, place: int, appended: Appended) -> None:
        """Carry it again if the store takes it back, however late."""

        def tell(outcome: int | StoreUnwritable) -> None:
            if isinstance(outcome, StoreUnwritable):
                self._moved.discard(place)
                self._is_to_repeat = True
            elif outcome != ResponseCode.SUCCESS:
                self._durability.when_safe(appended, tell)
                return
            self._unsafe.discard(place)

        self._durability.when_safe(appended, tell)


def _readable(data: bytes) -> Record | None:
    try:
        record = read_record(data)
    except BadRecord:
        return None
    return record if isinstance(record, Record) and record.topic == TIMER_TOPIC else None
