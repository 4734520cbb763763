"""Concurrent consumption: many messages at a time in any order; failures are sent back."""

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
from bolide.client.consumer.handlers.invocation import Call, Consumption, Owner
from bolide.client.consumer.handlers.workers import Job
from bolide.errors import BolideError
from bolide.model.message import StoredMessage


class ConcurrentRun:
    """Hands out one call after the other; its queue is not idle before all of them are over."""

    __slots__ = ("_lock", "_owner", "_under_way", "handler", "held", "is_plain", "waiting")

    def __init__(
        self, owner: Owner, handler: Handler, messages: Sequence[StoredMessage], held: HeldQueue
    ) -> None:
        self.handler = handler
        self.held = held
        self.waiting = deque(messages)
        self.is_plain = handler.batch == 1 and not owner.common.hooks
        self._owner = owner
        self._under_way: dict[Job, ConcurrentJob] = {}
        self._lock = threading.Lock()  # guards what waits and what is under way

    def begin(self) -> "ConcurrentJob | None":
        with self._lock:
            count = min(self.handler.batch, len(self.waiting))
            messages = [self.waiting.popleft() for _ in range(count)]
            if not messages:
                return None
            job = ConcurrentJob(self._owner, self.handler, messages, self.held)
            job.run = self
            self._under_way[job] = job
        return job

    def done(self, messages: Sequence[StoredMessage], seconds: float) -> None:
        counter = self._owner.common.counters[self.held.queue.topic]
        counter.consumed(len(messages), 0, seconds, calls=len(messages))
        self.held.done(messages)

    def settle_done(self, jobs: Sequence[Job]) -> None:
        with self._lock:
            ours = [job for job in jobs if self._under_way.pop(job, None) is not None]
        now = monotonic()
        self.done(
            [job.messages[0] for job in ours], sum(now - (job.started or now) for job in ours)
        )
        if len(ours) < len(jobs):
            for job in set(jobs).difference(ours):  # given up already
                job.settle(Outcome(1))
        self._end_if_over()

    def leave(self, job: Job) -> None:
        with self._lock:
            self._under_way.pop(job, None)
        self._end_if_over()

    def withdraw(self) -> None:
        """Let go of the messages whose calls have not begun."""
        with self._lock:
            self.waiting.clear()
        self._end_if_over()

    def older_than(self, time: float) -> "list[ConcurrentJob]":
        """Calls that have been under way since before a time of the loop's clock."""
        with self._lock:
            return [job for job in self._under_way.values() if job.is_older_than(time)]

    def _end_if_over(self) -> None:
        with self._lock:
            is_over = not self.waiting and not self._under_way
        if is_over:
            self.held.end(self)


class ConcurrentJob(Call[HeldQueue]):
    """One call of a run, which it leaves when it is settled or given up."""

    __slots__ = ("run",)

    run: ConcurrentRun

    def settle(self, outcome: Outcome) -> None:
        super().settle(outcome)
        self.run.leave(self)


log = logging.getLogger(__name__)

LATER = 5.0
"""Seconds after which a message is tried again here because it could not be sent back."""

_TIMEOUT_LEVEL = 3
_topic = attrgetter("topic")


class ConcurrentConsumption:
    """Splits what was pulled into calls, and sees to what became of each.

    In a group that broadcasts what fails is dropped, with a log line.
    """

    def __init__(self, consumption: Consumption) -> None:
        self.common = consumption
        self._tasks: set[asyncio.Task[None]] = set()

    def take(self, held: HeldQueue, messages: Sequence[StoredMessage]) -> None:
        """Hand messages of a held queue to the handlers of their topics."""
        for topic, group in groupby(messages, _topic):
            handler = self.common.handlers.get(topic)
            if handler is None:
                self._spawn(self._wait_for_handler(held, list(group)))
            else:
                self._submit(held, handler, list(group))

    def settle(self, job: ConcurrentJob, outcome: Outcome) -> None:
        self.common.note(job, job.held, outcome)
        if job.context is not None:
            job.context.outcome = outcome
            self.common.hooks.after(job.context)
        if job.is_abandoned:
            return
        held, done = job.held, job.messages[: outcome.done]
        failed = job.messages[outcome.done :]
        held.done(done)
        if failed and self.common.send_back is None:
            self._drop(held, failed, outcome)
        elif failed and not held.is_dropped:
            # A dropped queue is somebody else's now: its next holder gets the message again.
            self._give_back_soon(job, failed, outcome.delay_level)

    def withdraw(self, held: HeldQueue) -> None:
        """Let go of what waits for handlers."""
        for run in list(held.jobs):
            if isinstance(run, ConcurrentRun):
                run.withdraw()

    def expire(self, helds: Iterable[HeldQueue], older_than: float) -> None:
        """Send back what handlers have been at for too long; the calls themselves go on."""
        for held in helds:
            for run in list(held.jobs):
                if isinstance(run, ConcurrentRun):
                    for job in run.older_than(older_than):
                        self._abandon(job)

    async def close(self) -> None:
        """End what waits; sends under way were waited for with their queues."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _submit(self, held: HeldQueue, handler: Handler, messages: Sequence[StoredMessage]) -> None:
        run = ConcurrentRun(self, handler, messages, held)
        held.begin(run)
        self.common.workers.submit_run(run)

    def _abandon(self, job: ConcurrentJob) -> None:
        job.is_abandoned = True
        took = TimeoutError("the handler has been at it for too long")
        self.common.rare.warning(
            ("expired", job.held.queue.topic),
            "%s: a handler has been at a message of %s for too long; it is given up",
            self.common.group,
            job.held.queue,
        )
        if self.common.send_back is None:
            self._drop(job.held, job.messages, Outcome(0, took))
        else:
            self._give_back_soon(job, job.messages, _TIMEOUT_LEVEL)
        job.run.leave(job)

    def _drop(self, held: HeldQueue, failed: Sequence[StoredMessage], outcome: Outcome) -> None:
        for message in failed:
            log.warning(
                "%s broadcasts: %s failed and is dropped: %r",
                self.common.group,
                message,
                outcome.error,
            )
        held.done(failed)

    def _give_back_soon(
        self, job: ConcurrentJob, messages: Sequence[StoredMessage], delay_level: int
    ) -> None:
        job.held.begin(job)  # until it is sent back, though the call is over
        self._spawn(self._give_back(job, messages, delay_level))

    async def _give_back(
        self, job: ConcurrentJob, messages: Sequence[StoredMessage], delay_level: int
    ) -> None:
        held = job.held
        try:
            again = [m for m in messages if not await self._is_sent_back(held, m, delay_level)]
        finally:
            held.end(job)
        if again:
            await held.sleep(LATER)
            if not held.is_dropped:
                self.take(held, [_tried_once_more(message) for message in again])

    async def _is_sent_back(self, held: HeldQueue, message: StoredMessage, level: int) -> bool:
        if message.queue_offset not in held.process:
            return True
        if self.common.send_back is None:
            self._drop(held, [message], Outcome(0, None))
            return True
        try:
            await self.common.send_back.send(message, level)
        except BolideError as exc:
            self.common.rare.warning(
                "send-back",
                "%s: a message could not be sent back and is tried again in %g s: %s",
                self.common.group,
                LATER,
                exc,
            )
            return False
        held.done([message])
        return True

    async def _wait_for_handler(self, held: HeldQueue, messages: list[StoredMessage]) -> None:
        """A retry may arrive before its topic is subscribed to, or long after it was."""
        topic = messages[0].topic
        while messages:
            await held.sleep(LATER)
            if held.is_dropped:
                return
            if handler := self.common.handlers.get(topic):
                self._submit(held, handler, messages)
                return
            text = "%s: no handler for a retry of topic %s"
            self.common.rare.warning(("no handler", topic), text, self.common.group, topic)
            messages = [m for m in messages if not await self._is_sent_back(held, m, 0)]

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work, name="bolide-send-back")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _tried_once_more(message: StoredMessage) -> StoredMessage:
    return structs.replace(message, reconsume_times=message.reconsume_times + 1)
