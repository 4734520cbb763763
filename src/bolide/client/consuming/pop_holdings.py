"""The queues that a push consumer pops from, beside those it pulls."""

import asyncio
import time
from collections.abc import Callable, Collection, Coroutine, Iterator, Mapping
from typing import Any

from bolide.client.consuming.holdings import Holdings
from bolide.client.consuming.popped_queue import PoppedQueue
from bolide.model.message_queue import MessageQueue
from bolide.protocol.bodies.pop import RequestMode

Begin = Callable[[PoppedQueue], Coroutine[Any, Any, None]]
"""Pops until the queue is dropped."""


class PopHoldings:
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

    async def change(self, topic: str, wanted: Collection[MessageQueue]) -> bool:
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
        await held.idle()


class ModalHoldings:
    """Both kinds behind one door, for those who share queues out; each queue has its mode."""

    def __init__(self, pulled: Holdings, popped: PopHoldings) -> None:
        self._pulled = pulled
        self._popped = popped
        self._modes: dict[str, Mapping[MessageQueue, RequestMode]] = {}

    def expect(self, topic: str, modes: Mapping[MessageQueue, RequestMode]) -> None:
        """Say how the queues of the next `change` are read; what is not named is pulled."""
        self._modes[topic] = modes

    def of_topic(self, topic: str) -> frozenset[MessageQueue]:
        return self._pulled.of_topic(topic) | self._popped.of_topic(topic)

    def topics(self) -> Collection[str]:
        return {*self._pulled.topics(), *self._popped.topics()}

    async def change(self, topic: str, wanted: Collection[MessageQueue]) -> bool:
        modes = self._modes.get(topic, {})
        popped = [queue for queue in wanted if modes.get(queue) is RequestMode.POP]
        pulled = [queue for queue in wanted if modes.get(queue) is not RequestMode.POP]
        # First what is given up: a queue is not to be read in both ways.
        await self._popped.change(topic, popped)
        return await self._pulled.change(topic, pulled)
