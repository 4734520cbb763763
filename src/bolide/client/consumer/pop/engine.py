"""The POP mode of a push consumer: the pop loops and the delivery of popped messages."""

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Sequence

from bolide.client.consumer.consumer import PeriodicTasks
from bolide.client.consumer.group.membership import Membership
from bolide.client.consumer.group.start_position import ConsumeFrom
from bolide.client.consumer.handlers.handler import Outcome
from bolide.client.consumer.handlers.invocation import ConsumerRuntime, DeliveryCall
from bolide.client.consumer.pop.pop_request import Pop, Popper, PopResult, PopStatus
from bolide.client.consumer.pop.popped_queues import PoppedQueue, PoppedQueues
from bolide.client.consumer.pop.receipts import Leases, Receipts, back_off
from bolide.client.consumer.send_back import SendBack
from bolide.client.consumer.settings import PushSettings
from bolide.client.consumer.subscription import Filter
from bolide.errors import BolideError
from bolide.logs import ThrottledLog
from bolide.model.message import StoredMessage
from bolide.protocol.refusals import FlowControl

log = logging.getLogger(__name__)

_AFTER_FAILURE = 1.0
_AFTER_FLOW_CONTROL = 0.02
_IMMEDIATE = 0.01
"""Seconds below which an empty reply counts towards the back-off."""
_MAX_BACK_OFF = 1.0
_CLOSE_TIMEOUT = 5.0
"""Seconds that closing waits for acknowledgements in flight."""


class PopCall(DeliveryCall[PoppedQueue]):
    """One call for popped messages."""

    __slots__ = ()


class PopDelivery:
    """Splits popped messages into calls and acts on the outcome of each."""

    def __init__(
        self, runtime: ConsumerRuntime, leases: Leases, send_back: SendBack, max_times: int
    ) -> None:
        self.runtime = runtime
        self._leases = leases
        self._send_back = send_back
        self._max_times = max_times
        self._tasks: set[asyncio.Task[None]] = set()

    def deliver(self, held: PoppedQueue, messages: Sequence[StoredMessage]) -> None:
        """Pass popped messages, all of one topic, to its handler."""
        handler = self.runtime.handlers.get(messages[0].topic)
        if handler is None:
            return  # unsubscribed meanwhile: the leases expire and another member gets the messages
        self._leases.begin(held, messages)
        # A message that crashed its consumers every time exceeds the limit without a failed call.
        deliverable = [each for each in messages if each.reconsume_times <= self._max_times]
        if len(deliverable) < len(messages):
            self._dead_letter(held, [m for m in messages if m.reconsume_times > self._max_times])
        for start in range(0, len(deliverable), handler.batch):
            batch = deliverable[start : start + handler.batch]
            call = PopCall(self, handler, batch, held)
            held.begin(call)
            self.runtime.workers.submit(call)

    def complete(self, call: PopCall, outcome: Outcome) -> None:
        self.runtime.record(call, call.held, outcome)
        if call.context is not None:
            call.context.outcome = outcome
            self.runtime.hooks.after(call.context)
        call.held.end(call)
        if call.is_abandoned:
            return
        self._leases.acknowledge(call.held, call.messages[: outcome.done])
        for message in call.messages[outcome.done :]:
            self._retry(call.held, message, outcome.delay_level)

    def expire(self, helds: Iterable[PoppedQueue], older_than: float) -> None:
        """Stop renewing messages whose calls exceed the timeout; the calls themselves go on."""
        for held in helds:
            for call in list(held.in_flight):
                if isinstance(call, PopCall) and call.is_older_than(older_than):
                    self._abandon(call)

    async def give_back(self, held: PoppedQueue) -> None:
        """Withdraw calls that have not begun and release their messages to other members."""
        waiting = self.runtime.workers.withdraw(lambda call: call in held.in_flight)
        for call in waiting:
            held.end(call)
        await self._leases.give_back(held, [m for call in waiting for m in call.messages])

    async def close(self, within: float) -> None:
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=within)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late)

    def _retry(self, held: PoppedQueue, message: StoredMessage, delay_level: int) -> None:
        if delay_level < 0 or message.reconsume_times >= self._max_times:
            self._dead_letter(held, [message])
            return
        # As in RocketMQ's POP consumers, a delay level is an index of the back-off table.
        self._leases.retry_after(held, message, back_off(delay_level or message.reconsume_times))

    def _dead_letter(self, held: PoppedQueue, messages: Sequence[StoredMessage]) -> None:
        task = asyncio.create_task(
            self._send_dead_letters(held, messages), name="bolide-pop-dead-letter"
        )
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _send_dead_letters(
        self, held: PoppedQueue, messages: Sequence[StoredMessage]
    ) -> None:
        for message in messages:
            try:
                await self._send_back.dead_letter(message)
            except BolideError as exc:
                text = "%s: %s could not be dead-lettered: %s"
                self.runtime.throttled.warning(
                    "dead letter", text, self.runtime.group, message, exc
                )
                self._leases.retry_after(held, message, back_off(message.reconsume_times))
            else:
                self._leases.acknowledge(held, [message])

    def _abandon(self, call: PopCall) -> None:
        call.is_abandoned = True
        self.runtime.throttled.warning(
            ("expired", call.held.queue.topic),
            "%s: a handler of a message of %s exceeded consume_timeout; the message is redelivered",
            self.runtime.group,
            call.held.queue,
        )
        call.held.release(call.messages)  # no longer renewed: the messages are redelivered


class PopEngine:
    """Pops the queues that brokers assigned in POP mode and delivers the messages."""

    def __init__(
        self,
        member: Membership,
        settings: PushSettings,
        runtime: ConsumerRuntime,
        is_paused: Callable[[], bool],
    ) -> None:
        instance, group = member.instance, member.group
        receipts = Receipts(instance, group)
        send_back = SendBack(instance, group, settings.sent_back_times)
        self.held_queues = PoppedQueues(self._run)
        self._member = member
        self._settings = settings
        self._is_paused = is_paused
        self._popper = Popper(instance, group, settings.filter_hooks)
        self._leases = Leases(receipts, settings.pop_invisible)
        self._delivery = PopDelivery(runtime, self._leases, send_back, settings.sent_back_times)
        self._throttled = ThrottledLog(log)

    def start(self, periodic: PeriodicTasks) -> None:
        periodic.every(self._settings.pop_invisible / 10, self._renew)

    def wake(self) -> None:
        for held in self.held_queues:
            held.wake()

    def expire(self, older_than: float) -> None:
        """Stop renewing messages whose calls began before this time of the loop's clock."""
        self._delivery.expire(self.held_queues.with_messages(), older_than)

    async def close(self, within: float) -> None:
        """Wait for handler calls in flight; release the messages that wait for one."""
        helds = self.held_queues.with_messages()
        await self.held_queues.close()
        await asyncio.gather(*map(self._delivery.give_back, helds))
        try:
            async with asyncio.timeout(within):
                await asyncio.gather(*(held.wait_until_idle() for held in helds))
        except TimeoutError:
            log.warning("%s: handlers are still running after %g s", self._member.group, within)
        await self._delivery.close(_CLOSE_TIMEOUT)
        await self._leases.close(_CLOSE_TIMEOUT)

    def _renew(self) -> None:
        self._leases.renew(self.held_queues.with_messages())

    async def _run(self, held: PoppedQueue) -> None:
        stalls = 0
        while not held.is_dropped:
            began = time.monotonic()
            try:
                pause = await self._pop(held)
            except BolideError as exc:
                pause = self._failed(held, exc)
            except Exception:
                log.exception("a pop of %s failed; it is repeated", held.queue)
                pause = _AFTER_FAILURE
            # Back off from immediate empty replies, to avoid a busy loop.
            is_stall = pause is None and time.monotonic() - began < _IMMEDIATE
            stalls = stalls + 1 if is_stall else 0
            if pause := min(_MAX_BACK_OFF, _IMMEDIATE * stalls) if stalls > 2 else pause:
                await held.sleep(pause)

    async def _pop(self, held: PoppedQueue) -> float | None:
        """Pop once; return the seconds until the next pop, or None if there was no message."""
        while self._is_blocked(held):
            await held.wait_for_change()
            if held.is_dropped:
                return 0.0
        wanted = self._member.filters.get(held.queue.topic)
        if wanted is None:
            return _AFTER_FAILURE
        held.last_pull = time.time()
        began = time.monotonic()
        result = await self._popper.pop(self._request(held, wanted))
        self._throttled.forget(held.queue)
        if result.status is PopStatus.FULL:
            return _AFTER_FAILURE
        self._deliver(held, result, time.monotonic() - began)
        return self._settings.pull_interval if result.messages else None

    def _request(self, held: PoppedQueue, wanted: Filter) -> Pop:
        settings = self._settings
        return Pop(
            queue=held.queue,
            filter=wanted,
            max_count=settings.pop_batch_size,
            invisible=settings.pop_invisible,
            wait=settings.suspend,
            from_first=settings.consume_from == ConsumeFrom.FIRST,
        )

    def _deliver(self, held: PoppedQueue, result: PopResult, seconds: float) -> None:
        self._leases.acknowledge(held, result.unwanted)
        if result.messages:
            counter = self._delivery.runtime.counters[held.queue.topic]
            counter.pulled(len(result.messages), seconds)
            self._delivery.deliver(held, result.messages)

    def _is_blocked(self, held: PoppedQueue) -> bool:
        full = held.leased_count >= self._settings.pop_threshold
        return not held.is_dropped and (full or self._is_paused())

    def _failed(self, held: PoppedQueue, exc: BolideError) -> float:
        if isinstance(exc, FlowControl):
            return _AFTER_FLOW_CONTROL
        self._throttled.warning(
            held.queue, "%s: popping %s fails: %s", self._member.group, held.queue, exc
        )
        return _AFTER_FAILURE
