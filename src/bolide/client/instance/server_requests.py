"""Requests that brokers send to a client, and open request-reply calls."""

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

Answer = asyncio.Future[StoredMessage]


class _Open(NamedTuple):
    owner: object
    answer: Answer


class OpenRequests:
    """Those of one client instance; belongs to one event loop."""

    def __init__(self) -> None:
        self._open: dict[str, _Open] = {}

    def __len__(self) -> int:
        return len(self._open)

    @contextmanager
    def waiting(self, correlation_id: str, owner: object) -> Iterator[Answer]:
        """A future of the reply; what comes after the block is dropped."""
        answer: Answer = asyncio.get_running_loop().create_future()
        self._open[correlation_id] = _Open(owner, answer)
        try:
            yield answer
        finally:
            del self._open[correlation_id]
            if answer.done() and not answer.cancelled():
                answer.exception()  # seen, though nobody may have waited for it

    def answer(self, reply: StoredMessage) -> None:
        """Hand a reply to whoever asked; one that nobody waits for any more is dropped."""
        correlation_id = reply.properties.get(PropertyName.CORRELATION_ID, "")
        found = self._open.get(correlation_id)
        if found is None:
            log.debug("a reply came too late, or twice: request %s", correlation_id)
        elif not found.answer.done():
            found.answer.set_result(reply)

    def abandon(self, owner: object, reason: Exception) -> None:
        """End the waiting for all requests of one asker."""
        for each in self._open.values():
            if each.owner is owner and not each.answer.done():
                each.answer.set_exception(reason)


class ServerRequests:
    """Passes each request on to the one of its group."""

    def __init__(
        self,
        consumers: Mapping[str, ConsumerMember],
        namespace: str = "",
        open_requests: OpenRequests | None = None,
        producers: Mapping[str, ProducerMember] | None = None,
    ) -> None:
        self._consumers = consumers
        self._producers = {} if producers is None else producers
        self._namespace = namespace
        self._open_requests = OpenRequests() if open_requests is None else open_requests

    @handles(ConsumerGroupHeader, RequestCode.NOTIFY_CONSUMER_IDS_CHANGED)
    def members_changed(self, request: Request[ConsumerGroupHeader]) -> Reply:
        consumer = self._consumers.get(request.header.consumer_group)
        if consumer is not None:  # it may have left just now
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
        (message,) = read_messages(
            request.body, request.header.broker_name or "", namespace=self._namespace
        )
        return Reply(body=fastjson.encode(await consumer.consume_directly(message)))

    @handles(PushReplyHeader, RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT)
    def take_reply(self, request: Request[PushReplyHeader]) -> Reply:
        self._open_requests.answer(read_reply(request.header, request.body, time.time()))
        return Reply()

    @handles(CheckTransactionHeader, RequestCode.CHECK_TRANSACTION_STATE)
    def check_transaction(self, request: Request[CheckTransactionHeader]) -> Reply:
        header = request.header
        (message,) = read_messages(
            request.body, header.broker_name or "", namespace=self._namespace
        )
        group = message.properties.get(PropertyName.PRODUCER_GROUP, "")
        producer = self._producers.get(group)
        if isinstance(producer, TransactionMember):  # it may have left just now
            producer.check_transaction(message, header, request.connection.peer)
        return Reply()

    def _require(self, group: str) -> ConsumerMember:
        consumer = self._consumers.get(group)
        if consumer is None:
            raise ServerError(f"The Consumer Group <{group}> not exist in this consumer")
        return consumer


def _stacks() -> Iterator[str]:
    """Where every thread and every task of this process is now."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    for ident, frame in sys._current_frames().items():  # noqa: SLF001  the way to get them
        yield f"thread {names.get(ident, ident)}"
        yield "".join(traceback.format_stack(frame))
    for task in asyncio.all_tasks():
        yield f"task {task.get_name()}"
        for frame in task.get_stack(limit=8):
            yield "".join(traceback.format_stack(frame, limit=1))
