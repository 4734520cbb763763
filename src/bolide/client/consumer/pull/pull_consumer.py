"""The pull consumer: the user pulls and commits; `PullSchedule` calls a task for each queue."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable
from typing import Unpack

from bolide.client.consumer.consumer import Consumer, PeriodicTasks
from bolide.client.consumer.group.membership import Membership
from bolide.client.consumer.group.offsets import OffsetStore, offset_store
from bolide.client.consumer.group.rebalance import Rebalancer
from bolide.client.consumer.member import PullMember
from bolide.client.consumer.pull.pull_request import Pull, Puller, PullResult
from bolide.client.consumer.settings import ConsumerArguments, ConsumerSettings
from bolide.client.consumer.subscription import Expression
from bolide.client.instance.instance import ClientInstance
from bolide.client.instance.lifecycle import Startable
from bolide.logs import ThrottledLog
from bolide.model.message_queue import MessageQueue

log = logging.getLogger(__name__)

PULL_TIMEOUT = 10.0
NEXT_DELAY = 0.2
AFTER_FAILURE = 1.0
_CALL_GRACE = 10.0


class UpdatedOffsets:
    """Offsets reported by the user; each is committed once.

    Writing an offset again could move back a group whose queue another member holds by now.
    """

    def __init__(self, store: OffsetStore) -> None:
        self._store = store
        self._updated: dict[MessageQueue, int] = {}
        self._unwritten: set[MessageQueue] = set()
        self._writing = asyncio.Lock()  # keeps writes in order
        self._throttled = ThrottledLog(log)

    def update(self, queue: MessageQueue, queue_offset: int) -> None:
        self._updated[queue] = queue_offset
        self._unwritten.add(queue)

    def find(self, queue: MessageQueue) -> int | None:
        return self._updated.get(queue)

    def all(self) -> dict[MessageQueue, int]:
        return dict(self._updated)

    async def write(self) -> None:
        """Commit the offsets updated since the last commit. Raises the errors of the store."""
        async with self._writing:
            changed = {queue: self._updated[queue] for queue in self._unwritten}
            if not changed:
                return
            await self._store.write(changed, wait=True)
            same = {
                queue for queue, offset in changed.items() if self._updated.get(queue) == offset
            }
            self._unwritten -= same

    async def try_write(self) -> None:
        """Like `write`, but failures are logged; the next write includes the offsets."""
        try:
            await self.write()
        except Exception as exc:  # noqa: BLE001  the offset store may be user code
            self._throttled.warning("write", "offsets cannot be committed now: %r", exc)
        else:
            self._throttled.forget("write")

    async def release(self, queues: Iterable[MessageQueue]) -> None:
        """Commit the offsets of released queues one last time and forget them."""
        released = self._updated.keys() & set(queues)
        if released & self._unwritten:
            await self.try_write()
        for queue in released:
            self._updated.pop(queue, None)
        self._unwritten -= released


class PullConsumer(Consumer[ConsumerSettings]):
    """Pulls for a group while its `async with` block runs; the user manages offsets.

    ```python
    async with PullConsumer("orders", name_server="127.0.0.1:9876") as c:
        for queue in await c.fetch_subscribe_queues("Orders"):
            found = await c.pull(queue, "*", await c.fetch_consume_offset(queue) or 0)
            ...
            await c.update_consume_offset(queue, found.next_offset)
    ```
    """

    def __init__(self, group: str, **arguments: Unpack[ConsumerArguments]) -> None:
        """See `ClientSettings` and `ConsumerSettings` for the arguments.

        Raises:
            ConfigError: a setting is invalid.
        """
        super().__init__(ConsumerSettings, group, arguments)

    async def pull(
        self,
        queue: MessageQueue,
        expression: Expression,
        queue_offset: int,
        max_count: int = 32,
        *,
        timeout: float = PULL_TIMEOUT,  # noqa: ASYNC109  as in RocketMQ
    ) -> PullResult:
        """Pull once; continue at the result's `next_offset`, whatever the status.

        Raises:
            ValueError: the offset or the count is out of its bounds.
            RemotingError: no reply arrived.
            Refusal: the broker refused.
        """
        return await self._pull(queue, expression, queue_offset, max_count, within=timeout)

    async def pull_block_if_not_found(
        self, queue: MessageQueue, expression: Expression, queue_offset: int, max_count: int = 32
    ) -> PullResult:
        """Like `pull`, but the broker waits for a message for at most `suspend` seconds."""
        suspend = self.settings.suspend
        return await self._pull(
            queue, expression, queue_offset, max_count, within=suspend + _CALL_GRACE, wait=suspend
        )

    async def fetch_consume_offset(
        self, queue: MessageQueue, *, from_store: bool = False
    ) -> int | None:
        """The group's offset in a queue, or None.

        With `from_store`, offsets that were updated and not committed yet are ignored.
        """
        self._running()
        wrapped = self._wrapped(queue)
        updated = None if from_store else self._updated.find(wrapped)
        return await self._offsets.read(wrapped) if updated is None else updated

    async def update_consume_offset(self, queue: MessageQueue, queue_offset: int) -> None:
        """Set the consumed offset of a queue, to be committed within `commit_interval`.

        Ignored for a balanced queue that belongs to another member by now.
        """
        self._running()
        wrapped = self._wrapped(queue)
        is_balanced = wrapped.topic in self._member.filters
        if not is_balanced or wrapped in self._balanced.of_topic(wrapped.topic):
            self._updated.update(wrapped, queue_offset)

    async def commit(self) -> None:
        """Commit the updated offsets now.

        Raises:
            BolideError: a broker refused or did not answer.
        """
        self._running()
        await self._updated.write()

    async def register_topics(self, *topics: str) -> None:
        """Take part in balancing the queues of these topics; see `fetch_balanced_queues`."""
        self._running()
        await self._rebalancer.join(*(self._filter(topic, "*") for topic in topics))

    async def fetch_balanced_queues(self, topic: str) -> frozenset[MessageQueue]:
        """The queues of a topic that are assigned to this member."""
        self._running()
        if self._client.wrap(topic) not in self._member.filters:
            await self.register_topics(topic)
        return frozenset(map(self._unwrapped, self._balanced.of_topic(self._client.wrap(topic))))

    async def _pull(
        self,
        queue: MessageQueue,
        expression: Expression,
        queue_offset: int,
        max_count: int,
        *,
        within: float,
        wait: float = 0.0,
    ) -> PullResult:
        self._running()
        if queue_offset < 0 or max_count < 1:
            raise ValueError(f"offset {queue_offset}, count {max_count}: at least 0 and 1")
        wrapped = self._wrapped(queue)
        self._member.other_topics.add(wrapped.topic)
        pull = Pull(
            queue=wrapped,
            filter=self._filter(queue.topic, expression),
            queue_offset=queue_offset,
            max_count=max_count,
            suspend=wait,
            within=within,
            with_subscription=True,
        )
        return await self._puller.pull(pull)

    def _open(self, instance: ClientInstance, group: str) -> Membership:
        settings = self.settings
        self._periodic = PeriodicTasks()
        self._offsets = offset_store(instance, group, settings)
        self._updated = UpdatedOffsets(self._offsets)
        self._balanced = BalancedQueues(self._updated.release)
        self._puller = Puller(instance, group, settings.filter_hooks)
        member = PullMember(instance, group, settings, progress=self._updated.all)
        self._rebalancer = Rebalancer(
            member, settings.allocate, self._balanced, self._assignment_listener()
        )
        return member

    async def _begin(self) -> None:
        self._periodic.run(self._rebalancer.run())
        self._periodic.every(self.settings.commit_interval, self._updated.try_write)

    async def _end(self) -> None:
        await self._periodic.close()
        await self._updated.try_write()


class BalancedQueues:
    """The queues assigned to this member, without buffered messages.

    Args:
        on_release: called with the queues that are no longer assigned.
    """

    def __init__(self, on_release: Callable[[Collection[MessageQueue]], Awaitable[None]]) -> None:
        self._on_release = on_release
        self._queues: dict[str, frozenset[MessageQueue]] = {}

    def of_topic(self, topic: str) -> frozenset[MessageQueue]:
        return self._queues.get(topic, frozenset())

    def topics(self) -> Collection[str]:
        return [topic for topic, queues in self._queues.items() if queues]

    async def assign(self, topic: str, wanted: Collection[MessageQueue]) -> bool:
        released = self.of_topic(topic).difference(wanted)
        self._queues[topic] = frozenset(wanted)
        await self._on_release(released)
        return True


class PullTurn:
    """Passed to each call of a pull task."""

    def __init__(self, consumer: PullConsumer) -> None:
        self.consumer = consumer
        """For pulling and for updating offsets."""
        self.next_delay = NEXT_DELAY
        """Seconds until the next call for the queue; the task may set it."""


PullTask = Callable[[MessageQueue, PullTurn], Awaitable[object]]


class PullSchedule(Startable):
    """Runs a task for each queue of the registered topics that is assigned to this member.

    Tasks start and stop as the assignment changes; when broadcasting, every queue has one.
    """

    def __init__(self, group: str, **arguments: Unpack[ConsumerArguments]) -> None:
        """Takes the arguments of `PullConsumer`."""
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
        """Call `task` repeatedly for each assigned queue of a topic."""
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
            result = self._listener(topic, queues, mine)
            if isinstance(result, Awaitable):
                await result

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
