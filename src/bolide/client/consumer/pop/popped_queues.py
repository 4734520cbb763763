"""The queues that a push consumer pops, next to those it pulls."""

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
    """A queue for as long as a consumer pops it.

    A popped queue has no offsets, only leased messages. Releasing the queue stops the pops;
    messages in process are still completed.
    """

    def __init__(self, queue: MessageQueue, now: Callable[[], float]) -> None:
        super().__init__(queue, 0, now)
        self._leased: dict[int, tuple[StoredMessage, float]] = {}

    @property
    def leased_count(self) -> int:
        """Popped messages that are neither acknowledged nor released."""
        return len(self._leased)

    def lease(self, messages: Iterable[StoredMessage], until: float) -> None:
        """Record leases that end at a time of the loop's clock."""
        self._leased |= {id(message): (message, until) for message in messages}

    def extend(self, message: StoredMessage, until: float) -> None:
        if id(message) in self._leased:
            self._leased[id(message)] = message, until

    def ending(self, before: float) -> list[StoredMessage]:
        """Messages whose lease ends before this time."""
        return [message for message, until in self._leased.values() if until < before]

    def release(self, messages: Iterable[StoredMessage]) -> None:
        """Forget the leases of messages."""
        for message in messages:
            self._leased.pop(id(message), None)
        self.wake()

    def pop_status(self) -> HeldPopQueue:
        """The status shown by `mqadmin consumerStatus`."""
        return HeldPopQueue(
            wait_ack_count=self.leased_count,
            droped=self.is_dropped,
            last_pop_timestamp=int(self.last_pull * 1000),
        )


PopLoop = Callable[[PoppedQueue], Coroutine[Any, Any, None]]
"""Pops until the queue is dropped."""


class PoppedQueues:
    """The queues that a consumer pops, each with a task."""

    def __init__(self, pop_loop: PopLoop, now: Callable[[], float] = time.time) -> None:
        self._pop_loop = pop_loop
        self._now = now
        self._held: dict[MessageQueue, PoppedQueue] = {}
        self._tasks: dict[asyncio.Task[None], PoppedQueue] = {}

    def __iter__(self) -> Iterator[PoppedQueue]:
        """The held queues."""
        return iter(list(self._held.values()))

    def with_messages(self) -> list[PoppedQueue]:
        """The held queues, and released ones that may still have messages in process."""
        return list({id(held): held for held in (*self._tasks.values(), *self)}.values())

    def of_topic(self, topic: str) -> frozenset[MessageQueue]:
        return frozenset(queue for queue in self._held if queue.topic == topic)

    def topics(self) -> Collection[str]:
        return {queue.topic for queue in self._held}

    async def assign(self, topic: str, wanted: Collection[MessageQueue]) -> bool:
        """Pop exactly these queues of a topic."""
        for queue in self.of_topic(topic).difference(wanted):
            self._held.pop(queue).drop()
        for queue in wanted:
            if queue not in self._held:
                self._start(queue)
        return True

    async def close(self) -> None:
        """Stop popping; messages of pops in flight are redelivered when their leases expire."""
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
        await self._pop_loop(held)
        await held.wait_until_idle()


class MixedQueues:
    """The pulled and popped queues of a consumer as one assignment target."""

    def __init__(self, pulled: HeldQueues, popped: PoppedQueues) -> None:
        self._pulled = pulled
        self._popped = popped
        self._modes: dict[str, Mapping[MessageQueue, RequestMode]] = {}

    def set_modes(self, topic: str, modes: Mapping[MessageQueue, RequestMode]) -> None:
        """Set how the queues of the next `assign` are read; by default they are pulled."""
        self._modes[topic] = modes

    def of_topic(self, topic: str) -> frozenset[MessageQueue]:
        return self._pulled.of_topic(topic) | self._popped.of_topic(topic)

    def topics(self) -> Collection[str]:
        return {*self._pulled.topics(), *self._popped.topics()}

    async def assign(self, topic: str, wanted: Collection[MessageQueue]) -> bool:
        modes = self._modes.get(topic, {})
        popped = [queue for queue in wanted if modes.get(queue) is RequestMode.POP]
        pulled = [queue for queue in wanted if modes.get(queue) is not RequestMode.POP]
        # Release popped queues first: a queue must not be pulled and popped at the same time.
        await self._popped.assign(topic, popped)
        return await self._pulled.assign(topic, pulled)
