"""The set of queues a consumer holds: acquiring, releasing, restarting and committing them."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from bolide.client.consumer.group.held_queue import HeldQueue
from bolide.client.consumer.group.offsets import OffsetStore
from bolide.client.consumer.group.queue_locks import QueueLocks
from bolide.logs import ThrottledLog
from bolide.model.message_queue import MessageQueue

log = logging.getLogger(__name__)

RELEASE_TIMEOUT = 20.0
"""Seconds to wait for handler calls in flight when a queue is released."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueCallbacks:
    """What a consumer does with the queues it holds."""

    start_offset: Callable[[MessageQueue], Awaitable[int]]
    """Returns the offset to begin at."""
    start: Callable[[HeldQueue, HeldQueue | None], None]
    """Starts the tasks of a queue; the second argument is its former `HeldQueue`, if restarted."""
    withdraw: Callable[[HeldQueue], None] = lambda _held: None
    """Takes back handler calls that have not begun."""
    is_ordered: Callable[[str], bool] = lambda _topic: False
    now: Callable[[], float] = time.time


class HeldQueues:
    """The queues of one consumer.

    Args:
        locks: None if queues are never locked.
        commits: False leaves all commits to the user.
    """

    def __init__(
        self,
        offsets: OffsetStore,
        callbacks: QueueCallbacks,
        locks: QueueLocks | None,
        *,
        commits: bool = True,
    ) -> None:
        self._offsets = offsets
        self._callbacks = callbacks
        self._locks = locks
        self._commits = commits
        self._held: dict[MessageQueue, HeldQueue] = {}
        self._releasing: dict[MessageQueue, HeldQueue] = {}
        self._stuck: set[asyncio.Task[None]] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._throttled = ThrottledLog(log)
        self._is_closed = False

    def __iter__(self) -> Iterator[HeldQueue]:
        return iter(list(self._held.values()))

    def __len__(self) -> int:
        return len(self._held)

    def find(self, queue: MessageQueue) -> HeldQueue | None:
        return self._held.get(queue)

    def of_topic(self, topic: str) -> frozenset[MessageQueue]:
        return frozenset(queue for queue in self._held if queue.topic == topic)

    def topics(self) -> Collection[str]:
        return {queue.topic for queue in self._held}

    def progress(self) -> dict[MessageQueue, int]:
        """The smallest unfinished offset of every queue."""
        return {held.queue: held.process.unfinished for held in self._held.values()}

    async def assign(self, topic: str, wanted: Collection[MessageQueue]) -> bool:
        """Hold exactly these queues of a topic; False if some could not be acquired yet."""
        for queue in self.of_topic(topic).difference(wanted):
            self._release(self._held[queue])
        missing = [queue for queue in wanted if queue not in self._held]
        # A queue that is still being released is acquired again after its handlers have ended.
        free = [queue for queue in missing if queue not in self._releasing]
        if self._locks is not None and self._callbacks.is_ordered(topic):
            acquired = await self._acquire_locked(self._locks, free)
        else:
            acquired = await asyncio.gather(*map(self._acquire, free))
        return all(acquired) and len(acquired) == len(missing)

    def restart(self, held: HeldQueue, queue_offset: int, *, commit: bool = True) -> None:
        """Discard the messages of a queue and begin again at this offset."""
        if self._held.get(held.queue) is not held:
            return
        self._drop(held)
        self._begin(held.queue, queue_offset, held)
        if commit:
            self._spawn(self._try_commit_one(held.queue, queue_offset))

    async def commit(self) -> None:
        """Commit all offsets. Raises the errors of the offset store."""
        if self._held:
            await self._offsets.write(self.progress(), wait=True)

    async def try_commit(self) -> None:
        """Like `commit`, but failures are logged."""
        try:
            await self._offsets.write(self.progress(), wait=False)
        except Exception as exc:  # noqa: BLE001  the offset store may be user code
            self._throttled.warning("commit", "offsets cannot be committed now: %r", exc)
        else:
            self._throttled.forget("commit")

    async def close(self, within: float) -> None:
        """Release all queues: wait for handler calls in flight, commit, unlock."""
        self._is_closed = True
        for held in self:
            self._release(held, within)
        while self._releasing:
            await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
        for consuming in self._stuck:  # their handlers exceeded the timeout
            consuming.cancel()
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def _acquire_locked(self, locks: QueueLocks, queues: list[MessageQueue]) -> list[bool]:
        """Acquire the queues whose lock is granted; release unused locks, also if cancelled."""
        try:
            granted = await locks.lock(queues)
            queues = [queue for queue in queues if granted.get(queue)]
            return await asyncio.gather(*map(self._acquire, queues))
        finally:
            if unused := [queue for queue in queues if queue not in self._held]:
                self._spawn(locks.unlock(unused))

    async def _acquire(self, queue: MessageQueue) -> bool:
        try:
            start = await self._callbacks.start_offset(queue)
        except Exception as exc:  # noqa: BLE001  the offset store may be user code
            text = "the start offset of %s cannot be determined now: %r"
            self._throttled.warning(queue.broker_name, text, queue, exc)
            return False
        if self._is_closed:
            return False
        if queue not in self._held:
            self._begin(queue, start, None)
        return True

    def _begin(self, queue: MessageQueue, start: int, before: HeldQueue | None) -> None:
        held = HeldQueue(queue, start, self._callbacks.now)
        if self._locks is not None and self._callbacks.is_ordered(queue.topic):
            held.is_granted = partial(self._locks.holds, queue)
            held.locked_at = before.locked_at if before else self._callbacks.now()
        self._held[queue] = held
        self._callbacks.start(held, before)

    def _drop(self, held: HeldQueue) -> None:
        held.drop()
        self._callbacks.withdraw(held)
        self._spawn(self._await_tasks(held))

    def _release(self, held: HeldQueue, within: float = RELEASE_TIMEOUT) -> None:
        del self._held[held.queue]
        self._releasing[held.queue] = held
        self._drop(held)
        self._spawn(self._finish_release(held, within))

    async def _finish_release(self, held: HeldQueue, within: float) -> None:
        queue, before = held.queue, held.process.unfinished
        try:
            # Commit now for the next holder, and again after the calls in flight have ended.
            if self._commits:
                await self._try_commit_one(queue, before)
            await _within(within, held.wait_until_idle(), f"handlers of {queue} are still running")
            if self._commits and held.process.unfinished != before:
                await self._commit_if_higher(queue, held.process.unfinished)
            if self._locks is not None and held.locked_at is not None:
                await self._locks.unlock([queue])
        finally:
            self._releasing.pop(queue, None)

    async def _await_tasks(self, held: HeldQueue) -> None:
        """Await the tasks of a dropped queue; the ordered delivery loop may wait for a handler."""
        if held.pulling is not None:
            await asyncio.wait([held.pulling])
        if held.consuming is not None:
            self._stuck.add(held.consuming)
            await asyncio.wait([held.consuming])
            self._stuck.discard(held.consuming)

    async def _try_commit_one(self, queue: MessageQueue, queue_offset: int) -> None:
        """Commit one offset; a failure is logged and causes duplicates, never loss."""
        try:
            await self._offsets.write({queue: queue_offset}, wait=True)
        except Exception as exc:  # noqa: BLE001  the offset store may be user code
            text = "the offset %d of %s could not be committed: %r"
            self._throttled.warning(("commit", queue.broker_name), text, queue_offset, queue, exc)

    async def _commit_if_higher(self, queue: MessageQueue, queue_offset: int) -> None:
        """Commit unless the stored offset is higher: another member may hold the queue by now."""
        try:
            stored = await self._offsets.read(queue)
        except Exception as exc:  # noqa: BLE001  the offset store may be user code
            text = "the offset of %s cannot be read: %r"
            self._throttled.warning(("commit", queue.broker_name), text, queue, exc)
            return
        if stored is None or stored < queue_offset:
            await self._try_commit_one(queue, queue_offset)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(_logged(work), name="bolide-queue")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _within(seconds: float, work: Awaitable[object], otherwise: str) -> None:
    try:
        async with asyncio.timeout(seconds):
            await work
    except TimeoutError:
        log.warning("%s after %g s; the queue is released anyway", otherwise, seconds)


async def _logged(work: Coroutine[Any, Any, None]) -> None:
    try:
        await work
    except Exception:
        log.exception("releasing a queue failed")


def wake_all(helds: Iterable[HeldQueue]) -> None:
    for held in helds:
        held.wake()
