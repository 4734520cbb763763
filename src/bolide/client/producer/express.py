"""Plain sends by the shortest way: the request from a template, the answer read as it lies.

Plain is a message that asks for nothing but to be stored, in any queue of a topic whose route is
known, and that can leave at once. Nobody may watch it: hooks, spans, signatures and the latencies
of brokers are for the ordinary way. That has the rest too, and the tries after one that failed.
"""

import asyncio
import math
import time
from collections.abc import Coroutine, Mapping
from typing import Any

import msgspec

from bolide.client.instance.instance import ClientInstance
from bolide.client.instance.routes import Queues
from bolide.client.producer.back_pressure import BackPressure
from bolide.client.producer.outgoing import Packer, make_id
from bolide.client.producer.results import SendResult, SendStatus
from bolide.client.producer.sending import NO_TIME, Sending, Tries
from bolide.client.producer.settings import ProducerSettings
from bolide.kernel import SendAnswer, SendTemplate
from bolide.model.message import Message
from bolide.model.message_queue import MessageQueue
from bolide.model.names import RETRY_PREFIX, is_sendable
from bolide.model.properties import PropertyName
from bolide.protocol.codes import RequestCode
from bolide.protocol.frame import Frame
from bolide.protocol.property_string import encode_properties
from bolide.remoting.calls import PlainAnswer
from bolide.remoting.connection import Connection
from bolide.remoting.errors import CallTimedOut, RemotingError

_NOT_PLAIN = frozenset({
    PropertyName.UNIQUE_ID, PropertyName.INSTANCE_ID, PropertyName.DEDUP_KEY,
    PropertyName.TRANSACTION_PREPARED, PropertyName.MESSAGE_TYPE,
})  # fmt: skip
_MAX_PROPERTIES = 0x7FFF
"""Characters; a broker takes no more, and says so."""


class Express:
    """Sends the plain messages of one producer."""

    def __init__(
        self,
        instance: ClientInstance,
        settings: ProducerSettings,
        packer: Packer,
        sending: Sending,
        pressure: BackPressure,
        topics: set[str],
    ) -> None:
        self._instance = instance
        self._packer = packer
        self._sending = sending
        self._choice = sending.choice
        self._pressure = pressure
        self._topics = topics
        self._lanes: dict[str, _Lane] = {}
        self._seconds = settings.send_timeout
        first = settings.try_timeout if settings.retries else None
        self._try_seconds = math.inf if first is None else first
        self._most = min(settings.compress_over - 1, settings.max_message_size)
        self._now = asyncio.get_running_loop().time

    def post(
        self, message: Message, seconds: float | None = None
    ) -> Coroutine[Any, Any, SendResult] | None:
        """Send a message within that time, if it is plain; the coroutine waits for the answer."""
        seconds = self._seconds if seconds is None else seconds
        way = self._way(message)
        if way is None or seconds < NO_TIME:
            return None
        stop, connection, text = way
        opaque, size = connection.number(), len(message.body)
        unique_id, request = self._written(message, stop, text, opaque)
        if not self._pressure.try_enter(size):
            return None
        began, within = self._now(), min(seconds, self._try_seconds)
        answer = connection.post(opaque, request, began + within)
        if answer is None:
            self._pressure.leave(size)
            return None
        self._choice.took(stop.queue.topic)
        return self._sent(
            _Posted(message, unique_id, stop, connection, opaque, answer, began, seconds, within)
        )

    def throw(self, message: Message) -> bool:
        """Send a message one-way, if it is plain."""
        way = self._way(message)
        if way is None:
            return False
        stop, connection, text = way
        _, request = self._written(message, stop, text, connection.number(), one_way=True)
        if not connection.throw(request):
            return False
        self._choice.took(stop.queue.topic)
        return True

    def _way(self, message: Message) -> "tuple[_Stop, Connection, str] | None":
        """Where a plain message goes, and its properties as text."""
        if not isinstance(message, Message) or self._sending.is_watched:
            return None
        # Of a class derived from bytes the kernel takes none.
        if type(message.body) is not bytes or not 0 < len(message.body) <= self._most:
            return None
        text = _text_of(message.properties)
        lane = self._lane(message.topic)
        if text is None or lane is None:
            return None
        stop = lane.stop(self._choice.turn(lane.topic, lane.size))
        connection = self._instance.find_connection(stop.queue.broker_name)
        return None if connection is None else (stop, connection, text)

    def _written(
        self, message: Message, stop: "_Stop", text: str, opaque: int, *, one_way: bool = False
    ) -> tuple[str, bytes]:
        """The id of a message and the request that carries it."""
        born = time.time_ns() // 1_000_000
        unique_id = make_id(born)
        properties = self._packer.with_id(text, unique_id)
        return unique_id, stop.template.write(
            opaque, born, message.flag, properties, message.body, one_way=one_way
        )

    def _lane(self, topic: str) -> "_Lane | None":
        lane = self._lanes.get(topic) or self._new_lane(topic)
        if lane is None:
            return None
        queues = self._instance.routes.find_publish_queues(lane.topic)
        if not queues:
            return None
        if queues is not lane.queues:
            lane.renew(queues)
        return lane

    def _new_lane(self, topic: str) -> "_Lane | None":
        """None for a topic without a route too: its route would be asked for ever after."""
        wrapped = self._packer.wrap(topic)
        if wrapped.startswith(RETRY_PREFIX) or not is_sendable(topic):
            return None
        if not self._instance.routes.find_publish_queues(wrapped):
            return None
        self._topics.add(wrapped)
        lane = self._lanes[topic] = _Lane(topic, wrapped, self._packer.common)
        return lane

    async def _sent(self, posted: "_Posted") -> SendResult:
        """Wait for the answer; if it is not the usual one, the ordinary way takes over."""
        said: SendAnswer | Frame | RemotingError
        try:
            try:
                said = await posted.answer
            except TimeoutError as exc:
                said = _late(posted, exc)
            except RemotingError as exc:
                said = exc
            finally:
                posted.connection.end(posted.opaque)
            if isinstance(said, tuple):
                return _result(posted, said)
            return await self._go_on(posted, said)
        finally:
            self._pressure.leave(len(posted.message.body))

    async def _go_on(self, posted: "_Posted", said: Frame | RemotingError) -> SendResult:
        message, queue = posted.message, posted.stop.queue
        named = message.with_properties({PropertyName.UNIQUE_ID: posted.unique_id})
        outgoing = await self._packer.pack(named)
        queues = self._instance.routes.find_publish_queues(queue.topic) or (queue,)
        tries = Tries(posted.began, posted.began + posted.seconds)
        return await self._sending.go_on(outgoing, queues, queue, said, tries)


class _Stop(msgspec.Struct, frozen=True):
    """A queue that messages of a topic go to."""

    queue: MessageQueue
    shown: MessageQueue
    """As users call it."""

    template: SendTemplate


class _Lane:
    """The queues of a topic, as its route named them last."""

    __slots__ = ("_common", "_shown", "_stops", "queues", "size", "topic")

    def __init__(self, shown: str, topic: str, common: Mapping[str, str]) -> None:
        self.topic = topic
        self._shown = shown
        self._common = {**common, "b": topic}
        self.renew(())

    def renew(self, queues: Queues) -> None:
        self.queues = queues
        self.size = len(queues)
        self._stops: dict[int, _Stop] = {}

    def stop(self, turn: int) -> _Stop:
        number = turn % self.size
        return self._stops.get(number) or self._new_stop(number)

    def _new_stop(self, number: int) -> _Stop:
        queue = self.queues[number]
        shown = MessageQueue(self._shown, queue.broker_name, queue.queue_id)
        template = SendTemplate(self._common, queue.queue_id, queue.broker_name)
        stop = self._stops[number] = _Stop(queue, shown, template)
        return stop


class _Posted(msgspec.Struct, frozen=True):
    """A plain send under way; times are seconds."""

    message: Message
    unique_id: str
    stop: _Stop
    connection: Connection
    opaque: int
    answer: PlainAnswer
    began: float
    seconds: float
    """For all of it."""

    within: float
    """For the first try."""


def _text_of(properties: Mapping[str, str]) -> str | None:
    """The property string, but for the id; None if it is not that of a plain message."""
    if not properties:
        return ""
    if not properties.keys().isdisjoint(_NOT_PLAIN):
        return None
    try:
        text = encode_properties(properties)
        text.isascii() or text.encode()
    except ValueError:  # the ordinary way says what is wrong
        return None
    return text if len(text) <= _MAX_PROPERTIES else None


def _late(posted: _Posted, timeout: TimeoutError) -> CallTimedOut:
    failure = CallTimedOut(posted.connection.peer, RequestCode.SEND_MESSAGE_V2, posted.within)
    failure.__cause__ = timeout
    return failure


def _result(posted: _Posted, said: SendAnswer) -> SendResult:
    _, offset_id, queue_id, queue_offset, transaction_id, region, trace_on = said
    queue = posted.stop.shown
    if queue_id != queue.queue_id:
        queue = MessageQueue(queue.topic, queue.broker_name, queue_id)
    return SendResult(
        status=SendStatus.SEND_OK,
        message_id=posted.unique_id,
        offset_message_id=offset_id,
        queue=queue,
        queue_offset=queue_offset,
        transaction_id=transaction_id,
        region=region,
        trace_on=trace_on,
    )
