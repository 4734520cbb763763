"""The pop consumer: receives messages on demand and acknowledges each of them."""

import time
from collections.abc import AsyncIterator
from typing import Unpack

from bolide.client.consumer.consumer import Consumer
from bolide.client.consumer.group.membership import Membership
from bolide.client.consumer.group.start_position import ConsumeFrom
from bolide.client.consumer.member import PullMember
from bolide.client.consumer.pop.pop_request import Popper
from bolide.client.consumer.pop.receipts import Receipts, back_off
from bolide.client.consumer.pop.sources import PopSources, ReceiveOptions
from bolide.client.consumer.settings import MAX_POP, PopArguments, PopSettings
from bolide.client.consumer.subscription import Expression, FilterFunction, check_filter, chosen
from bolide.client.errors import WrongState
from bolide.client.instance.instance import ClientInstance
from bolide.model.message import StoredMessage


class PopConsumer(Consumer[PopSettings]):
    """Receives and acknowledges for a group while its `async with` block runs.

    ```python
    async with PopConsumer("orders", name_server="127.0.0.1:9876", consume_from="first") as c:
        await c.subscribe("Orders")
        for message in await c.receive():
            ...
            await c.ack(message)
    ```

    A received message is leased to this member. A message that is not acknowledged before the
    lease expires is redelivered to any member of the group, with `reconsume_times` one higher.
    Any number of members share a queue. Equivalent to the SimpleConsumer of RocketMQ 5; brokers
    older than 5.0 do not support it.
    """

    def __init__(self, group: str, **arguments: Unpack[PopArguments]) -> None:
        """See `ClientSettings` and `PopSettings` for the arguments.

        Raises:
            ConfigError: a setting is invalid.
        """
        super().__init__(PopSettings, group, arguments)

    async def subscribe(
        self,
        topic: str,
        expression: Expression | None = None,
        *,
        sql: str | None = None,
    ) -> None:
        """Subscribe to a topic.

        Args:
            topic: the topic; a second call for the same topic replaces the first.
            expression: tags as `"A || B"` or `Sql(…)`; by default all messages.
            sql: a SQL92 expression, instead of tags.

        Raises:
            BadTagExpression: the expression names no tag.
            RouteNotFound: the topic does not exist.
            Refusal: the broker rejects the SQL expression.
            TypeError: a filter function is given, which only pulls support.
        """
        instance = self._running()
        given = chosen(expression, sql=sql)
        if isinstance(given, FilterFunction):
            raise TypeError("a pop consumer does not support filter functions: use tags or SQL92")
        wanted = self._filter(topic, given)
        await check_filter(instance, self._member.group, wanted)
        await instance.routes.require(wanted.topic)
        self._member.filters[wanted.topic] = wanted
        await instance.heartbeat()

    async def unsubscribe(self, topic: str) -> None:
        """Unsubscribe; messages received before can still be acknowledged."""
        self._member.filters.pop(self._client.wrap(topic), None)
        await self._running().heartbeat()

    async def receive(
        self, max_messages: int = 16, *, invisible: float | None = None, wait: float = 20.0
    ) -> list[StoredMessage]:
        """Receive and lease messages; empty if none arrive within `wait` seconds.

        Args:
            max_messages: the limit, 1 to 32; all messages are of one topic and one broker.
            invisible: the lease in seconds, counted from when the broker found the messages; by
                default that of the settings.
            wait: seconds to wait for the first message.

        Raises:
            PopNotSupported: a broker is too old.
            WrongState: no topic is subscribed, or the consumer is not running.
            BolideError: a broker refused, or none answered.
        """
        self._running()
        if not self._member.filters:
            raise WrongState(f"{self.group} has no subscription: call subscribe first")
        if not 1 <= max_messages <= MAX_POP:
            raise ValueError(f"max_messages is {max_messages}, 1 to {MAX_POP} are possible")
        return await self._sources.receive(self._receive_options(max_messages, invisible), wait)

    async def messages(
        self, *, max_messages: int = 16, invisible: float | None = None
    ) -> AsyncIterator[StoredMessage]:
        """Iterate over messages without end; acknowledge each of them.

        Messages whose lease expired before their turn are skipped: they are redelivered.
        """
        seconds = self.settings.invisible if invisible is None else invisible
        while True:
            received = await self.receive(max_messages, invisible=seconds)
            until = time.monotonic() + seconds  # local clock: the broker's may differ
            for message in received:
                if time.monotonic() < until:
                    yield message

    def __aiter__(self) -> AsyncIterator[StoredMessage]:
        return self.messages()

    async def ack(self, *messages: StoredMessage) -> None:
        """Acknowledge messages, with one request per broker.

        Raises:
            BolideError: a broker failed to acknowledge; its messages are redelivered.
            ValueError: a message was not received by a pop.
        """
        self._running()
        if messages:
            await self._receipts.ack(messages)

    async def change_invisible(self, message: StoredMessage, seconds: float) -> None:
        """Set the remaining lease of a message, counted from now.

        A longer lease allows slow processing, a shorter one releases the message earlier. The
        message gets a new `receipt`: acknowledge the object passed here, not an older copy.

        Raises:
            NoMessage: the lease has expired.
            BolideError: the broker refused or did not answer.
        """
        self._running()
        if seconds <= 0:
            raise ValueError(f"seconds is {seconds:g}: it must be over 0")
        await self._receipts.change_invisible(message, seconds)

    async def send_back(self, message: StoredMessage, delay_level: int = 0) -> None:
        """Have a message redelivered later, or make it a dead letter.

        Args:
            message: a message received by this consumer.
            delay_level: 0 chooses the delay by the number of tries: 10 s, 30 s, a minute and so
                on up to two hours. Higher values are an index of that list; -1 makes the message
                a dead letter.

        Raises:
            BolideError: the broker refused or did not answer.
        """
        self._running()
        if delay_level < 0:
            await self._send_back.dead_letter(message)
            await self._receipts.ack([message])
            return
        seconds = back_off(delay_level or message.reconsume_times)
        await self._receipts.change_invisible(message, seconds)

    def _receive_options(self, max_messages: int, invisible: float | None) -> ReceiveOptions:
        seconds = self.settings.invisible if invisible is None else invisible
        if seconds <= 0:
            raise ValueError(f"invisible is {seconds:g}: it must be over 0 seconds")
        return ReceiveOptions(
            max_count=max_messages,
            invisible=seconds,
            from_first=self.settings.consume_from == ConsumeFrom.FIRST,
            is_ordered=self.settings.ordered,
        )

    def _open(self, instance: ClientInstance, group: str) -> Membership:
        popper = Popper(instance, group, self.settings.filter_hooks)
        member = PullMember(instance, group, self.settings, progress=dict)
        self._receipts = Receipts(instance, group)
        self._sources = PopSources(member, popper, self._receipts)
        return member

    async def _end(self) -> None:
        await self._sources.close()
