"""The consumer that takes messages one call at a time and acknowledges each of them."""

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

    A message that was received is nobody else's for a while. One that is not acknowledged until
    then comes again, to any member of the group, with `reconsume_times` one higher: nothing is
    lost when a member dies, and no member waits for another. Any number of members share a
    queue. What RocketMQ 5 calls a SimpleConsumer does the same; brokers older than 5.0 cannot.
    """

    def __init__(self, group: str, **arguments: Unpack[PopArguments]) -> None:
        """Take the settings; `ClientSettings` and `PopSettings` tell them.

        Raises:
            ConfigError: one cannot be used; names it.
        """
        super().__init__(PopSettings, group, arguments)

    async def subscribe(
        self,
        topic: str,
        expression: Expression | None = None,
        *,
        sql: str | None = None,
    ) -> None:
        """Receive messages of a topic too.

        Args:
            topic: which one; a second call for it replaces the first.
            expression: tags as `"A || B"` or `Sql(…)`; all messages if nothing is given.
            sql: the text of a SQL92 expression, in place of tags.

        Raises:
            BadTagExpression: the expression names no tag.
            RouteNotFound: there is no such topic.
            Refusal: the broker cannot take the SQL expression.
            TypeError: a filter function is given: those are for consumers that pull.
        """
        instance = self._running()
        given = chosen(expression, sql=sql)
        if isinstance(given, FilterFunction):
            raise TypeError("filter functions are for consumers that pull: use tags or SQL92")
        wanted = self._filter(topic, given)
        await check_filter(instance, self._member.group, wanted)
        await instance.routes.require(wanted.topic)
        self._member.filters[wanted.topic] = wanted
        await instance.heartbeat()

    async def unsubscribe(self, topic: str) -> None:
        """Receive no more of a topic; what was received can still be acknowledged."""
        self._member.filters.pop(self._client.wrap(topic), None)
        await self._running().heartbeat()

    async def receive(
        self, max_messages: int = 16, *, invisible: float | None = None, wait: float = 20.0
    ) -> list[StoredMessage]:
        """Messages that are now this consumer's; none if there are none.

        Args:
            max_messages: at most so many, 1 to 32; all are of one topic and one broker.
            invisible: seconds for which no other member gets them; by default that of the
                settings. It counts from when the broker found them.
            wait: seconds to wait for the first one.

        Raises:
            PopNotSupported: a broker is too old.
            WrongState: nothing is subscribed to, or it is not running.
            BolideError: a broker refused, or none of them answers.
        """
        self._running()
        if not self._member.filters:
            raise WrongState(f"{self.group} has subscribed to nothing: call subscribe first")
        if not 1 <= max_messages <= MAX_POP:
            raise ValueError(f"max_messages is {max_messages}, 1 to {MAX_POP} are possible")
        return await self._sources.receive(self._receive_options(max_messages, invisible), wait)

    async def messages(
        self, *, max_messages: int = 16, invisible: float | None = None
    ) -> AsyncIterator[StoredMessage]:
        """One message after the other, for ever; acknowledge each of them.

        Those whose time was over before their turn came are passed over: they come again.
        """
        seconds = self.settings.invisible if invisible is None else invisible
        while True:
            found = await self.receive(max_messages, invisible=seconds)
            until = time.monotonic() + seconds  # by our clock: the broker's may be another
            for message in found:
                if time.monotonic() < until:
                    yield message

    def __aiter__(self) -> AsyncIterator[StoredMessage]:
        return self.messages()

    async def ack(self, *messages: StoredMessage) -> None:
        """Say that messages are done; several at once are one request for each broker.

        Raises:
            BolideError: a broker did not take it: the message comes again.
            ValueError: one was not received here.
        """
        self._running()
        if messages:
            await self._receipts.ack(messages)

    async def change_invisible(self, message: StoredMessage, seconds: float) -> None:
        """Have a message come again after so many seconds from now, unless it is acknowledged.

        More time for slow work, or less to give it back. The message has another `receipt`
        afterwards: acknowledge the object that was passed here, not a copy made before.

        Raises:
            NoMessage: it is too late.
            BolideError: the broker refused, or did not answer.
        """
        self._running()
        if seconds <= 0:
            raise ValueError(f"seconds is {seconds:g}: a message stays invisible for some time")
        await self._receipts.change_invisible(message, seconds)

    async def send_back(self, message: StoredMessage, delay_level: int = 0) -> None:
        """Have the group get a message again later, or never.

        Args:
            message: one that was received here.
            delay_level: 0 chooses the time by the number of tries: 10 s, 30 s, a minute and so
                on to two hours. More takes that place of the list; -1 makes it a dead letter.

        Raises:
            BolideError: the broker refused, or did not answer.
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
