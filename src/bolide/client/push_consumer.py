"""The consumer that calls handlers: messages are brought to them as they arrive."""

import logging
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self, Unpack

from bolide.client.assignment import Strategy, average
from bolide.client.consume import Handler
from bolide.client.consumption import ConsumeHook
from bolide.client.instance import ClientInstance
from bolide.client.lifecycle import Lifecycle
from bolide.client.offsets import OffsetStore
from bolide.client.ordered import SUSPEND
from bolide.client.process_queue import FlowLimits
from bolide.client.pulling import FilterHook
from bolide.client.push_engine import PushEngine
from bolide.client.push_options import PushOptions, message_model
from bolide.client.rebalance import AssignmentListener
from bolide.client.send_back import retry_topic
from bolide.client.settings import ClientArguments, ClientSettings
from bolide.client.sql_check import check_sql
from bolide.client.start_position import StartPosition, Timestamp
from bolide.client.subscription import Expression, Filter
from bolide.errors import BolideError
from bolide.model.message import StoredMessage
from bolide.model.message_queue import MessageQueue

log = logging.getLogger(__name__)


class _Wanted(NamedTuple):
    expression: Expression
    handler: Handler


class PushConsumer:
    """Consumes for a group while its `async with` block runs.

    ```python
    async with PushConsumer("orders", name_server="127.0.0.1:9876", consume_from="first") as c:
        await c.subscribe("Orders", "paid || sent", handle)
        await asyncio.Event().wait()
    ```

    A handler that returns has done its message; one that raises gets it again later. Every message
    is delivered at least once: after a crash or a change of members some come twice.
    """

    def __init__(  # noqa: PLR0913  what may be set
        self,
        group: str,
        *,
        consume_from: str = "last",
        consume_timestamp: Timestamp | None = None,
        model: str = "clustering",
        allocate: Strategy = average,
        concurrency: int = 20,
        pull_batch_size: int = 32,
        pull_interval: float = 0.0,
        suspend: float = 15.0,
        flow_limits: FlowLimits | None = None,
        consume_timeout: float = 15 * 60.0,
        max_reconsume_times: int | None = None,
        ordered_suspend: float = SUSPEND,
        commit_interval: float = 5.0,
        close_timeout: float = 15.0,
        offset_store: OffsetStore | None = None,
        offset_directory: str | Path | None = None,
        post_subscription_when_pull: bool = False,
        consume_hooks: Sequence[ConsumeHook] = (),
        filter_hooks: Sequence[FilterHook] = (),
        on_assignment: AssignmentListener | None = None,
        **client: Unpack[ClientArguments],
    ) -> None:
        """Take the settings; nothing is connected yet. Durations are seconds.

        Args:
            group: members of one group share its messages, unless they broadcast.
            consume_from: where a group without offsets begins: "last", "first" or "timestamp".
            consume_timestamp: "20131223171201" in local time, a datetime or seconds since 1970;
                half an hour ago if not given.
            model: "clustering", or "broadcasting": every member gets every message.
            allocate: how queues are shared out; see `bolide.client.assignment`.
            concurrency: how many handlers run at a time: tasks, and as many threads.
            pull_batch_size: messages asked for at a time.
            pull_interval: between two pulls of a queue.
            suspend: how long a broker holds a pull that finds nothing.
            flow_limits: how much of a queue is held before pulling stops.
            consume_timeout: a message that a handler is at for so long is sent back.
            max_reconsume_times: after so many retries a message is a dead letter; None means 16,
                and without end for ordered handlers.
            ordered_suspend: how long a queue waits after an ordered handler failed.
            commit_interval: between two commits of offsets.
            close_timeout: how long closing waits for handlers at work.
            offset_store: keeps the offsets instead of the brokers, or of a file in broadcasting.
            offset_directory: where broadcasting consumers keep their file; ~/.rocketmq_offsets.
            post_subscription_when_pull: send the expression with every pull.
            consume_hooks: called around each call of a handler.
            filter_hooks: say of each message whether it is wanted.
            on_assignment: called when the queues assigned to this consumer change.
            client: how to reach the cluster; see `ClientSettings`.

        Raises:
            ValueError: a setting is out of its bounds; names it.
        """
        self.group = group
        self._options = PushOptions(
            start=StartPosition.of(consume_from, consume_timestamp, time.time()),
            model=message_model(model),
            allocate=allocate,
            concurrency=concurrency,
            pull_batch_size=pull_batch_size,
            pull_interval=pull_interval,
            suspend=suspend,
            flow_limits=flow_limits or FlowLimits(),
            consume_timeout=consume_timeout,
            max_reconsume_times=max_reconsume_times,
            ordered_suspend=ordered_suspend,
            commit_interval=commit_interval,
            close_timeout=close_timeout,
            offset_store=offset_store,
            offset_directory=Path(offset_directory) if offset_directory else None,
            post_subscription_when_pull=post_subscription_when_pull,
            consume_hooks=tuple(consume_hooks),
            filter_hooks=tuple(filter_hooks),
            on_assignment=on_assignment,
        )
        self._settings = ClientSettings.of(**client)
        if not self._options.is_broadcasting:
            self._settings = self._settings.with_own_name()
        self._life = Lifecycle("push consumer", group)
        self._handlers: dict[str, Handler] = {}
        self._wanted: dict[str, _Wanted] = {}
        self._running: PushEngine | None = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def start(self) -> None:
        """Join the group. Without a NameServer that answers it goes on trying.

        Raises:
            WrongState: it was started before.
            GroupTaken: this client instance has a consumer of the group.
        """
        self._life.begin()
        instance = await ClientInstance.acquire(self._settings)
        try:
            group = self._settings.wrap(self.group)
            engine = PushEngine(instance, group, self._options, self._handlers)
            instance.add_consumer(group, engine.member)
        except BaseException:
            self._life.fail()
            await instance.release()
            raise
        self._running = engine
        for topic, wanted in self._wanted.items():
            self._install(engine, topic, wanted)
        if self._wanted:
            await self._join(engine, list(self._wanted))
        engine.start()

    async def close(self) -> None:
        """Leave the group: wait for handlers at work, commit offsets, unlock queues."""
        if not self._life.end() or self._running is None:
            return
        engine = self._running
        try:
            await engine.close()
            await engine.instance.remove_consumer(engine.member.group)
        finally:
            await engine.instance.release()

    @property
    def client_id(self) -> str:
        return self._settings.client_id

    @property
    def concurrency(self) -> int:
        """How many handlers run at a time; may be set while they do."""
        return self._running.workers.limit if self._running else self._options.concurrency

    @concurrency.setter
    def concurrency(self, limit: int) -> None:
        self._engine().workers.limit = limit

    @property
    def assigned_queues(self) -> frozenset[MessageQueue]:
        """The queues that are this consumer's now, without those of retries."""
        engine = self._engine()
        return frozenset(
            self._bare(held.queue) for held in engine.holdings if not engine.is_retry(held)
        )

    @property
    def is_paused(self) -> bool:
        return self._engine().is_paused

    async def subscribe(
        self,
        topic: str,
        expression: Expression,
        handler: Callable[[Any], Any],
        *,
        ordered: bool = False,
        batch: int = 1,
        inline: bool = False,
    ) -> None:
        """Have messages of a topic brought to a handler, before the start or while running.

        A running consumer has been given its queues when this returns, if the cluster answers.

        Args:
            topic: which one; a second call for it replaces the first.
            expression: tags as "A || B", "*" for all, or `Sql(…)`.
            handler: takes one message, or a list with `batch`. A coroutine function runs as a task
                on the event loop, a plain function in a thread. Raising asks for a retry.
            ordered: one call at a time for each queue, in the queue's order.
            batch: call with lists of at most so many messages; the handler may return how many
                of them were done, and the others are sent back.
            inline: call a plain function on the loop: only for quick ones that never block.

        Raises:
            BadTagExpression: the expression names no tag.
            Refusal: the broker cannot take the SQL expression.
        """
        wanted = _Wanted(
            expression, Handler.of(handler, ordered=ordered, batch=batch, inline=inline)
        )
        made = Filter.of(self._settings.wrap(topic), expression, _version())
        engine = self._running
        if engine is None:
            self._wanted[topic] = wanted
            return
        self._life.require_running()
        await check_sql(engine.instance, engine.member.group, made)
        before = self._handlers.get(topic)
        if before is not None and before.is_ordered != ordered:
            await engine.holdings.change(made.topic, [])
        self._wanted[topic] = wanted
        self._install(engine, topic, wanted)
        await self._join(engine, [topic])

    async def unsubscribe(self, topic: str) -> None:
        """Give the queues of a topic up; handlers at work go on to their end."""
        self._wanted.pop(topic, None)
        engine = self._running
        if engine is None:
            return
        engine.member.filters.pop(self._settings.wrap(topic), None)
        await engine.holdings.change(self._settings.wrap(topic), [])
        self._handlers.pop(topic, None)
        await engine.instance.heartbeat()

    def pause(self) -> None:
        """Pull no more; handlers go on with what is held already."""
        self._engine().pause()

    def resume(self) -> None:
        self._engine().resume()

    async def send_back(self, message: StoredMessage, delay_level: int = 0) -> None:
        """Have the group get a message again: after the delay of a level, or as the broker says.

        Raises:
            BolideError: neither the broker nor the retry topic took it.
        """
        await self._engine().send_back.send(message, delay_level)

    async def commit(self) -> None:
        """Commit the offsets now rather than at the next interval."""
        await self._engine().holdings.commit(wait=True)

    def _install(self, engine: PushEngine, topic: str, wanted: _Wanted) -> None:
        filters, version = engine.member.filters, _version()
        self._handlers[topic] = wanted.handler
        wrapped = self._settings.wrap(topic)
        filters[wrapped] = Filter.of(wrapped, wanted.expression, version)
        if not self._options.is_broadcasting:
            retries = retry_topic(engine.member.group)
            filters.setdefault(retries, Filter.of(retries, "*", version))

    async def _join(self, engine: PushEngine, topics: Sequence[str]) -> None:
        """Tell the brokers, and take the first share of the queues."""
        for topic in topics:
            try:
                await engine.instance.routes.require(self._settings.wrap(topic))
            except BolideError as exc:
                log.warning("%s waits for topic %s: %s", self.group, topic, exc)
        await engine.instance.heartbeat()
        if not await engine.rebalancer.balance():
            engine.member.rebalance_soon()

    def _engine(self) -> PushEngine:
        self._life.require_running()
        assert self._running is not None
        return self._running

    def _bare(self, queue: MessageQueue) -> MessageQueue:
        topic = self._settings.unwrap(queue.topic)
        return MessageQueue(topic, queue.broker_name, queue.queue_id)


def _version() -> int:
    return int(time.time() * 1000)
