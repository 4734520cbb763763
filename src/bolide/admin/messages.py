"""Stored messages: look-up by id, key or queue offset, and pulls."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from bolide.admin.errors import MessageNotFound
from bolide.admin.servers import OnFailure, Servers, gather_answers, gather_reachable
from bolide.client.consumer.received import read_stored
from bolide.errors import BolideError
from bolide.model.message import StoredMessage
from bolide.protocol.bodies.message_queue import MessageQueue
from bolide.protocol.bodies.queues import ConsumeQueueSlice
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.headers.pull import PullHeader, PullReply
from bolide.protocol.headers.query import (
    ConsumeQueueHeader,
    IndexType,
    QueryMessageHeader,
    ViewMessageHeader,
)
from bolide.protocol.message_id import BadMessageId, OffsetId
from bolide.protocol.refusals import QueryNotFound, Refusal
from bolide.protocol.static_topics.addressing import physical_fields
from bolide.protocol.tags import ALL, TagExpression
from bolide.remoting.errors import RemotingError

TOOLS_GROUP = "TOOLS_CONSUMER"
"""Consumer group of admin tools; every broker has it."""

DEFAULT_LIMIT = 64
_MAX_PORT = 65_535
_MAX_OF_ONE_ID = 32
"""Brokers send no more messages with one unique id, whatever they are asked for."""
_END_OF_TIME = 2**63 - 1
_QUERY_TIMEOUT = 15.0
_WITH_SUBSCRIPTION = 4
_NOTHING_FOUND = (
    ResponseCode.PULL_NOT_FOUND,
    ResponseCode.PULL_RETRY_IMMEDIATELY,
    ResponseCode.PULL_OFFSET_MOVED,
)


@dataclass(frozen=True, slots=True)
class PulledMessages:
    """Messages of one pull, the offset of the next pull, and the bounds of the queue."""

    messages: list[StoredMessage]
    next_offset: int
    min_offset: int
    max_offset: int
    code: int = ResponseCode.SUCCESS
    """Why there are no messages: a response code that begins with `PULL_`."""


OnAnswer = Callable[[], None]


def _ignore() -> None: ...


class Messages:
    """Stored messages, with decompressed bodies."""

    def __init__(self, servers: Servers) -> None:
        self._servers = servers

    async def view(self, offset_message_id: str, topic: str | None = None) -> StoredMessage:
        """The message at an offset message id, from the broker that the id names.

        Raises:
            BadMessageId: the id is malformed.
            MessageNotFound: the broker has no message at that offset.
        """
        offset_id = OffsetId.decode(offset_message_id)
        header = ViewMessageHeader(topic=topic, offset=offset_id.physical_offset)
        address = str(offset_id.host)
        try:
            reply = await self._servers.call(address, RequestCode.VIEW_MESSAGE_BY_ID, header)
        except Refusal as exc:
            raise MessageNotFound(topic or "?", f"id {offset_message_id}") from exc
        for message in read_stored(reply.body):
            return message
        raise MessageNotFound(topic or "?", f"id {offset_message_id}")

    async def find(
        self,
        topic: str,
        message_id: str,
        cluster: str | None = None,
        *,
        on_failure: OnFailure | None = None,
    ) -> StoredMessage:
        """The message with an id of either kind: unique id, or offset message id.

        Both kinds have the same form, so an id that contains the address of a broker of the
        cluster is tried as an offset message id first. `on_failure` is used as in `by_key`.

        Raises:
            MessageNotFound: no message has this id.
        """
        host = _host_of(message_id)
        known = host is not None and await self._is_broker(host)
        if known:
            try:
                return await self.view(message_id, topic)
            except MessageNotFound:
                pass
        try:
            found = await self.by_unique_id(topic, message_id, cluster, on_failure=on_failure)
            return found[0]
        except MessageNotFound:
            if host is None or known:
                raise
        try:  # the broker may be registered under a host name
            return await self.view(message_id, topic)
        except RemotingError as exc:
            raise MessageNotFound(topic, f"id {message_id}") from exc

    async def by_key(  # noqa: PLR0913  all options of the request
        self,
        topic: str,
        key: str,
        *,
        limit: int = DEFAULT_LIMIT,
        begin: int = 0,
        end: int | None = None,
        cluster: str | None = None,
        last_key: str | None = None,
        on_answer: OnAnswer = _ignore,
        on_failure: OnFailure | None = None,
    ) -> list[StoredMessage]:
        """Messages with a key, stored between two times in ms, up to `limit` from each broker.

        Args:
            last_key: where the index of a RocksDB broker goes on; other brokers ignore it.
            on_answer: called whenever a broker has answered.
            on_failure: called for each broker that cannot be reached, if others found messages;
                by default one of them is enough to fail.

        Raises:
            MessageNotFound: no message has this key.
        """
        header = _index_query(topic, key, limit, begin, end, last_key=last_key)
        found = await self._query(header, cluster, on_answer, on_failure)
        # The index stores hashes, so the reply may contain other keys and topics.
        wanted = [each for each in found if key in each.keys and each.topic == topic]
        if not wanted:
            raise MessageNotFound(topic, f"key {key!r}")
        return wanted

    async def page_of_key(
        self, topic: str, key: str, *, begin: int, end: int, limit: int = DEFAULT_LIMIT
    ) -> tuple[dict[str, list[StoredMessage]], list[BolideError]]:
        """The newest messages that the index of each broker has for a key, and who failed.

        Stored between two times in ms, both included. Messages of other keys with the same hash
        are left in: a broker with `limit` messages may have older ones.
        """
        header = _index_query(topic, key, limit, begin, end)
        addresses = await self._servers.addresses_of(topic, None)
        return await gather_answers(
            addresses, lambda name: self._query_at(name, addresses[name], header)
        )

    async def by_tags(  # noqa: PLR0913  all options of the request
        self,
        topic: str,
        tags: str,
        *,
        limit: int = DEFAULT_LIMIT,
        begin: int = 0,
        end: int | None = None,
        cluster: str | None = None,
        last_key: str | None = None,
        on_answer: OnAnswer = _ignore,
        on_failure: OnFailure | None = None,
    ) -> list[StoredMessage]:
        """As `by_key`, by the tags; RocketMQ has them in its index since 5.5.

        Raises:
            MessageNotFound: no message in the index has these tags.
        """
        header = _index_query(
            topic, tags, limit, begin, end, index_type=IndexType.TAGS, last_key=last_key
        )
        found = await self._query(header, cluster, on_answer, on_failure)
        wanted = [each for each in found if each.tags == tags and each.topic == topic]
        if not wanted:
            raise MessageNotFound(topic, f"tags {tags!r}")
        return wanted

    async def by_unique_id(
        self,
        topic: str,
        unique_id: str,
        cluster: str | None = None,
        *,
        begin: int = 0,
        end: int | None = None,
        on_failure: OnFailure | None = None,
    ) -> list[StoredMessage]:
        """Messages with a unique id, oldest first: a retried send may be stored twice.

        At most 32 from each broker, stored between two times in ms; `on_failure` as in `by_key`.

        Raises:
            MessageNotFound: no message has this id.
        """
        header = QueryMessageHeader(
            topic=topic,
            key=unique_id,
            max_num=_MAX_OF_ONE_ID,
            begin_timestamp=begin,
            end_timestamp=_END_OF_TIME if end is None else end,
            by_unique_key=True,
        )
        found = await self._query(header, cluster, on_failure=on_failure)
        wanted = [each for each in found if each.message_id == unique_id]
        if not wanted:
            raise MessageNotFound(topic, f"id {unique_id}")
        return sorted(wanted, key=lambda message: message.store_timestamp)

    async def every_of_unique_id(
        self, topic: str, unique_id: str, *, begin: int = 0
    ) -> tuple[list[StoredMessage], bool]:
        """Messages with a unique id, stored from a time in ms on, and whether these are all.

        Brokers send the newest ones, so older ones are asked for until there are no more. They are
        not all if there are too many of the same moment.
        """
        found: dict[str, StoredMessage] = {}
        end = None
        while True:
            try:
                page = await self.by_unique_id(topic, unique_id, begin=begin, end=end)
            except MessageNotFound:
                return [*found.values()], True
            known = len(found)
            found |= {each.offset_message_id: each for each in page}
            oldest = _oldest_of_full(page)
            if oldest is None or len(found) == known:
                return [*found.values()], oldest is None
            end = oldest

    async def at(self, queue: MessageQueue, offset: int) -> StoredMessage:
        """The message at a queue offset; raises MessageNotFound."""
        for message in (await self.pull(queue, offset, 1)).messages:
            if message.queue_offset == offset:
                return message
        location = f"offset {offset} of queue {queue.queue_id} on {queue.broker_name}"
        raise MessageNotFound(queue.topic, location)

    async def pull(
        self,
        queue: MessageQueue,
        offset: int,
        count: int = 32,
        *,
        group: str = TOOLS_GROUP,
        tags: str = ALL,
        sql: str = "",
    ) -> PulledMessages:
        """Pull messages from an offset on, without long polling or committing offsets.

        Args:
            tags: only messages with one of these, as `a || b`; brokers compare the hashes.
            sql: an SQL92 expression for the broker to filter by, instead of the tags; RocketMQ's
                brokers refuse it unless `enablePropertyFilter` is set.
        """
        wanted = TagExpression.parse(ALL if sql else tags)
        header = PullHeader(
            consumer_group=group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            queue_offset=offset,
            max_msg_nums=count,
            sys_flag=_WITH_SUBSCRIPTION,
            commit_offset=0,
            suspend_timeout_millis=0,
            subscription=sql or wanted.text,
            sub_version=0,
            expression_type="SQL92" if sql else "TAG",
        )
        address = await self._servers.address_of(queue.broker_name)
        fields = physical_fields(header, queue.broker_name)
        reply = await self._servers.call(
            address, RequestCode.PULL_MESSAGE, fields, accept=_NOTHING_FOUND
        )
        reply_header = PullReply.from_fields(reply.fields)
        found = read_stored(reply.body, queue.broker_name)
        return PulledMessages(
            [each for each in found if wanted.matches(each.tags)],
            reply_header.next_begin_offset,
            reply_header.min_offset,
            reply_header.max_offset,
            reply.code,
        )

    async def queue_entries(
        self,
        address: str,
        queue: tuple[str, int],
        index: int,
        count: int,
        group: str | None = None,
    ) -> ConsumeQueueSlice:
        """Entries of a consume queue, and whether the filter of the group accepts them.

        Args:
            address: address of the broker.
            queue: topic and queue id.
            index: the first entry, counted as queue offsets are.
            count: the number of entries.
            group: a consumer group, whose filter is tried.
        """
        topic, queue_id = queue
        header = ConsumeQueueHeader(
            topic=topic, queue_id=queue_id, index=index, count=count, consumer_group=group
        )
        code = RequestCode.QUERY_CONSUME_QUEUE
        return await self._servers.fetch(address, code, ConsumeQueueSlice, header)

    async def _query(
        self,
        header: QueryMessageHeader,
        cluster: str | None,
        on_answer: OnAnswer = _ignore,
        on_failure: OnFailure | None = None,
    ) -> list[StoredMessage]:
        addresses = await self._servers.addresses_of(header.topic, cluster)

        async def query(name: str) -> list[StoredMessage]:
            try:
                return await self._query_at(name, addresses[name], header)
            finally:
                on_answer()

        failures: list[RemotingError] = []
        collect = None if on_failure is None else failures.append
        found = await gather_reachable(addresses, query, collect)
        if failures and not any(found.values()):
            raise failures[0]  # whether there is such a message is not known
        for failure in failures:
            assert on_failure is not None
            on_failure(failure)
        return [message for part in found.values() for message in part]

    async def _query_at(
        self, broker_name: str, address: str, header: QueryMessageHeader
    ) -> list[StoredMessage]:
        try:
            reply = await self._servers.call(
                address, RequestCode.QUERY_MESSAGE, header, within=_QUERY_TIMEOUT
            )
        except QueryNotFound:
            return []
        return read_stored(reply.body, broker_name)

    async def _is_broker(self, address: str) -> bool:
        brokers = (await self._servers.info()).broker_addr_table.values()
        return any(address in broker.broker_addrs.values() for broker in brokers)


def _index_query(  # noqa: PLR0913  all fields of the header
    topic: str,
    key: str,
    limit: int,
    begin: int,
    end: int | None,
    *,
    index_type: str | None = None,
    last_key: str | None = None,
) -> QueryMessageHeader:
    return QueryMessageHeader(
        topic=topic,
        key=key,
        max_num=limit,
        begin_timestamp=begin,
        end_timestamp=_END_OF_TIME if end is None else end,
        index_type=index_type,
        last_key=last_key,
    )


def _oldest_of_full(page: list[StoredMessage]) -> int | None:
    """The store time before which brokers may have more messages; None if they have no more."""
    counts = Counter(each.broker_name for each in page)
    times: dict[str, int] = {}
    for each in page:
        name = each.broker_name
        if counts[name] >= _MAX_OF_ONE_ID:
            times[name] = min(times.get(name, each.store_timestamp), each.store_timestamp)
    return max(times.values(), default=None)


def _host_of(message_id: str) -> str | None:
    """The broker address in an offset message id; None if its port bytes are not a valid port,
    as in nearly all unique ids."""
    try:
        host = OffsetId.decode(message_id).host
    except BadMessageId:
        return None
    return str(host) if 0 < host.port <= _MAX_PORT else None
