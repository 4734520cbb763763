"""Queue positions, single messages and new topics: what every client may look up.

Names are those on the wire; producers and consumers put namespaces on and take them off.
"""

import asyncio
import time
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from bolide.client.consumer.received import read_messages
from bolide.client.errors import RouteNotFound
from bolide.client.instance.lifecycle import Lifecycle, Startable
from bolide.client.instance.routes import MASTER_ID, Routes
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
from bolide.protocol.message_id import BadMessageId, OffsetId
from bolide.protocol.recall_handle import RecallHandle
from bolide.protocol.refusals import QueryNotFound, Refusal, ServerError
from bolide.remoting.client import Fields
from bolide.remoting.errors import RemotingError

if TYPE_CHECKING:
    from bolide.client.instance.instance import ClientInstance

_MAX_PORT = 65535
_CREATE_TRIES = 5


class MessageNotFound(BolideError):
    """No broker has a message of that id."""

    def __init__(self, message_id: str, hint: str = "") -> None:
        super().__init__(f"no message has the id {message_id!r}{hint}")
        self.message_id = message_id


class LookupCaller(Protocol):
    """The part of a client instance that is used here."""

    settings: ClientSettings
    routes: Routes

    async def call(
        self,
        address: str,
        code: RequestCode,
        header: Header | Fields | None = None,
        *,
        body: bytes = b"",
        within: float | None = None,
        accept: Collection[int] = (),
    ) -> Frame: ...


class Lookups:
    """Asks the broker that knows."""

    def __init__(self, asker: LookupCaller) -> None:
        self._asker = asker

    # Positions

    async def max_offset(self, queue: MessageQueue, *, committed: bool = True) -> int:
        """The offset that the next message of the queue will have."""
        header = MaxOffsetHeader(topic=queue.topic, queue_id=queue.queue_id, committed=committed)
        answer = await self._ask(queue, RequestCode.GET_MAX_OFFSET, header)
        return OffsetReply.from_fields(answer.fields).offset

    async def min_offset(self, queue: MessageQueue) -> int:
        """The offset of the oldest message that is still there."""
        header = QueueHeader(queue.topic, queue.queue_id)
        answer = await self._ask(queue, RequestCode.GET_MIN_OFFSET, header)
        return OffsetReply.from_fields(answer.fields).offset

    async def search_offset(
        self, queue: MessageQueue, timestamp: int, boundary: Boundary = Boundary.LOWER
    ) -> int:
        """The first offset stored at or after `timestamp` (ms); by UPPER the last at or before."""
        header = SearchOffsetHeader(
            topic=queue.topic,
            queue_id=queue.queue_id,
            timestamp=timestamp,
            boundary_type=boundary,
        )
        answer = await self._ask(queue, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header)
        return OffsetReply.from_fields(answer.fields).offset

    async def earliest_time(self, queue: MessageQueue) -> int:
        """When the oldest message of the queue was stored, in ms; -1 if it is empty."""
        header = QueueHeader(queue.topic, queue.queue_id)
        answer = await self._ask(queue, RequestCode.GET_EARLIEST_MSG_STORETIME, header)
        return StoreTimeReply.from_fields(answer.fields).timestamp

    async def _ask(self, queue: MessageQueue, code: RequestCode, header: Header) -> Frame:
        address = await self._asker.routes.require_master(queue.broker_name, queue.topic)
        return await self._asker.call(address, code, header)

    # Messages

    async def recall(self, topic: str, handle: str, group: str) -> str:
        """Take back a message that waits; the id of it."""
        broker = RecallHandle.decode(handle).broker_name
        header = RecallHeader(producer_group=group, topic=topic, recall_handle=handle)
        address = await self._asker.routes.require_master(broker, topic)
        answer = await self._asker.call(address, RequestCode.RECALL_MESSAGE, header)
        return RecallReply.from_fields(answer.fields).msg_id

    async def view_message(self, message_id: str, topic: str | None = None) -> StoredMessage:
        """Find a message by its offset id, or with its topic by its unique id.

        Raises:
            MessageNotFound: there is none.
            BadMessageId: that is no id.
            RouteNotFound: nobody has the topic.
        """
        place = OffsetId.decode(message_id)
        names_host = 0 < place.host.port <= _MAX_PORT
        if topic is not None:
            return await self._view_in(topic, message_id, place, names_host=names_host)
        if not names_host:
            raise MessageNotFound(message_id, ": an id that a client gave needs the topic too")
        return await self._view(message_id, place, None)

    async def _view_in(
        self, topic: str, message_id: str, place: OffsetId, *, names_host: bool
    ) -> StoredMessage:
        """Both kinds of ids look alike: one that names a broker is looked up there first."""
        await self._asker.routes.require(topic)
        is_known = names_host and self._asker.routes.name_of(str(place.host)) is not None
        if is_known:
            with suppress(MessageNotFound):
                return await self._view(message_id, place, topic)
        found = await self.query_messages(topic, message_id, unique=True)
        if found:
            return found[-1]
        missing = MessageNotFound(message_id, f" in topic {topic!r}")
        if is_known or not names_host:
            raise missing
        try:  # brokers may be registered by names
            return await self._view(message_id, place, topic)
        except RemotingError as exc:
            raise missing from exc

    async def _view(self, message_id: str, place: OffsetId, topic: str | None) -> StoredMessage:
        address = str(place.host)
        header = ViewMessageHeader(topic=topic, offset=place.physical_offset)
        try:
            answer = await self._asker.call(address, RequestCode.VIEW_MESSAGE_BY_ID, header)
        except (ServerError, QueryNotFound) as exc:
            raise MessageNotFound(message_id) from exc
        (message,) = self._read(answer.body, self._asker.routes.name_of(address) or "")
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
        """The messages with this key, oldest first; with `unique` the key is the unique id.

        `begin` and `end` are store times in ms.

        Raises:
            RouteNotFound: nobody has the topic.
            BolideError: no broker could be asked.
        """
        header = QueryMessageHeader(
            topic=topic,
            key=key,
            max_num=max_num,
            begin_timestamp=begin,
            end_timestamp=_now_ms() if end is None else end,
            by_unique_key=unique,
        )
        route = await self._asker.routes.require(topic)
        asked = [self._query(broker, header) for broker in route.broker_datas]
        answers = await asyncio.gather(*asked, return_exceptions=True)
        found = [message for each in answers if isinstance(each, list) for message in each]
        failures = [each for each in answers if isinstance(each, BaseException)]
        if failures and len(failures) == len(answers):
            raise failures[0]
        found.sort(key=lambda message: message.store_timestamp)
        return found[:max_num]

    async def _query(self, broker: BrokerRoute, header: QueryMessageHeader) -> list[StoredMessage]:
        if not broker.broker_addrs:
            return []
        address = broker.broker_addrs[min(broker.broker_addrs)]
        try:
            answer = await self._asker.call(
                address, RequestCode.QUERY_MESSAGE, header, within=2 * _call_timeout(self._asker)
            )
        except QueryNotFound:
            return []
        # The broker compares hashes; others of the same hash are left out here.
        return [
            message
            for message in self._read(answer.body, broker.broker_name)
            if (
                message.unique_id == header.key
                if header.by_unique_key
                else header.key in message.keys
            )
        ]

    def _read(self, body: bytes, broker_name: str) -> list[StoredMessage]:
        return read_messages(body, broker_name, namespace=self._asker.settings.namespace)

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
        """Make a topic on every broker that has the topic `key`, or change it there.

        Raises:
            InvalidMessage: the name cannot be one.
            RouteNotFound: no broker has `key`.
            BolideError: a broker could not be asked or refused.
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
        route = await self._asker.routes.require(key)
        for address in _masters(route, key):
            await self._create(address, header)

    async def _create(self, address: str, header: CreateTopicHeader) -> None:
        for _ in range(_CREATE_TRIES - 1):
            try:
                await self._asker.call(address, RequestCode.UPDATE_AND_CREATE_TOPIC, header)
            except RemotingError:
                continue
            except Refusal as exc:
                if exc.retriable:
                    continue
                raise
            return
        await self._asker.call(address, RequestCode.UPDATE_AND_CREATE_TOPIC, header)


def _masters(route: TopicRoute, key: str) -> list[str]:
    found = [
        broker.broker_addrs[MASTER_ID]
        for broker in route.broker_datas
        if MASTER_ID in broker.broker_addrs
    ]
    if not found:
        raise RouteNotFound(key, "create topics after")
    return found


def _call_timeout(asker: LookupCaller) -> float:
    return asker.settings.call_timeout


def _now_ms() -> int:
    return int(time.time() * 1000)


__all__ = ["BadMessageId", "Lookups", "MessageNotFound"]


class LookupMethods(Startable):
    """Part of every client: names go in and come out without the namespace."""

    _client: ClientSettings
    _instance: "ClientInstance"
    _life: Lifecycle

    @property
    def client_id(self) -> str:
        return self._client.client_id

    def set_name_servers(self, addresses: str | Iterable[str]) -> None:
        """Change the list of NameServers, for all that share this client's instance."""
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
        """Make a topic on all brokers that have the topic `key`, or change it there.

        Raises:
            RouteNotFound: no broker has `key`.
            Refusal: a broker did not want to.
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
        """The offset of the oldest message that is still there."""
        return await self._running().lookups.min_offset(self._wrapped(queue))

    async def search_offset(
        self, queue: MessageQueue, timestamp: int, boundary: Boundary = Boundary.LOWER
    ) -> int:
        """The first offset stored at or after `timestamp` (ms); by UPPER the last at or before."""
        asked = self._wrapped(queue)
        return await self._running().lookups.search_offset(asked, timestamp, boundary)

    async def earliest_time(self, queue: MessageQueue) -> int:
        """When the oldest message of the queue was stored, in ms; -1 if it is empty."""
        return await self._running().lookups.earliest_time(self._wrapped(queue))

    async def view_message(self, message_id: str, topic: str | None = None) -> StoredMessage:
        """Find a message by its offset id, or with its topic by its unique id.

        Raises:
            MessageNotFound: there is none.
            BadMessageId: that is no id.
        """
        wrapped = None if topic is None else self._client.wrap(topic)
        return await self._running().lookups.view_message(message_id, wrapped)

    async def query_messages(
        self, topic: str, key: str, *, max_num: int = 32, begin: int = 0, end: int | None = None
    ) -> list[StoredMessage]:
        """The messages of a topic that have this key, oldest first; times are in ms.

        Brokers index keys a moment after the messages are stored.
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
