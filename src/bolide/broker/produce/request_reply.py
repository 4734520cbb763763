"""Request-reply: replies are pushed to the requesting client and stored.

Counterpart of RocketMQ's `ReplyMessageProcessor`.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from msgspec import structs

from bolide.broker.background import Background
from bolide.broker.metadata.clients import ClientTable
from bolide.broker.produce.addressing import packed_peer
from bolide.broker.produce.send import Incoming, SendHandlers
from bolide.broker.settings.config import BrokerConfig
from bolide.config import ConfigCell
from bolide.model.message import Host
from bolide.model.properties import PropertyName
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.frame import Frame
from bolide.protocol.header import NoHeader
from bolide.protocol.headers.send import PushReplyHeader, SendHeader, SendReply
from bolide.protocol.property_string import decode_properties, encode_properties
from bolide.protocol.refusals import Refusal, ServerError, SystemBusy
from bolide.remoting.connection import Connection
from bolide.remoting.dispatch import DeferredReply, Reply, Request, handles
from bolide.remoting.errors import RemotingError

PUSH_TIMEOUT = 10.0
"""Seconds that a client has to acknowledge a pushed reply."""

_NOT_STORED = "0"
"""Message id in the answer to a reply that was not stored."""


@dataclass(slots=True)
class _InFlight:
    """Number and body bytes of replies that are pushed and not acknowledged."""

    count: int = 0
    size: int = 0

    def add(self, count: int, size: int) -> None:
        self.count += count
        self.size += size

    def has_room(self, limit: "_InFlight", size: int) -> bool:
        """Whether one more reply may be pushed; a single reply may have any size."""
        return self.count < limit.count and (not self.count or self.size + size <= limit.size)


CLIENT_LIMIT = _InFlight(1000, 24 * 1024 * 1024)
"""Limit per client, so that an unresponsive client cannot fill the broker's memory.

It is below the amount of requests that a connection may have in flight, so such a client cannot
block the connections of the repliers either.
"""
TOTAL_LIMIT = _InFlight(10_000, 256 * 1024 * 1024)
"""Limit of the broker."""


class ReplyPusher:
    """Pushes replies to clients; belongs to one event loop."""

    def __init__(
        self, clients: ClientTable, store_host: Host, now: Callable[[], float] = time.time
    ) -> None:
        self._clients = clients
        self._store_host = str(store_host)
        self._now = now
        self._in_flight: defaultdict[Connection, _InFlight] = defaultdict(_InFlight)
        self._total = _InFlight()

    async def push(self, header: SendHeader, body: bytes, born_host: str) -> None:
        """Push a reply to the client that its properties name, and wait for the acknowledgement.

        Raises:
            ServerError: the client is not connected, or it did not accept the reply.
            SystemBusy: too many replies are in flight.
        """
        properties = decode_properties(header.properties)
        client_id = properties.get(PropertyName.REPLY_TO_CLIENT)
        if client_id is None:
            name = PropertyName.REPLY_TO_CLIENT
            raise ServerError(
                f"reply message properties[{name}] is null: it names the requesting client"
            )
        connection = self._clients.find_producer(client_id)
        if connection is None or connection.is_closed:
            raise ServerError(
                f"push reply message fail, channel of <{client_id}> not found: the client has"
                " disconnected, or has sent no heartbeat to this broker"
            )
        frame = self._frame(header, body, born_host, properties)
        with self._reserve(connection, client_id, len(body)):
            await _push(connection, frame, client_id)

    def _frame(
        self, header: SendHeader, body: bytes, born_host: str, properties: dict[str, str]
    ) -> Frame:
        now = int(self._now() * 1000)
        properties[PropertyName.PUSH_REPLY_TIME] = str(now)
        pushed = PushReplyHeader(
            producer_group=header.producer_group,
            topic=header.topic,
            default_topic=header.default_topic,
            default_topic_queue_nums=header.default_topic_queue_nums,
            queue_id=header.queue_id,
            sys_flag=header.sys_flag,
            born_timestamp=header.born_timestamp,
            flag=header.flag,
            properties=encode_properties(properties),
            reconsume_times=header.reconsume_times,
            unit_mode=header.unit_mode,
            born_host=born_host,
            store_host=self._store_host,
            store_timestamp=now,
        )
        code = RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT
        return Frame(code=code, fields=pushed.to_fields(), body=body)

    @contextmanager
    def _reserve(self, connection: Connection, client_id: str, size: int) -> Iterator[None]:
        of_client = self._in_flight.get(connection, _InFlight())
        if not of_client.has_room(CLIENT_LIMIT, size) or not self._total.has_room(
            TOTAL_LIMIT, size
        ):
            raise SystemBusy(f"too many replies are in flight to {client_id}: try again later")
        of_client = self._in_flight[connection]
        for load in (of_client, self._total):
            load.add(1, size)
        try:
            yield
        finally:
            for load in (of_client, self._total):
                load.add(-1, -size)
            if not of_client.count:
                del self._in_flight[connection]


async def _push(connection: Connection, frame: Frame, client_id: str) -> None:
    try:
        answer = await connection.call(frame, PUSH_TIMEOUT)
    except RemotingError as exc:
        raise ServerError(f"push reply message to {client_id} fail: {exc}") from exc
    if answer.code != ResponseCode.SUCCESS:
        raise ServerError(f"push reply message to {client_id} fail: {answer.remark}")


class ReplyHandlers:
    """Receives replies; a pushed reply counts as successful, whether or not it can be stored."""

    def __init__(
        self,
        sends: SendHandlers,
        replies: ReplyPusher,
        *,
        cell: ConfigCell[BrokerConfig],
        background: Background,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._sends = sends
        self._replies = replies
        self._cell = cell
        self._background = background
        self._now = now

    @handles(SendHeader, RequestCode.SEND_REPLY_MESSAGE)
    def reply(self, request: Request[SendHeader]) -> DeferredReply:
        return self._receive(request, request.header)

    @handles(NoHeader, RequestCode.SEND_REPLY_MESSAGE_V2)
    def reply_short(self, request: Request[NoHeader]) -> DeferredReply:
        return self._receive(request, SendHeader.from_short(request.frame.fields))

    def _receive(
        self, request: Request[SendHeader] | Request[NoHeader], header: SendHeader
    ) -> DeferredReply:
        peer = request.connection.peer
        incoming = Incoming(header, request.body, packed_peer(peer), peer, self._now())
        deferred = self._background.defer(self._process(incoming))
        deferred.on_lost = None  # push the reply even if its sender disconnects
        return deferred

    async def _process(self, incoming: Incoming) -> Reply:
        try:
            await self._sends.admit(incoming)
        except Refusal as exc:
            return self._sends.refuse(incoming, exc)
        failure = await self._push(incoming)
        if self._cell.value.store_reply_message_enable:
            return self._answer(incoming, failure, await self._sends.store(incoming))
        if failure is not None:
            return self._sends.refuse(incoming, failure)
        return self._sends.conclude(incoming, self._pushed_only(incoming))

    async def _push(self, incoming: Incoming) -> Refusal | None:
        try:
            await self._replies.push(incoming.header, incoming.body, incoming.peer)
        except Refusal as exc:
            return exc
        return None

    def _answer(self, incoming: Incoming, failure: Refusal | None, stored: Reply) -> Reply:
        if failure is not None:
            broker_properties = self._sends.broker_properties.answer
            return Reply(code=failure.code, remark=failure.remark, header=broker_properties)
        if isinstance(stored.header, SendReply):
            return structs.replace(stored, code=ResponseCode.SUCCESS, remark=None)
        return self._pushed_only(incoming)

    def _pushed_only(self, incoming: Incoming) -> Reply:
        """The answer to a reply that was pushed and not stored."""
        broker_properties = self._sends.broker_properties.answer
        return Reply(
            header=SendReply(
                msg_id=_NOT_STORED,
                queue_id=max(incoming.header.queue_id, 0),
                queue_offset=0,
                region=broker_properties.region,
                trace_on=broker_properties.trace_on,
            )
        )
