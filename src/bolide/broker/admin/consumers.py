"""Requests that tools send to running consumers through the broker, and offset resets."""

import asyncio
import logging
from collections.abc import Callable, Iterable

from bolide.broker.background import record_at
from bolide.broker.metadata.clients import ClientTable, Member
from bolide.broker.metadata.groups import GroupTable
from bolide.broker.metadata.offsets import OffsetTable
from bolide.broker.metadata.topics import TopicTable
from bolide.broker.settings.config import BrokerConfig
from bolide.config import ConfigCell
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
from bolide.protocol.refusals import (
    ConsumerNotOnline,
    ConsumerTimedOut,
    GroupNotFound,
    InvalidParameter,
    ServerError,
)
from bolide.remoting.dispatch import Reply, Request, handles
from bolide.remoting.errors import CallTimedOut, RemotingError
from bolide.store.contract import Store

END = -1
"""The timestamp that means the end of a queue."""


def offset_by_time(store: Store, topic: str, queue_id: int, timestamp: int) -> int:
    """The first message stored at a time (ms) or later, the end of the queue if none is. Blocks."""
    if timestamp < 0:
        return store.max_offset(topic, queue_id)
    return max(store.offset_at(topic, queue_id, timestamp), 0)


def offsets_by_time(
    store: Store, topic: str, queue_ids: Iterable[int], timestamp: int
) -> dict[int, int]:
    """As `offset_by_time`, by queue. Blocks."""
    return {queue_id: offset_by_time(store, topic, queue_id, timestamp) for queue_id in queue_ids}


def checked_offset(store: Store, topic: str, queue_id: int, offset: int) -> int:
    """An offset that somebody chose.

    Raises:
        InvalidParameter: the queue does not reach there; says how far it does.
    """
    low, high = store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)
    if not low <= offset <= high:
        raise InvalidParameter(f"Target offset {offset} not in consume queue range [{low}-{high}]")
    return offset


def targets(
    wanted: dict[int, int], consumed: Callable[[int], int], *, force: bool
) -> dict[int, int]:
    """Where consumers go: without `force` only back, never past what they have not seen yet."""
    if force:
        return wanted
    return {queue_id: min(offset, consumed(queue_id)) for queue_id, offset in wanted.items()}


log = logging.getLogger(__name__)

_CALL_SECONDS = 10.0
_STATUS_SECONDS = 5.0
_CPP = "CPP"

Fields = dict[str, str]


class ConsumerHandlers:
    """Pass requests on to consumers, and send groups to other offsets."""

    def __init__(
        self,
        *,
        store: Store,
        topics: TopicTable,
        groups: GroupTable,
        offsets: OffsetTable,
        clients: ClientTable,
        cell: ConfigCell[BrokerConfig],
    ) -> None:
        self._store = store
        self._topics = topics
        self._groups = groups
        self._offsets = offsets
        self._clients = clients
        self._cell = cell

    # ---- one consumer

    @handles(RunningInfoHeader, RequestCode.GET_CONSUMER_RUNNING_INFO)
    async def running_info(self, request: Request[RunningInfoHeader]) -> Reply:
        header = request.header
        frame = Frame(code=request.frame.code, fields=request.frame.fields)
        return await self._pass_on(frame, header.consumer_group, header.client_id)

    @handles(ConsumeDirectlyHeader, RequestCode.CONSUME_MESSAGE_DIRECTLY)
    async def consume_directly(self, request: Request[ConsumeDirectlyHeader]) -> Reply:
        header = request.header
        body = await self._message(header.msg_id or "")
        fields = dict(request.frame.fields or {}) | self._fields_for(header)
        frame = Frame(code=request.frame.code, fields=fields, body=body)
        return await self._pass_on(frame, header.consumer_group, header.client_id or "")

    def _fields_for(self, header: ConsumeDirectlyHeader) -> Fields:
        fields = {"brokerName": self._cell.value.broker_name}
        if header.topic and (topic := self._topics.find(header.topic)):
            fields["topicSysFlag"] = str(topic.topic_sys_flag)
        if group := self._groups.find(header.consumer_group):
            fields["groupSysFlag"] = str(group.group_sys_flag)
        return fields

    async def _message(self, message_id: str) -> bytes:
        try:
            offset = OffsetId.decode(message_id).physical_offset
        except BadMessageId as exc:
            raise InvalidParameter(f"msgId: {exc}") from exc
        found = await record_at(self._store, offset)
        if found is None:
            raise ServerError(f"no message {message_id} is kept here: deleted, or never stored")
        return found

    async def _pass_on(self, frame: Frame, group: str, client_id: str) -> Reply:
        connection = self._clients.find_consumer(group, client_id)
        if connection is None:
            raise ServerError(f"The Consumer <{group}> <{client_id}> not online")
        try:
            response = await connection.call(frame, _CALL_SECONDS)
        except CallTimedOut as exc:
            raise ConsumerTimedOut(f"consumer <{group}> <{client_id}> Timeout: {exc}") from exc
        except RemotingError as exc:
            raise ServerError(f"invoke consumer <{group}> <{client_id}>: {exc}") from exc
        return Reply(code=response.code, body=response.body, remark=response.remark)

    # ---- where the consumers of a group are

    @handles(ConsumerStatusHeader, RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS)
    async def status(self, request: Request[ConsumerStatusHeader]) -> Reply:
        header = request.header
        members = self._members(header.group)
        if not members:
            raise ServerError(f"No Any Consumer online in the consumer group: [{header.group}]")
        asked = [member for member in members if header.client_addr in {None, "", member.client_id}]
        question = ConsumerStatusHeader(topic=header.topic, group=header.group)
        answers = await asyncio.gather(*(self._ask(member, question) for member in asked))
        pairs = zip(asked, answers, strict=True)
        table = {member.client_id: found for member, found in pairs if found is not None}
        return Reply(body=fastjson.encode(ConsumerStatus(consumer_table=table)))

    async def _ask(
        self, member: Member, question: ConsumerStatusHeader
    ) -> dict[MessageQueue, int] | None:
        """What a consumer says of its queues, None if it does not answer."""
        code = RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT
        frame = Frame(code=code, fields=question.to_fields())
        try:
            response = await member.connection.call(frame, _STATUS_SECONDS)
            if response.code != ResponseCode.SUCCESS or not response.body:
                return None
            return fastjson.decode(response.body, ConsumerStatus).message_queue_table
        except (RemotingError, ProtocolError) as exc:
            log.warning("%s does not tell its offsets: %s", member.client_id, exc)
            return None

    def _members(self, group: str) -> list[Member]:
        found = self._clients.consumer_group(group)
        return found.members if found else []

    # ---- resets

    @handles(ResetOffsetHeader, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET)
    async def reset(self, request: Request[ResetOffsetHeader]) -> Reply:
        header = request.header
        if self._cell.value.use_server_side_reset_offset:
            offsets = await self._reset_here(header)
        else:
            offsets = await self._reset_in_consumers(header, request.frame.language)
        log.info(
            "%s reset the offsets of %s in %s to %s",
            request.connection.peer, header.group, header.topic, offsets,
        )  # fmt: skip
        return Reply(body=await self._body(header.topic, offsets))

    async def _reset_here(self, header: ResetOffsetHeader) -> dict[int, int]:
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
        wanted = await self._by_time(header, range(topic.write_queue_nums))
        offsets = await asyncio.to_thread(
            targets, wanted, lambda number: self._consumed(header, number), force=header.is_force
        )
        await asyncio.gather(*(self._tell(member, header, offsets, language) for member in members))
        return offsets

    async def _by_time(
        self, header: ResetOffsetHeader, queue_ids: list[int] | range
    ) -> dict[int, int]:
        return await asyncio.to_thread(
            offsets_by_time, self._store, header.topic, queue_ids, header.timestamp
        )

    def _consumed(self, header: ResetOffsetHeader, queue_id: int) -> int:
        found = self._offsets.find(header.group, header.topic, queue_id)
        if found is None:
            raise ServerError(
                f"THe consumer group <{header.group}> not exist: it has not consumed queue"
                f" {queue_id} of {header.topic} yet"
            )
        return found

    async def _tell(
        self, member: Member, header: ResetOffsetHeader, offsets: dict[int, int], language: str
    ) -> None:
        """One-way: nobody says whether a consumer went there."""
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
            async with asyncio.timeout(_STATUS_SECONDS):
                await member.connection.notify(Frame(code=code, fields=fields, body=body))
        except (RemotingError, TimeoutError) as exc:
            log.warning("%s is not told to reset its offsets: %s", member.client_id, exc)

    async def _body(self, topic: str, offsets: dict[int, int], *, is_cpp: bool = False) -> bytes:
        write = _write_for_c if is_cpp else _write
        return await asyncio.to_thread(write, topic, self._cell.value.broker_name, offsets)


def _write(topic: str, broker_name: str, offsets: dict[int, int]) -> bytes:
    table = {MessageQueue(topic, broker_name, number): to for number, to in offsets.items()}
    return fastjson.encode(ResetOffsets(offset_table=table))


def _write_for_c(topic: str, broker_name: str, offsets: dict[int, int]) -> bytes:
    listed = [
        QueueOffset(topic=topic, broker_name=broker_name, queue_id=number, offset=to)
        for number, to in offsets.items()
    ]
    return fastjson.encode(ResetOffsetsForC(offset_table=listed))
