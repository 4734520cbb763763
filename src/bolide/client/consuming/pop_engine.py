"""The part of a push consumer that pops, where brokers say so."""

import asyncio
import logging
import time
from collections.abc import Callable

from bolide.client.consuming.consumer_settings import PushSettings
from bolide.client.consuming.consumption import Consumption
from bolide.client.consuming.keepers import Keepers
from bolide.client.consuming.membership import Membership
from bolide.client.consuming.pop_consumption import PopConsumption
from bolide.client.consuming.pop_holdings import PopHoldings
from bolide.client.consuming.pop_leases import Leases
from bolide.client.consuming.popped_queue import PoppedQueue
from bolide.client.consuming.popping import Pop, Popper, PopResult, PopStatus
from bolide.client.consuming.receipts import Receipts
from bolide.client.consuming.send_back import SendBack
from bolide.client.consuming.start_position import From
from bolide.client.consuming.subscription import Filter
from bolide.client.rare_log import RareLog
from bolide.errors import BolideError
from bolide.protocol.refusals import FlowControl

log = logging.getLogger(__name__)

_AFTER_FAILURE = 1.0
_AFTER_FLOW_CONTROL = 0.02
_QUICK = 0.01
_LONGEST_STALL = 1.0
_TELL_WITHIN = 5.0
"""Seconds that closing waits for brokers to hear what became of messages."""


class PopEngine:
    """Pops from the queues that brokers gave for that, and has the messages consumed."""

    def __init__(
        self,
        member: Membership,
        settings: PushSettings,
        consumption: Consumption,
        is_paused: Callable[[], bool],
    ) -> None:
        instance, group = member.instance, member.group
        receipts = Receipts(instance, group)
        send_back = SendBack(instance, group, settings.sent_back_times)
        self.holdings = PopHoldings(self._run)
        self._member = member
        self._settings = settings
        self._is_paused = is_paused
        self._popper = Popper(instance, group, settings.filter_hooks)
        self._leases = Leases(receipts, settings.pop_invisible)
        self._consumption = PopConsumption(
            consumption, self._leases, send_back, settings.sent_back_times
        )
        self._rare = RareLog(log)

    def start(self, keepers: Keepers) -> None:
        keepers.every(self._settings.pop_invisible / 10, self._renew)

    def wake(self) -> None:
        for held in self.holdings:
            held.wake()

    def expire(self, older_than: float) -> None:
        """Give up what handlers have been at since before this time of the loop's clock."""
        self._consumption.expire(self.holdings.with_messages(), older_than)

    async def close(self, within: float) -> None:
        """Wait for handlers at work; what waits for one is given back."""
        helds = self.holdings.with_messages()
        await self.holdings.close()
        await asyncio.gather(*map(self._consumption.give_back, helds))
        try:
            async with asyncio.timeout(within):
                await asyncio.gather(*(held.idle() for held in helds))
        except TimeoutError:
            log.warning("%s: handlers are still at work after %g s", self._member.group, within)
        await self._consumption.close(_TELL_WITHIN)
        await self._leases.close(_TELL_WITHIN)

    def _renew(self) -> None:
        self._leases.renew(self.holdings.with_messages())

    async def _run(self, held: PoppedQueue) -> None:
        stalls = 0
        while not held.is_dropped:
            begun = time.monotonic()
            try:
                pause = await self._pop(held)
            except BolideError as exc:
                pause = self._failed(held, exc)
            except Exception:
                log.exception("a pop of %s failed; it is tried again", held.queue)
                pause = _AFTER_FAILURE
            # Answers at once without messages, again and again, must not become a busy loop.
            is_stall = pause is None and time.monotonic() - begun < _QUICK
            stalls = stalls + 1 if is_stall else 0
            if pause := min(_LONGEST_STALL, _QUICK * stalls) if stalls > 2 else pause:
                await held.sleep(pause)

    async def _pop(self, held: PoppedQueue) -> float | None:
        """Pop once; how long to wait before the next one, None if nothing came of it."""
        while self._is_blocked(held):
            await held.change()
            if held.is_dropped:
                return 0.0
        wanted = self._member.filters.get(held.queue.topic)
        if wanted is None:
            return _AFTER_FAILURE
        held.last_pull = time.time()
        begun = time.monotonic()
        result = await self._popper.pop(self._request(held, wanted))
        self._rare.forget(held.queue)
        if result.status is PopStatus.FULL:
            return _AFTER_FAILURE
        self._take(held, result, time.monotonic() - begun)
        return self._settings.pull_interval if result.messages else None

    def _request(self, held: PoppedQueue, wanted: Filter) -> Pop:
        settings = self._settings
        return Pop(
            queue=held.queue,
            filter=wanted,
            max_count=settings.pop_batch_size,
            invisible=settings.pop_invisible,
            wait=settings.suspend,
            from_first=settings.consume_from == From.FIRST,
        )

    def _take(self, held: PoppedQueue, result: PopResult, seconds: float) -> None:
        self._leases.done(held, result.unwanted)
        if result.messages:
            counter = self._consumption.common.counters[held.queue.topic]
            counter.pulled(len(result.messages), seconds)
            self._consumption.take(held, result.messages)

    def _is_blocked(self, held: PoppedQueue) -> bool:
        full = held.held_count >= self._settings.pop_threshold
        return not held.is_dropped and (full or self._is_paused())

    def _failed(self, held: PoppedQueue, exc: BolideError) -> float:
        if isinstance(exc, FlowControl):
            return _AFTER_FLOW_CONTROL
        self._rare.warning(
            held.queue, "%s: popping %s fails: %s", self._member.group, held.queue, exc
        )
        return _AFTER_FAILURE
