"""Bounds and committed offsets of the physical queues of a topic, here or on another broker."""

from dataclasses import dataclass

from bolide.broker.background import COLD_READS, on_thread
from bolide.broker.metadata.offsets import OffsetTable
from bolide.broker.static_topics.peers import Peers
from bolide.protocol.bodies.queues import QueueMappingDetail, QueueMappingItem
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.header import Header
from bolide.protocol.headers.offsets import (
    Boundary,
    CommitOffsetHeader,
    MaxOffsetHeader,
    OffsetReply,
    QueryOffsetHeader,
    QueueHeader,
    SearchOffsetHeader,
    StoreTimeReply,
)
from bolide.store.contract import Store


@dataclass(frozen=True, slots=True)
class QueueAccess:
    """What the physical queues of all static topics are reached by."""

    store: Store
    offsets: OffsetTable
    peers: Peers

    def of(self, mapping: QueueMappingDetail, item: QueueMappingItem) -> "PhysicalQueue":
        """The queue of an item, as the broker of a mapping reaches it."""
        return PhysicalQueue(self, mapping, item)


@dataclass(frozen=True, slots=True)
class PhysicalQueue:
    """One physical queue. All methods raise ServerError if another broker does not answer."""

    access: QueueAccess
    mapping: QueueMappingDetail
    item: QueueMappingItem

    @property
    def is_here(self) -> bool:
        return self.item.bname == self.mapping.bname

    @property
    def _key(self) -> tuple[str, int]:
        return self.mapping.topic, self.item.queue_id

    async def max_offset(self) -> int:
        if self.is_here:
            return self.access.store.max_offset(*self._key)
        header = MaxOffsetHeader(topic=self.mapping.topic, queue_id=self.item.queue_id)
        return await self._ask(RequestCode.GET_MAX_OFFSET, header)

    async def min_offset(self) -> int:
        if self.is_here:
            return self.access.store.min_offset(*self._key)
        return await self._ask(RequestCode.GET_MIN_OFFSET, QueueHeader(*self._key))

    async def offset_at(self, timestamp: int, boundary: Boundary) -> int:
        if self.is_here:
            return await on_thread(
                COLD_READS, self.access.store.offset_at, *self._key, timestamp, boundary
            )
        header = SearchOffsetHeader(
            topic=self.mapping.topic,
            queue_id=self.item.queue_id,
            timestamp=timestamp,
            boundary_type=boundary,
        )
        return await self._ask(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header)

    async def earliest_time(self) -> int:
        """Store time of the first message in milliseconds; -1 if there is none."""
        if self.is_here:
            return await on_thread(COLD_READS, self.access.store.earliest_time, *self._key)
        reply = await self.access.peers.call(
            self.item.bname, RequestCode.GET_EARLIEST_MSG_STORETIME, QueueHeader(*self._key)
        )
        return StoreTimeReply.from_fields(reply.fields).timestamp

    async def committed(self, group: str) -> int | None:
        """The committed offset of a group; None if it has none."""
        if self.is_here:
            offset = self.access.offsets.find(group, *self._key)
            return None if offset is None or offset < 0 else offset
        header = QueryOffsetHeader(
            consumer_group=group,
            topic=self.mapping.topic,
            queue_id=self.item.queue_id,
            set_zero_if_not_found=False,
        )
        reply = await self.access.peers.call(
            self.item.bname,
            RequestCode.QUERY_CONSUMER_OFFSET,
            header,
            accept=(ResponseCode.QUERY_NOT_FOUND,),
        )
        if reply.code == ResponseCode.QUERY_NOT_FOUND:
            return None
        return OffsetReply.from_fields(reply.fields).offset

    async def commit_remotely(self, group: str, offset: int) -> None:
        """Commit an offset at the other broker."""
        header = CommitOffsetHeader(group, *self._key, offset)
        await self.access.peers.call(self.item.bname, RequestCode.UPDATE_CONSUMER_OFFSET, header)

    async def _ask(self, code: RequestCode, header: Header) -> int:
        reply = await self.access.peers.call(self.item.bname, code, header)
        return OffsetReply.from_fields(reply.fields).offset
