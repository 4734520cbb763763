"""Handlers of the requests that brokers send to a client, and replies awaited by producers."""

import asyncio
import logging
import sys
import threading
import time
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

from bolide.client.consumer.received import read_messages, read_reply
from bolide.client.instance.heartbeats import ConsumerMember, ProducerMember, TransactionMember
from bolide.model.message import StoredMessage
from bolide.model.properties import PropertyName
from bolide.protocol import fastjson
from bolide.protocol.bodies.offsets import ConsumerStatus, ResetOffsets
from bolide.protocol.codes import RequestCode
from bolide.protocol.headers.clients import (
    ConsumeDirectlyHeader,
    ConsumerGroupHeader,
    RunningInfoHeader,
)
from bolide.protocol.headers.offsets import ConsumerStatusHeader, ResetOffsetHeader
from bolide.protocol.headers.send import PushReplyHeader
from bolide.protocol.headers.transactions import CheckTransactionHeader
from bolide.protocol.refusals import ServerError
from bolide.remoting.dispatch import Reply, Request, handles

log = logging.getLogger(__name__)

ReplyFuture = asyncio.Future[StoredMessage]


class _PendingReply(NamedTuple):
    owner: object
    future: ReplyFuture


class PendingReplies:
    """The replies that producers of one client instance wait for, by correlation id."""

    def __init__(self) -> None:
        self._pending: dict[str, _PendingReply] = {}

    def __len__(self) -> int:
        return len(self._pending)

    @contextmanager
    def expect(self, correlation_id: str, owner: object) -> Iterator[ReplyFuture]:
        """Yield a future of the reply; replies after the block are dropped."""
        future: ReplyFuture = asyncio.get_running_loop().create_future()
        self._pending[correlation_id] = _PendingReply(owner, future)
        try:
            yield future
        finally:
            del self._pending[correlation_id]
            if future.done() and not future.cancelled():
                future.exception()  # mark as retrieved, even if it was never awaited

    def deliver(self, reply: StoredMessage) -> None:
        """Complete the future of a reply; late replies are dropped."""
        correlation_id = reply.properties.get(PropertyName.CORRELATION_ID, "")
        pending = self._pending.get(correlation_id)
        if pending is None:
            log.debug("a late or repeated reply to request %s is dropped", correlation_id)
        elif not pending.future.done():
            pending.future.set_result(reply)

    def fail(self, owner: object, reason: Exception) -> None:
        """Fail all pending replies of one owner."""
        for each in self._pending.values():
            if each.owner is owner and not each.future.done():
                each.future.set_exception(reason)


class ServerRequests:
    """Passes each request to the producer or consumer of its group."""

    def __init__(
        self,
        consumers: Mapping[str, ConsumerMember],
        namespace: str = "",
        pending_replies: PendingReplies | None = None,
        producers: Mapping[str, ProducerMember] | None = None,
    ) -> None:
        self._consumers = consumers
        self._producers = {} if producers is None else producers
        self._namespace = namespace
        self._pending_replies = PendingReplies() if pending_replies is None else pending_replies

    @handles(ConsumerGroupHeader, RequestCode.NOTIFY_CONSUMER_IDS_CHANGED)
    def members_changed(self, request: Request[ConsumerGroupHeader]) -> Reply:
        consumer = self._consumers.get(request.header.consumer_group)
        if consumer is not None:  # None if it has just been closed
            consumer.rebalance_soon()
        return Reply()

    @handles(ResetOffsetHeader, RequestCode.RESET_CONSUMER_CLIENT_OFFSET)
    async def reset_offsets(self, request: Request[ResetOffsetHeader]) -> Reply:
        wanted = fastjson.decode(request.body or b"{}", ResetOffsets)
        consumer = self._require(request.header.group)
        await consumer.reset_offsets(request.header.topic, wanted.offset_table)
        return Reply()

    @handles(ConsumerStatusHeader, RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT)
    def consumed_offsets(self, request: Request[ConsumerStatusHeader]) -> Reply:
        consumer = self._require(request.header.group)
        offsets = consumer.consumed_offsets(request.header.topic)
        return Reply(body=fastjson.encode(ConsumerStatus(message_queue_table=offsets)))

    @handles(RunningInfoHeader, RequestCode.GET_CONSUMER_RUNNING_INFO)
    def running(self, request: Request[RunningInfoHeader]) -> Reply:
        running = self._require(request.header.consumer_group).running()
        if request.header.jstack_enable:
            running.jstack = "\n".join(_stacks())
        return Reply(body=fastjson.encode(running))

    @handles(ConsumeDirectlyHeader, RequestCode.CONSUME_MESSAGE_DIRECTLY)
    async def consume_directly(self, request: Request[ConsumeDirectlyHeader]) -> Reply:
        consumer = self._require(request.header.consumer_group)
        message, *_ = read_messages(
            request.body, request.header.broker_name or "", namespace=self._namespace
        )
        return Reply(body=fastjson.encode(await consumer.consume_directly(message)))

    @handles(PushReplyHeader, RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT)
    def receive_reply(self, request: Request[PushReplyHeader]) -> Reply:
        self._pending_replies.deliver(read_reply(request.header, request.body, time.time()))
        return Reply()

    @handles(CheckTransactionHeader, RequestCode.CHECK_TRANSACTION_STATE)
    def check_transaction(self, request: Request[CheckTransactionHeader]) -> Reply:
        header = request.header
        (message,) = read_messages(
            request.body, header.broker_name or "", namespace=self._namespace
        )
        group = message.properties.get(PropertyName.PRODUCER_GROUP, "")
        producer = self._producers.get(group)
        if isinstance(producer, TransactionMember):  # None if it has just been closed
            producer.check_transaction(message, header, request.connection.peer)
        return Reply()

    def _require(self, group: str) -> ConsumerMember:
        consumer = self._consumers.get(group)
        if consumer is None:
            raise ServerError(f"The Consumer Group <{group}> not exist in this consumer")
        return consumer


def _stacks() -> Iterator[str]:
    """The stacks of all threads and tasks of this process."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    for ident, frame in sys._current_frames().items():  # noqa: SLF001  the only way to get them
        yield f"thread {names.get(ident, ident)}"
        yield "".join(traceback.format_stack(frame))
    for task in asyncio.all_tasks():
        yield f"task {task.get_name()}"
        for frame in task.get_stack(limit=8):
            yield "".join(traceback.format_stack(frame, limit=1))
