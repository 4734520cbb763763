"""The lite pull consumer: messages are fetched ahead and handed over by poll()."""

import asyncio
import inspect
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from types import TracebackType
from typing import NamedTuple, Unpack

from bolide.client.consumer.consumer import Consumer, PeriodicTasks
from bolide.client.consumer.counters import SAMPLE_EVERY
from bolide.client.consumer.group.held_queue import HeldQueue
from bolide.client.consumer.group.held_queues import HeldQueues, QueueCallbacks, wake_all
from bolide.client.consumer.group.membership import Membership
from bolide.client.consumer.group.offsets import offset_store
from bolide.client.consumer.group.rebalance import ChosenQueues, Rebalancer
from bolide.client.consumer.group.start_position import StartOffsetResolver, Timestamp, timestamp_ms
from bolide.client.consumer.member import PullMember
from bolide.client.consumer.pull.pull_loop import (
    PullCallbacks,
    PullLoop,
    PullOptions,
    start_feeding,
)
from bolide.client.consumer.pull.pull_request import Puller
from bolide.client.consumer.settings import LitePullArguments, LitePullSettings
from bolide.client.consumer.subscription import Expression, Filter, check_sql, chosen
from bolide.client.errors import WrongState
from bolide.client.instance.instance import ClientInstance
from bolide.errors import BolideError
from bolide.model.message import StoredMessage
from bolide.model.message_queue import MessageQueue


class PolledMessages(NamedTuple):
    """What one poll gives: messages of one queue."""

    held: HeldQueue
    messages: Sequence[StoredMessage]


class PollBuffer:
    """Groups of messages in the order in which they came; those of dropped queues vanish."""

    def __init__(self, made_room: Callable[[], object] = lambda: None) -> None:
        """`made_room` is called whenever there are fewer messages than before."""
        self._made_room = made_room
        self._groups: deque[PolledMessages] = deque()
        self._filled = asyncio.Event()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def put(self, held: HeldQueue, messages: Sequence[StoredMessage]) -> None:
        self._groups.append(PolledMessages(held, messages))
        self._count += len(messages)
        self._filled.set()

    async def get(self, within: float) -> PolledMessages | None:
        """Wait for a group at most so many seconds; None if there was none."""
        try:
            async with asyncio.timeout(within):
                while (found := self._next()) is None:
                    self._filled.clear()
                    await self._filled.wait()
        except TimeoutError:
            return None
        return found

    def purge(self) -> None:
        """Let go of what belongs to queues that were dropped."""
        self._groups = deque(group for group in self._groups if not group.held.is_dropped)
        self._count = sum(len(group.messages) for group in self._groups)
        self._made_room()

    def _next(self) -> PolledMessages | None:
        while self._groups:
            group = self._groups.popleft()
            self._count -= len(group.messages)
            self._made_room()
            if not group.held.is_dropped:
                return group
        return None


log = logging.getLogger(__name__)

QueueListener = Callable[[str, frozenset[MessageQueue]], Awaitable[object] | object]
"""Called with a topic and all its queues."""


class TopicQueueWatcher:
    """Compares the queues of topics with what they were at the last look."""

    def __init__(self, instance: ClientInstance) -> None:
        self._instance = instance
        self._listeners: dict[str, QueueListener] = {}
        self._seen: dict[str, frozenset[MessageQueue]] = {}

    def add(self, topic: str, listener: QueueListener) -> None:
        """One listener for each topic; it is told of the queues there are at the first look."""
        self._listeners[topic] = listener

    async def check(self) -> None:
        """Ask for the routes now and tell of changes."""
        for topic, listener in list(self._listeners.items()):
            try:
                await self._instance.routes.refresh(topic)
                queues = frozenset(await self._instance.routes.subscribe_queues(topic))
            except BolideError as exc:
                log.info("the queues of %s cannot be looked at: %s", topic, exc)
                continue
            if self._seen.get(topic) != queues:
                self._seen[topic] = queues
                heard = listener(topic, queues)
                if inspect.isawaitable(heard):
                    await heard


_CALL_GRACE = 10.0


class LitePullConsumer(Consumer[LitePullSettings]):
    """Polls for a group while its `async with` block runs.

    ```python
    async with LitePullConsumer("orders", name_server="127.0.0.1:9876") as c:
        await c.subscribe("Orders")
        for message in await c.poll(timeout=5):
            ...
    ```

    Queues come by `subscribe`, shared with the group's other members, or by `assign`. Messages
    that a poll returned count as consumed when the next poll or `commit` is called, or the block
    is left without an error.
    """

    _member: PullMember
    _assigned_filters: dict[str, Filter]

    def __init__(self, group: str, **arguments: Unpack[LitePullArguments]) -> None:
        """Take the settings; `ClientSettings`, `ConsumerSettings`, `LitePullSettings` tell them.

        Raises:
            ConfigError: one cannot be used; names it.
        """
        super().__init__(LitePullSettings, group, arguments)
        self._paused: set[MessageQueue] = set()
        self._polled: list[PolledMessages] = []  # several, if polls overlapped
        self._is_assigned: bool | None = None
        self._next_commit = 0.0

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is not None:
            self._polled.clear()  # what was returned last was not dealt with
        await self.close()

    # Which queues

    async def subscribe(
        self,
        topic: str,
        expression: Expression | None = None,
        *,
        sql: str | None = None,
        filter: str | None = None,  # noqa: A002  the word that users look for
    ) -> None:
        """Share a topic's queues with the other members of the group.

        Args:
            topic: which one.
            expression: tags as `"A || B"` or `Sql(…)`; all messages if nothing is given.
            sql: the text of a SQL92 expression, in place of tags.
            filter: the name of a filter function of the broker, in place of tags.

        Raises:
            WrongState: queues were assigned, or it is not running.
            BadTagExpression: the expression names no tag.
            Refusal: the broker cannot take the SQL expression, or has no such function.
        """
        asked = chosen(expression, sql=sql, filter_name=filter)
        instance = self._choose(assigned=False)
        wanted = self._filter(topic, asked)
        await check_sql(instance, self._member.group, wanted)
        await self._rebalancer.join(wanted)

    async def unsubscribe(self, topic: str) -> None:
        """Give a topic's queues up; what was polled of them is committed."""
        self._running()
        self._finish_polled()
        await self._rebalancer.leave(self._client.wrap(topic))
        self._buffer.purge()

    async def assign(self, queues: Collection[MessageQueue], expression: Expression = "*") -> None:
        """Take exactly these queues, whatever other members do.

        One that cannot be had at once, because its broker does not answer, comes by and by.

        Raises:
            WrongState: a topic was subscribed to, or it is not running.
            RouteNotFound: a topic is not there.
        """
        instance = self._choose(assigned=True)
        wanted = [self._wrapped(queue) for queue in queues]
        topics = {queue.topic for queue in wanted}
        for topic in topics:
            await instance.routes.require(topic)
        self._assigned_filters = {topic: self._filter(topic, expression) for topic in topics}
        self._member.other_topics = topics
        await self._chosen.choose(wanted)
        self._buffer.purge()

    @property
    def assigned_queues(self) -> frozenset[MessageQueue]:
        """The queues that are this consumer's now."""
        self._running()
        return frozenset(self._unwrapped(held.queue) for held in self._held_queues)

    def listen_for_queues(self, topic: str, listener: QueueListener) -> None:
        """Have a function called when the queues of a topic change, whoever they belong to."""
        self._running()

        def tell(_: str, queues: frozenset[MessageQueue]) -> Awaitable[object] | object:
            return listener(topic, frozenset(map(self._unwrapped, queues)))

        self._watch.add(self._client.wrap(topic), tell)

    # Messages

    async def poll(self, timeout: float = 5.0) -> Sequence[StoredMessage]:  # noqa: ASYNC109
        """The next messages, all of one queue; none if nothing came within so many seconds."""
        self._running()
        self._finish_polled()
        if self.settings.auto_commit:
            await self._commit_when_due()
        polled = await self._buffer.get(timeout)
        if polled is None:
            return []
        self._polled.append(polled)
        return polled.messages

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        """Pull no more of these queues; what is held of them is still polled."""
        self._paused.update(map(self._wrapped, queues))

    def resume(self, queues: Iterable[MessageQueue]) -> None:
        self._paused.difference_update(map(self._wrapped, queues))
        wake_all(self._held_queues)

    async def seek(self, queue: MessageQueue, queue_offset: int) -> None:
        """Go on at this offset; what is committed stays until the next commit.

        Raises:
            WrongState: the queue is not this consumer's.
            ValueError: the queue has no such offset.
        """
        held = self._held_queues.find(self._wrapped(queue))
        self._running()
        if held is None:
            raise WrongState(f"{queue} is not assigned to this consumer now")
        least, most = await self.min_offset(queue), await self.max_offset(queue)
        if not least <= queue_offset <= most:
            raise ValueError(f"{queue} has offsets {least} to {most}, not {queue_offset}")
        self._forget_polled(held)
        self._held_queues.restart(held, queue_offset, commit=False)
        self._buffer.purge()

    async def seek_to_begin(self, queue: MessageQueue) -> None:
        await self.seek(queue, await self.min_offset(queue))

    async def seek_to_end(self, queue: MessageQueue) -> None:
        await self.seek(queue, await self.max_offset(queue))

    async def offset_for_timestamp(self, queue: MessageQueue, timestamp: Timestamp) -> int:
        """The offset of the first message stored at that time or later."""
        return await self.search_offset(queue, timestamp_ms(timestamp))

    # Progress

    async def commit(self, offsets: Mapping[MessageQueue, int] | None = None) -> None:
        """Commit what was polled so far, or these offsets.

        Raises:
            BolideError: a broker refused, or did not answer.
        """
        self._running()
        if offsets is None:
            self._finish_polled()
            await self._held_queues.commit()
            return
        wrapped = {self._wrapped(queue): offset for queue, offset in offsets.items()}
        await self._offsets.write(wrapped, wait=True)

    async def committed(self, queue: MessageQueue) -> int | None:
        """The group's offset in a queue; None if it has none."""
        self._running()
        return await self._offsets.read(self._wrapped(queue))

    # Parts

    def _open(self, instance: ClientInstance, group: str) -> Membership:
        settings = self.settings
        self._periodic = PeriodicTasks()
        self._buffer = PollBuffer(lambda: wake_all(self._held_queues))
        self._assigned_filters = {}
        self._offsets = offset_store(instance, group, settings)
        start_offsets = StartOffsetResolver(instance, self._offsets, settings.start(time.time()))
        callbacks = QueueCallbacks(start_offset=start_offsets.resolve, start=self._start_queue)
        self._held_queues = HeldQueues(self._offsets, callbacks, None, commits=settings.auto_commit)
        self._chosen = ChosenQueues(self._held_queues)
        self._member = PullMember(
            instance,
            group,
            settings,
            progress=self._held_queues.progress,
            helds=lambda: self._held_queues,
        )
        self._rebalancer = Rebalancer(
            self._member, settings.allocate, self._held_queues, self._assignment_listener()
        )
        self._pull_loop = self._make_pull_loop(instance, group)
        self._watch = TopicQueueWatcher(instance)
        return self._member

    async def _begin(self) -> None:
        self._periodic.every(SAMPLE_EVERY, self._member.counters.sample)
        self._periodic.every(self.settings.topic_check_interval, self._watch.check)

    async def _end(self) -> None:
        self._finish_polled()
        await self._periodic.close()
        await self._held_queues.close(within=0.0)

    def _make_pull_loop(self, instance: ClientInstance, group: str) -> PullLoop:
        settings = self.settings
        options = PullOptions(
            batch=settings.pull_batch_size,
            batch_bytes=None,
            suspend=settings.suspend,
            within=settings.suspend + _CALL_GRACE,
            with_subscription=True,
            is_lite=True,
        )
        callbacks = PullCallbacks(
            filter_of=self._filter_of,
            is_blocked=self._is_blocked,
            deliver=self._buffer.put,
            moved=self._moved,
        )
        puller = Puller(instance, group, settings.filter_hooks)
        return PullLoop(self._member, puller, options, callbacks, self._member.counters)

    def _start_queue(self, held: HeldQueue, _before: HeldQueue | None) -> None:
        start_feeding(self._pull_loop, held)

    def _moved(self, held: HeldQueue, queue_offset: int) -> None:
        self._held_queues.restart(held, queue_offset, commit=self.settings.auto_commit)

    def _is_blocked(self, held: HeldQueue) -> bool:
        is_full = len(self._buffer) > self.settings.most_held
        is_over = self.settings.flow_limits.reached(held.process) is not None
        return held.queue in self._paused or is_full or is_over

    def _filter_of(self, held: HeldQueue) -> Filter | None:
        filters = self._assigned_filters if self._is_assigned else self._member.filters
        return filters.get(held.queue.topic)

    def _choose(self, *, assigned: bool) -> ClientInstance:
        instance = self._running()
        if self._is_assigned not in {None, assigned}:
            raise WrongState("subscribe and assign exclude each other: use one of them")
        if self._is_assigned is None:
            self._periodic.run(self._chosen.run() if assigned else self._rebalancer.run())
        self._is_assigned = assigned
        return instance

    def _finish_polled(self) -> None:
        """Count what polls have returned as consumed."""
        for polled in self._polled:
            polled.held.done(polled.messages)
        self._polled.clear()

    def _forget_polled(self, held: HeldQueue) -> None:
        self._polled = [polled for polled in self._polled if polled.held is not held]

    async def _commit_when_due(self) -> None:
        now = time.monotonic()
        if now >= self._next_commit:
            self._next_commit = now + self.settings.commit_interval
            await self._held_queues.try_commit()
