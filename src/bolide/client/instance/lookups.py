"""Lookups that every client offers: queue offsets, single messages, and topic creation.

`Lookups` uses names with namespace; `LookupMethods` adds and removes the namespace.
"""

import asyncio
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from bolide.client.consumer.received import read_messages
from bolide.client.errors import RouteNotFound
from bolide.client.instance.leader_calls import Caller, call_group
from bolide.client.instance.lifecycle import Lifecycle, Startable
from bolide.client.instance.routes import MASTER_ID
from bolide.client.instance.settings import ClientSettings
from bolide.errors import BolideError
from bolide.model.message import StoredMessage
from bolide.model.message_checks import check_topic
from bolide.model.message_queue import MessageQueue
from bolide.protocol.bodies.routes import BrokerRoute, TopicRoute
from bolide.protocol.codes import RequestCode
from bolide.protocol.frame import Frame
from bolide.protocol.header import Header
from bolide.protocol.headers.offsets import (
    Boundary,
    MaxOffsetHeader,
    OffsetReply,
    QueueHeader,
    SearchOffsetHeader,
    StoreTimeReply,
)
from bolide.protocol.headers.query import QueryMessageHeader, ViewMessageHeader
from bolide.protocol.headers.send import RecallHeader, RecallReply
from bolide.protocol.headers.topics import CreateTopicHeader
from bolide.protocol.message_id import OffsetId
from bolide.protocol.recall_handle import RecallHandle
from bolide.protocol.refusals import QueryNotFound, Refusal, ServerError
from bolide.remoting.errors import RemotingError

if TYPE_CHECKING:
    from bolide.client.instance.instance import ClientInstance

_MAX_PORT = 65535
_CREATE_TRIES = 5


class MessageNotFound(BolideError):
    """No broker has a message with that id."""

    def __init__(self, message_id: str, hint: str = "") -> None:
        super().__init__(f"no message has the id {message_id!r}{hint}")
        self.message_id = message_id


class LookupCaller(Caller, Protocol):
    """The part of `ClientInstance` that lookups use."""

    settings: ClientSettings


class Lookups:
    """Queries brokers for offsets and messages, and creates topics."""

    def __init__(self, caller: LookupCaller) -> None:
        self._caller = caller

    # Positions

    async def max_offset(self, queue: MessageQueue, *, committed: bool = True) -> int:
        """The offset that the next message of the queue will have."""
        header = MaxOffsetHeader(topic=queue.topic, queue_id=queue.queue_id, committed=committed)
        reply = await self._call_group(queue, RequestCode.GET_MAX_OFFSET, header)
        return OffsetReply.from_fields(reply.fields).offset

    async def min_offset(self, queue: MessageQueue) -> int:
        """The offset of the oldest stored message."""
        header = QueueHeader(queue.topic, queue.queue_id)
        reply = await self._call_group(queue, RequestCode.GET_MIN_OFFSET, header)
        return OffsetReply.from_fields(reply.fields).offset

    async def search_offset(
        self, queue: MessageQueue, timestamp: int, boundary: Boundary = Boundary.LOWER
    ) -> int:
        """The first offset stored at or after `timestamp` (ms); for UPPER the last at or before."""
        header = SearchOffsetHeader(
            topic=queue.topic,
            queue_id=queue.queue_id,
            timestamp=timestamp,
            boundary_type=boundary,
        )
        reply = await self._call_group(queue, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header)
        return OffsetReply.from_fields(reply.fields).offset

    async def earliest_time(self, queue: MessageQueue) -> int:
        """When the oldest message of the queue was stored, in ms; -1 if it is empty."""
        header = QueueHeader(queue.topic, queue.queue_id)
        reply = await self._call_group(queue, RequestCode.GET_EARLIEST_MSG_STORETIME, header)
        return StoreTimeReply.from_fields(reply.fields).timestamp

    async def _call_group(self, queue: MessageQueue, code: RequestCode, header: Header) -> Frame:
        return (await call_group(self._caller, queue, code, header)).frame

    # Messages

    async def recall(self, topic: str, handle: str, group: str) -> str:
        """Recall a timed message; return its id."""
        broker = RecallHandle.decode(handle).broker_name
        header = RecallHeader(producer_group=group, topic=topic, recall_handle=handle)
        address = await self._caller.routes.require_master(broker, topic)
        reply = await self._caller.call(address, RequestCode.RECALL_MESSAGE, header)
        return RecallReply.from_fields(reply.fields).msg_id

    async def view_message(self, message_id: str, topic: str | None = None) -> StoredMessage:
        """Find a message by its offset id, or with its topic by its unique id.

        Raises:
            MessageNotFound: no broker has the message.
            BadMessageId: the id is malformed.
            RouteNotFound: the topic does not exist.
        """
        offset_id = OffsetId.decode(message_id)
        names_host = 0 < offset_id.host.port <= _MAX_PORT
        if topic is not None:
            return await self._view_in(topic, message_id, offset_id, names_host=names_host)
        if not names_host:
            raise MessageNotFound(message_id, ": a unique id needs the topic too")
        return await self._view(message_id, offset_id, None)

    async def _view_in(
        self, topic: str, message_id: str, offset_id: OffsetId, *, names_host: bool
    ) -> StoredMessage:
        """Offset ids and unique ids look alike: an id that names a broker is tried there first."""
        await self._caller.routes.require(topic)
        is_known = names_host and self._caller.routes.name_of(str(offset_id.host)) is not None
        if is_known:
            with suppress(MessageNotFound):
                return await self._view(message_id, offset_id, topic)
        matches = await self.query_messages(topic, message_id, unique=True)
        if matches:
            return matches[-1]
        missing = MessageNotFound(message_id, f" in topic {topic!r}")
        if is_known or not names_host:
            raise missing
        try:  # brokers may be registered by host names
            return await self._view(message_id, offset_id, topic)
        except RemotingError as exc:
            raise missing from exc

    async def _view(self, message_id: str, offset_id: OffsetId, topic: str | None) -> StoredMessage:
        address = str(offset_id.host)
        header = ViewMessageHeader(topic=topic, offset=offset_id.physical_offset)
        try:
            reply = await self._caller.call(address, RequestCode.VIEW_MESSAGE_BY_ID, header)
        except (ServerError, QueryNotFound) as exc:
            raise MessageNotFound(message_id) from exc
        (message,) = self._read(reply.body, self._caller.routes.name_of(address) or "")
        return message

    async def query_messages(
        self,
        topic: str,
        key: str,
        *,
        max_num: int = 32,
        begin: int = 0,
        end: int | None = None,
        unique: bool = False,
    ) -> list[StoredMessage]:
        """The messages with this key, oldest first; with `unique`, the key is the unique id.

        `begin` and `end` are store times in ms.

        Raises:
            RouteNotFound: the topic does not exist.
            BolideError: no broker answered.
        """
        header = QueryMessageHeader(
            topic=topic,
            key=key,
            max_num=max_num,
            begin_timestamp=begin,
            end_timestamp=_now_ms() if end is None else end,
            by_unique_key=unique,
        )
        route = await self._caller.routes.require(topic)
        queries = [self._query(broker, header) for broker in route.broker_datas]
        results = await asyncio.gather(*queries, return_exceptions=True)
        found = [message for each in results if isinstance(each, list) for message in each]
        failures = [each for each in results if isinstance(each, BaseException)]
        if failures and len(failures) == len(results):
            raise failures[0]
        found.sort(key=lambda message: message.store_timestamp)
        return found[:max_num]

    async def _query(self, broker: BrokerRoute, header: QueryMessageHeader) -> list[StoredMessage]:
        if not broker.broker_addrs:
            return []
        address = broker.broker_addrs[min(broker.broker_addrs)]
        try:
            reply = await self._caller.call(
                address, RequestCode.QUERY_MESSAGE, header, within=2 * _call_timeout(self._caller)
            )
        except QueryNotFound:
            return []
        # Brokers compare hashes only, so messages with other keys are left out here.
        return [
            message
            for message in self._read(reply.body, broker.broker_name)
            if (
                message.unique_id == header.key
                if header.by_unique_key
                else header.key in message.keys
            )
        ]

    def _read(self, body: bytes, broker_name: str) -> list[StoredMessage]:
        return read_messages(body, broker_name, namespace=self._caller.settings.namespace)

    # Topics

    async def create_topic(
        self,
        topic: str,
        queues: int,
        *,
        key: str = "TBW102",
        order: bool = False,
        sys_flag: int = 0,
        attributes: Mapping[str, str] | None = None,
    ) -> None:
        """Create or update a topic on every broker that has the topic `key`.

        Raises:
            InvalidMessage: the topic name is invalid.
            RouteNotFound: no broker has `key`.
            BolideError: a broker refused or did not answer.
        """
        check_topic(topic)
        header = CreateTopicHeader(
            topic=topic,
            default_topic=key,
            read_queue_nums=queues,
            write_queue_nums=queues,
            perm=6,
            topic_filter_type="SINGLE_TAG",
            topic_sys_flag=sys_flag,
            order=order,
            attributes=",".join(f"{name}={text}" for name, text in (attributes or {}).items()),
        )
        route = await self._caller.routes.require(key)
        for address in _masters(route, key):
            await self._create(address, header)

    async def _create(self, address: str, header: CreateTopicHeader) -> None:
        for _ in range(_CREATE_TRIES - 1):
            try:
                await self._caller.call(address, RequestCode.UPDATE_AND_CREATE_TOPIC, header)
            except RemotingError:
                continue
            except Refusal as exc:
                if exc.retriable:
                    continue
                raise
            return
        await self._caller.call(address, RequestCode.UPDATE_AND_CREATE_TOPIC, header)


def _masters(route: TopicRoute, key: str) -> list[str]:
    found = [
        broker.broker_addrs[MASTER_ID]
        for broker in route.broker_datas
        if MASTER_ID in broker.broker_addrs
    ]
    if not found:
        raise RouteNotFound(key, "create topics after")
    return found


def _call_timeout(caller: LookupCaller) -> float:
    return caller.settings.call_timeout


def _now_ms() -> int:
    return int(time.time() * 1000)


class LookupMethods(Startable):
    """Base of every client: lookups by names without namespace."""

    _client: ClientSettings
    _instance: "ClientInstance"
    _life: Lifecycle

    @property
    def client_id(self) -> str:
        return self._client.client_id

    def set_name_servers(self, addresses: str | Iterable[str]) -> None:
        """Change the NameServers of this client's instance, for all clients that share it."""
        self._running().name_servers.set(addresses)

    async def create_topic(
        self,
        topic: str,
        queues: int = 4,
        *,
        key: str = "TBW102",
        order: bool = False,
        sys_flag: int = 0,
        attributes: Mapping[str, str] | None = None,
    ) -> None:
        """Create or update a topic on every broker that has the topic `key`.

        Raises:
            RouteNotFound: no broker has `key`.
            Refusal: a broker refused.
        """
        await self._running().lookups.create_topic(
            self._client.wrap(topic),
            queues,
            key=key,
            order=order,
            sys_flag=sys_flag,
            attributes=attributes,
        )

    async def max_offset(self, queue: MessageQueue) -> int:
        """The offset that the next message of the queue will have."""
        return await self._running().lookups.max_offset(self._wrapped(queue))

    async def min_offset(self, queue: MessageQueue) -> int:
        """The offset of the oldest stored message."""
        return await self._running().lookups.min_offset(self._wrapped(queue))

    async def search_offset(
        self, queue: MessageQueue, timestamp: int, boundary: Boundary = Boundary.LOWER
    ) -> int:
        """The first offset stored at or after `timestamp` (ms); for UPPER the last at or before."""
        wrapped = self._wrapped(queue)
        return await self._running().lookups.search_offset(wrapped, timestamp, boundary)

    async def earliest_time(self, queue: MessageQueue) -> int:
        """When the oldest message of the queue was stored, in ms; -1 if it is empty."""
        return await self._running().lookups.earliest_time(self._wrapped(queue))

    async def view_message(self, message_id: str, topic: str | None = None) -> StoredMessage:
        """Find a message by its offset id, or with its topic by its unique id.

        Raises:
            MessageNotFound: no broker has the message.
            BadMessageId: the id is malformed.
        """
        wrapped = None if topic is None else self._client.wrap(topic)
        return await self._running().lookups.view_message(message_id, wrapped)

    async def query_messages(
        self, topic: str, key: str, *, max_num: int = 32, begin: int = 0, end: int | None = None
    ) -> list[StoredMessage]:
        """The messages of a topic with this key, oldest first; times are in ms.

        Brokers index keys shortly after messages are stored.
        """
        return await self._running().lookups.query_messages(
            self._client.wrap(topic), key, max_num=max_num, begin=begin, end=end
        )

    def _running(self) -> "ClientInstance":
        self._life.require_running()
        return self._instance

    def _wrapped(self, queue: MessageQueue) -> MessageQueue:
        if not self._client.namespace:
            return queue
        return MessageQueue(self._client.wrap(queue.topic), queue.broker_name, queue.queue_id)

    def _unwrapped(self, queue: MessageQueue) -> MessageQueue:
        if not self._client.namespace:
            return queue
        return MessageQueue(self._client.unwrap(queue.topic), queue.broker_name, queue.queue_id)
