"""The consumer that calls handlers: messages are brought to them as they arrive."""

from collections.abc import Callable
from typing import Any, NamedTuple, Unpack

from bolide.client.consuming.consume import Handler
from bolide.client.consuming.consumer import Consumer
from bolide.client.consuming.consumer_settings import PushArguments, PushSettings
from bolide.client.consuming.membership import Membership
from bolide.client.consuming.push_engine import PushEngine
from bolide.client.consuming.sql_check import check_sql
from bolide.client.consuming.subscription import Expression, Filter
from bolide.client.instance import ClientInstance
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
        """Have messages of a topic brought to a handler; before the start or while running.

        A running consumer has its share of the queues when this returns, if the cluster answers.

        Args:
            topic: which one; a second call for it replaces the first.
            expression: tags as `"A || B"`, `"*"` for all, or `Sql(…)`.
            handler: takes one message, or a list with `batch`. A coroutine function runs as a task
                on the event loop, a plain function in a thread. Raising asks for a retry.
            ordered: one call at a time for each queue, in the queue's order.
            batch: call with lists of at most so many messages; the handler may return how many
                of them were done, and the others are sent back.
            inline: call a plain function on the loop: for quick ones that never block.

        Raises:
            BadTagExpression: the expression names no tag.
            Refusal: the broker cannot take the SQL expression.
            WrongState: the consumer is closed.
        """
        called = Handler.of(handler, ordered=ordered, batch=batch, inline=inline)
        wanted = self._filter(topic, expression)
        if self._life.is_made:
            self._wanted[topic] = _Wanted(expression, called)
            return
        await check_sql(self._running(), self._member.group, wanted)
        async with self._engine.rebalancer.between_rounds():
            before = self._handlers.get(topic)
            if before is not None and before.is_ordered != ordered:
                await self._engine.holdings.change(wanted.topic, [])
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
        """The queues that are this consumer's now, without those of retries."""
        self._running()
        held = [each.queue for each in self._engine.holdings]
        return frozenset(
            self._unwrapped(queue) for queue in held if not queue.topic.startswith(RETRY_PREFIX)
        )

    async def commit(self) -> None:
        """Commit the offsets now rather than at the next interval.

        Raises:
            BolideError: a broker refused, or did not answer.
        """
        self._running()
        await self._engine.holdings.commit()

    def _open(self, instance: ClientInstance, group: str) -> Membership:
        listener = self._assignment_listener()
        self._engine = PushEngine(instance, group, self.settings, self._handlers, listener)
        return self._engine.member

    async def _begin(self) -> None:
        filters = []
        for topic, (expression, handler) in self._wanted.items():
            self._handlers[topic] = handler
            filters.append(self._filter(topic, expression))
            await check_sql(self._instance, self._member.group, filters[-1])
        if filters:
            await self._join(filters)
        self._engine.start()

    async def _end(self) -> None:
        await self._engine.close()

    async def _join(self, filters: list[Filter]) -> None:
        if not self.settings.is_broadcasting:
            filters = [*filters, self._filter(retry_topic(self._member.group), "*")]
        await self._engine.rebalancer.join(*filters)
