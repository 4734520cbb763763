"""The consumer that calls handlers: messages are brought to them as they arrive."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple, Unpack

from bolide.client.consumer.consumer import Consumer
from bolide.client.consumer.group.membership import Membership
from bolide.client.consumer.handlers.handler import Handler, OnPoison, OrderBy
from bolide.client.consumer.push.engine import PushEngine
from bolide.client.consumer.settings import PushArguments, PushSettings
from bolide.client.consumer.subscription import Expression, Filter, check_sql, chosen
from bolide.client.instance.instance import ClientInstance
from bolide.client.tracing.sender import TraceSender
from bolide.client.tracing.settings import Trace
from bolide.client.tracing.trace_hooks import ConsumeTrace
from bolide.model.message_queue import MessageQueue
from bolide.model.names import RETRY_PREFIX, retry_topic


class _Wanted(NamedTuple):
    expression: Expression
    handler: Handler


class PushConsumer(Consumer[PushSettings]):
    """Consumes for a group while its `async with` block runs.

    ```python
    async with PushConsumer("orders", name_server="127.0.0.1:9876", consume_from="first") as c:
        await c.subscribe("Orders", "paid || sent", handle)
        await asyncio.Event().wait()
    ```

    A handler that returns has done its message; one that raises gets it again later. Every message
    is delivered at least once: after a crash or a change of members some come twice.
    """

    _engine: PushEngine

    def __init__(self, group: str, **arguments: Unpack[PushArguments]) -> None:
        """Take the settings; `ClientSettings`, `ConsumerSettings` and `PushSettings` tell them.

        Raises:
            ConfigError: one cannot be used; names it.
        """
        super().__init__(PushSettings, group, arguments)
        self._wanted: dict[str, _Wanted] = {}
        self._handlers: dict[str, Handler] = {}
        self.tracing: TraceSender | None = None
        """What sends the trace, if `trace` was asked for; its `dropped` counts what was lost."""

    async def subscribe(  # noqa: PLR0913  what a subscription may say
        self,
        topic: str,
        expression: Expression | Callable[[Any], Any] | None = None,
        handler: Callable[[Any], Any] | None = None,
        *,
        sql: str | None = None,
        filter: str | None = None,  # noqa: A002  the word that users look for
        ordered: bool = False,
        order_by: str = OrderBy.QUEUE,
        on_poison: str = OnPoison.BLOCK,
        batch: int = 1,
        inline: bool = False,
    ) -> None:
        """Have messages of a topic brought to a handler; before the start or while running.

        A running consumer has its share of the queues when this returns, if the cluster answers.

        Args:
            topic: which one; a second call for it replaces the first.
            expression: tags as `"A || B"`, `"*"` for all, or `Sql(…)`; may be left out.
            handler: takes one message, or a list with `batch`. A coroutine function runs as a task
                on the event loop, a plain function in a thread. Raising asks for a retry.
            sql: the text of a SQL92 expression over the properties of messages, in place of tags.
            filter: the name of a filter function of the broker, in place of tags.
            ordered: one call at a time for each queue, in the queue's order.
            order_by: "keys" keeps the order of each sharding key, or first key, rather than of the
                whole queue: different keys are handled at the same time.
            on_poison: what happens with a key whose message failed `max_reconsume_times` times, 16
                if none are set: "block" is as without keys; "park" sets it and all later ones of
                its key aside, until somebody resumes the key (`mqadmin resumeParked`).
            batch: call with lists of at most so many messages; the handler may return how many
                of them were done, and the others are sent back.
            inline: call a plain function on the loop: for quick ones that never block.

        Raises:
            BadTagExpression: the expression names no tag.
            Refusal: the broker cannot take the SQL expression, or has no such function.
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
        asked = chosen(expression, sql=sql, filter_name=filter)
        wanted = self._filter(topic, asked)
        if self._life.is_made:
            self._wanted[topic] = _Wanted(asked, called)
            return
        await check_sql(self._running(), self._member.group, wanted)
        async with self._engine.rebalancer.between_rounds():
            before = self._handlers.get(topic)
            if before is not None and before.ordering != called.ordering:
                await self._engine.held_queues.assign(wanted.topic, [])
            self._handlers[topic] = called
        await self._join([wanted])

    async def unsubscribe(self, topic: str) -> None:
        """Give the queues of a topic up; handlers at work go on to their end."""
        if self._life.is_made:
            self._wanted.pop(topic, None)
            return
        self._running()
        await self._engine.rebalancer.leave(self._client.wrap(topic))
        self._handlers.pop(topic, None)

    def pause(self) -> None:
        """Pull no more; handlers go on with what is held already."""
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
        """How many handlers run at a time; may be set while they do."""
        return self._engine.workers.limit if self._life.is_running else self.settings.concurrency

    @concurrency.setter
    def concurrency(self, limit: int) -> None:
        self._running()
        self._engine.workers.limit = limit

    @property
    def assigned_queues(self) -> frozenset[MessageQueue]:
        """The queues that are this consumer's now, without those of retries.

        Where brokers share them out and they are popped, queue -1 is all of a broker.
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
            BolideError: a broker refused, or did not answer.
        """
        self._running()
        await self._engine.held_queues.commit()

    def _open(self, instance: ClientInstance, group: str) -> Membership:
        listener = self._assignment_listener()
        settings = self._with_trace(instance, group)
        self._engine = PushEngine(instance, group, settings, self._handlers, listener)
        return self._engine.member

    def _with_trace(self, instance: ClientInstance, group: str) -> PushSettings:
        """The settings, with the hook that traces if that was asked for."""
        if not (trace := Trace.of(self.settings.trace)):
            return self.settings
        self.tracing = TraceSender(trace, instance, group, "CONSUME")
        hook = ConsumeTrace(self.tracing, self.group, self.settings.consume_timeout)
        return replace(self.settings, consume_hooks=(*self.settings.consume_hooks, hook))

    async def _begin(self) -> None:
        if self.tracing is not None:
            self.tracing.start()
        filters = []
        for topic, (expression, handler) in self._wanted.items():
            self._handlers[topic] = handler
            filters.append(self._filter(topic, expression))
            await check_sql(self._instance, self._member.group, filters[-1])
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
        raise TypeError("two handlers: the second argument is tags or the only handler")
    return handler
