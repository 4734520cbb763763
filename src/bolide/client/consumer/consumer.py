"""Base class of the consumers: start and stop, group membership, periodic tasks."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import AsyncExitStack
from typing import Any, Generic, TypeVar

from bolide.client.consumer.group.membership import Membership
from bolide.client.consumer.group.rebalance import AssignmentListener
from bolide.client.consumer.send_back import SendBack
from bolide.client.consumer.settings import ConsumerSettings, split_arguments
from bolide.client.consumer.subscription import Expression, Filter
from bolide.client.instance.instance import ClientInstance
from bolide.client.instance.lifecycle import Lifecycle
from bolide.client.instance.lookups import LookupMethods
from bolide.client.instance.validation import check_group
from bolide.model.message import StoredMessage
from bolide.model.message_queue import MessageQueue
from bolide.model.names import RETRY_PREFIX

log = logging.getLogger(__name__)

S = TypeVar("S", bound=ConsumerSettings)


class PeriodicTasks:
    """Tasks that repeat until closed; exceptions are logged and do not end them."""

    def __init__(self) -> None:
        self._tasks: list[asyncio.Task[None]] = []

    def every(self, seconds: float, work: Callable[[], Awaitable[object] | object]) -> None:
        """Call a function or coroutine function at this interval."""
        self.run(_repeat(seconds, work))

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        self._tasks.append(asyncio.create_task(work, name="bolide-consumer-periodic"))

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        self._tasks.clear()


async def _repeat(seconds: float, work: Callable[[], Awaitable[object] | object]) -> None:
    while True:
        await asyncio.sleep(seconds)
        try:
            outcome = work()
            if isinstance(outcome, Awaitable):
                await outcome
        except Exception:
            log.exception("%s failed", work)


class Consumer(LookupMethods, Generic[S]):
    """Base of the consumers."""

    settings: S
    _member: Membership

    def __init__(self, kind: type[S], group: str, arguments: Mapping[str, Any]) -> None:
        check_group(group)
        self.group = group
        self.settings, self._client = split_arguments(kind, arguments)
        self._life = Lifecycle("consumer", group)

    async def start(self) -> None:
        """Join the group, as `async with` does; keeps trying while the cluster does not answer.

        Raises:
            WrongState: the consumer was started before.
            GroupTaken: another consumer of the group shares the client instance.
        """
        self._life.begin()
        try:
            await self._enter()
        except BaseException:
            self._life.fail()
            raise
        try:
            await self._begin()
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Commit the consumed offsets and leave the group. Idempotent."""
        if not self._life.end():
            return
        async with AsyncExitStack() as last:
            last.push_async_callback(self._instance.release)
            last.push_async_callback(self._instance.remove_consumer, self._member.group)
            await self._end()

    async def fetch_subscribe_queues(self, topic: str) -> list[MessageQueue]:
        """The readable queues of a topic.

        Raises:
            RouteNotFound: the topic has no route.
        """
        routes = self._running().routes
        await routes.refresh(self._client.wrap(topic))
        queues = await routes.subscribe_queues(self._client.wrap(topic))
        return [self._unwrapped(queue) for queue in queues]

    async def send_back(self, message: StoredMessage, delay_level: int = 0) -> None:
        """Return a message to the broker, which delivers it to the group again later.

        Args:
            message: a message that this consumer received.
            delay_level: the delay; 0 lets the broker choose by the number of tries, -1 makes
                the message a dead letter.

        Raises:
            BolideError: neither its broker nor the retry topic accepted the message.
        """
        self._running()
        await self._send_back.send(message, delay_level)

    async def _enter(self) -> None:
        """Acquire the client instance and register with it."""
        self._instance = await ClientInstance.acquire(self._client)
        group = self._client.wrap(self.group)
        try:
            self._send_back = SendBack(self._instance, group, self.settings.sent_back_times)
            self._member = self._open(self._instance, group)
            self._instance.add_consumer(group, self._member)
        except BaseException:
            await self._instance.release()
            raise

    def _filter(self, topic: str, expression: Expression) -> Filter:
        """Raises BadTagExpression."""
        return Filter.of(self._client.wrap(topic), expression, int(time.time() * 1000))

    def _assignment_listener(self) -> AssignmentListener | None:
        """The user's listener, called without namespaces and not for the retry topic."""
        listener = self.settings.on_assignment
        if listener is None:
            return None

        def notify(
            topic: str, queues: frozenset[MessageQueue], mine: frozenset[MessageQueue]
        ) -> Awaitable[object] | object:
            if topic.startswith(RETRY_PREFIX):
                return None
            bare = self._client.unwrap(topic)
            everything, assigned = map(self._unwrapped, queues), map(self._unwrapped, mine)
            return listener(bare, frozenset(everything), frozenset(assigned))

        return notify

    def _open(self, instance: ClientInstance, group: str) -> Membership:
        """Build the components without starting any of them."""
        raise NotImplementedError

    async def _begin(self) -> None:
        """Start the components."""

    async def _end(self) -> None:
        """Stop the components and commit."""
