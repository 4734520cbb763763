"""Requests about offsets of logical queues: bounds, search by time, committed offsets."""

from collections.abc import Callable, Coroutine
from typing import Any

import msgspec

from bolide.broker.background import Background
from bolide.broker.static_topics.logical_queues import LogicalQueue, led_queue
from bolide.broker.static_topics.physical_queues import PhysicalQueue, QueueAccess
from bolide.protocol.bodies.queues import QueueMappingDetail, QueueMappingItem
from bolide.protocol.codes import RequestCode
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
from bolide.protocol.refusals import QueryNotFound
from bolide.protocol.static_topics.positions import (
    is_placed,
    item_offset,
    logical_offset,
    stored_offset,
)
from bolide.remoting.dispatch import DeferredReply, Reply, Request

Handler = Callable[[Request[Any]], Any]
Translation = Callable[[Request[Any], QueueMappingDetail, Handler], Any]


class OffsetRequests:
    """Answers requests about offsets, asking the brokers that have older parts of a queue."""

    def __init__(self, access: QueueAccess, background: Background) -> None:
        self._access = access
        self._background = background

    def translations(self) -> dict[RequestCode, Translation]:
        return {
            RequestCode.GET_MAX_OFFSET: self._max_offset,
            RequestCode.GET_MIN_OFFSET: self._min_offset,
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: self._search,
            RequestCode.GET_EARLIEST_MSG_STORETIME: self._earliest_time,
            RequestCode.QUERY_CONSUMER_OFFSET: self._query,
            RequestCode.UPDATE_CONSUMER_OFFSET: self._commit,
        }

    # ---- bounds

    def _max_offset(
        self, request: Request[MaxOffsetHeader], mapping: QueueMappingDetail, _: Handler
    ) -> DeferredReply:
        queue = led_queue(mapping, request.header.queue_id)
        item = queue.last

        async def find() -> Reply:
            end = await self._physical(queue, item).max_offset()
            return _offset(logical_offset(item, end))

        return self._background.defer(find())

    def _min_offset(
        self, request: Request[QueueHeader], mapping: QueueMappingDetail, _: Handler
    ) -> DeferredReply:
        queue = led_queue(mapping, request.header.queue_id)
        item = queue.first

        async def find() -> Reply:
            return _offset(stored_offset(item, await self._physical(queue, item).min_offset()))

        return self._background.defer(find())

    async def _earliest_time(
        self, request: Request[QueueHeader], mapping: QueueMappingDetail, _: Handler
    ) -> Reply:
        queue = led_queue(mapping, request.header.queue_id)
        for item in _placed(queue):
            time = await self._physical(queue, item).earliest_time()
            if time >= 0:
                return Reply(header=StoreTimeReply(time))
        return Reply(header=StoreTimeReply(-1))

    async def _search(
        self, request: Request[SearchOffsetHeader], mapping: QueueMappingDetail, _: Handler
    ) -> Reply:
        header = request.header
        queue = led_queue(mapping, header.queue_id)
        if header.boundary_type is Boundary.LOWER:
            return _offset(await self._first_from(queue, header.timestamp))
        return _offset(await self._last_until(queue, header.timestamp))

    async def _first_from(self, queue: LogicalQueue, timestamp: int) -> int:
        """The offset of the first message stored at a time or later; the end if there is none."""
        for item in _placed(queue):
            physical = self._physical(queue, item)
            offset = await physical.offset_at(timestamp, Boundary.LOWER)
            if item.gen == queue.last.gen or offset < await physical.max_offset():
                return logical_offset(item, offset)
        return logical_offset(queue.first, 0)

    async def _last_until(self, queue: LogicalQueue, timestamp: int) -> int:
        """The offset of the last message stored at a time or before; the start if there is none."""
        for item in reversed(_placed(queue)):
            physical = self._physical(queue, item)
            if 0 <= await physical.earliest_time() <= timestamp:
                return logical_offset(item, await physical.offset_at(timestamp, Boundary.UPPER))
        return logical_offset(queue.first, 0)

    # ---- committed offsets

    async def _query(
        self, request: Request[QueryOffsetHeader], mapping: QueueMappingDetail, handler: Handler
    ) -> Reply:
        queue = led_queue(mapping, request.header.queue_id)
        leader = queue.leader
        if len(queue.items) == 1 and leader.logic_offset == 0:
            header = msgspec.structs.replace(request.header, queue_id=leader.queue_id)
            reply: Reply = await handler(Request(header, request.frame, request.connection))
            return reply
        for item in reversed(_placed(queue)):
            offset = await self._physical(queue, item).committed(request.header.consumer_group)
            if offset is not None:
                return _offset(logical_offset(item, offset))
        raise QueryNotFound("Not found, maybe this group consumer boot first")

    def _commit(
        self, request: Request[CommitOffsetHeader], mapping: QueueMappingDetail, handler: Handler
    ) -> Reply | DeferredReply:
        header = request.header
        queue = led_queue(mapping, header.queue_id)
        item = queue.at(header.commit_offset)
        offset = max(item_offset(item, header.commit_offset), 0)
        if item.bname == mapping.bname:
            local = msgspec.structs.replace(header, queue_id=item.queue_id, commit_offset=offset)
            reply: Reply = handler(Request(local, request.frame, request.connection))
            return reply
        physical = self._physical(queue, item)
        deferred = self._background.defer(
            _done(physical.commit_remotely(header.consumer_group, offset))
        )
        deferred.on_lost = None  # commit even if the client disconnects
        return deferred

    def _physical(self, queue: LogicalQueue, item: QueueMappingItem) -> PhysicalQueue:
        return self._access.of(queue.mapping, item)


def _placed(queue: LogicalQueue) -> list[QueueMappingItem]:
    return [item for item in queue.items if is_placed(item)]


def _offset(offset: int) -> Reply:
    return Reply(header=OffsetReply(offset))


async def _done(work: Coroutine[Any, Any, None]) -> Reply:
    await work
    return Reply()
