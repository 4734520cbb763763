"""A queue as long as a consumer holds it, from the offset where it began to when it gives it up."""

import asyncio
from collections.abc import Callable, Sequence

from bolide.client.consuming.process_queue import ProcessQueue
from bolide.model.message import StoredMessage
from bolide.model.message_queue import MessageQueue
from bolide.protocol.bodies.consumers import HeldQueue as ShownQueue

LOCK_LIFE = 30.0
"""Seconds after which a consumer takes its own lock for lost; the broker keeps it for 60."""


class HeldQueue:
    """One tenure of a queue. Once dropped it stays so: the queue is held anew as another one."""

    def __init__(self, queue: MessageQueue, start: int, now: Callable[[], float]) -> None:
        self.queue = queue
        self.process = ProcessQueue(start)
        self.jobs: set[object] = set()
        """Calls handed to workers and not settled, and whatever else must end first."""
        self.last_pull = self.last_consume = now()
        self.locked_at: float | None = None
        self.is_granted: Callable[[], bool] = lambda: True
        """Whether the broker can still know of the lock."""
        self.pulling: asyncio.Task[None] | None = None
        """Cancelled when the queue is dropped."""
        self.consuming: asyncio.Task[None] | None = None
        """Ends by itself when the queue is dropped."""
        self.is_keyed = False
        """Whether only the order of each key is kept."""
        self.arrived: Callable[[Sequence[StoredMessage]], None] = lambda _messages: None
        """Told what was pulled, if the queue is consumed in order."""
        self._now = now
        self._dropped = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._changed = asyncio.Event()

    @property
    def is_dropped(self) -> bool:
        return self._dropped.is_set()

    @property
    def is_locked(self) -> bool:
        """Whether the broker's lock is ours for certain."""
        is_fresh = self.locked_at is not None and self._now() - self.locked_at < LOCK_LIFE
        return is_fresh and self.is_granted()

    @property
    def is_lost(self) -> bool:
        """Whether no more handlers may begin: dropped, or its lock may be another's by now."""
        return self.is_dropped or (self.locked_at is not None and not self.is_locked)

    def take(self, messages: Sequence[StoredMessage], next_offset: int) -> Sequence[StoredMessage]:
        """Take in what a pull found; those that are new."""
        fresh = self.process.put(messages, next_offset)
        self._changed.set()
        return fresh

    def done(self, messages: Sequence[StoredMessage]) -> None:
        self.process.done(messages)
        self.last_consume = self._now()
        self._changed.set()

    def begin(self, job: object) -> None:
        self.jobs.add(job)
        self._idle.clear()

    def end(self, job: object) -> None:
        self.jobs.discard(job)
        self.last_consume = self._now()
        if not self.jobs:
            self._idle.set()

    def drop(self) -> None:
        """Pull no more and start no more handlers; those under way go on."""
        self._dropped.set()
        self._changed.set()
        if self.pulling is not None:
            self.pulling.cancel()

    def wake(self) -> None:
        """Something outside changed: those who wait for a change look again."""
        self._changed.set()

    async def change(self) -> None:
        """Wait until messages came or went, or the queue was dropped."""
        self._changed.clear()
        await self._changed.wait()

    async def sleep(self, seconds: float) -> None:
        """As asyncio.sleep, but wakes when the queue is dropped."""
        try:
            async with asyncio.timeout(seconds):
                await self._dropped.wait()
        except TimeoutError:
            pass

    async def idle(self) -> None:
        """Wait until nothing is under way."""
        await self._idle.wait()

    def shown(self) -> ShownQueue:
        """As `consumerStatus` of mqadmin shows it; times become milliseconds."""
        process = self.process
        held = len(process)
        return ShownQueue(
            commit_offset=process.unfinished,
            cached_msg_min_offset=process.unfinished if held else 0,
            cached_msg_max_offset=process.newest,
            cached_msg_count=held,
            cached_msg_size_in_mib=process.size // (1024 * 1024),
            locked=self.is_locked,
            last_lock_timestamp=int((self.locked_at or 0) * 1000),
            droped=self.is_dropped,
            last_pull_timestamp=int(self.last_pull * 1000),
            last_consume_timestamp=int(self.last_consume * 1000),
        )
