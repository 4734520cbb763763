"""Consume what was popped: done is acknowledged, failed comes again, worn out is a dead letter."""

import asyncio
import logging
from collections.abc import Iterable, Sequence

from bolide.client.consuming.calls import Call
from bolide.client.consuming.consume import Outcome
from bolide.client.consuming.consumption import Consumption
from bolide.client.consuming.pop_leases import Leases
from bolide.client.consuming.popped_queue import PoppedQueue
from bolide.client.consuming.receipts import back_off
from bolide.client.consuming.send_back import SendBack
from bolide.errors import BolideError
from bolide.model.message import StoredMessage

log = logging.getLogger(__name__)


class PopJob(Call[PoppedQueue]):
    """One call for popped messages."""

    __slots__ = ()


class PopConsumption:
    """Splits what was popped into calls, and sees to what became of each."""

    def __init__(
        self, consumption: Consumption, leases: Leases, send_back: SendBack, max_times: int
    ) -> None:
        self.common = consumption
        self._leases = leases
        self._send_back = send_back
        self._max_times = max_times
        self._tasks: set[asyncio.Task[None]] = set()

    def take(self, held: PoppedQueue, messages: Sequence[StoredMessage]) -> None:
        """Hand popped messages, which are of one topic, to its handler."""
        handler = self.common.handlers.get(messages[0].topic)
        if handler is None:
            return  # it was unsubscribed from just now: they come again, to another member
        self._leases.begin(held, messages)
        # One that killed its consumers each time never came to a failed call.
        fresh = [each for each in messages if each.reconsume_times <= self._max_times]
        if len(fresh) < len(messages):
            self._bury(held, [m for m in messages if m.reconsume_times > self._max_times])
        for at in range(0, len(fresh), handler.batch):
            job = PopJob(self, handler, fresh[at : at + handler.batch], held)
            held.begin(job)
            self.common.workers.submit(job)

    def settle(self, job: PopJob, outcome: Outcome) -> None:
        self.common.note(job, job.held, outcome)
        if job.context is not None:
            job.context.outcome = outcome
            self.common.hooks.after(job.context)
        job.held.end(job)
        if job.is_abandoned:
            return
        self._leases.done(job.held, job.messages[: outcome.done])
        for message in job.messages[outcome.done :]:
            self._retry(job.held, message, outcome.delay_level)

    def expire(self, helds: Iterable[PoppedQueue], older_than: float) -> None:
        """Give up what handlers have been at for too long; the calls themselves go on."""
        for held in helds:
            for job in list(held.jobs):
                if isinstance(job, PopJob) and job.is_older_than(older_than):
                    self._abandon(job)

    async def give_back(self, held: PoppedQueue) -> None:
        """Take back the calls that have not begun, and let other members have the messages."""
        waiting = self.common.workers.withdraw(lambda job: job in held.jobs)
        for job in waiting:
            held.end(job)
        await self._leases.give_back(held, [m for job in waiting for m in job.messages])

    async def close(self, within: float) -> None:
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=within)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late)

    def _retry(self, held: PoppedQueue, message: StoredMessage, delay_level: int) -> None:
        if delay_level < 0 or message.reconsume_times >= self._max_times:
            self._bury(held, [message])
            return
        # As RocketMQ's consumers read a delay level when they pop: a place in the list.
        self._leases.again(held, message, back_off(delay_level or message.reconsume_times))

    def _bury(self, held: PoppedQueue, messages: Sequence[StoredMessage]) -> None:
        task = asyncio.create_task(self._buried(held, messages), name="bolide-pop-bury")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _buried(self, held: PoppedQueue, messages: Sequence[StoredMessage]) -> None:
        for message in messages:
            try:
                await self._send_back.bury(message)
            except BolideError as exc:
                text = "%s: %s is no dead letter yet: %s"
                self.common.rare.warning("bury", text, self.common.group, message, exc)
                self._leases.again(held, message, back_off(message.reconsume_times))
            else:
                self._leases.done(held, [message])

    def _abandon(self, job: PopJob) -> None:
        job.is_abandoned = True
        self.common.rare.warning(
            ("expired", job.held.queue.topic),
            "%s: a handler has been at a message of %s for too long; it is given up",
            self.common.group,
            job.held.queue,
        )
        job.held.settle(job.messages)  # no more prolonged, they come again
