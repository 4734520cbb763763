"""The queues that a consumer holds: how it gets them, gives them up and begins them anew."""

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

LEAVE_WITHIN = 20.0
"""Seconds that a queue given up waits for the handlers at work on it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenancy:
    """What a consumer does with a queue it holds."""

    locate: Callable[[MessageQueue], Awaitable[int]]
    """Where to begin."""
    begin: Callable[[HeldQueue, HeldQueue | None], None]
    """Start the tasks of a tenure; the second is a former one of the same queue."""
    withdraw: Callable[[HeldQueue], None] = lambda _held: None
    """Take back the calls of handlers that have not begun."""
    is_ordered: Callable[[str], bool] = lambda _topic: False
    now: Callable[[], float] = time.time


class Holdings:
    """One tenure for each queue held.

    Args:
        locks: None if nothing is ever locked.
        commits: False leaves all commits to the user.
    """

    def __init__(
        self,
        offsets: OffsetStore,
        tenancy: Tenancy,
        locks: QueueLocks | None,
        *,
        commits: bool = True,
    ) -> None:
        self._offsets = offsets
        self._tenancy = tenancy
        self._locks = locks
        self._commits = commits
        self._held: dict[MessageQueue, HeldQueue] = {}
        self._leaving: dict[MessageQueue, HeldQueue] = {}
        self._lingering: set[asyncio.Task[None]] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._rare = ThrottledLog(log)
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

    async def change(self, topic: str, wanted: Collection[MessageQueue]) -> bool:
        """Hold these queues of a topic and no others; False if one of them is yet to come."""
        for queue in self.of_topic(topic).difference(wanted):
            self._give_up(self._held[queue])
        missing = [queue for queue in wanted if queue not in self._held]
        # One that is still being given up comes back when its handlers are through.
        free = [queue for queue in missing if queue not in self._leaving]
        if self._locks is not None and self._tenancy.is_ordered(topic):
            got = await self._hold_locked(self._locks, free)
        else:
            got = await asyncio.gather(*map(self._hold, free))
        return all(got) and len(got) == len(missing)

    def restart(self, held: HeldQueue, queue_offset: int, *, commit: bool = True) -> None:
        """Forget what was pulled of a queue and begin anew at this offset."""
        if self._held.get(held.queue) is not held:
            return
        self._drop(held)
        self._begin(held.queue, queue_offset, held)
        if commit:
            self._spawn(self._write(held.queue, queue_offset))

    async def commit(self) -> None:
        """Raises what the store of offsets raises, if they are not kept."""
        if self._held:
            await self._offsets.write(self.progress(), wait=True)

    async def commit_by_the_way(self) -> None:
        """As `commit`, but a failure is only said."""
        try:
            await self._offsets.write(self.progress(), wait=False)
        except Exception as exc:  # noqa: BLE001  the store of offsets may be the user's
            self._rare.warning("commit", "offsets cannot be committed now: %r", exc)
        else:
            self._rare.forget("commit")

    async def close(self, within: float) -> None:
        """Give everything up: wait for handlers at work, commit, unlock."""
        self._is_closed = True
        for held in self:
            self._give_up(held, within)
        while self._leaving:
            await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
        for consuming in self._lingering:  # in a handler that does not come to an end
            consuming.cancel()
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def _hold_locked(self, locks: QueueLocks, queues: list[MessageQueue]) -> list[bool]:
        """Hold those whose lock is granted; no lock stays behind, cancelled or not."""
        try:
            granted = await locks.lock(queues)
            queues = [queue for queue in queues if granted.get(queue)]
            return await asyncio.gather(*map(self._hold, queues))
        finally:
            if unused := [queue for queue in queues if queue not in self._held]:
                self._spawn(locks.unlock(unused))

    async def _hold(self, queue: MessageQueue) -> bool:
        try:
            start = await self._tenancy.locate(queue)
        except Exception as exc:  # noqa: BLE001  the store of offsets may be the user's
            text = "where to begin in %s cannot be found out now: %r"
            self._rare.warning(queue.broker_name, text, queue, exc)
            return False
        if self._is_closed:
            return False
        if queue not in self._held:
            self._begin(queue, start, None)
        return True

    def _begin(self, queue: MessageQueue, start: int, before: HeldQueue | None) -> None:
        held = HeldQueue(queue, start, self._tenancy.now)
        if self._locks is not None and self._tenancy.is_ordered(queue.topic):
            held.is_granted = partial(self._locks.holds, queue)
            held.locked_at = before.locked_at if before else self._tenancy.now()
        self._held[queue] = held
        self._tenancy.begin(held, before)

    def _drop(self, held: HeldQueue) -> None:
        held.drop()
        self._tenancy.withdraw(held)
        self._spawn(self._ended(held))

    def _give_up(self, held: HeldQueue, within: float = LEAVE_WITHIN) -> None:
        del self._held[held.queue]
        self._leaving[held.queue] = held
        self._drop(held)
        self._spawn(self._leave(held, within))

    async def _leave(self, held: HeldQueue, within: float) -> None:
        queue, before = held.queue, held.process.unfinished
        try:
            # At once, for whoever gets the queue now; and again with what is still under way.
            if self._commits:
                await self._write(queue, before)
            await _within(within, held.idle(), f"handlers are still at work on {queue}")
            if self._commits and held.process.unfinished != before:
                await self._raise(queue, held.process.unfinished)
            if self._locks is not None and held.locked_at is not None:
                await self._locks.unlock([queue])
        finally:
            self._leaving.pop(queue, None)

    async def _ended(self, held: HeldQueue) -> None:
        """Await the tasks of a dropped queue; one that consumes in order may be in a handler."""
        if held.pulling is not None:
            await asyncio.wait([held.pulling])
        if held.consuming is not None:
            self._lingering.add(held.consuming)
            await asyncio.wait([held.consuming])
            self._lingering.discard(held.consuming)

    async def _write(self, queue: MessageQueue, queue_offset: int) -> None:
        """Commit one offset; what fails is said and leads to nothing but duplicates."""
        try:
            await self._offsets.write({queue: queue_offset}, wait=True)
        except Exception as exc:  # noqa: BLE001  the store of offsets may be the user's
            text = "the offset %d of %s could not be committed: %r"
            self._rare.warning(("commit", queue.broker_name), text, queue_offset, queue, exc)

    async def _raise(self, queue: MessageQueue, queue_offset: int) -> None:
        """Commit unless the group is further already: the queue may be another's by now."""
        try:
            stored = await self._offsets.read(queue)
        except Exception as exc:  # noqa: BLE001  the store of offsets may be the user's
            text = "the offset of %s cannot be read: %r"
            self._rare.warning(("commit", queue.broker_name), text, queue, exc)
            return
        if stored is None or stored < queue_offset:
            await self._write(queue, queue_offset)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(_logged(work), name="bolide-queue")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _within(seconds: float, work: Awaitable[object], otherwise: str) -> None:
    try:
        async with asyncio.timeout(seconds):
            await work
    except TimeoutError:
        log.warning("%s after %g s; it is given up all the same", otherwise, seconds)


async def _logged(work: Coroutine[Any, Any, None]) -> None:
    try:
        await work
    except Exception:
        log.exception("a queue could not be given up as it should be")


def wake_all(helds: Iterable[HeldQueue]) -> None:
    for held in helds:
        held.wake()
