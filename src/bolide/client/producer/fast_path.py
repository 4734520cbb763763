"""Fast path for plain sends: requests from templates, replies parsed without building a frame.

A plain message has no special properties, may go to any queue of a topic with a known route, and
can be written to a connection at once. It is signed by its template if the client has credentials.
The fast path is not used with hooks, spans or latency tracking. All other messages, and retries
after a failed first try, are sent by `RetryingSender`.
"""

import asyncio
import math
import time
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

import msgspec

from bolide.client.instance.instance import ClientInstance
from bolide.client.instance.routes import Queues
from bolide.client.instance.settings import ClientSettings
from bolide.client.producer.back_pressure import BackPressure
from bolide.client.producer.results import SendResult, SendStatus
from bolide.client.producer.retrying_sender import MIN_TRY_SECONDS, Attempts, RetryingSender
from bolide.client.producer.send_request import RequestBuilder, make_id
from bolide.client.producer.settings import ProducerSettings
from bolide.kernel import Credentials, SendAnswer, SendTemplate
from bolide.model.message import Message
from bolide.model.message_queue import MessageQueue
from bolide.model.names import RETRY_PREFIX, is_sendable
from bolide.model.properties import PropertyName
from bolide.protocol.codes import RequestCode
from bolide.protocol.frame import Frame
from bolide.protocol.property_string import encode_properties
from bolide.protocol.signature import ACCESS_KEY, SECURITY_TOKEN
from bolide.remoting.calls import PlainAnswer
from bolide.remoting.connection import Connection
from bolide.remoting.errors import CallTimedOut, RemotingError

_NOT_PLAIN = frozenset({
    PropertyName.UNIQUE_ID, PropertyName.INSTANCE_ID, PropertyName.DEDUP_KEY,
    PropertyName.TRANSACTION_PREPARED, PropertyName.MESSAGE_TYPE,
})  # fmt: skip
_MAX_PROPERTIES = 0x7FFF
"""Characters; brokers refuse longer property strings."""


class SendFastPath:
    """Sends the plain messages of one producer."""

    def __init__(
        self,
        instance: ClientInstance,
        settings: ProducerSettings,
        builder: RequestBuilder,
        sender: RetryingSender,
        pressure: BackPressure,
        topics: set[str],
    ) -> None:
        self._instance = instance
        self._builder = builder
        self._sender = sender
        self._choice = sender.choice
        self._pressure = pressure
        self._topics = topics
        self._targets: dict[str, _TopicTargets] = {}
        self._send_seconds = settings.send_timeout
        first_try = settings.try_timeout if settings.retries else None
        self._try_seconds = math.inf if first_try is None else first_try
        self._max_body = min(settings.compress_over - 1, settings.max_message_size)
        self._credentials = _credentials(instance.settings)
        self._now = asyncio.get_running_loop().time

    def try_send(
        self, message: Message, seconds: float | None = None
    ) -> Coroutine[Any, Any, SendResult] | None:
        """Send a message if it is plain; the coroutine returned awaits the reply.

        Returns None, without having sent anything, if the message needs the ordinary path.
        """
        seconds = self._send_seconds if seconds is None else seconds
        plan = self._plan(message)
        if plan is None or seconds < MIN_TRY_SECONDS:
            return None
        target, connection, properties = plan
        opaque, size = connection.number(), len(message.body)
        unique_id, request = self._encode(message, target, properties, opaque)
        if not self._pressure.try_enter(size):
            return None
        began, within = self._now(), min(seconds, self._try_seconds)
        reply = connection.post(opaque, request, began + within)
        if reply is None:
            self._pressure.leave(size)
            return None
        self._choice.advance(target.queue.topic)
        return self._await_reply(
            _InFlightSend(
                message, unique_id, target, connection, opaque, reply, began, seconds, within
            )
        )

    def try_send_oneway(self, message: Message) -> bool:
        """Send a message one-way if it is plain; False if nothing was sent."""
        plan = self._plan(message)
        if plan is None:
            return False
        target, connection, properties = plan
        opaque = connection.number()
        _, request = self._encode(message, target, properties, opaque, one_way=True)
        if not connection.send_one_way(request):
            return False
        self._choice.advance(target.queue.topic)
        return True

    def _plan(self, message: Message) -> "tuple[_Target, Connection, str] | None":
        """The target, connection and encoded properties of a message; None if it is not plain."""
        if not isinstance(message, Message) or self._sender.has_hooks:
            return None
        # The kernel does not accept subclasses of bytes.
        if type(message.body) is not bytes or not 0 < len(message.body) <= self._max_body:
            return None
        properties = _encoded_properties(message.properties)
        targets = self._find_targets(message.topic)
        if properties is None or targets is None:
            return None
        self._choice.skip_suspects(targets.topic, targets.queues)
        target = targets.at(self._choice.next_index(targets.topic, targets.size))
        connection = self._instance.find_connection(target.broker)
        return None if connection is None else (target, connection, properties)

    def _encode(
        self,
        message: Message,
        target: "_Target",
        properties: str,
        opaque: int,
        *,
        one_way: bool = False,
    ) -> tuple[str, bytes]:
        """The id of a message and its encoded request."""
        born = time.time_ns() // 1_000_000
        unique_id = make_id(born)
        properties = self._builder.with_id(properties, unique_id)
        return unique_id, target.template.write(
            opaque, born, message.flag, properties, message.body, one_way=one_way
        )

    def _find_targets(self, topic: str) -> "_TopicTargets | None":
        targets = self._targets.get(topic) or self._add_targets(topic)
        if targets is None:
            return None
        queues = self._instance.routes.find_publish_queues(targets.topic)
        if not queues:
            return None
        if queues is not targets.queues:
            targets.reset(queues)
        return targets

    def _add_targets(self, topic: str) -> "_TopicTargets | None":
        """Add a topic; None without a route, because added topics are refreshed periodically."""
        wrapped = self._builder.wrap(topic)
        if wrapped.startswith(RETRY_PREFIX) or not is_sendable(topic):
            return None
        if not self._instance.routes.find_publish_queues(wrapped):
            return None
        self._topics.add(wrapped)
        routes, fields = self._instance.routes, self._builder.common_fields
        targets = self._targets[topic] = _TopicTargets(
            topic, wrapped, fields, routes.broker_of, self._credentials
        )
        return targets

    async def _await_reply(self, send: "_InFlightSend") -> SendResult:
        """Await the reply; after an error or an unusual reply, `RetryingSender` takes over."""
        reply: SendAnswer | Frame | RemotingError
        try:
            try:
                reply = await send.reply
            except TimeoutError as exc:
                reply = _timed_out(send, exc)
            except RemotingError as exc:
                reply = exc
            finally:
                send.connection.end(send.opaque)
            if isinstance(reply, tuple):
                return _result(send, reply)
            return await self._continue_after(send, reply)
        finally:
            self._pressure.leave(len(send.message.body))

    async def _continue_after(
        self, send: "_InFlightSend", reply: Frame | RemotingError
    ) -> SendResult:
        message, queue = send.message, send.target.queue
        if isinstance(reply, RemotingError):
            self._suspect_master(send)
        with_id = message.with_properties({PropertyName.UNIQUE_ID: send.unique_id})
        request = await self._builder.build(with_id)
        queues = self._instance.routes.find_publish_queues(queue.topic) or (queue,)
        attempts = Attempts(send.began, send.began + send.seconds)
        return await self._sender.continue_after(request, queues, queue, reply, attempts)

    def _suspect_master(self, send: "_InFlightSend") -> None:
        """Suspect the broker of a failed send, unless another one is the master by now."""
        instance = self._instance
        address = instance.routes.master(send.target.broker)
        if address and instance.remoting.uses(instance.vip(address), send.connection):
            instance.broker_failed(address, send.target.queue.topic)


class _Target(msgspec.Struct, frozen=True):
    """A queue of a topic, with the template of its requests."""

    queue: MessageQueue
    shown: MessageQueue
    """The queue without namespace."""

    broker: str
    """The broker of the queue, or the leader of a logical one."""

    template: SendTemplate


class _TopicTargets:
    """The targets of a topic, by the queues of its current route."""

    __slots__ = (
        "_broker_of", "_credentials", "_fields", "_shown_topic", "_targets", "queues", "size",
        "topic",
    )  # fmt: skip

    def __init__(
        self,
        shown_topic: str,
        topic: str,
        common_fields: Mapping[str, str],
        broker_of: Callable[[MessageQueue], str],
        credentials: Credentials | None = None,
    ) -> None:
        self.topic = topic
        self._credentials = credentials
        self._broker_of = broker_of
        self._shown_topic = shown_topic
        self._fields = {**common_fields, "b": topic}
        self.reset(())

    def reset(self, queues: Queues) -> None:
        self.queues = queues
        self.size = len(queues)
        self._targets: dict[int, _Target] = {}

    def at(self, index: int) -> _Target:
        number = index % self.size
        return self._targets.get(number) or self._add(number)

    def _add(self, number: int) -> _Target:
        queue = self.queues[number]
        shown = MessageQueue(self._shown_topic, queue.broker_name, queue.queue_id)
        template = SendTemplate(self._fields, queue.queue_id, queue.broker_name, self._credentials)
        target = self._targets[number] = _Target(queue, shown, self._broker_of(queue), template)
        return target


class _InFlightSend(msgspec.Struct, frozen=True):
    """A plain send that waits for its reply; times in seconds."""

    message: Message
    unique_id: str
    target: _Target
    connection: Connection
    opaque: int
    reply: PlainAnswer
    began: float
    seconds: float
    """Timeout of the whole send."""

    within: float
    """Timeout of the first try."""


def _credentials(settings: ClientSettings) -> Credentials | None:
    """What the `Signer` of a client adds to the requests that do not pass here."""
    if not settings.access_key or not settings.secret_key:
        return None
    fields = {ACCESS_KEY: settings.access_key}
    if settings.security_token:
        fields[SECURITY_TOKEN] = settings.security_token
    return Credentials(fields, settings.secret_key.encode())


def _encoded_properties(properties: Mapping[str, str]) -> str | None:
    """The property string without the id; None if the message is not plain."""
    if not properties:
        return ""
    if not properties.keys().isdisjoint(_NOT_PLAIN):
        return None
    try:
        text = encode_properties(properties)
        text.isascii() or text.encode()
    except ValueError:  # the ordinary path raises a descriptive error
        return None
    return text if len(text) <= _MAX_PROPERTIES else None


def _timed_out(send: _InFlightSend, timeout: TimeoutError) -> CallTimedOut:
    failure = CallTimedOut(send.connection.peer, RequestCode.SEND_MESSAGE_V2, send.within)
    failure.__cause__ = timeout
    return failure


def _result(send: _InFlightSend, reply: SendAnswer) -> SendResult:
    _, offset_id, queue_id, queue_offset, transaction_id, region, trace_on = reply
    queue = send.target.shown
    if queue_id != queue.queue_id:
        queue = MessageQueue(queue.topic, queue.broker_name, queue_id)
    return SendResult(
        status=SendStatus.SEND_OK,
        message_id=send.unique_id,
        offset_message_id=offset_id,
        queue=queue,
        queue_offset=queue_offset,
        transaction_id=transaction_id,
        region=region,
        trace_on=trace_on,
    )
