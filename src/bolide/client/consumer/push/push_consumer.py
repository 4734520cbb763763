"""The push consumer: calls handlers with messages as they arrive."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple, Unpack

from bolide.client.consumer.consumer import Consumer
from bolide.client.consumer.group.membership import Membership
from bolide.client.consumer.handlers.handler import Handler, OnPoison, OrderBy
from bolide.client.consumer.push.engine import PushEngine
from bolide.client.consumer.settings import PushArguments, PushSettings
from bolide.client.consumer.subscription import Expression, Filter, check_filter, chosen
from bolide.client.instance.instance import ClientInstance
from bolide.client.tracing.sender import TraceSender
from bolide.client.tracing.settings import Trace
from bolide.client.tracing.trace_hooks import ConsumeTrace
from bolide.model.message_queue import MessageQueue
from bolide.model.names import RETRY_PREFIX, retry_topic


class _Subscription(NamedTuple):
    expression: Expression
    handler: Handler


class PushConsumer(Consumer[PushSettings]):
    """Consumes for a group while its `async with` block runs.

    ```python
    async with PushConsumer("orders", name_server="127.0.0.1:9876", consume_from="first") as c:
        await c.subscribe("Orders", "paid || sent", handle)
        await asyncio.Event().wait()
    ```

    A message is acknowledged when its handler returns and retried later when its handler raises.
    Delivery is at least once: after a crash or a rebalance some messages are delivered twice.
    """

    _engine: PushEngine

    def __init__(self, group: str, **arguments: Unpack[PushArguments]) -> None:
        """See `ClientSettings`, `ConsumerSettings` and `PushSettings` for the arguments.

        Raises:
            ConfigError: a setting is invalid.
        """
        super().__init__(PushSettings, group, arguments)
        self._subscriptions: dict[str, _Subscription] = {}
        self._handlers: dict[str, Handler] = {}
        self.tracing: TraceSender | None = None
        """Sends the trace if `trace` is set; its `dropped` counts lost records."""

    async def subscribe(  # noqa: PLR0913  the options of a subscription
        self,
        topic: str,
        expression: Expression | Callable[[Any], Any] | None = None,
        handler: Callable[[Any], Any] | None = None,
        *,
        sql: str | None = None,
        filter: str | None = None,  # noqa: A002  the name users expect
        ordered: bool = False,
        order_by: str = OrderBy.QUEUE,
        on_poison: str = OnPoison.BLOCK,
        batch: int = 1,
        inline: bool = False,
    ) -> None:
        """Deliver messages of a topic to a handler; callable before the start or while running.

        A running consumer holds its queues when this returns, if the cluster answers.

        Args:
            topic: the topic; a second call for the same topic replaces the first.
            expression: tags as `"A || B"`, `"*"` for all, or `Sql(…)`; optional.
            handler: takes one message, or a list with `batch`. A coroutine function runs as a task
                on the event loop, a plain function in a thread. Raising retries the message.
            sql: a SQL92 expression over message properties, instead of tags.
            filter: the name of a filter function at the broker, instead of tags.
            ordered: one call at a time for each queue, in queue order.
            order_by: "keys" keeps the order of each sharding key, or first key, rather than of the
                whole queue: different keys are handled concurrently.
            on_poison: what happens to a key whose message failed `max_reconsume_times` times, by
                default 16: "block" blocks as without keys; "park" stores it and all later messages
                of its key in the park topic until the key is resumed (`mqadmin resumeParked`).
            batch: call with lists of at most this many messages; the handler may return how many
                of them succeeded, and the others are sent back.
            inline: call a plain function on the event loop: for fast functions that never block.

        Raises:
            BadTagExpression: the expression names no tag.
            Refusal: the broker rejects the SQL expression, or has no such function.
            WrongState: the consumer is closed.
        """
        if callable(expression):
            handler, expression = _only(expression, handler), None
        if handler is None:
            raise TypeError(f"no handler for {topic!r}: subscribe(topic, handler)")
        called = Handler.of(
            handler,
            ordered=ordered,
            batch=batch,
            inline=inline,
            order_by=order_by,
            on_poison=on_poison,
        )
        if called.on_poison is OnPoison.PARK and self.settings.is_broadcasting:
            raise ValueError("on_poison='park' is for groups that share messages, not broadcasting")
        if self.settings.telemetry is not None:
            called = self.settings.telemetry.handling(called, self.group, self.client_id)
        chosen_filter = chosen(expression, sql=sql, filter_name=filter)
        wanted = self._filter(topic, chosen_filter)
        if self._life.is_made:
            self._subscriptions[topic] = _Subscription(chosen_filter, called)
            return
        await check_filter(self._running(), self._member.group, wanted)
        async with self._engine.rebalancer.between_rounds():
            before = self._handlers.get(topic)
            if before is not None and before.ordering != called.ordering:
                await self._engine.held_queues.assign(wanted.topic, [])
            self._handlers[topic] = called
        await self._join([wanted])

    async def unsubscribe(self, topic: str) -> None:
        """Release the queues of a topic; handler calls in flight continue."""
        if self._life.is_made:
            self._subscriptions.pop(topic, None)
            return
        self._running()
        await self._engine.rebalancer.leave(self._client.wrap(topic))
        self._handlers.pop(topic, None)

    def pause(self) -> None:
        """Stop pulling; handlers continue with the buffered messages."""
        self._running()
        self._engine.pause()

    def resume(self) -> None:
        self._running()
        self._engine.resume()

    @property
    def is_paused(self) -> bool:
        self._running()
        return self._engine.is_paused

    @property
    def concurrency(self) -> int:
        """How many handlers run at a time; may be changed while running."""
        return self._engine.workers.limit if self._life.is_running else self.settings.concurrency

    @concurrency.setter
    def concurrency(self, limit: int) -> None:
        self._running()
        self._engine.workers.limit = limit

    @property
    def assigned_queues(self) -> frozenset[MessageQueue]:
        """The queues assigned to this consumer, without those of the retry topic.

        If the brokers assign queues to be popped, queue -1 stands for all queues of a broker.
        """
        self._running()
        held = [each.queue for each in self._engine.held_queues]
        if self._engine.pops is not None:
            held += [each.queue for each in self._engine.pops.held_queues]
        return frozenset(
            self._unwrapped(queue) for queue in held if not queue.topic.startswith(RETRY_PREFIX)
        )

    async def commit(self) -> None:
        """Commit the offsets now rather than at the next interval.

        Raises:
            BolideError: a broker refused or did not answer.
        """
        self._running()
        await self._engine.held_queues.commit()

    def _open(self, instance: ClientInstance, group: str) -> Membership:
        listener = self._assignment_listener()
        settings = self._with_trace(instance, group)
        self._engine = PushEngine(instance, group, settings, self._handlers, listener)
        return self._engine.member

    def _with_trace(self, instance: ClientInstance, group: str) -> PushSettings:
        """The settings, with a tracing hook if `trace` is set."""
        if not (trace := Trace.of(self.settings.trace)):
            return self.settings
        self.tracing = TraceSender(trace, instance, group, "CONSUME")
        hook = ConsumeTrace(self.tracing, self.group, self.settings.consume_timeout)
        return replace(self.settings, consume_hooks=(*self.settings.consume_hooks, hook))

    async def _begin(self) -> None:
        if self.tracing is not None:
            self.tracing.start()
        filters = []
        for topic, (expression, handler) in self._subscriptions.items():
            self._handlers[topic] = handler
            filters.append(self._filter(topic, expression))
            await check_filter(self._instance, self._member.group, filters[-1])
        if filters:
            await self._join(filters)
        self._engine.start()

    async def _end(self) -> None:
        try:
            await self._engine.close()
        finally:
            if self.tracing is not None:
                await self.tracing.close()

    async def _join(self, filters: list[Filter]) -> None:
        if not self.settings.is_broadcasting:
            filters = [*filters, self._filter(retry_topic(self._member.group), "*")]
        await self._engine.rebalancer.join(*filters)


def _only(
    handler: Callable[[Any], Any], other: Callable[[Any], Any] | None
) -> Callable[[Any], Any]:
    if other is not None:
        raise TypeError(
            "two handlers: the second argument must be an expression or the only handler"
        )
    return handler
