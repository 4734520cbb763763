"""Consume a queue in its order: one call at a time, and the same messages again after a failure."""

import asyncio
import logging
from collections.abc import Sequence
from typing import Any, Protocol

from msgspec import structs

from bolide.client.consumer.group.held_queue import HeldQueue
from bolide.client.consumer.handlers.handler import Handler, Outcome, Retry
from bolide.client.consumer.handlers.invocation import Consumption
from bolide.errors import BolideError
from bolide.model.message import StoredMessage

log = logging.getLogger(__name__)

SUSPEND = 1.0
"""Seconds that a queue waits after a failure, unless the handler or the consumer says otherwise."""

_SHORTEST, _LONGEST = 0.01, 30.0
LOCK_AGAIN = 3.0
"""Seconds between two tries to get a lost lock back."""


class _Late(BolideError):
    """The queue was lost before the call began."""


class OrderedJob:
    """One call for the first messages of a held queue."""

    __slots__ = ("_hooks", "context", "handler", "held", "messages", "outcome", "started")

    def __init__(
        self,
        handler: Handler,
        messages: Sequence[StoredMessage],
        held: HeldQueue,
        common: Consumption,
    ) -> None:
        self.handler = handler
        self.messages = messages
        self.held = held
        self.context = common.context(held, messages)
        self._hooks = common.hooks
        self.started: float | None = None
        self.outcome: asyncio.Future[Outcome | None] = asyncio.get_running_loop().create_future()
        """None if the job was withdrawn before it began."""

    def call(self) -> Any:
        if self.held.is_lost:  # while the call waited for a worker
            raise _Late
        self._hooks.before(self.context)
        return self.handler.call(self.messages)

    def settle(self, outcome: Outcome | None) -> None:
        if not self.outcome.done():
            is_late = outcome is not None and isinstance(outcome.error, _Late)
            self.outcome.set_result(None if is_late else outcome)


class LockKeeper(Protocol):
    """Gets the lock of a queue back, and says whether the tenure may go on with it."""

    async def regain(self, held: HeldQueue) -> bool: ...


class OrderedConsumption:
    """Runs one loop for each held queue.

    Args:
        locks: None if the group broadcasts: then nobody else has the queue's messages to share.
        max_reconsume_times: None tries for ever.
    """

    def __init__(
        self,
        consumption: Consumption,
        *,
        locks: LockKeeper | None,
        max_reconsume_times: int | None,
        suspend: float = SUSPEND,
    ) -> None:
        self._common = consumption
        self._locks = locks
        self._max_times = max_reconsume_times
        self._suspend = suspend

    async def run(self, held: HeldQueue, topic: str, before: HeldQueue | None) -> None:
        """Consume until the queue is dropped; `before` is a former tenure that must end first."""
        if before is not None:
            await before.idle()
        while not held.is_dropped:
            handler = self._common.handlers.get(topic)
            messages = held.process.first(handler.batch) if handler else []
            if self._locks is not None and not held.is_locked:
                if not await self._locks.regain(held):
                    await held.sleep(LOCK_AGAIN)
            elif handler is None or not messages:
                await held.change()
            else:
                await self._consume(held, handler, messages)

    async def _consume(
        self, held: HeldQueue, handler: Handler, messages: Sequence[StoredMessage]
    ) -> None:
        job = OrderedJob(handler, messages, held, self._common)
        held.begin(job)
        try:
            self._common.workers.submit(job)
            outcome = await job.outcome
            if outcome is None:
                return
            self._note(job, outcome)
            held.done(messages[: outcome.done])
            pause = await self._retry(held, messages[outcome.done :], outcome)
        finally:
            held.end(job)
        if pause:
            await held.sleep(pause)

    async def _retry(
        self, held: HeldQueue, failed: Sequence[StoredMessage], outcome: Outcome
    ) -> float:
        """Count the failure; how long to wait before the same messages again, 0 if none is left."""
        for message in failed:
            if self._is_worn_out(message) and await is_sent_away(self._common, message):
                held.done([message])
            else:
                times = message.reconsume_times + 1
                held.process.replace(structs.replace(message, reconsume_times=times))
        if not any(message.queue_offset in held.process for message in failed):
            return 0.0
        return pause_after(outcome, self._suspend)

    def _is_worn_out(self, message: StoredMessage) -> bool:
        return self._max_times is not None and message.reconsume_times >= self._max_times

    def _note(self, job: OrderedJob, outcome: Outcome) -> None:
        self._common.note(job, job.held, outcome)
        job.context.outcome = outcome
        self._common.hooks.after(job.context)


def pause_after(outcome: Outcome, suspend: float) -> float:
    """How many seconds to wait after a failure: what the handler asked for, or as usual."""
    asked = outcome.error.suspend if isinstance(outcome.error, Retry) else None
    return min(max(suspend if asked is None else asked, _SHORTEST), _LONGEST)


async def is_sent_away(common: Consumption, message: StoredMessage) -> bool:
    """Send it to the retry topic, from where the broker moves it to the dead letters."""
    if common.send_back is None:
        log.warning("%s broadcasts: %s is dropped after its last try", common.group, message)
        return True
    try:
        await common.send_back.resend(message, dead=True)
    except BolideError as exc:
        common.rare.warning("resend", "%s: %s stays first: %s", common.group, message, exc)
        return False
    return True
