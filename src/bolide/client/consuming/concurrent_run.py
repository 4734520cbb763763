"""The calls for what one pull brought."""

import threading
from collections import deque
from collections.abc import Sequence
from time import monotonic

from bolide.client.consuming.calls import Call, Owner
from bolide.client.consuming.consume import Handler, Outcome
from bolide.client.consuming.held_queue import HeldQueue
from bolide.client.consuming.jobs import Job
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
