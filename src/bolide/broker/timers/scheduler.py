"""The timer of a broker: messages with a delivery time come in, and go out when it is reached.

What waits lies in topic rmq_sys_wheel_timer, as durable as any message, and says by property
TIMER_OUT_MS when it is due. One task puts new ones into the slots of the timer wheel
(`enqueuing`), reads slots that are due soon (`hand`), and carries forward what waits in log files
that are to go (`carrying`); another one delivers to the millisecond (`delivering`) and never waits
for the first. How far they are is written down every second; what was delivered since then is
found in the log (`delivered`).
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import NamedTuple

from bolide.broker.produce.durability import Durability
from bolide.broker.produce.intake import Intake
from bolide.broker.settings.config import BrokerConfig
from bolide.broker.timers.checkpointing import Checkpointer, Progress, Start, open_files
from bolide.broker.timers.delivery import Continued, TimerDelivery
from bolide.broker.timers.due_queue import DueQueue, Prefetcher
from bolide.broker.timers.enqueue import TimerEnqueue
from bolide.broker.timers.inspection import Listing, TimerCounts
from bolide.broker.timers.log_rollover import LogRollover
from bolide.broker.timers.timetable import waiting_draft
from bolide.config import ConfigCell
from bolide.errors import BolideError
from bolide.model.names import TIMER_TOPIC
from bolide.protocol.bodies.replication import TimerMetrics
from bolide.remoting.tasks import uninterrupted
from bolide.store.disk import Disk
from bolide.store.message_store import MessageStore
from bolide.store.tables import Table
from bolide.store.timers import SLOTS, TimerCheckpoint, TimerFiles

log = logging.getLogger(__name__)

_AFTER_FAILURE = 0.1
_LONGEST_SLEEP = 1.0
"""Then it looks at the clock, which somebody may have put forward."""
_UNUSED_SLEEP = 60.0
_CATCHING_UP = 1.0
_LOOK_AGAIN = 0.005
_SET_BACK = 3
"""Slots by which the clock may go back before the hand follows."""


class _Works(NamedTuple):
    """What runs while the files are open."""

    due_queue: DueQueue
    enqueuer: TimerEnqueue
    deliverer: TimerDelivery
    carrier: LogRollover
    known_to: int
    """The last slot of which something may have been delivered before the start."""


class Timers:
    """Belongs to one event loop; `run` goes between `start` and `stop`."""

    schedule = staticmethod(waiting_draft)
    """A draft as it waits until a time in milliseconds, whatever it asks for itself."""

    def __init__(  # noqa: PLR0913  where from, where to, and the settings of both
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
        wheel_slots: int = SLOTS,
    ) -> None:
        config = cell.value
        self.on_delivered: list[Continued] = []
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
        self._works: _Works | None = None
        self._woken = asyncio.Event()
        self._sooner = asyncio.Event()
        self._delivering = asyncio.Lock()  # held while the parts may be another's in a moment
        self._wanted_free = 0
        """Files of the log that end here, or before, are to go."""
        self._notebook = Checkpointer(store, self._files, now)
        self._stuck: set[str] = set()
        """What fails; that is told once."""
        self.listing = Listing(store, self._files)
        intake.watch(TIMER_TOPIC, self._woken.set)

    # ---- life

    async def start(self) -> None:
        """Go on where the last run ended. Raises DamagedFile."""
        self._loop = asyncio.get_running_loop()
        self._store.retention.may_go = self._may_go
        if self._files.exist or self._store.max_offset(TIMER_TOPIC, 0):
            await self._open()

    async def stop(self) -> None:
        """Write down how far it is; when `run` has ended."""
        self._store.retention.may_go = lambda _: False  # nobody carries anything forward now
        await asyncio.to_thread(self._close)

    async def _open(self) -> _Works:
        start = await uninterrupted(
            asyncio.to_thread(open_files, self._files, self._store, self._now_ms())
        )
        self._works = works = self._build(start)
        self._notebook.checkpoint = start.checkpoint
        await self._save_now()  # from here on a crash can be told from a loss
        return works

    def _close(self) -> None:
        if self._files.is_open:
            self._notebook.save(at_once=True)
            self.counts.save(at_once=True)
            self._files.close()
        self._works = self._notebook.progress = None  # nobody is to write it down for other files

    def _build(self, start: Start) -> _Works:
        files = self._files
        warmer = Prefetcher(self._store, files)
        due_queue = DueQueue(files, warm=warmer.warm, cursor=start.cursor, sooner=self._sooner.set)
        enqueuer = TimerEnqueue(
            self._store,
            files,
            due_queue,
            self.counts,
            offset=start.queue_offset,
            window_ms=self._window_ms,
            settled_ms=start.settled_ms,
            settled_to=start.settled_to,
        )
        deliverer = TimerDelivery(
            self._store,
            self._intake,
            self._durability,
            files=files,
            due_queue=due_queue,
            counts=self.counts,
            store_host=self._store_host,
            on_delivered=self.on_delivered,
            delivered=start.delivered,
            delivered_from=start.delivered_from,
        )
        carrier = LogRollover(
            self._store,
            self._intake,
            self._durability,
            files=files,
            due_queue=due_queue,
            enqueuer=enqueuer,
            window_ms=self._window_ms,
            store_host=self._store_host,
            carried_to=start.carried_to,
            save=self._save_now,
        )
        deliverer.is_carried = carrier.is_carried
        known_to = files.number(self._now_ms()) + _SET_BACK
        return _Works(due_queue, enqueuer, deliverer, carrier, known_to)

    # ---- the tasks

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._repeat(self.feed, self._woken), name="timers-feed")
            tasks.create_task(self._repeat(self.deliver, self._sooner), name="timers-deliver")

    async def _repeat(self, step: Callable[[], Awaitable[float]], woken: asyncio.Event) -> None:
        while True:
            woken.clear()
            try:
                seconds = await step()
                self._stuck.discard(step.__name__)
            except Exception as exc:  # noqa: BLE001  whatever it is, it is tried again
                self._stick(step.__name__, exc)
                seconds = _AFTER_FAILURE
            if not seconds:
                await asyncio.sleep(0)  # others want to be served too
                continue
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await woken.wait()

    async def feed(self) -> float:
        """Put some messages into slots and read those that are due soon.

        Returns:
            The seconds until there may be more to do.
        """
        works = self._works
        if works is None:
            if not self._store.max_offset(TIMER_TOPIC, 0):
                return _UNUSED_SLEEP
            works = await self._open()
        elif self._files.number(self._now_ms()) + _SET_BACK < works.due_queue.cursor:
            works = await self._follow_clock()
        more = await works.enqueuer.step(self._now_ms())
        more |= await works.due_queue.load(self._now_ms())
        works.due_queue.advance(self._now_ms())
        self._note(works)
        more |= await works.carrier.step(self._wanted_free)
        return 0.0 if more else self._pause(works)

    async def deliver(self) -> float:
        """Deliver some of what is due; returns the seconds until there may be more."""
        async with self._delivering:
            works = self._works
            if works is None:
                return _UNUSED_SLEEP
            more = await works.deliverer.step(self._now_ms)
            works.due_queue.advance(self._now_ms())
            if more:
                return 0.0
        if works.due_queue.until_load(self._now_ms()) == 0:
            self._woken.set()  # there is room for the rest of a slot
        left = works.due_queue.until_due(self._now_ms())
        return _LONGEST_SLEEP if left is None else min(left / 1000, _LONGEST_SLEEP)

    async def _follow_clock(self) -> _Works:
        """The clock was set back: as after a restart, what is delivered is found in the log."""
        log.warning("the clock went back: timers follow it")
        async with self._delivering:
            await asyncio.to_thread(self._close)
            return await self._open()

    def _pause(self, works: _Works) -> float:
        left = works.due_queue.until_load(self._now_ms())
        if works.enqueuer.behind or self._wanted_free > works.carrier.carried_to:
            return _AFTER_FAILURE if left is None else min(left / 1000, _AFTER_FAILURE)
        if works.due_queue.is_full:  # room comes bit by bit, and nobody says so
            return _AFTER_FAILURE
        if left is None:
            if not len(works.due_queue):
                self.counts.none_left()
            return _LONGEST_SLEEP
        return min(left / 1000, _LONGEST_SLEEP)

    def _stick(self, what: str, exc: Exception) -> None:
        if what not in self._stuck:
            self._stuck.add(what)
            known = isinstance(exc, BolideError | OSError)
            log.error("timer messages wait: %s", exc, exc_info=None if known else exc)

    def _now_ms(self) -> int:
        return int(self._now() * 1000)

    # ---- retention

    def _may_go(self, end: int) -> bool:
        """Asked on the store's thread whether a log file that ends there may be removed."""
        works = self._works
        if works is None:
            return not self._store.max_offset(TIMER_TOPIC, 0)
        if end <= works.carrier.carried_to:
            return True
        self._wanted_free = max(self._wanted_free, end)
        with suppress(RuntimeError):  # the loop ends
            self._loop.call_soon_threadsafe(self._woken.set)
        return False

    # ---- how far it is

    async def caught_up(self) -> None:
        """Wait, but not long, until all that came before is in its slot."""
        end = self._store.max_offset(TIMER_TOPIC, 0)
        with suppress(TimeoutError):
            async with asyncio.timeout(_CATCHING_UP):
                while self._works is None or self._works.enqueuer.offset < end:
                    if not end:
                        return
                    await asyncio.sleep(_LOOK_AGAIN)

    @property
    def checkpoint(self) -> TimerCheckpoint:
        """As it was last written down."""
        return self._notebook.checkpoint

    @property
    def metrics(self) -> TimerMetrics:
        return self.counts.table

    def figures(self) -> dict[str, str]:
        """What runtime information tells, under RocketMQ's keys."""
        works = self._works
        behind = 0
        if works is not None and not works.due_queue.is_empty:
            reached = works.due_queue.cursor * self._files.precision_ms
            behind = max((self._now_ms() - reached) // 1000, 0)
        return {
            "timerReadBehind": str(behind),
            "timerOffsetBehind": str(works.enqueuer.behind if works else 0),
            "timerCongestNum": str(self.counts.total),
            "timerEnqueueTps": f"{self.counts.arrivals.per_second:.1f}",
            "timerDequeueTps": f"{self.counts.deliveries.per_second:.1f}",
        }

    def _note(self, works: _Works) -> None:
        if works.due_queue.cursor > works.known_to:
            works.deliverer.forget_delivered()
        self._notebook.progress = Progress(
            works.due_queue.cursor * self._files.precision_ms,
            works.enqueuer.offset,
            self._files.log_end,
            works.deliverer.delivered_from(self._store.log.written),
            works.carrier.carried_to,
            self.counts.deliveries.total,
        )

    async def _save_now(self) -> None:
        if self._works:
            self._note(self._works)
        await uninterrupted(asyncio.to_thread(self._notebook.save, at_once=True))

    def save(self) -> None:
        """Write down how far it is, when what was delivered is on the disk. Blocks."""
        self._notebook.save()
        self.counts.save()
