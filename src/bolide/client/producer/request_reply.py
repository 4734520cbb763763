"""Request-reply: sending requests, awaiting their replies, and building replies."""

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
"""The value of MSG_TYPE in a reply."""

_COPIED = (PropertyName.CORRELATION_ID, PropertyName.REPLY_TO_CLIENT, PropertyName.TTL)
_ANNOUNCE_TIMEOUT = 1.0
"""Seconds that a request waits for heartbeats; an unreachable broker must not block requests."""


def reply_to(
    request: StoredMessage,
    body: bytes | bytearray | memoryview,
    *,
    tags: str = "",
    keys: str | Iterable[str] = (),
    properties: Mapping[str, str] | None = None,
) -> Message:
    """Build the reply to a request; any producer may send it.

    Raises:
        CannotReply: the message lacks the properties of a request.
        InvalidMessage: an argument is invalid.
    """
    given = request.properties
    missing = [name for name in (PropertyName.CLUSTER, *_COPIED[:2]) if not given.get(name)]
    if missing:
        raise CannotReply(request.message_id, missing)
    topic = reply_topic(given[PropertyName.CLUSTER])
    copied = {name: given[name] for name in _COPIED if name in given}
    plain = Message(topic, body, tags=tags, keys=keys, properties=properties)
    return plain.with_properties({PropertyName.MESSAGE_TYPE: REPLY, **copied})


def is_reply(properties: Mapping[str, str]) -> bool:
    return properties.get(PropertyName.MESSAGE_TYPE) == REPLY


def as_request(message: Message, client_id: str, seconds: float) -> Message:
    """Add the properties that a reply needs."""
    return message.with_properties(
        {
            PropertyName.CORRELATION_ID: str(uuid4()),
            PropertyName.REPLY_TO_CLIENT: client_id,
            PropertyName.TTL: str(max(int(seconds * 1000), 0)),
        }
    )


class Requester:
    """Sends the requests of one producer.

    A reply goes to any broker with the reply topic of the cluster, which pushes it to the client.
    Therefore all of these brokers must know the client before it sends a request.

    Args:
        topics: the topics whose routes the producer refreshes; reply topics are added.
    """

    def __init__(self, instance: ClientInstance, group: str, topics: set[str]) -> None:
        self._instance = instance
        self._group = group
        self._topics = topics

    async def announce_client(self, topic: str, deadline: float) -> None:
        """Send heartbeats to the brokers that replies may pass through; `topic` has a route."""
        latest = min(deadline, asyncio.get_running_loop().time() + _ANNOUNCE_TIMEOUT)
        try:
            async with asyncio.timeout_at(latest):
                await self._add_reply_topics(topic)
                await self._instance.reach_brokers(self._group)
        except TimeoutError:
            # A broker that fails the next heartbeat too is skipped by later requests.
            self._instance.heartbeat_soon()

    async def _add_reply_topics(self, topic: str) -> None:
        route = self._instance.routes.find(topic)
        clusters = {broker.cluster for broker in route.broker_datas} if route else set()
        for cluster in clusters:
            replies = reply_topic(cluster or "")
            if replies not in self._topics:
                with suppress(
                    BolideError
                ):  # without a route only the brokers of the topic are used
                    await self._instance.routes.require(replies)
                self._topics.add(replies)

    async def request(
        self,
        message: Message,
        sent: Awaitable[SendResult],
        deadline: float,
        on_sent: Callable[[SendResult], None],
    ) -> StoredMessage:
        """Await the send, call `on_sent` with its result, and await the reply.

        Raises:
            RequestTimedOut: no reply arrived by the deadline.
            BolideError: the send failed.
        """
        began = asyncio.get_running_loop().time()
        correlation_id = message.properties[PropertyName.CORRELATION_ID]
        with self._instance.open_requests.waiting(correlation_id, self) as reply:
            try:
                on_sent(await sent)
            except SendFailed:
                if not reply.done():  # a reply proves that the message was stored
                    raise
            try:
                async with asyncio.timeout_at(deadline):
                    return await reply
            except TimeoutError as exc:
                raise RequestTimedOut(message.topic, deadline - began) from exc

    def close(self) -> None:
        """Fail the pending requests: their replies cannot arrive any more."""
        reason = WrongState("the producer was closed while a request waited for its reply")
        self._instance.open_requests.abandon(self, reason)
