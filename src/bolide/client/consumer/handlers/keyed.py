"""Delivery in order by queue or by key.

`OrderedDelivery` selects the mode of a queue by its handler. By key, each key has one call at a
time while different keys run concurrently.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from bolide.client.consumer.group.held_queue import HeldQueue
from bolide.client.consumer.handlers.handler import OnPoison, OrderBy
from bolide.client.consumer.handlers.invocation import ConsumerRuntime
from bolide.client.consumer.handlers.key_scheduler import KeyScheduler
from bolide.client.consumer.handlers.key_step_runner import KeyStepRunner, RetryRules
from bolide.client.consumer.handlers.ordered import (
    LOCK_RETRY_INTERVAL,
    LockRegainer,
    QueueOrderedDelivery,
)
from bolide.client.consumer.parking.park import AFTER_FAILURE, Park, Superseded
from bolide.client.consumer.parking.park_log import ParkLog
from bolide.client.consumer.parking.parked_keys import ParkedKeys
from bolide.client.consumer.settings import PushSettings
from bolide.client.instance.instance import ClientInstance
from bolide.errors import BolideError
from bolide.model.message_queue import MessageQueue

log = logging.getLogger(__name__)


class OrderedDelivery:
    """Delivers each held queue in queue order or in key order, as its handler asks."""

    def __init__(
        self,
        instance: ClientInstance,
        runtime: ConsumerRuntime,
        locks: LockRegainer | None,
        settings: PushSettings,
    ) -> None:
        self._runtime = runtime
        self._by_queue = QueueOrderedDelivery(
            runtime,
            locks=locks,
            max_reconsume_times=settings.max_reconsume_times,
            suspend=settings.ordered_suspend,
        )
        self._by_keys = KeyOrderedDelivery(
            runtime,
            locks=locks,
            rules=RetryRules(settings.max_reconsume_times, settings.ordered_suspend),
            parking_rules=RetryRules(settings.sent_back_times, settings.ordered_suspend),
            park_log=partial(ParkLog, instance, runtime.group),
        )

    def run(
        self, held: HeldQueue, topic: str, before: HeldQueue | None
    ) -> Coroutine[Any, Any, None]:
        """Deliver until the queue is dropped.

        Args:
            held: the queue.
            topic: its topic without namespace.
            before: the former `HeldQueue` of the same queue, whose calls must end first.
        """
        handler = self._runtime.handlers.get(topic)
        held.is_keyed = handler is not None and handler.order_by is OrderBy.KEYS
        if handler is None or not held.is_keyed:
            return self._by_queue.run(held, topic, before)
        parks = handler.on_poison is OnPoison.PARK
        return self._by_keys.run(held, topic, before, parks=parks)


class KeyOrderedDelivery:
    """Runs one delivery loop for each held queue.

    Args:
        locks: None if the group broadcasts.
        rules: for handlers whose failing keys block.
        parking_rules: for handlers whose failing keys are parked.
        park_log: returns the park log of a queue.
    """

    def __init__(
        self,
        runtime: ConsumerRuntime,
        *,
        locks: LockRegainer | None,
        rules: RetryRules,
        parking_rules: RetryRules,
        park_log: Callable[[MessageQueue], ParkLog],
    ) -> None:
        self.runtime = runtime
        self.locks = locks
        self._rules = rules
        self._parking_rules = parking_rules
        self._park_log = park_log

    async def run(
        self, held: HeldQueue, topic: str, before: HeldQueue | None, *, parks: bool
    ) -> None:
        """Deliver until the queue is dropped, after the calls of its former holder `before`."""
        if before is not None:
            await before.wait_until_idle()
        rules = self._parking_rules if parks else self._rules
        park_log = self._park_log(held.queue) if parks else None
        async with asyncio.TaskGroup() as tasks:
            await _KeyedQueue(self, held, topic, rules, park_log, tasks).run()


class _KeyedQueue:
    """One held queue: its scheduler while the lock is ours, and a task for each key with work."""

    def __init__(
        self,
        owner: KeyOrderedDelivery,
        held: HeldQueue,
        topic: str,
        rules: RetryRules,
        park_log: ParkLog | None,
        tasks: asyncio.TaskGroup,
    ) -> None:
        self._owner = owner
        self._held = held
        self._topic = topic
        self._rules = rules
        self._park_log = park_log
        self._tasks = tasks
        self._park: Park | None = None
        self._scheduler: KeyScheduler | None = None
        self._steps: KeyStepRunner | None = None
        self._park_reader: asyncio.Task[None] | None = None
        self._key_tasks: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        held = self._held
        while not held.is_dropped:
            if not self._is_ours():
                await self._close()
                await self._regain()
            elif self._scheduler is None or self._steps is None:
                await self._open()
            else:
                self._start_keys(self._scheduler, self._steps)
                await held.wait_for_change()
        await self._close()

    def _is_ours(self) -> bool:
        if self._park is not None and self._park.is_superseded:
            return False
        return self._owner.locks is None or self._held.is_locked

    async def _regain(self) -> None:
        locks, held = self._owner.locks, self._held
        if held.is_dropped or locks is None:
            return
        held.locked_at = 0.0  # even if the lease has not run out: another epoch may have begun
        if not await locks.regain(held):
            await held.sleep(LOCK_RETRY_INTERVAL)

    async def _open(self) -> None:
        """Read the parked messages before any message is handled."""
        keys = ParkedKeys()
        runtime = self._owner.runtime
        if self._park_log is not None:
            park = Park(self._park_log, self._held.queue, self._held.wake)
            try:
                await park.open()
            except BolideError as exc:
                text = "%s: %s waits: its parked messages cannot be read now: %s"
                runtime.throttled.warning("open", text, runtime.group, self._held.queue, exc)
                await self._held.sleep(AFTER_FAILURE)
                return
            self._park, keys = park, park.keys
            self._park_reader = self._tasks.create_task(park.run(), name="bolide-park")
        scheduler = KeyScheduler(keys, lambda: self._held.process.next_offset)
        self._scheduler = scheduler
        self._steps = KeyStepRunner(
            self._held, self._topic, runtime, scheduler, self._park, self._rules
        )
        scheduler.add(self._held.process.all())
        self._held.on_arrival = scheduler.add

    async def _close(self) -> None:
        """Begin no more steps and wait for those in flight."""
        self._held.on_arrival = lambda _messages: None
        self._scheduler = self._steps = None
        while self._key_tasks:
            await asyncio.wait(self._key_tasks)
        if self._park_reader is not None:
            self._park_reader.cancel()
        self._park = self._park_reader = None

    def _start_keys(self, scheduler: KeyScheduler, steps: KeyStepRunner) -> None:
        if self._park is not None:
            scheduler.request_rewrite(self._park.aged())
        for key in scheduler.ready():
            scheduler.begin(key)
            task = self._tasks.create_task(self._run_key(scheduler, steps, key))
            self._key_tasks.add(task)
            task.add_done_callback(self._key_tasks.discard)

    async def _run_key(self, scheduler: KeyScheduler, steps: KeyStepRunner, key: str) -> None:
        """Run the steps of a key one after the other until none is possible."""
        try:
            while self._scheduler is scheduler and not self._held.is_dropped and self._is_ours():
                handler = self._owner.runtime.handlers.get(self._topic)
                step = scheduler.next(key, handler.batch) if handler else None
                if step is None:
                    break
                if pause := await steps.run(key, step):
                    await self._held.sleep(pause)
        except Superseded as exc:
            log.warning("%s: %s", self._owner.runtime.group, exc)
            self._held.wake()
        except Exception:
            log.exception("%s: key %r of %s", self._owner.runtime.group, key, self._held.queue)
            await self._held.sleep(AFTER_FAILURE)
            self._held.wake()
        finally:
            scheduler.end(key)
