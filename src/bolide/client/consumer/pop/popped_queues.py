"""Queues a push consumer pops from, beside those it pulls."""

import asyncio
import time
from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator, Mapping
from typing import Any

from bolide.client.consumer.group.held_queue import HeldQueue
from bolide.client.consumer.group.held_queues import HeldQueues
from bolide.model.message import StoredMessage
from bolide.model.message_queue import MessageQueue
from bolide.protocol.bodies.consumers import HeldPopQueue
from bolide.protocol.bodies.pop import RequestMode


class PoppedQueue(HeldQueue):
    """One tenure. It has no offsets: what was popped is ours until it is acknowledged or expires.

    Giving it up only ends the popping: messages under way are dealt with to their end.
    """

    def __init__(self, queue: MessageQueue, now: Callable[[], float]) -> None:
        super().__init__(queue, 0, now)
        self._leased: dict[int, tuple[StoredMessage, float]] = {}

    @property
    def held_count(self) -> int:
        """Messages that were popped, and neither acknowledged nor given back."""
        return len(self._leased)

    def lease(self, messages: Iterable[StoredMessage], until: float) -> None:
        """Note that messages are ours up to a time of the loop's clock."""
        self._leased |= {id(message): (message, until) for message in messages}

    def prolong(self, message: StoredMessage, until: float) -> None:
        if id(message) in self._leased:
            self._leased[id(message)] = message, until

    def ending(self, before: float) -> list[StoredMessage]:
        """Those that are ours only up to a time before this one."""
        return [message for message, until in self._leased.values() if until < before]

    def release(self, messages: Iterable[StoredMessage]) -> None:
        """They are none of ours any more."""
        for message in messages:
            self._leased.pop(id(message), None)
        self.wake()

    def pop_status(self) -> HeldPopQueue:
        """As `consumerStatus` of mqadmin shows it."""
        return HeldPopQueue(
            wait_ack_count=self.held_count,
            droped=self.is_dropped,
            last_pop_timestamp=int(self.last_pull * 1000),
        )


Begin = Callable[[PoppedQueue], Coroutine[Any, Any, None]]
"""Pops until the queue is dropped."""


class PoppedQueues:
    """One tenure, with a task that pops, for each queue."""

    def __init__(self, begin: Begin, now: Callable[[], float] = time.time) -> None:
        self._begin = begin
        self._now = now
        self._held: dict[MessageQueue, PoppedQueue] = {}
        self._tasks: dict[asyncio.Task[None], PoppedQueue] = {}

    def __iter__(self) -> Iterator[PoppedQueue]:
        """Those that are held."""
        return iter(list(self._held.values()))

    def with_messages(self) -> list[PoppedQueue]:
        """Those held, and those given up of which messages may still be under way."""
        return list({id(held): held for held in (*self._tasks.values(), *self)}.values())

    def of_topic(self, topic: str) -> frozenset[MessageQueue]:
        return frozenset(queue for queue in self._held if queue.topic == topic)

    def topics(self) -> Collection[str]:
        return {queue.topic for queue in self._held}

    async def assign(self, topic: str, wanted: Collection[MessageQueue]) -> bool:
        """Pop from these queues of a topic and no others."""
        for queue in self.of_topic(topic).difference(wanted):
            self._held.pop(queue).drop()
        for queue in wanted:
            if queue not in self._held:
                self._start(queue)
        return True

    async def close(self) -> None:
        """Stop popping; what a broker hands out at this moment comes again when it expires."""
        for held in self:
            held.drop()
        self._held.clear()
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(list(self._tasks))

    def _start(self, queue: MessageQueue) -> None:
        held = self._held[queue] = PoppedQueue(queue, self._now)
        task = asyncio.create_task(self._run(held), name=f"bolide-pop-{queue}")
        self._tasks[task] = held
        task.add_done_callback(self._tasks.pop)

    async def _run(self, held: PoppedQueue) -> None:
        await self._begin(held)
        await held.wait_until_idle()


class MixedQueues:
    """Both kinds behind one door, for those who share queues out; each queue has its mode."""

    def __init__(self, pulled: HeldQueues, popped: PoppedQueues) -> None:
        self._pulled = pulled
        self._popped = popped
        self._modes: dict[str, Mapping[MessageQueue, RequestMode]] = {}

    def set_modes(self, topic: str, modes: Mapping[MessageQueue, RequestMode]) -> None:
        """Say how the queues of the next `change` are read; what is not named is pulled."""
        self._modes[topic] = modes

    def of_topic(self, topic: str) -> frozenset[MessageQueue]:
        return self._pulled.of_topic(topic) | self._popped.of_topic(topic)

    def topics(self) -> Collection[str]:
        return {*self._pulled.topics(), *self._popped.topics()}

    async def assign(self, topic: str, wanted: Collection[MessageQueue]) -> bool:
        modes = self._modes.get(topic, {})
        popped = [queue for queue in wanted if modes.get(queue) is RequestMode.POP]
        pulled = [queue for queue in wanted if modes.get(queue) is not RequestMode.POP]
        # First what is given up: a queue is not to be read in both ways.
        await self._popped.assign(topic, popped)
        return await self._pulled.assign(topic, pulled)
