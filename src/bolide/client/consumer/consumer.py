"""What all consumers share: group membership, start and stop, periodic tasks."""

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


class PeriodicTasks:
    """Owns such tasks; what they raise is logged and does not end them."""

    def __init__(self) -> None:
        self._tasks: list[asyncio.Task[None]] = []

    def every(self, seconds: float, work: Callable[[], Awaitable[object] | object]) -> None:
        """Call `work`, a function or a coroutine function, again and again."""
        self.run(_repeat(seconds, work))

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        self._tasks.append(asyncio.create_task(work, name="bolide-consumer-keeper"))

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


S = TypeVar("S", bound=ConsumerSettings)


class Consumer(LookupMethods, Generic[S]):
    """Base of the consumers: start, close, and what can be asked of each."""

    settings: S
    _member: Membership

    def __init__(self, kind: type[S], group: str, arguments: Mapping[str, Any]) -> None:
        check_group(group)
        self.group = group
        self.settings, self._client = split_arguments(kind, arguments)
        self._life = Lifecycle("consumer", group)

    async def start(self) -> None:
        """Join the group; `async with` does so. Without a cluster that answers it goes on trying.

        Raises:
            WrongState: it was started before.
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
        """Leave the group and commit what was consumed; a second time does nothing."""
        if not self._life.end():
            return
        async with AsyncExitStack() as last:
            last.push_async_callback(self._instance.release)
            last.push_async_callback(self._instance.remove_consumer, self._member.group)
            await self._end()

    async def fetch_subscribe_queues(self, topic: str) -> list[MessageQueue]:
        """The queues that a topic can be read from.

        Raises:
            RouteNotFound: there is none.
        """
        routes = self._running().routes
        await routes.refresh(self._client.wrap(topic))
        queues = await routes.subscribe_queues(self._client.wrap(topic))
        return [self._unwrapped(queue) for queue in queues]

    async def send_back(self, message: StoredMessage, delay_level: int = 0) -> None:
        """Have the group get a message again.

        Args:
            message: one that this consumer got.
            delay_level: when: 0 lets the broker choose by the number of tries, -1 makes it a
                dead letter.

        Raises:
            BolideError: neither its broker nor the retry topic took it.
        """
        self._running()
        await self._send_back.send(message, delay_level)

    async def _enter(self) -> None:
        """Get the client instance and become one of its consumers."""
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
        """The user's listener, told without namespaces, and not of the retry topic."""
        listener = self.settings.on_assignment
        if listener is None:
            return None

        def tell(
            topic: str, queues: frozenset[MessageQueue], mine: frozenset[MessageQueue]
        ) -> Awaitable[object] | object:
            if topic.startswith(RETRY_PREFIX):
                return None
            bare = self._client.unwrap(topic)
            all_, ours = map(self._unwrapped, queues), map(self._unwrapped, mine)
            return listener(bare, frozenset(all_), frozenset(ours))

        return tell

    def _open(self, instance: ClientInstance, group: str) -> Membership:
        """Make the parts; nothing may be awaited or started yet."""
        raise NotImplementedError

    async def _begin(self) -> None:
        """Start the parts."""

    async def _end(self) -> None:
        """Stop the parts, and commit."""
