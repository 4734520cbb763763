"""Consumption ordered by key: one call at a time per key, many keys at once."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from bolide.client.consumer.group.held_queue import HeldQueue
from bolide.client.consumer.handlers.handler import OnPoison, OrderBy
from bolide.client.consumer.handlers.invocation import Consumption
from bolide.client.consumer.handlers.key_scheduler import KeyScheduler
from bolide.client.consumer.handlers.key_steps import KeySteps, RetryRules
from bolide.client.consumer.handlers.ordered import LOCK_AGAIN, LockKeeper, OrderedConsumption
from bolide.client.consumer.parking.park import AFTER_FAILURE, Park, Superseded
from bolide.client.consumer.parking.park_log import ParkLog
from bolide.client.consumer.parking.parked_keys import ParkedKeys
from bolide.client.consumer.settings import PushSettings
from bolide.client.instance.instance import ClientInstance
from bolide.errors import BolideError
from bolide.model.message_queue import MessageQueue

log = logging.getLogger(__name__)


class KeyedConsumption:
    """Runs one tenure for each held queue.

    Args:
        locks: None if the group broadcasts.
        rules: of handlers that block; those that park have `parking`.
        park_log: the log that belongs to a queue.
    """

    def __init__(
        self,
        consumption: Consumption,
        *,
        locks: LockKeeper | None,
        rules: RetryRules,
        parking: RetryRules,
        park_log: Callable[[MessageQueue], ParkLog],
    ) -> None:
        self.common = consumption
        self.locks = locks
        self._rules = rules
        self._parking = parking
        self._park_log = park_log

    async def run(
        self, held: HeldQueue, topic: str, before: HeldQueue | None, *, parks: bool
    ) -> None:
        """Consume until the queue is dropped; `before` is a former tenure that must end first."""
        if before is not None:
            await before.idle()
        rules, log_ = (self._parking, self._park_log(held.queue)) if parks else (self._rules, None)
        async with asyncio.TaskGroup() as tasks:
            await _Tenure(self, held, topic, rules, log_, tasks).run()


class _Tenure:
    """One held queue: its lanes while the lock is ours, and a task for each that has work."""

    def __init__(
        self,
        owner: KeyedConsumption,
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
        self._lanes: KeyScheduler | None = None
        self._steps: KeySteps | None = None
        self._reading: asyncio.Task[None] | None = None
        self._draining: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        held = self._held
        while not held.is_dropped:
            if not self._is_ours():
                await self._close()
                await self._regain()
            elif self._lanes is None or self._steps is None:
                await self._open()
            else:
                self._start_lanes(self._lanes, self._steps)
                await held.change()
        await self._close()

    def _is_ours(self) -> bool:
        if self._park is not None and self._park.is_superseded:
            return False
        return self._owner.locks is None or self._held.is_locked

    async def _regain(self) -> None:
        locks, held = self._owner.locks, self._held
        if held.is_dropped or locks is None:
            return
        held.locked_at = 0.0  # also if the clock says otherwise: another tenure may have begun
        if not await locks.regain(held):
            await held.sleep(LOCK_AGAIN)

    async def _open(self) -> None:
        """Learn what is set aside before anything is handled."""
        keys = ParkedKeys()
        if self._park_log is not None:
            park = Park(self._park_log, self._held.queue, self._held.wake)
            try:
                await park.open()
            except BolideError as exc:
                text = "%s: %s waits, what is set aside of it cannot be read now: %s"
                common = self._owner.common
                common.rare.warning("open", text, common.group, self._held.queue, exc)
                await self._held.sleep(AFTER_FAILURE)
                return
            self._park, keys = park, park.keys
            self._reading = self._tasks.create_task(park.run(), name="bolide-park")
        self._lanes = lanes = KeyScheduler(keys, lambda: self._held.process.next_offset)
        common = self._owner.common
        self._steps = KeySteps(self._held, self._topic, common, lanes, self._park, self._rules)
        lanes.arrived(self._held.process.all())
        self._held.arrived = lanes.arrived

    async def _close(self) -> None:
        """Let the steps under way end, and begin no more."""
        self._held.arrived = lambda _messages: None
        self._lanes = self._steps = None
        while self._draining:
            await asyncio.wait(self._draining)
        if self._reading is not None:
            self._reading.cancel()
        self._park = self._reading = None

    def _start_lanes(self, lanes: KeyScheduler, steps: KeySteps) -> None:
        if self._park is not None:
            lanes.stale(self._park.aged())
        for key in lanes.ready():
            lanes.begin(key)
            task = self._tasks.create_task(self._drain(lanes, steps, key))
            self._draining.add(task)
            task.add_done_callback(self._draining.discard)

    async def _drain(self, lanes: KeyScheduler, steps: KeySteps, key: str) -> None:
        """Do one step after the other for a key until there is none."""
        try:
            while self._lanes is lanes and not self._held.is_dropped and self._is_ours():
                handler = self._owner.common.handlers.get(self._topic)
                step = lanes.next(key, handler.batch) if handler else None
                if step is None:
                    break
                if pause := await steps.perform(key, step):
                    await self._held.sleep(pause)
        except Superseded as exc:
            log.warning("%s: %s", self._owner.common.group, exc)
            self._held.wake()
        except Exception:
            log.exception("%s: key %r of %s", self._owner.common.group, key, self._held.queue)
            await self._held.sleep(AFTER_FAILURE)
            self._held.wake()
        finally:
            lanes.end(key)


class OrderedHandling:
    """Consumes by queue or by keys."""

    def __init__(
        self,
        instance: ClientInstance,
        consumption: Consumption,
        locks: LockKeeper | None,
        settings: PushSettings,
    ) -> None:
        self._common = consumption
        self._by_queue = OrderedConsumption(
            consumption,
            locks=locks,
            max_reconsume_times=settings.max_reconsume_times,
            suspend=settings.ordered_suspend,
        )
        self._by_keys = KeyedConsumption(
            consumption,
            locks=locks,
            rules=RetryRules(settings.max_reconsume_times, settings.ordered_suspend),
            parking=RetryRules(settings.sent_back_times, settings.ordered_suspend),
            park_log=partial(ParkLog, instance, consumption.group),
        )

    def run(
        self, held: HeldQueue, topic: str, before: HeldQueue | None
    ) -> Coroutine[Any, Any, None]:
        """Consume a queue of a topic, as users call it, until it is dropped; `before` is a former
        tenure that must end first."""
        handler = self._common.handlers.get(topic)
        held.is_keyed = handler is not None and handler.order_by is OrderBy.KEYS
        if handler is None or not held.is_keyed:
            return self._by_queue.run(held, topic, before)
        parks = handler.on_poison is OnPoison.PARK
        return self._by_keys.run(held, topic, before, parks=parks)
