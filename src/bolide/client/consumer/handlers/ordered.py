"""Delivery in queue order: one call at a time; failed messages are retried in place."""

import asyncio
import logging
from collections.abc import Sequence
from typing import Any, Protocol

from msgspec import structs

from bolide.client.consumer.group.held_queue import HeldQueue
from bolide.client.consumer.handlers.handler import Handler, Outcome, Retry
from bolide.client.consumer.handlers.invocation import ConsumerRuntime
from bolide.errors import BolideError
from bolide.model.message import StoredMessage

log = logging.getLogger(__name__)

SUSPEND = 1.0
"""Default seconds that a queue waits after a failed call."""

LOCK_RETRY_INTERVAL = 3.0
"""Seconds between two tries to get a lost lock back."""

_MIN_PAUSE, _MAX_PAUSE = 0.01, 30.0


class _QueueLost(BolideError):
    """The consumer lost the queue before the call began."""


class OrderedCall:
    """One call for the first messages of a held queue."""

    __slots__ = ("_hooks", "context", "handler", "held", "messages", "outcome", "started")

    def __init__(
        self,
        handler: Handler,
        messages: Sequence[StoredMessage],
        held: HeldQueue,
        runtime: ConsumerRuntime,
    ) -> None:
        self.handler = handler
        self.messages = messages
        self.held = held
        self.context = runtime.context(held, messages)
        self._hooks = runtime.hooks
        self.started: float | None = None
        self.outcome: asyncio.Future[Outcome | None] = asyncio.get_running_loop().create_future()
        """None if the call was withdrawn before it began."""

    def invoke(self) -> Any:
        if self.held.is_lost:  # lost while the call waited for a worker
            raise _QueueLost
        self._hooks.before(self.context)
        return self.handler.call(self.messages)

    def complete(self, outcome: Outcome | None) -> None:
        if not self.outcome.done():
            is_lost = outcome is not None and isinstance(outcome.error, _QueueLost)
            self.outcome.set_result(None if is_lost else outcome)


class LockRegainer(Protocol):
    """Regains the lock of a queue; returns whether its holder may continue."""

    async def regain(self, held: HeldQueue) -> bool: ...


class QueueOrderedDelivery:
    """Runs one delivery loop for each held queue.

    Args:
        locks: None if the group broadcasts: every member reads all queues, so none is locked.
        max_reconsume_times: None retries without end.
    """

    def __init__(
        self,
        runtime: ConsumerRuntime,
        *,
        locks: LockRegainer | None,
        max_reconsume_times: int | None,
        suspend: float = SUSPEND,
    ) -> None:
        self._runtime = runtime
        self._locks = locks
        self._max_times = max_reconsume_times
        self._suspend = suspend

    async def run(self, held: HeldQueue, topic: str, before: HeldQueue | None) -> None:
        """Deliver until the queue is dropped, after the calls of its former holder `before`."""
        if before is not None:
            await before.wait_until_idle()
        while not held.is_dropped:
            handler = self._runtime.handlers.get(topic)
            messages = held.process.first(handler.batch) if handler else []
            if self._locks is not None and not held.is_locked:
                if not await self._locks.regain(held):
                    await held.sleep(LOCK_RETRY_INTERVAL)
            elif handler is None or not messages:
                await held.wait_for_change()
            else:
                await self._deliver(held, handler, messages)

    async def _deliver(
        self, held: HeldQueue, handler: Handler, messages: Sequence[StoredMessage]
    ) -> None:
        call = OrderedCall(handler, messages, held, self._runtime)
        held.begin(call)
        try:
            self._runtime.workers.submit(call)
            outcome = await call.outcome
            if outcome is None:
                return
            self._record(call, outcome)
            held.done(messages[: outcome.done])
            pause = await self._retry(held, messages[outcome.done :], outcome)
        finally:
            held.end(call)
        if pause:
            await held.sleep(pause)

    async def _retry(
        self, held: HeldQueue, failed: Sequence[StoredMessage], outcome: Outcome
    ) -> float:
        """Count the failure; return the seconds until the next try, 0 if no message is left."""
        for message in failed:
            if self._is_exhausted(message) and await dead_letter(self._runtime, message):
                held.done([message])
            else:
                times = message.reconsume_times + 1
                held.process.replace(structs.replace(message, reconsume_times=times))
        if not any(message.queue_offset in held.process for message in failed):
            return 0.0
        return pause_after(outcome, self._suspend)

    def _is_exhausted(self, message: StoredMessage) -> bool:
        return self._max_times is not None and message.reconsume_times >= self._max_times

    def _record(self, call: OrderedCall, outcome: Outcome) -> None:
        self._runtime.record(call, call.held, outcome)
        call.context.outcome = outcome
        self._runtime.hooks.after(call.context)


def pause_after(outcome: Outcome, suspend: float) -> float:
    """Seconds to wait after a failure: `Retry.suspend` of the handler, or the setting."""
    requested = outcome.error.suspend if isinstance(outcome.error, Retry) else None
    return min(max(suspend if requested is None else requested, _MIN_PAUSE), _MAX_PAUSE)


async def dead_letter(runtime: ConsumerRuntime, message: StoredMessage) -> bool:
    """Send a message to the retry topic, from where the broker moves it to the dead letters.

    Returns:
        Whether the message was sent, or dropped because the group broadcasts.
    """
    if runtime.send_back is None:
        log.warning("%s broadcasts: %s is dropped after its last retry", runtime.group, message)
        return True
    try:
        await runtime.send_back.resend(message, dead=True)
    except BolideError as exc:
        text = "%s: %s cannot be dead-lettered now and blocks its queue: %s"
        runtime.throttled.warning("resend", text, runtime.group, message, exc)
        return False
    return True
