"""Re-appends pending timers before the log file that holds them is deleted.

RocketMQ re-appends every timer within two days, which suffices for the default retention of three
days. With shorter retention, or on a full disk, files are deleted earlier; all pending timers of
such a file are re-appended first.
"""

import logging
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from bolide.broker.background import TIMERS, on_thread
from bolide.broker.produce.durability import Durability
from bolide.broker.produce.intake import Intake
from bolide.broker.timers.delivery import rolled_draft
from bolide.broker.timers.due_queue import DueQueue
from bolide.broker.timers.enqueue import DEFAULT_WINDOW_MS, TimerEnqueuer
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

_MAX_ENQUEUE_DELAY_MS = 12 * 3600 * 1000
"""How late RocketMQ may have enqueued a message, or how far clocks may have been set back."""
_BATCH_COUNT = 64
_BATCH_BYTES = 1024 * 1024


class _Batch(NamedTuple):
    records: list[tuple[int, bytes]]
    """Slots and the messages pending in them."""
    next_slot: int | None
    """None if all slots were read."""


class LogRollover:
    """Re-appends pending timers; belongs to one event loop."""

    def __init__(  # noqa: PLR0913
        self,
        store: MessageStore,
        intake: Intake,
        durability: Durability,
        *,
        files: TimerFiles,
        due_queue: DueQueue,
        enqueuer: TimerEnqueuer,
        window_ms: int,
        store_host: bytes,
        carried_to: int,
        save: Callable[[], Awaitable[None]],
    ) -> None:
        self.carried_to = carried_to
        """No timer is pending whose message lies before this physical offset."""
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
        self._not_durable: set[int] = set()
        """Messages of `_moved` whose copies are not durable yet."""
        self._must_repeat = False

    def is_carried(self, physical_offset: int) -> bool:
        """Whether the message at a physical offset was re-appended."""
        return physical_offset < self.carried_to or (
            physical_offset in self._moved and physical_offset not in self._not_durable
        )

    async def step(self, end: int) -> bool:
        """Re-append a batch of timers that lie before `end`; return whether to continue at once."""
        if end <= self.carried_to or (
            self._enqueuer.behind and self._enqueuer.reached_offset < end
        ):
            return False
        if self._must_repeat:
            self._must_repeat, self._next_slot = False, self._due_queue.cursor
        elif self._next_slot is None and not self._moved and not self._barrier:
            if await on_thread(TIMERS, self._is_free, end):
                await self._finish(end)
                return False
            self._next_slot = self._due_queue.loaded_to + 1
        if self._next_slot is not None:
            batch = await uninterrupted(on_thread(TIMERS, self._collect, self._next_slot, end))
            self._append_copies(batch)
            return True
        if self._due_queue.cursor > self._barrier and not self._not_durable:
            await self._finish(end)
        return False

    async def _finish(self, end: int) -> None:
        # The file may be deleted once `carried_to` passes it: the copies must be durable by then.
        if not await on_thread(TIMERS, self._store.flush) or self._must_repeat:
            return
        if self._moved:
            log.info(
                "re-appended %s pending timers before their log files are deleted", len(self._moved)
            )
        self.carried_to, self._barrier = end, 0
        self._moved.clear()
        await self._save()
        await on_thread(TIMERS, self._files.trim, self._store.log.min_offset)

    def _is_free(self, end: int) -> bool:
        reached = self._due_queue.cursor * self._files.precision_ms
        return is_free(self._store, end, reached, self._window_ms)

    def _collect(self, first: int, end: int) -> _Batch:
        records: list[tuple[int, bytes]] = []
        size = 0
        for slot, entries in self._files.pages(first):
            for each in entries:
                if each.physical_offset < end and each.physical_offset not in self._moved:
                    data = self._store.record_at(each.physical_offset)
                    if data is not None:
                        records.append((slot, bytes(data)))
                        size += len(data)
            if len(records) >= _BATCH_COUNT or size >= _BATCH_BYTES:
                return _Batch(records, slot + 1)
        return _Batch(records, None)

    def _append_copies(self, batch: _Batch) -> None:
        self._barrier = max(self._barrier, self._due_queue.loaded_to)
        for slot, data in batch.records:
            record = _readable(data)
            # Timers read into memory meanwhile are delivered in a moment.
            if record is None or slot <= self._due_queue.loaded_to:
                continue
            draft = rolled_draft(record, record.decode_properties(), self._store_host)
            appended = self._store.append(draft, makes_room=True)
            self._intake.touch(TIMER_TOPIC, 0, appended.end)
            self._moved.add(record.physical_offset)
            self._not_durable.add(record.physical_offset)
            self._track_copy(record.physical_offset, appended)
        self._next_slot = batch.next_slot

    def _track_copy(self, physical_offset: int, appended: Appended) -> None:
        """Re-append the message again if its copy is lost, however late that is known."""

        def on_durable(outcome: int | StoreUnwritable) -> None:
            if isinstance(outcome, StoreUnwritable):
                self._moved.discard(physical_offset)
                self._must_repeat = True
            elif outcome != ResponseCode.SUCCESS:
                self._durability.when_durable(appended, on_durable)
                return
            self._not_durable.discard(physical_offset)

        self._durability.when_durable(appended, on_durable)


def is_free(store: MessageStore, end: int, reached_ms: int, window_ms: int) -> bool:
    """Whether no timer before a log position can be pending when all until a time are done. Blocks.

    By its time alone: what waits for longer than the window is re-appended when that is over.
    """
    queue = store.find_queue(TIMER_TOPIC, 0)
    first = store.min_offset(TIMER_TOPIC, 0)
    low, high = first, store.max_offset(TIMER_TOPIC, 0)
    while queue and low < high:  # binary search for the first message at or after `end`
        middle = (low + high) // 2
        unit = next(queue.read(middle, 1), None)
        if unit is not None and unit.physical_offset < end:
            low = middle + 1
        else:
            high = middle
    if low == first:
        return True
    stored = store.stored_at(TIMER_TOPIC, 0, low - 1)
    window = max(window_ms, DEFAULT_WINDOW_MS)
    return 0 <= stored < reached_ms - window - _MAX_ENQUEUE_DELAY_MS


def _readable(data: bytes) -> Record | None:
    try:
        record = read_record(data)
    except BadRecord:
        return None
    return record if isinstance(record, Record) and record.topic == TIMER_TOPIC else None
