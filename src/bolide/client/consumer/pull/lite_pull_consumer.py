"""The lite pull consumer: prefetches messages and returns them from `poll`."""

import asyncio
import inspect
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from types import TracebackType
from typing import NamedTuple, Unpack

from bolide.client.consumer.consumer import Consumer, PeriodicTasks
from bolide.client.consumer.counters import SAMPLE_INTERVAL
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
)
from bolide.client.consumer.pull.pull_request import Puller
from bolide.client.consumer.settings import LitePullArguments, LitePullSettings
from bolide.client.consumer.subscription import Expression, Filter, check_filter, chosen
from bolide.client.errors import WrongState
from bolide.client.instance.instance import ClientInstance
from bolide.errors import BolideError
from bolide.model.message import StoredMessage
from bolide.model.message_queue import MessageQueue

log = logging.getLogger(__name__)

_CALL_GRACE = 10.0


class PolledMessages(NamedTuple):
    """The messages of one poll, all of one queue."""

    held: HeldQueue
    messages: Sequence[StoredMessage]


class PollBuffer:
    """FIFO of prefetched messages, grouped by pull; messages of dropped queues are discarded."""

    def __init__(self, on_shrink: Callable[[], object] = lambda: None) -> None:
        """`on_shrink` is called whenever messages were removed."""
        self._on_shrink = on_shrink
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
        """Wait for a group of messages at most `within` seconds; None on timeout."""
        try:
            async with asyncio.timeout(within):
                while (polled := self._next()) is None:
                    self._filled.clear()
                    await self._filled.wait()
        except TimeoutError:
            return None
        return polled

    def purge(self) -> None:
        """Discard the messages of dropped queues."""
        self._groups = deque(group for group in self._groups if not group.held.is_dropped)
        self._count = sum(len(group.messages) for group in self._groups)
        self._on_shrink()

    def _next(self) -> PolledMessages | None:
        while self._groups:
            group = self._groups.popleft()
            self._count -= len(group.messages)
            self._on_shrink()
            if not group.held.is_dropped:
                return group
        return None


QueueListener = Callable[[str, frozenset[MessageQueue]], Awaitable[object] | object]
"""Called with a topic and all its queues when they change."""


class TopicQueueWatcher:
    """Notifies listeners when the queues of a topic change."""

    def __init__(self, instance: ClientInstance) -> None:
        self._instance = instance
        self._listeners: dict[str, QueueListener] = {}
        self._seen: dict[str, frozenset[MessageQueue]] = {}

    def add(self, topic: str, listener: QueueListener) -> None:
        """Set the listener of a topic; the first check reports the existing queues."""
        self._listeners[topic] = listener

    async def check(self) -> None:
        """Refresh the routes and report changes."""
        for topic, listener in list(self._listeners.items()):
            try:
                await self._instance.routes.refresh(topic)
                queues = frozenset(await self._instance.routes.subscribe_queues(topic))
            except BolideError as exc:
                log.info("the queues of %s cannot be determined: %s", topic, exc)
                continue
            if self._seen.get(topic) != queues:
                self._seen[topic] = queues
                result = listener(topic, queues)
                if inspect.isawaitable(result):
                    await result


class LitePullConsumer(Consumer[LitePullSettings]):
    """Polls for a group while its `async with` block runs.

    ```python
    async with LitePullConsumer("orders", name_server="127.0.0.1:9876") as c:
        await c.subscribe("Orders")
        for message in await c.poll(timeout=5):
            ...
    ```

    Queues are acquired by `subscribe`, which balances them with the group's other members, or by
    `assign`. Messages that a poll returned count as consumed when `poll` or `commit` is called
    next, or when the block ends without an error.
    """

    _member: PullMember
    _assigned_filters: dict[str, Filter]

    def __init__(self, group: str, **arguments: Unpack[LitePullArguments]) -> None:
        """See `ClientSettings`, `ConsumerSettings` and `LitePullSettings` for the arguments.

        Raises:
            ConfigError: a setting is invalid.
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
            self._polled.clear()  # the messages returned last were not processed
        await self.close()

    # Queues

    async def subscribe(
        self,
        topic: str,
        expression: Expression | None = None,
        *,
        sql: str | None = None,
        filter: str | None = None,  # noqa: A002  the name users expect
    ) -> None:
        """Subscribe to a topic; its queues are balanced among the members of the group.

        Args:
            topic: the topic.
            expression: tags as `"A || B"` or `Sql(…)`; by default all messages.
            sql: a SQL92 expression, instead of tags.
            filter: the name of a filter function at the broker, instead of tags.

        Raises:
            WrongState: queues were assigned, or the consumer is not running.
            BadTagExpression: the expression names no tag.
            Refusal: the broker rejects the SQL expression, or has no such function.
        """
        chosen_filter = chosen(expression, sql=sql, filter_name=filter)
        instance = self._choose(assigned=False)
        wanted = self._filter(topic, chosen_filter)
        await check_filter(instance, self._member.group, wanted)
        await self._rebalancer.join(wanted)

    async def unsubscribe(self, topic: str) -> None:
        """Release a topic's queues and commit what was polled."""
        self._running()
        self._finish_polled()
        await self._rebalancer.leave(self._client.wrap(topic))
        self._buffer.purge()

    async def assign(self, queues: Collection[MessageQueue], expression: Expression = "*") -> None:
        """Hold exactly these queues, regardless of other members.

        A queue whose broker does not answer is acquired later.

        Raises:
            WrongState: a topic was subscribed to, or the consumer is not running.
            RouteNotFound: a topic does not exist.
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
        """The queues this consumer holds."""
        self._running()
        return frozenset(self._unwrapped(held.queue) for held in self._held_queues)

    def listen_for_queues(self, topic: str, listener: QueueListener) -> None:
        """Call a function when the queues of a topic change, assigned or not."""
        self._running()

        def notify(_: str, queues: frozenset[MessageQueue]) -> Awaitable[object] | object:
            return listener(topic, frozenset(map(self._unwrapped, queues)))

        self._watch.add(self._client.wrap(topic), notify)

    # Messages

    async def poll(self, timeout: float = 5.0) -> Sequence[StoredMessage]:  # noqa: ASYNC109
        """The next messages, all of one queue; empty if none arrives within `timeout` seconds."""
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
        """Stop pulling these queues; `poll` still returns their buffered messages."""
        self._paused.update(map(self._wrapped, queues))

    def resume(self, queues: Iterable[MessageQueue]) -> None:
        self._paused.difference_update(map(self._wrapped, queues))
        wake_all(self._held_queues)

    async def seek(self, queue: MessageQueue, queue_offset: int) -> None:
        """Continue at this offset; the committed offset stays until the next commit.

        Raises:
            WrongState: this consumer does not hold the queue.
            ValueError: the queue has no such offset.
        """
        held = self._held_queues.find(self._wrapped(queue))
        self._running()
        if held is None:
            raise WrongState(f"{queue} is not assigned to this consumer now")
        first, last = await self.min_offset(queue), await self.max_offset(queue)
        if not first <= queue_offset <= last:
            raise ValueError(f"{queue} has offsets {first} to {last}, not {queue_offset}")
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
        """Commit the messages polled so far, or these offsets.

        Raises:
            BolideError: a broker refused or did not answer.
        """
        self._running()
        if offsets is None:
            self._finish_polled()
            await self._held_queues.commit()
            return
        wrapped = {self._wrapped(queue): offset for queue, offset in offsets.items()}
        await self._offsets.write(wrapped, wait=True)

    async def committed(self, queue: MessageQueue) -> int | None:
        """The group's committed offset in a queue, or None."""
        self._running()
        return await self._offsets.read(self._wrapped(queue))

    # Components

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
        self._periodic.every(SAMPLE_INTERVAL, self._member.counters.sample)
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
            on_offset_moved=self._on_offset_moved,
        )
        puller = Puller(instance, group, settings.filter_hooks)
        return PullLoop(self._member, puller, options, callbacks, self._member.counters)

    def _start_queue(self, held: HeldQueue, _before: HeldQueue | None) -> None:
        self._pull_loop.start(held)

    def _on_offset_moved(self, held: HeldQueue, queue_offset: int) -> None:
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
        """Treat all polled messages as consumed."""
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
