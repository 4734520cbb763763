"""The timer of a broker: stores messages that have a delivery time and delivers them when it comes.

A pending message lies in topic rmq_sys_wheel_timer, as durable as any message; its property
TIMER_OUT_MS says when it is due. One task enqueues new messages into the slots of the timer wheel
(`enqueue`), reads slots that are due soon (`due_queue`), and re-appends pending messages of log
files about to be deleted (`log_rollover`). A second task delivers with millisecond precision
(`delivery`) and never waits for the first. Progress is checkpointed every second; deliveries made
since the checkpoint are found in the log (`checkpointing`).
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

from bolide.broker.background import TIMERS, on_thread
from bolide.broker.produce.durability import Durability
from bolide.broker.produce.intake import Intake
from bolide.broker.settings.config import BrokerConfig
from bolide.broker.timers.checkpointing import Checkpointer, Progress, ResumePoint, open_files
from bolide.broker.timers.delivery import Continuation, OnStored, TimerDelivery
from bolide.broker.timers.due_queue import DueQueue, Prefetcher
from bolide.broker.timers.enqueue import TimerEnqueuer
from bolide.broker.timers.inspection import TimerCounts, TimerListing
from bolide.broker.timers.log_rollover import LogRollover, is_free
from bolide.broker.timers.timetable import timer_draft
from bolide.config import ConfigCell
from bolide.errors import BolideError
from bolide.model.names import TIMER_TOPIC
from bolide.protocol.bodies.replication import TimerMetrics
from bolide.remoting.tasks import uninterrupted
from bolide.store.disk import Disk
from bolide.store.message_store import MessageStore
from bolide.store.tables import Table
from bolide.store.timers import (
    SLOTS,
    TimerCheckpoint,
    TimerFiles,
    TimerRecoveryPoint,
    adopt_checkpoint,
)

log = logging.getLogger(__name__)

_RETRY_DELAY = 0.1
_MAX_SLEEP = 1.0
"""Upper bound of a sleep, since the wall clock may be set forward."""
_UNUSED_SLEEP = 60.0
_CATCH_UP_TIMEOUT = 1.0
_CATCH_UP_POLL = 0.005
_CLOCK_TOLERANCE_SLOTS = 3
"""Slots by which the clock may go back before the due queue is rebuilt."""


class _Parts(NamedTuple):
    """Parts that exist while the timer files are open."""

    due_queue: DueQueue
    enqueuer: TimerEnqueuer
    delivery: TimerDelivery
    rollover: LogRollover
    recovered_to: int
    """The last slot that may hold deliveries made before the start."""
    late_to: int
    """The last slot that may hold timers that were late before the files were opened."""


class TimerLag(NamedTuple):
    """What is behind of the timer."""

    behind: int
    """Messages of the timer topic that are not in the wheel yet."""
    next_offset: int
    """Queue offset of the first of them."""
    late_seconds: int
    """For how long the first timer is due that was not read yet."""


class Timers:
    """The timer; belongs to one event loop. `run` is called between `start` and `stop`."""

    schedule = staticmethod(timer_draft)
    """Address a draft to the timer topic until a time in milliseconds, whatever its properties
    request."""

    def __init__(  # noqa: PLR0913
        self,
        store: MessageStore,
        intake: Intake,
        durability: Durability,
        metrics: Table[TimerMetrics],
        *,
        cell: ConfigCell[BrokerConfig],
        store_host: bytes,
        now: Callable[[], float] = time.time,
        disk: Disk | None = None,
        continuations: Sequence[Continuation] = (),
        wheel_slots: int = SLOTS,
        on_stored: OnStored = lambda *_: None,
    ) -> None:
        self._continuations = continuations
        self._on_stored = on_stored
        config = cell.value
        self.counts = TimerCounts(metrics, now)
        self._store = store
        self._intake = intake
        self._durability = durability
        self._store_host = store_host
        self._now = now
        self._files = TimerFiles(
            store.config.value.root,
            disk=disk or Disk(),
            file_size=config.mapped_file_size_timer_log,
            precision_ms=config.timer_precision_ms,
            slots=wheel_slots,
        )
        self._window_ms = config.timer_roll_window_slot * config.timer_precision_ms
        self._parts: _Parts | None = None
        self._feed_wanted = asyncio.Event()
        self._earlier_due = asyncio.Event()
        self._delivery_lock = asyncio.Lock()  # held while the parts may be replaced
        self._requested_end = 0
        """Log files that end at or before this physical offset are about to be deleted."""
        self._checkpointer = Checkpointer(store, self._files, now)
        self._acted_to = 0
        """Read time of the checkpoint that a slave wrote without a master."""
        self._failing: set[str] = set()
        """Steps that are failing; a failure is logged once."""
        self.listing = TimerListing(store, self._files)
        intake.watch(TIMER_TOPIC, self._feed_wanted.set)

    # ---- life

    async def start(self) -> None:
        """Resume from the last checkpoint. Raises DamagedFile."""
        self._loop = asyncio.get_running_loop()
        self._store.retention.may_go = self._may_delete
        if self._files.exist or self._store.max_offset(TIMER_TOPIC, 0):
            await self._open()

    def start_as_slave(self) -> None:
        """Read the checkpoint; the master runs the timer. Blocks."""
        self.load_checkpoint()
        self._store.retention.may_go = self._may_delete_copy

    async def stop(self) -> None:
        """Write the checkpoint and close the files; call after `run` has ended."""
        self._store.retention.may_go = lambda _: False  # no task re-appends timers any more
        await on_thread(TIMERS, self._close)

    async def _open(self, first_deliveries: Mapping[int, int] | None = None) -> _Parts:
        resume_point = await uninterrupted(
            on_thread(TIMERS, open_files, self._files, self._store, self._now_ms())
        )
        self._parts = parts = self._build(resume_point, first_deliveries or {})
        self._checkpointer.checkpoint = before = resume_point.checkpoint
        if not parts.enqueuer.is_rebuilding:
            await self._save_now()  # from now on, a crash is distinguishable from lost files
            return parts
        if before.recovery_point is None:  # written by RocketMQ
            begun = TimerRecoveryPoint(delivered_from=self._store.log.written)
            self._checkpointer.checkpoint = before = replace(before, recovery_point=begun)
        await on_thread(TIMERS, self._files.mark_incomplete, before)
        return parts

    def _close(self) -> None:
        if self._files.is_open:
            self._checkpointer.save(at_once=True)
            self.counts.save(at_once=True)
            self._files.close()
        self._parts = self._checkpointer.progress = None  # no checkpoint is written for other files

    def _build(self, resume_point: ResumePoint, first_deliveries: Mapping[int, int]) -> _Parts:
        files = self._files
        prefetcher = Prefetcher(self._store, files)
        due_queue = DueQueue(
            files,
            prefetch=prefetcher.prefetch,
            cursor=resume_point.cursor,
            on_earlier=self._earlier_due.set,
        )
        enqueuer = TimerEnqueuer(
            self._store,
            files,
            due_queue,
            self.counts,
            queue_offset=resume_point.queue_offset,
            window_ms=self._window_ms,
            done_before_ms=resume_point.done_before_ms,
            done_below_offset=resume_point.done_below_offset,
        )
        delivery = TimerDelivery(
            self._store,
            self._intake,
            self._durability,
            files=files,
            due_queue=due_queue,
            counts=self.counts,
            store_host=self._store_host,
            continuations=self._continuations,
            on_stored=self._on_stored,
            delivered=resume_point.delivered,
            delivered_from=resume_point.delivered_from,
            first_deliveries=first_deliveries,
        )
        rollover = LogRollover(
            self._store,
            self._intake,
            self._durability,
            files=files,
            due_queue=due_queue,
            enqueuer=enqueuer,
            window_ms=self._window_ms,
            store_host=self._store_host,
            carried_to=resume_point.carried_to,
            save=self._save_now,
        )
        delivery.is_carried = rollover.is_carried
        now, delivered_to = map(files.number, (self._now_ms(), resume_point.delivered_to_ms))
        return _Parts(
            due_queue,
            enqueuer,
            delivery,
            rollover,
            recovered_to=max(now, delivered_to) + _CLOCK_TOLERANCE_SLOTS,
            late_to=-1 if files.first_slot is None else now + _CLOCK_TOLERANCE_SLOTS,
        )

    # ---- the tasks

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._repeat(self.feed, self._feed_wanted), name="timers-feed")
            tasks.create_task(self._repeat(self.deliver, self._earlier_due), name="timers-deliver")

    async def _repeat(self, step: Callable[[], Awaitable[float]], wake_up: asyncio.Event) -> None:
        while True:
            wake_up.clear()
            try:
                seconds = await step()
                self._failing.discard(step.__name__)
            except Exception as exc:  # noqa: BLE001  logged; the step is retried
                self._report_failure(step.__name__, exc)
                seconds = _RETRY_DELAY
                wake_up.clear()  # set by the message that was put back; it would not wait at all
            if not seconds:
                await asyncio.sleep(0)  # let other tasks run
                continue
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await wake_up.wait()

    async def feed(self) -> float:
        """Enqueue a batch of messages and read the slots that are due soon.

        Returns:
            Seconds until there may be more to do.
        """
        parts = self._parts
        if parts is None:
            if not self._store.max_offset(TIMER_TOPIC, 0):
                return _UNUSED_SLEEP
            parts = await self._open()
        elif self._files.number(self._now_ms()) + _CLOCK_TOLERANCE_SLOTS < parts.due_queue.cursor:
            parts = await self._follow_clock()
        more = await parts.enqueuer.step(self._now_ms())
        more |= await parts.due_queue.load(self._now_ms())
        parts.due_queue.advance(self._now_ms())
        self._record_progress(parts)
        if not parts.enqueuer.is_rebuilding:
            more |= await parts.rollover.step(self._requested_end)
        return 0.0 if more else self._pause(parts)

    async def deliver(self) -> float:
        """Deliver due messages for one turn; return the seconds until more may be due."""
        async with self._delivery_lock:
            parts = self._parts
            if parts is None:
                return _UNUSED_SLEEP
            more = await parts.delivery.step(self._now_ms)
            parts.due_queue.advance(self._now_ms())
            if more:
                return 0.0
        if parts.due_queue.until_load(self._now_ms()) == 0:
            self._feed_wanted.set()  # memory has room for the rest of a slot
        left = parts.due_queue.until_due(self._now_ms())
        return _MAX_SLEEP if left is None else min(left / 1000, _MAX_SLEEP)

    async def _follow_clock(self) -> _Parts:
        """The clock was set back: reopen as after a restart, and find deliveries in the log."""
        log.warning("the clock went back: rebuilding the queue of due timers")
        async with self._delivery_lock:
            first_deliveries = self._parts.delivery.first_deliveries if self._parts else {}
            await on_thread(TIMERS, self._close)
            return await self._open(first_deliveries)

    def _pause(self, parts: _Parts) -> float:
        left = parts.due_queue.until_load(self._now_ms())
        if parts.enqueuer.behind or self._requested_end > parts.rollover.carried_to:
            return _RETRY_DELAY if left is None else min(left / 1000, _RETRY_DELAY)
        if parts.due_queue.is_full:  # deliveries free memory without a notification
            return _RETRY_DELAY
        if left is None:
            if not len(parts.due_queue):
                self.counts.reset()
            return _MAX_SLEEP
        return min(left / 1000, _MAX_SLEEP)

    def _report_failure(self, what: str, exc: Exception) -> None:
        if what not in self._failing:
            self._failing.add(what)
            expected = isinstance(exc, BolideError | OSError)
            log.error("timer messages are delayed: %s", exc, exc_info=None if expected else exc)

    def _now_ms(self) -> int:
        return int(self._now() * 1000)

    # ---- retention

    def _may_delete(self, end: int) -> bool:
        """Return whether a log file that ends at `end` may be deleted; called on the thread of
        the store."""
        parts = self._parts
        if parts is None:
            return not self._store.max_offset(TIMER_TOPIC, 0)
        if end <= parts.rollover.carried_to:
            return True
        self._requested_end = max(self._requested_end, end)
        with suppress(RuntimeError):  # the event loop is closed
            self._loop.call_soon_threadsafe(self._feed_wanted.set)
        return False

    def _may_delete_copy(self, end: int) -> bool:
        """The same at a slave: its master may not have re-appended what waits in the file."""
        checkpoint = self.checkpoint
        point = checkpoint.recovery_point
        if point is None:  # there were no timers, or RocketMQ's master does not say
            return True
        return end <= point.carried_to or is_free(
            self._store, end, checkpoint.read_time, self._window_ms
        )

    # ---- progress

    async def wait_until_enqueued(self) -> None:
        """Wait, up to a second, until all messages that arrived before are enqueued."""
        end = self._store.max_offset(TIMER_TOPIC, 0)
        with suppress(TimeoutError):
            async with asyncio.timeout(_CATCH_UP_TIMEOUT):
                while self._parts is None or self._parts.enqueuer.queue_offset < end:
                    if not end:
                        return
                    await asyncio.sleep(_CATCH_UP_POLL)

    def last_checkpoint(self) -> TimerCheckpoint | None:
        """The checkpoint on the disk, for replicas; None if they shall keep the one they have.

        A replica has no slots. By its time alone a timer that was late would count as delivered, so
        the time is not later than that of such a timer. Which ones were late before a restart is
        not known any more, until all that was due by then is delivered.
        """
        checkpoint, parts = self._checkpointer.checkpoint, self._parts
        if parts is None or not self._files.is_open:
            return None
        if not parts.enqueuer.is_rebuilding and parts.due_queue.cursor <= parts.late_to:
            return None
        late = parts.due_queue.earliest_late
        if late is None or late >= checkpoint.read_time:
            return checkpoint
        return replace(checkpoint, read_time=late)

    # ---- progress of other members of the group; these methods block

    def load_checkpoint(self) -> TimerCheckpoint:
        """Read the checkpoint from the disk, while the timer does not run."""
        found = self._files.read_checkpoint()
        if found is not None:
            self._checkpointer.checkpoint = found
        return self.checkpoint

    def adopt(self, checkpoint: TimerCheckpoint) -> None:
        """Take over the checkpoint of the master, at a slave.

        The one that this slave wrote without a master is kept until the master has reached it.
        """
        if checkpoint.read_time >= self._acted_to:
            self._acted_to = 0
            self._store_checkpoint(checkpoint)

    def record_acting(self, checkpoint: TimerCheckpoint) -> None:
        """Store how far this slave has delivered while its group has no master."""
        self._acted_to = checkpoint.read_time
        self._store_checkpoint(checkpoint)

    def take_ahead(self, checkpoint: TimerCheckpoint) -> bool:
        """Adopt the checkpoint of a slave if it is ahead, at a master that starts.

        Messages that were due before were delivered while this master was away. The wheel is made
        anew from the timer topic.
        """
        own = self.load_checkpoint()
        if checkpoint.read_time <= own.read_time:
            return False
        self._store_checkpoint(replace(checkpoint, recovery_point=own.recovery_point))
        return True

    def _store_checkpoint(self, checkpoint: TimerCheckpoint) -> None:
        adopt_checkpoint(self._store.config.value.root, checkpoint)
        self._checkpointer.checkpoint = checkpoint

    @property
    def checkpoint(self) -> TimerCheckpoint:
        """The last checkpoint written."""
        return self._checkpointer.checkpoint

    @property
    def metrics(self) -> TimerMetrics:
        return self.counts.table

    def lag(self) -> TimerLag:
        """How far the timer is behind."""
        parts = self._parts
        if parts is None:
            return TimerLag(0, 0, 0)
        late = 0
        if not parts.due_queue.is_empty:
            reached = parts.due_queue.cursor * self._files.precision_ms
            late = max((self._now_ms() - reached) // 1000, 0)
        return TimerLag(parts.enqueuer.behind, parts.enqueuer.queue_offset, late)

    def due_counts(self, bounds: Sequence[int]) -> list[tuple[int, int]]:
        """How many timers are due within so many seconds, later than the bound before. Blocks."""
        if not self._files.is_open:  # nothing has ever waited
            return [(bound, 0) for bound in bounds]
        now = self._now_ms()
        ends = [self._files.number(now + bound * 1000) for bound in bounds]
        counts = self._files.count_between([self._files.number(now), *ends])
        return list(zip(bounds, counts, strict=True))

    def figures(self) -> dict[str, str]:
        """Runtime information, under the keys of RocketMQ."""
        lag = self.lag()
        return {
            "timerReadBehind": str(lag.late_seconds),
            "timerOffsetBehind": str(lag.behind),
            "timerCongestNum": str(self.counts.total),
            "timerEnqueueTps": f"{self.counts.arrivals.per_second:.1f}",
            "timerDequeueTps": f"{self.counts.deliveries.per_second:.1f}",
        }

    def _record_progress(self, parts: _Parts) -> None:
        if parts.enqueuer.is_rebuilding:
            # By a checkpoint from now, what was delivered before the rebuild would come again after
            # a crash. The one before it still says what is done, and the log what came since.
            return
        if parts.due_queue.cursor > parts.recovered_to:
            parts.delivery.forget_delivered()
        self._checkpointer.progress = Progress(
            parts.due_queue.cursor * self._files.precision_ms,
            parts.enqueuer.queue_offset,
            self._files.log_end,
            parts.delivery.delivered_from(self._store.log.written),
            parts.rollover.carried_to,
            self.counts.deliveries.total,
        )

    async def _save_now(self) -> None:
        if self._parts:
            self._record_progress(self._parts)
        await uninterrupted(on_thread(TIMERS, self._checkpointer.save, at_once=True))

    def save(self) -> None:
        """Write the checkpoint and the counts if they are due. Blocks."""
        self._checkpointer.save()
        self.counts.save()
