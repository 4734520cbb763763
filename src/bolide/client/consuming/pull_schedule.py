"""Call a function for each assigned queue again and again, for those who pull on a schedule."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Unpack

from bolide.client.consuming.consumer_settings import ConsumerArguments
from bolide.client.consuming.pull_consumer import PullConsumer
from bolide.client.lifecycle import Startable
from bolide.model.message_queue import MessageQueue

log = logging.getLogger(__name__)

NEXT_DELAY = 0.2
AFTER_FAILURE = 1.0


class PullTurn:
    """What a pull task is called with beside its queue."""

    def __init__(self, consumer: PullConsumer) -> None:
        self.consumer = consumer
        """To pull with, and to keep offsets."""
        self.next_delay = NEXT_DELAY
        """Seconds until the next call for the queue; the task may set it."""


PullTask = Callable[[MessageQueue, PullTurn], Awaitable[object]]


class PullSchedule(Startable):
    """A task for each queue that is this member's share of the registered topics.

    Queues that come get a task, those that go lose theirs; when broadcasting all queues have one.
    """

    def __init__(self, group: str, **arguments: Unpack[ConsumerArguments]) -> None:
        """Take the settings of a `PullConsumer`; `on_assignment` is called here as well."""
        self._listener = arguments.get("on_assignment")
        arguments["on_assignment"] = self._assigned
        self.consumer = PullConsumer(group, **arguments)
        self._callbacks: dict[str, PullTask] = {}
        self._tasks: dict[MessageQueue, asyncio.Task[None]] = {}
        self._is_closed = False

    async def start(self) -> None:
        await self.consumer.start()

    async def close(self) -> None:
        """End the tasks, then commit offsets and leave the group."""
        self._is_closed = True
        await self._stop(set(self._tasks))
        await self.consumer.close()

    async def register(self, topic: str, task: PullTask) -> None:
        """Have `task` called for each queue of a topic that is ours."""
        self._callbacks[topic] = task
        await self.consumer.register_topics(topic)

    async def _assigned(
        self, topic: str, queues: frozenset[MessageQueue], mine: frozenset[MessageQueue]
    ) -> None:
        running = {queue for queue in self._tasks if queue.topic == topic}
        await self._stop(running - mine)
        if self._is_closed:
            return
        for queue in mine - running:
            self._tasks[queue] = asyncio.create_task(self._run(queue), name=f"bolide-{queue}")
        if self._listener is not None:
            heard = self._listener(topic, queues, mine)
            if isinstance(heard, Awaitable):
                await heard

    async def _run(self, queue: MessageQueue) -> None:
        while True:
            turn = PullTurn(self.consumer)
            try:
                await self._callbacks[queue.topic](queue, turn)
            except Exception:
                log.exception("the pull task of %s failed; it is called again", queue)
                turn.next_delay = max(turn.next_delay, AFTER_FAILURE)
            await asyncio.sleep(turn.next_delay)

    async def _stop(self, queues: set[MessageQueue]) -> None:
        stopped = [self._tasks.pop(queue) for queue in queues]
        for task in stopped:
            task.cancel()
        if stopped:
            await asyncio.wait(stopped)
