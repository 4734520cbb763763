"""One pop: the request, and the interpretation of the reply."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto

from msgspec import structs

from bolide.client.consumer.pop.shared_lease import shared_leases, with_lease
from bolide.client.consumer.pull.pull_request import FilterHook, is_slow_to_read, is_wanted
from bolide.client.consumer.received import read_stored, without_expired
from bolide.client.consumer.subscription import Filter
from bolide.client.errors import PopNotSupported
from bolide.client.instance.instance import ClientInstance
from bolide.kernel import joined_flags
from bolide.model.message import StoredMessage, SysFlag
from bolide.model.message_queue import MessageQueue
from bolide.model.properties import PropertyName
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.headers.pop import (
    NotificationHeader,
    NotificationReply,
    PopHeader,
    PopReply,
)
from bolide.protocol.pop_info import Receipt, read_order_counts, read_start_offsets, retry_kind
from bolide.protocol.refusals import RequestCodeNotSupported
from bolide.remoting.errors import RemotingError

ALL_QUEUES = -1
_CALL_GRACE = 10.0
"""Seconds that a reply may take beyond the time for which the broker may suspend the request."""

_FIRST, _LAST = 0, 1
_INNER_BATCH = int(SysFlag.INNER_BATCH)


class PopStatus(Enum):
    FOUND = auto()
    NOTHING = auto()
    FULL = auto()
    """The broker suspends too many pops already."""


_STATUSES = {
    ResponseCode.SUCCESS: PopStatus.FOUND,
    ResponseCode.POLLING_TIMEOUT: PopStatus.NOTHING,
    ResponseCode.PULL_NOT_FOUND: PopStatus.NOTHING,
    ResponseCode.POLLING_FULL: PopStatus.FULL,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Pop:
    """A pop request; durations in seconds."""

    queue: MessageQueue
    """Queue -1 stands for all queues of the broker."""
    filter: Filter
    max_count: int
    invisible: float
    wait: float = 0.0
    """How long the broker may wait for a message (long polling)."""
    from_first: bool = False
    """Whether a group without offsets begins at the first message."""
    is_ordered: bool = False
    attempt_id: str | None = None
    """Repeating an ordered pop with the id of one whose reply was lost returns its messages."""

    def header(self, group: str) -> PopHeader:
        return PopHeader(
            consumer_group=group,
            topic=self.queue.topic,
            queue_id=self.queue.queue_id,
            max_msg_nums=self.max_count,
            invisible_time=int(self.invisible * 1000),
            poll_time=int(self.wait * 1000),
            born_time=_now_ms(),
            init_mode=_FIRST if self.from_first else _LAST,
            exp_type=self.filter.expression_type,
            exp=self.filter.expression,
            order=self.is_ordered,
            attempt_id=self.attempt_id,
        )

    def notification(self, group: str) -> NotificationHeader:
        """The NOTIFICATION request: wait until there is a message to pop."""
        return NotificationHeader(
            consumer_group=group,
            topic=self.queue.topic,
            queue_id=self.queue.queue_id,
            poll_time=int(self.wait * 1000),
            born_time=_now_ms(),
            order=self.is_ordered,
            attempt_id=self.attempt_id,
            exp_type=self.filter.expression_type,
            exp=self.filter.expression,
        )


@dataclass(frozen=True, slots=True)
class PopResult:
    """The result of a pop. `unwanted` messages did not pass the filters: acknowledge them."""

    status: PopStatus
    messages: Sequence[StoredMessage] = ()
    unwanted: Sequence[StoredMessage] = ()


class Popper:
    """Pops for one group, from masters only: they track the leases."""

    def __init__(
        self, instance: ClientInstance, group: str, filter_hooks: Sequence[FilterHook] = ()
    ) -> None:
        self._instance = instance
        self._group = group
        self._hooks = tuple(filter_hooks)

    async def pop(self, pop: Pop) -> PopResult:
        """Raises PopNotSupported, BrokerUnknown, RemotingError or Refusal."""
        queue = pop.queue
        address = await self._instance.routes.require_master(queue.broker_name, queue.topic)
        try:
            reply = await self._instance.call(
                address,
                RequestCode.POP_MESSAGE,
                pop.header(self._group),
                within=pop.wait + _CALL_GRACE,
                accept=_STATUSES,
            )
        except RequestCodeNotSupported as exc:
            raise PopNotSupported(queue.broker_name, address) from exc
        except RemotingError:
            self._instance.broker_failed(address, queue.topic)
            raise
        status = _STATUSES[ResponseCode(reply.code)]
        if status is not PopStatus.FOUND:
            return PopResult(status)
        return await self._result(pop, PopReply.from_fields(reply.fields), reply.body)

    async def has_messages(self, pop: Pop) -> bool:
        """Wait at the broker until there is a message to pop. Raises like `pop`."""
        queue = pop.queue
        address = await self._instance.routes.require_master(queue.broker_name, queue.topic)
        reply = await self._instance.call(
            address,
            RequestCode.NOTIFICATION,
            pop.notification(self._group),
            within=pop.wait + _CALL_GRACE,
        )
        return NotificationReply.from_fields(reply.fields).has_msg

    async def _result(self, pop: Pop, header: PopReply, body: bytes) -> PopResult:
        topic = self._instance.settings.unwrap(pop.queue.topic)

        def read() -> list[StoredMessage]:
            return popped_messages(header, body, pop.queue.broker_name, topic)

        messages = await asyncio.to_thread(read) if is_slow_to_read(body) else read()
        wanted = without_expired(messages, body)
        if pop.filter.tags:
            wanted = [each for each in wanted if pop.filter.matches(each.tags)]
        if self._hooks:
            wanted = [each for each in wanted if is_wanted(self._hooks, each)]
        if len(wanted) == len(messages):
            return PopResult(PopStatus.FOUND, messages)
        kept = set(map(id, wanted))
        return PopResult(PopStatus.FOUND, wanted, [m for m in messages if id(m) not in kept])


def popped_messages(
    header: PopReply, body: bytes, broker_name: str, topic: str
) -> list[StoredMessage]:
    """The messages of a reply, each with the topic that was popped and its receipt.

    Raises:
        BadRecord: the bytes are not records.
        BadPopInfo: the header does not describe where the messages were found.
    """
    starts = read_start_offsets(header.start_offset_info)
    counts = read_order_counts(header.order_count_info)
    messages: list[StoredMessage] = []
    leases = shared_leases(body) if joined_flags(body) & _INNER_BATCH else {}
    for read in read_stored(body, broker_name):
        stored: StoredMessage = read
        lease = leases.get((stored.topic, stored.queue_id, stored.queue_offset))
        if lease is not None:
            stored = with_lease(stored, lease)
        retry, properties = retry_kind(stored.topic), stored.properties
        place = lease.base if lease else stored.queue_offset
        start = starts.setdefault((retry, stored.queue_id), place)
        if not properties.get(PropertyName.POP_CHECKPOINT):  # retries already carry a receipt
            receipt = _receipt(header, stored, retry, start)._replace(offset=place)
            properties[PropertyName.POP_CHECKPOINT] = receipt.encode()
            if lease is not None:
                lease.receipt = receipt
        properties.setdefault(PropertyName.FIRST_POP_TIME, str(header.pop_time))
        counted = counts.of(retry, stored.queue_id, stored.queue_offset)
        times = max(counted, stored.reconsume_times)
        messages.append(structs.replace(stored, topic=topic, reconsume_times=times))
    return messages


def receipt_of(message: StoredMessage) -> Receipt:
    """Raises ValueError for a message that was not popped, BadPopInfo for a broken receipt."""
    text = message.receipt
    if text is None:
        raise ValueError(f"{message} was not popped: only what `receive` returned has a receipt")
    return Receipt.decode(text)


def _receipt(header: PopReply, stored: StoredMessage, retry: str, start: int) -> Receipt:
    return Receipt(
        start_offset=start,
        pop_time=header.pop_time,
        invisible_time=header.invisible_time,
        revive_queue=header.revive_qid,
        retry=retry,
        broker_name=stored.broker_name,
        queue_id=stored.queue_id,
        offset=stored.queue_offset,
    )


def _now_ms() -> int:
    return int(time.time() * 1000)
