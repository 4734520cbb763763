"""Request-reply: requests that wait for a reply, and the replies."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from uuid import uuid4

from bolide.client.errors import CannotReply, RequestTimedOut, SendFailed, WrongState
from bolide.client.instance.instance import ClientInstance
from bolide.client.producer.results import SendResult
from bolide.errors import BolideError
from bolide.model.message import Message, StoredMessage
from bolide.model.names import reply_topic
from bolide.model.properties import PropertyName

REPLY = "reply"
"""What MSG_TYPE says of a reply."""

_CARRIED = (PropertyName.CORRELATION_ID, PropertyName.REPLY_TO_CLIENT, PropertyName.TTL)


def reply_to(
    request: StoredMessage,
    body: bytes | bytearray | memoryview,
    *,
    tags: str = "",
    keys: str | Iterable[str] = (),
    properties: Mapping[str, str] | None = None,
) -> Message:
    """The message that answers a request; any producer may send it.

    Raises:
        CannotReply: the message does not say where its reply goes; names what is missing.
        InvalidMessage: something given is not as it must be; names the field.
    """
    said = request.properties
    missing = [name for name in (PropertyName.CLUSTER, *_CARRIED[:2]) if not said.get(name)]
    if missing:
        raise CannotReply(request.message_id, missing)
    topic = reply_topic(said[PropertyName.CLUSTER])
    carried = {name: said[name] for name in _CARRIED if name in said}
    plain = Message(topic, body, tags=tags, keys=keys, properties=properties)
    return plain.with_properties({PropertyName.MESSAGE_TYPE: REPLY, **carried})


def is_reply(properties: Mapping[str, str]) -> bool:
    return properties.get(PropertyName.MESSAGE_TYPE) == REPLY


_KNOWN_WITHIN = 1.0
"""Seconds that a request waits for brokers to know its client: one that is gone holds up none."""


def as_request(message: Message, client_id: str, seconds: float) -> Message:
    """The message with what its replier needs."""
    return message.with_properties(
        {
            PropertyName.CORRELATION_ID: str(uuid4()),
            PropertyName.REPLY_TO_CLIENT: client_id,
            PropertyName.TTL: str(max(int(seconds * 1000), 0)),
        }
    )


class Requests:
    """The requests of one producer.

    A reply goes to any broker that has the reply topic of the cluster, and that broker pushes it:
    so all of those must know this client before it asks.

    Args:
        topics: whose routes the producer keeps fresh; those of replies are added.
    """

    def __init__(self, instance: ClientInstance, group: str, topics: set[str]) -> None:
        self._instance = instance
        self._group = group
        self._topics = topics

    async def make_known(self, topic: str, deadline: float) -> None:
        """Have the brokers that replies may come by know this client; `topic` has a route."""
        latest = min(deadline, asyncio.get_running_loop().time() + _KNOWN_WITHIN)
        try:
            async with asyncio.timeout_at(latest):
                await self._learn_reply_topics(topic)
                await self._instance.reach_brokers(self._group)
        except TimeoutError:
            # It has longer to take that, and is passed over by later requests if it does not.
            self._instance.heartbeat_soon()

    async def _learn_reply_topics(self, topic: str) -> None:
        route = self._instance.routes.find(topic)
        clusters = {broker.cluster for broker in route.broker_datas} if route else set()
        for cluster in clusters:
            replies = reply_topic(cluster or "")
            if replies not in self._topics:
                with suppress(BolideError):  # without one the brokers of the topic must do
                    await self._instance.routes.require(replies)
                self._topics.add(replies)

    async def ask(
        self,
        message: Message,
        sent: Awaitable[SendResult],
        deadline: float,
        on_sent: Callable[[SendResult], None],
    ) -> StoredMessage:
        """Await the send, tell of it, and await the reply.

        Raises:
            RequestTimedOut: there was none by the deadline.
            BolideError: the send failed.
        """
        began = asyncio.get_running_loop().time()
        correlation_id = message.properties[PropertyName.CORRELATION_ID]
        with self._instance.open_requests.waiting(correlation_id, self) as reply:
            try:
                on_sent(await sent)
            except SendFailed:
                if not reply.done():  # it was stored all the same if there is a reply
                    raise
            try:
                async with asyncio.timeout_at(deadline):
                    return await reply
            except TimeoutError as exc:
                raise RequestTimedOut(message.topic, deadline - began) from exc

    def close(self) -> None:
        """End the waiting; nobody would pass replies on any more."""
        reason = WrongState("the producer was closed while a request waited for its reply")
        self._instance.open_requests.abandon(self, reason)
