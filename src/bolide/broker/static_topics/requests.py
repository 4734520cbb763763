"""Requests about logical queues, translated to requests about physical ones.

`StaticTopicRequests.take_over` puts itself in front of the handlers of these requests. Requests
about other topics, and those that other brokers send about physical queues, pass unchanged.
"""

import asyncio
from collections.abc import Callable, MutableMapping
from functools import partial
from typing import Any

import msgspec

from bolide.broker.background import Background
from bolide.broker.consume.pull import COMMIT, SUSPEND
from bolide.broker.metadata.offsets import OffsetTable
from bolide.broker.metadata.queue_mappings import QueueMappings
from bolide.broker.static_topics.logical_queues import (
    LogicalQueue,
    any_led_queue,
    led_queue,
    pulled_reply,
    sent_reply,
)
from bolide.broker.static_topics.offset_requests import OffsetRequests
from bolide.broker.static_topics.physical_queues import QueueAccess
from bolide.model.properties import PropertyName
from bolide.protocol.bodies.queues import QueueMappingDetail, QueueMappingItem
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.header import NoHeader
from bolide.protocol.headers.pull import PullHeader, PullReply
from bolide.protocol.headers.send import SendHeader
from bolide.protocol.property_string import decode_properties
from bolide.protocol.refusals import NotLeaderForQueue
from bolide.protocol.static_topics.addressing import is_physical
from bolide.protocol.static_topics.positions import has_end, item_offset
from bolide.remoting.dispatch import DeferredReply, Reply, Request, Route

_NOTHING_FOUND = (
    ResponseCode.PULL_NOT_FOUND,
    ResponseCode.PULL_RETRY_IMMEDIATELY,
    ResponseCode.PULL_OFFSET_MOVED,
)
_PAUSE = 0.1
"""Seconds that a pull waits at the end of an item whose successor has no place yet."""

Handler = Callable[[Request[Any]], Any]
Translation = Callable[[Request[Any], QueueMappingDetail, Handler], Any]
Receive = Callable[[Request[Any], SendHeader, Callable[[], None]], Reply | DeferredReply]


class StaticTopicRequests:
    """Serves requests about static topics.

    Args:
        receive: stores the message of a send, after a last check of its queue.
    """

    def __init__(
        self,
        mappings: QueueMappings,
        access: QueueAccess,
        background: Background,
        *,
        offsets: OffsetTable,
        receive: Receive,
    ) -> None:
        self._mappings = mappings
        self._peers = access.peers
        self._background = background
        self._offsets = offsets
        self._receive = receive
        self._offset_requests = OffsetRequests(access, background)

    def take_over(self, routes: MutableMapping[int, Route]) -> None:
        """Put the translations in front of the handlers."""
        translations: dict[RequestCode, Translation] = {
            RequestCode.SEND_MESSAGE: self._send,
            RequestCode.PULL_MESSAGE: self._pull,
            RequestCode.LITE_PULL_MESSAGE: self._pull,
            **self._offset_requests.translations(),
        }
        for code, translation in translations.items():
            routes[code] = self._in_front_of(routes[code], translation, _topic)
        for code in (RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE):
            routes[code] = self._in_front_of(routes[code], self._send_short, _short_topic)

    def _in_front_of(
        self, route: Route, translation: Translation, topic_of: Callable[[Request[Any]], str]
    ) -> Route:
        mappings, handler = self._mappings, route.call

        def call(request: Request[Any]) -> Any:
            if mappings and not is_physical(request.frame.fields):
                mapping = mappings.find(topic_of(request))
                if mapping is not None:
                    return translation(request, mapping, handler)
            return handler(request)

        return route._replace(call=call)

    # ---- sends

    def _send(
        self, request: Request[SendHeader], mapping: QueueMappingDetail, _: Handler
    ) -> Reply | DeferredReply:
        return self._store(request, request.header, mapping)

    def _send_short(
        self, request: Request[NoHeader], mapping: QueueMappingDetail, _: Handler
    ) -> Reply | DeferredReply:
        return self._store(request, SendHeader.from_short(request.frame.fields), mapping)

    def _store(
        self, request: Request[Any], header: SendHeader, mapping: QueueMappingDetail
    ) -> Reply | DeferredReply:
        number = header.queue_id
        queue = led_queue(mapping, number) if number >= 0 else any_led_queue(mapping)
        header = msgspec.structs.replace(header, queue_id=queue.leader.queue_id)

        def check_queue() -> None:
            current = self._mappings.find(mapping.topic)
            if current is None or led_queue(current, queue.number).leader.gen != queue.leader.gen:
                raise NotLeaderForQueue(
                    f"{mapping.topic}-{queue.number} has moved: get the route of the topic again"
                )

        reply = self._receive(request, header, check_queue)
        is_half = _is_half(header)
        return _translated(reply, lambda found: sent_reply(queue, found, is_half=is_half))

    # ---- pulls

    def _pull(
        self, request: Request[PullHeader], mapping: QueueMappingDetail, handler: Handler
    ) -> Reply | DeferredReply:
        queue = led_queue(mapping, request.header.queue_id)
        item = queue.at(request.header.queue_offset)
        header, commit = self._with_commit(request, queue, item)
        if item.bname != mapping.bname:
            return self._background.defer(self._pull_remotely(queue, item, header, commit))
        if item.gen != queue.leader.gen:  # nothing will arrive there
            header = msgspec.structs.replace(header, sys_flag=header.sys_flag & ~SUSPEND)
        requested = header.queue_offset
        reply = handler(Request(header, request.frame, request.connection))
        commit()
        return _translated(reply, lambda found: pulled_reply(queue, item, requested, found))

    async def _pull_remotely(
        self,
        queue: LogicalQueue,
        item: QueueMappingItem,
        header: PullHeader,
        commit: Callable[[], object],
    ) -> Reply:
        header = msgspec.structs.replace(header, sys_flag=header.sys_flag & ~(SUSPEND | COMMIT))
        found = await self._peers.call(
            item.bname, RequestCode.PULL_MESSAGE, header, accept=_NOTHING_FOUND
        )
        commit()
        reply = Reply(
            code=found.code,
            header=PullReply.from_fields(found.fields),
            body=found.body,
            remark=found.remark,
        )
        reply = pulled_reply(queue, item, header.queue_offset, reply)
        if reply.code == ResponseCode.PULL_NOT_FOUND:  # the client would ask again at once
            await asyncio.sleep(_PAUSE)
        return reply

    def _with_commit(
        self, request: Request[PullHeader], queue: LogicalQueue, item: QueueMappingItem
    ) -> tuple[PullHeader, Callable[[], object]]:
        """Translate a pull from an item, and the offset that it commits.

        An offset in a queue of another broker is left out: consumers also commit by other requests.

        Returns:
            The translated header, and what commits an offset in another queue of this broker, to
            be called when the pull has been admitted.
        """
        header = _at_item(request.header, item)
        if not header.sys_flag & COMMIT or header.commit_offset < 0:
            return header, _do_nothing
        target = queue.at(header.commit_offset)
        offset = max(item_offset(target, header.commit_offset), 0)
        if target.gen == item.gen:
            return msgspec.structs.replace(header, commit_offset=offset), _do_nothing
        group, topic, peer = header.consumer_group, header.topic, request.connection.peer
        header = msgspec.structs.replace(header, sys_flag=header.sys_flag & ~COMMIT)
        if target.bname != queue.mapping.bname:
            return header, _do_nothing
        commit = partial(self._offsets.commit, group, topic, target.queue_id, offset, peer=peer)
        return header, commit


def _do_nothing() -> None: ...


def _at_item(header: PullHeader, item: QueueMappingItem) -> PullHeader:
    """A pull from the physical queue of an item."""
    count = header.max_msg_nums
    if has_end(item):
        count = min(count, item.end_offset - item.start_offset)
    return msgspec.structs.replace(
        header,
        queue_id=item.queue_id,
        queue_offset=item_offset(item, header.queue_offset),
        max_msg_nums=count,
    )


def _translated(
    reply: Reply | DeferredReply, translate: Callable[[Reply], Reply]
) -> Reply | DeferredReply:
    if isinstance(reply, DeferredReply):
        reply.translate = translate
        return reply
    return translate(reply)


def _is_half(header: SendHeader) -> bool:
    name = PropertyName.TRANSACTION_PREPARED
    if header.batch or name not in header.properties:
        return False
    return decode_properties(header.properties).get(name, "").lower() == "true"


def _topic(request: Request[Any]) -> str:
    topic: str = request.header.topic
    return topic


def _short_topic(request: Request[Any]) -> str:
    return SendHeader.short_topic(request.frame.fields)
