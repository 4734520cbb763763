"""Concurrent delivery: many messages at a time in any order; failed messages are sent back."""

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Coroutine, Iterable, Sequence
from itertools import groupby
from operator import attrgetter
from time import monotonic
from typing import Any

from msgspec import structs

from bolide.client.consumer.group.held_queue import HeldQueue
from bolide.client.consumer.handlers.handler import Handler, Outcome
from bolide.client.consumer.handlers.invocation import CallOwner, ConsumerRuntime, DeliveryCall
from bolide.client.consumer.handlers.workers import HandlerCall
from bolide.errors import BolideError
from bolide.model.message import StoredMessage

log = logging.getLogger(__name__)

RETRY_DELAY = 5.0
"""Seconds after which a message that could not be sent back is handled again by this consumer."""

_TIMEOUT_LEVEL = 3
_topic = attrgetter("topic")


class ConcurrentDelivery:
    """Splits pulled messages into calls and acts on the outcome of each.

    In a broadcasting group a failed message is dropped with a log line.
    """

    def __init__(self, runtime: ConsumerRuntime) -> None:
        self.runtime = runtime
        self._tasks: set[asyncio.Task[None]] = set()

    def deliver(self, held: HeldQueue, messages: Sequence[StoredMessage]) -> None:
        """Pass messages of a held queue to the handlers of their topics."""
        for topic, group in groupby(messages, _topic):
            handler = self.runtime.handlers.get(topic)
            if handler is None:
                self._spawn(self._wait_for_handler(held, list(group)))
            else:
                self._submit(held, handler, list(group))

    def complete(self, call: "ConcurrentCall", outcome: Outcome) -> None:
        self.runtime.record(call, call.held, outcome)
        if call.context is not None:
            call.context.outcome = outcome
            self.runtime.hooks.after(call.context)
        if call.is_abandoned:
            return
        held, done = call.held, call.messages[: outcome.done]
        failed = call.messages[outcome.done :]
        held.done(done)
        if failed and self.runtime.send_back is None:
            self._drop(held, failed, outcome)
        elif failed and not held.is_dropped:
            # A dropped queue belongs to another member, which receives the message again.
            self._send_back_soon(call, failed, outcome.delay_level)

    def withdraw(self, held: HeldQueue) -> None:
        """Discard the messages of a queue whose calls have not begun."""
        for calls in list(held.in_flight):
            if isinstance(calls, ConcurrentCalls):
                calls.withdraw()

    def expire(self, helds: Iterable[HeldQueue], older_than: float) -> None:
        """Send back the messages of calls that exceed the timeout; the calls themselves go on."""
        for held in helds:
            for calls in list(held.in_flight):
                if isinstance(calls, ConcurrentCalls):
                    for call in calls.older_than(older_than):
                        self._abandon(call)

    async def close(self) -> None:
        """Cancel waiting tasks; `HeldQueues.close` has awaited the send-backs in flight."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _submit(self, held: HeldQueue, handler: Handler, messages: Sequence[StoredMessage]) -> None:
        calls = ConcurrentCalls(self, handler, messages, held)
        held.begin(calls)
        self.runtime.workers.submit_source(calls)

    def _abandon(self, call: "ConcurrentCall") -> None:
        call.is_abandoned = True
        timeout = TimeoutError("the handler exceeded consume_timeout")
        self.runtime.throttled.warning(
            ("expired", call.held.queue.topic),
            "%s: a handler of a message of %s exceeded consume_timeout; the message is sent back",
            self.runtime.group,
            call.held.queue,
        )
        if self.runtime.send_back is None:
            self._drop(call.held, call.messages, Outcome(0, timeout))
        else:
            self._send_back_soon(call, call.messages, _TIMEOUT_LEVEL)
        call.source.leave(call)

    def _drop(self, held: HeldQueue, failed: Sequence[StoredMessage], outcome: Outcome) -> None:
        for message in failed:
            log.warning(
                "%s broadcasts: %s failed and is dropped: %r",
                self.runtime.group,
                message,
                outcome.error,
            )
        held.done(failed)

    def _send_back_soon(
        self, call: "ConcurrentCall", messages: Sequence[StoredMessage], delay_level: int
    ) -> None:
        call.held.begin(call)  # in flight until it is sent back, although the handler returned
        self._spawn(self._send_back(call, messages, delay_level))

    async def _send_back(
        self, call: "ConcurrentCall", messages: Sequence[StoredMessage], delay_level: int
    ) -> None:
        held = call.held
        try:
            again = [m for m in messages if not await self._is_sent_back(held, m, delay_level)]
        finally:
            held.end(call)
        if again:
            await held.sleep(RETRY_DELAY)
            if not held.is_dropped:
                self.deliver(held, [_with_one_more_retry(message) for message in again])

    async def _is_sent_back(self, held: HeldQueue, message: StoredMessage, level: int) -> bool:
        if message.queue_offset not in held.process:
            return True
        if self.runtime.send_back is None:
            self._drop(held, [message], Outcome(0, None))
            return True
        try:
            await self.runtime.send_back.send(message, level)
        except BolideError as exc:
            self.runtime.throttled.warning(
                "send-back",
                "%s: a message could not be sent back and is handled again in %g s: %s",
                self.runtime.group,
                RETRY_DELAY,
                exc,
            )
            return False
        held.done([message])
        return True

    async def _wait_for_handler(self, held: HeldQueue, messages: list[StoredMessage]) -> None:
        """Retries may arrive before their topic is subscribed to, or long after unsubscribing."""
        topic = messages[0].topic
        while messages:
            await held.sleep(RETRY_DELAY)
            if held.is_dropped:
                return
            if handler := self.runtime.handlers.get(topic):
                self._submit(held, handler, messages)
                return
            text = "%s: no handler for a retry of topic %s"
            self.runtime.throttled.warning(("no handler", topic), text, self.runtime.group, topic)
            messages = [m for m in messages if not await self._is_sent_back(held, m, 0)]

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work, name="bolide-send-back")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


class ConcurrentCalls:
    """The calls for messages of one pull; the queue stays busy until all of them have ended."""

    __slots__ = ("_in_flight", "_lock", "_owner", "handler", "held", "is_plain", "waiting")

    def __init__(
        self, owner: CallOwner, handler: Handler, messages: Sequence[StoredMessage], held: HeldQueue
    ) -> None:
        self.handler = handler
        self.held = held
        self.waiting = deque(messages)
        self.is_plain = handler.batch == 1 and not owner.runtime.hooks
        self._owner = owner
        self._in_flight: dict[HandlerCall, ConcurrentCall] = {}
        self._lock = threading.Lock()  # guards `waiting` and `_in_flight`

    def begin(self) -> "ConcurrentCall | None":
        with self._lock:
            count = min(self.handler.batch, len(self.waiting))
            messages = [self.waiting.popleft() for _ in range(count)]
            if not messages:
                return None
            call = ConcurrentCall(self._owner, self.handler, messages, self.held)
            call.source = self
            self._in_flight[call] = call
        return call

    def done(self, messages: Sequence[StoredMessage], seconds: float) -> None:
        counter = self._owner.runtime.counters[self.held.queue.topic]
        counter.consumed(len(messages), 0, seconds, calls=len(messages))
        self.held.done(messages)

    def complete_all(self, calls: Sequence[HandlerCall]) -> None:
        with self._lock:
            ours = [call for call in calls if self._in_flight.pop(call, None) is not None]
        now = monotonic()
        self.done(
            [call.messages[0] for call in ours], sum(now - (call.started or now) for call in ours)
        )
        if len(ours) < len(calls):
            for call in set(calls).difference(ours):  # abandoned after the timeout
                call.complete(Outcome(1))
        self._end_if_over()

    def leave(self, call: HandlerCall) -> None:
        with self._lock:
            self._in_flight.pop(call, None)
        self._end_if_over()

    def withdraw(self) -> None:
        """Discard the messages whose calls have not begun."""
        with self._lock:
            self.waiting.clear()
        self._end_if_over()

    def older_than(self, time: float) -> "list[ConcurrentCall]":
        """Calls in flight that began before a time of the loop's clock."""
        with self._lock:
            return [call for call in self._in_flight.values() if call.is_older_than(time)]

    def _end_if_over(self) -> None:
        with self._lock:
            is_over = not self.waiting and not self._in_flight
        if is_over:
            self.held.end(self)


class ConcurrentCall(DeliveryCall[HeldQueue]):
    """One call; it leaves its source when it is completed or abandoned."""

    __slots__ = ("source",)

    source: ConcurrentCalls

    def complete(self, outcome: Outcome) -> None:
        super().complete(outcome)
        self.source.leave(self)


def _with_one_more_retry(message: StoredMessage) -> StoredMessage:
    return structs.replace(message, reconsume_times=message.reconsume_times + 1)
