"""Requests that tools send to running consumers through the broker, and offset resets."""

import asyncio
import logging
from collections.abc import Callable, Iterable

from bolide.auth.access import FoundMessageCheck
from bolide.broker.background import ADMIN, message_at, on_thread
from bolide.broker.metadata.clients import ClientTable, Member
from bolide.broker.metadata.groups import GroupTable
from bolide.broker.metadata.offsets import OffsetTable
from bolide.broker.metadata.topics import TopicTable
from bolide.broker.settings.config import BrokerConfig
from bolide.config import ConfigCell
from bolide.kernel import read_record
from bolide.protocol import fastjson
from bolide.protocol.bodies.message_queue import MessageQueue
from bolide.protocol.bodies.offsets import (
    ConsumerStatus,
    QueueOffset,
    ResetOffsets,
    ResetOffsetsForC,
)
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.errors import ProtocolError
from bolide.protocol.frame import Frame
from bolide.protocol.headers.clients import ConsumeDirectlyHeader, RunningInfoHeader
from bolide.protocol.headers.offsets import ConsumerStatusHeader, ResetOffsetHeader
from bolide.protocol.message_id import BadMessageId, OffsetId
from bolide.protocol.record import Record
from bolide.protocol.refusals import (
    ConsumerNotOnline,
    ConsumerTimedOut,
    GroupNotFound,
    InvalidParameter,
    ServerError,
)
from bolide.protocol.signature import ACCESS_KEY, SECURITY_TOKEN, SIGNATURE
from bolide.remoting.dispatch import Reply, Request, handles
from bolide.remoting.errors import CallTimedOut, RemotingError
from bolide.store.contract import Store

log = logging.getLogger(__name__)

_CALL_TIMEOUT = 10.0
_STATUS_TIMEOUT = 5.0
_CPP = "CPP"

Fields = dict[str, str]

END = -1
"""Timestamp that stands for the end of a queue."""


class ConsumerHandlers:
    """Forwards requests to consumers, and resets the offsets of groups."""

    def __init__(  # noqa: PLR0913  the tables, and who may have a message
        self,
        *,
        store: Store,
        topics: TopicTable,
        groups: GroupTable,
        offsets: OffsetTable,
        clients: ClientTable,
        cell: ConfigCell[BrokerConfig],
        check_found: FoundMessageCheck | None = None,
    ) -> None:
        self._store = store
        self._topics = topics
        self._groups = groups
        self._offsets = offsets
        self._clients = clients
        self._cell = cell
        self._check_found = check_found or FoundMessageCheck()

    # ---- one consumer

    @handles(RunningInfoHeader, RequestCode.GET_CONSUMER_RUNNING_INFO)
    async def running_info(self, request: Request[RunningInfoHeader]) -> Reply:
        header = request.header
        frame = Frame(code=request.frame.code, fields=_without_credentials(request.frame.fields))
        return await self._forward(frame, header.consumer_group, header.client_id)

    @handles(ConsumeDirectlyHeader, RequestCode.CONSUME_MESSAGE_DIRECTLY)
    async def consume_directly(self, request: Request[ConsumeDirectlyHeader]) -> Reply:
        header = request.header
        body = await self._message(header.msg_id or "")
        record = read_record(body)
        if isinstance(record, Record):
            self._check_found(request, record)
        fields = _without_credentials(request.frame.fields) | self._fields_for(header)
        frame = Frame(code=request.frame.code, fields=fields, body=body)
        return await self._forward(frame, header.consumer_group, header.client_id or "")

    def _fields_for(self, header: ConsumeDirectlyHeader) -> Fields:
        fields = {"brokerName": self._cell.value.broker_name}
        if header.topic and (topic := self._topics.find(header.topic)):
            fields["topicSysFlag"] = str(topic.topic_sys_flag)
        if group := self._groups.find(header.consumer_group):
            fields["groupSysFlag"] = str(group.group_sys_flag)
        return fields

    async def _message(self, message_id: str) -> bytes:
        try:
            physical_offset = OffsetId.decode(message_id).physical_offset
        except BadMessageId as exc:
            raise InvalidParameter(f"msgId: {exc}") from exc
        found = await message_at(self._store, physical_offset)
        if found is None:
            raise ServerError(f"message {message_id} is not in the store: deleted, or never stored")
        return found

    async def _forward(self, frame: Frame, group: str, client_id: str) -> Reply:
        connection = self._clients.find_consumer(group, client_id)
        if connection is None:
            raise ServerError(f"The Consumer <{group}> <{client_id}> not online")
        try:
            response = await connection.call(frame, _CALL_TIMEOUT)
        except CallTimedOut as exc:
            raise ConsumerTimedOut(f"consumer <{group}> <{client_id}> Timeout: {exc}") from exc
        except RemotingError as exc:
            raise ServerError(f"invoke consumer <{group}> <{client_id}>: {exc}") from exc
        return Reply(code=response.code, body=response.body, remark=response.remark)

    # ---- consumer status

    @handles(ConsumerStatusHeader, RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS)
    async def status(self, request: Request[ConsumerStatusHeader]) -> Reply:
        header = request.header
        members = self._members(header.group)
        if not members:
            raise ServerError(f"No Any Consumer online in the consumer group: [{header.group}]")
        queried = [each for each in members if header.client_addr in {None, "", each.client_id}]
        query = ConsumerStatusHeader(topic=header.topic, group=header.group)
        offsets = await asyncio.gather(*(self._query_offsets(member, query) for member in queried))
        pairs = zip(queried, offsets, strict=True)
        table = {member.client_id: found for member, found in pairs if found is not None}
        return Reply(body=fastjson.encode(ConsumerStatus(consumer_table=table)))

    async def _query_offsets(
        self, member: Member, query: ConsumerStatusHeader
    ) -> dict[MessageQueue, int] | None:
        """Request a consumer's offsets; returns None, and logs, if it does not answer."""
        code = RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT
        frame = Frame(code=code, fields=query.to_fields())
        try:
            response = await member.connection.call(frame, _STATUS_TIMEOUT)
            if response.code != ResponseCode.SUCCESS or not response.body:
                return None
            return fastjson.decode(response.body, ConsumerStatus).message_queue_table
        except (RemotingError, ProtocolError) as exc:
            log.warning("consumer %s did not report its offsets: %s", member.client_id, exc)
            return None

    def _members(self, group: str) -> list[Member]:
        found = self._clients.consumer_group(group)
        return found.members if found else []

    # ---- resets

    @handles(ResetOffsetHeader, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET)
    async def reset(self, request: Request[ResetOffsetHeader]) -> Reply:
        header = request.header
        if self._cell.value.use_server_side_reset_offset:
            offsets = await self._reset_in_broker(header)
        else:
            offsets = await self._reset_in_consumers(header, request.frame.language)
        log.info(
            "%s reset the offsets of %s in %s to %s",
            request.connection.peer, header.group, header.topic, offsets,
        )  # fmt: skip
        return Reply(body=await self._body(header.topic, offsets))

    async def _reset_in_broker(self, header: ResetOffsetHeader) -> dict[int, int]:
        topic = self._topics.require(header.topic)
        if self._groups.find(header.group) is None:
            raise GroupNotFound(
                f"Group {header.group} does not exist: create it, or check its name"
            )
        if header.queue_id >= max(topic.read_queue_nums, topic.write_queue_nums):
            raise InvalidParameter(f"queueId={header.queue_id}: {header.topic} has no such queue")
        if header.queue_id < 0:
            offsets = await self._by_time(header, range(topic.read_queue_nums))
        elif header.offset in {None, -1}:
            offsets = await self._by_time(header, [header.queue_id])
        else:
            offset = checked_offset(self._store, header.topic, header.queue_id, header.offset or 0)
            offsets = {header.queue_id: offset}
        self._offsets.reset(header.group, header.topic, offsets)
        return offsets

    async def _reset_in_consumers(self, header: ResetOffsetHeader, language: str) -> dict[int, int]:
        topic, group = self._topics.require(header.topic), header.group
        members = self._members(group)
        if not members:
            raise ConsumerNotOnline(
                f"Consumer not online, so can not reset offset, Group: {group}"
                f" Topic: {header.topic} Timestamp: {header.timestamp}"
            )
        targets = await self._by_time(header, range(topic.write_queue_nums))
        offsets = await on_thread(
            ADMIN,
            limited_targets,
            targets,
            lambda queue_id: self._consumed(header, queue_id),
            force=header.is_force,
        )
        await asyncio.gather(
            *(self._send_reset(member, header, offsets, language) for member in members)
        )
        return offsets

    async def _by_time(
        self, header: ResetOffsetHeader, queue_ids: list[int] | range
    ) -> dict[int, int]:
        return await on_thread(
            ADMIN, offsets_by_time, self._store, header.topic, queue_ids, header.timestamp
        )

    def _consumed(self, header: ResetOffsetHeader, queue_id: int) -> int:
        found = self._offsets.find(header.group, header.topic, queue_id)
        if found is None:
            raise ServerError(
                f"THe consumer group <{header.group}> not exist: it has not consumed queue"
                f" {queue_id} of {header.topic} yet"
            )
        return found

    async def _send_reset(
        self, member: Member, header: ResetOffsetHeader, offsets: dict[int, int], language: str
    ) -> None:
        """Send a one-way reset request: consumers do not confirm it."""
        fields = ResetOffsetHeader(
            topic=header.topic,
            group=header.group,
            timestamp=header.timestamp,
            is_force=header.is_force,
        ).to_fields()
        is_cpp = _CPP in {language, member.language}
        body = await self._body(header.topic, offsets, is_cpp=is_cpp)
        code = RequestCode.RESET_CONSUMER_CLIENT_OFFSET
        try:
            async with asyncio.timeout(_STATUS_TIMEOUT):
                await member.connection.notify(Frame(code=code, fields=fields, body=body))
        except (RemotingError, TimeoutError) as exc:
            log.warning("no reset request sent to consumer %s: %s", member.client_id, exc)

    async def _body(self, topic: str, offsets: dict[int, int], *, is_cpp: bool = False) -> bytes:
        encode = _encode_for_cpp if is_cpp else _encode
        return await on_thread(ADMIN, encode, topic, self._cell.value.broker_name, offsets)


def offset_by_time(store: Store, topic: str, queue_id: int, timestamp: int) -> int:
    """Queue offset of the first message stored at or after `timestamp`, in milliseconds.

    Returns the end of the queue if there is none. Blocks.
    """
    if timestamp < 0:
        return store.max_offset(topic, queue_id)
    return max(store.offset_at(topic, queue_id, timestamp), 0)


def offsets_by_time(
    store: Store, topic: str, queue_ids: Iterable[int], timestamp: int
) -> dict[int, int]:
    """Like `offset_by_time`, for several queues. Blocks."""
    return {queue_id: offset_by_time(store, topic, queue_id, timestamp) for queue_id in queue_ids}


def checked_offset(store: Store, topic: str, queue_id: int, offset: int) -> int:
    """Return `offset` if the queue contains it or ends there.

    Raises:
        InvalidParameter: the offset is outside the queue; the remark gives the queue's range.
    """
    low, high = store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)
    if not low <= offset <= high:
        raise InvalidParameter(f"Target offset {offset} not in consume queue range [{low}-{high}]")
    return offset


def limited_targets(
    targets: dict[int, int], consumed: Callable[[int], int], *, force: bool
) -> dict[int, int]:
    """Limit reset targets: without `force` a reset moves only backwards and skips no message."""
    if force:
        return targets
    return {queue_id: min(offset, consumed(queue_id)) for queue_id, offset in targets.items()}


def _encode(topic: str, broker_name: str, offsets: dict[int, int]) -> bytes:
    table = {MessageQueue(topic, broker_name, each): offset for each, offset in offsets.items()}
    return fastjson.encode(ResetOffsets(offset_table=table))


def _encode_for_cpp(topic: str, broker_name: str, offsets: dict[int, int]) -> bytes:
    listed = [
        QueueOffset(topic=topic, broker_name=broker_name, queue_id=queue_id, offset=offset)
        for queue_id, offset in offsets.items()
    ]
    return fastjson.encode(ResetOffsetsForC(offset_table=listed))


def _without_credentials(fields: Fields | None) -> Fields:
    """What a consumer is told of a request; who signed it is for the broker only."""
    left_out = {ACCESS_KEY, SIGNATURE, SECURITY_TOKEN}
    return {name: value for name, value in (fields or {}).items() if name not in left_out}
