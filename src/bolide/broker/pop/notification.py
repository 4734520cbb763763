"""Requests that look at poppable messages without leasing them (`NotificationProcessor`,
`PeekMessageProcessor`, `PollingInfoProcessor`).
"""

from collections.abc import Callable

import msgspec

from bolide.broker.pop.delivery import QueueRead
from bolide.broker.pop.polling import MAX_MESSAGES, PollKey, PollKind, remaining, waiting_queue
from bolide.broker.pop.pop import Pop
from bolide.broker.settings.config import BrokerConfig
from bolide.config import ConfigCell
from bolide.protocol.bodies.topics import TopicConfig
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.headers.pop import (
    NOTHING_POPPED,
    NotificationHeader,
    NotificationReply,
    PeekHeader,
    PollingHeader,
    PollingReply,
)
from bolide.protocol.refusals import InvalidParameter
from bolide.remoting.dispatch import DeferredReply, Reply, Request, handles
from bolide.store.reading import EVERYTHING, ReadLimits, ReadResult

_TO_PEEK = "peeking message"


class NotificationHandlers:
    """Serve NOTIFICATION, POLLING_INFO and PEEK_MESSAGE."""

    def __init__(self, pop: Pop, cell: ConfigCell[BrokerConfig], now: Callable[[], float]) -> None:
        self._pop = pop
        self._cell = cell
        self._now = now

    @handles(
        NotificationHeader,
        RequestCode.NOTIFICATION,
        refused_with=NotificationReply(has_msg=False),
    )
    def notify(self, request: Request[NotificationHeader]) -> Reply | DeferredReply:
        """Answer once there is a message to pop, or when the poll time is over."""
        self._pop.require_serving()
        header = request.header
        topic = self._pop.admission.admit(header, request.connection.peer, _TO_PEEK)
        if self._count_messages(header, topic):
            return Reply(header=NotificationReply(has_msg=True))
        key = PollKey(
            PollKind.NOTICE, header.topic, header.consumer_group, waiting_queue(header.queue_id)
        )
        left = remaining(header, self._now_ms())
        if left <= 0:
            return Reply(header=NotificationReply(has_msg=False))
        if self._pop.polling.is_full(key):
            return Reply(header=NotificationReply(has_msg=False, polling_full=True))

        def attempt(deferred: DeferredReply, is_last: bool) -> bool:
            has_more = not self._pop.polling.withholds and self._count_messages(header, topic) > 0
            if has_more or is_last:
                deferred.answer(Reply(header=NotificationReply(has_msg=has_more)))
            return has_more or is_last

        return self._pop.polling.hold(
            key, left / 1000, attempt, lambda: self._count_messages(header, topic)
        )

    def _count_messages(self, header: NotificationHeader, topic: TopicConfig) -> int:
        """Count the messages that the request could pop."""
        group, name = header.consumer_group, header.topic
        queues = range(topic.read_queue_nums) if header.queue_id < 0 else [header.queue_id]
        targets = [(name, queue_id) for queue_id in queues]
        if not header.order:
            targets += [
                (config.topic_name, queue_id)
                for config in self._pop.retry_topics.readable(group, name)
                for queue_id in range(config.read_queue_nums)
            ]
        return sum(
            self._pop.count_messages(target, group, queue_id, ordered=header.order)
            for target, queue_id in targets
            if self._pop.is_open(target, group, queue_id, header.attempt_id, ordered=header.order)
        )

    @handles(PollingHeader, RequestCode.POLLING_INFO, refused_with=PollingReply(0))
    def polling_info(self, request: Request[PollingHeader]) -> Reply:
        header = request.header
        self._pop.admission.admit(header, request.connection.peer, _TO_PEEK)
        queue_id = waiting_queue(header.queue_id)
        key = PollKey(PollKind.MESSAGES, header.topic, header.consumer_group, queue_id)
        return Reply(header=PollingReply(self._pop.polling.waiting_count(key)))

    # ---- peeking

    @handles(PeekHeader, RequestCode.PEEK_MESSAGE, refused_with=NOTHING_POPPED)
    async def peek(self, request: Request[PeekHeader]) -> Reply:
        """Read as a pop does, without leasing the messages."""
        header = request.header
        topic = self._pop.admission.admit(header, request.connection.peer, _TO_PEEK)
        if not 0 < header.max_msg_nums <= MAX_MESSAGES:
            raise InvalidParameter(
                f"maxMsgNums={header.max_msg_nums}: must be from 1 to {MAX_MESSAGES}"
            )
        records, rest = await self._peek_queues(header, topic)
        answer = msgspec.structs.replace(NOTHING_POPPED, rest_num=rest)
        code = ResponseCode.SUCCESS if records else ResponseCode.PULL_NOT_FOUND
        return Reply(code=code, header=answer, body=b"".join(records))

    async def _peek_queues(self, header: PeekHeader, topic: TopicConfig) -> tuple[list[bytes], int]:
        group, records, rest = header.consumer_group, list[bytes](), 0
        size = self._cell.value.max_pull_bytes
        queues = range(topic.read_queue_nums) if header.queue_id < 0 else [header.queue_id]
        configs = self._pop.retry_topics.readable(group, header.topic)
        targets = [(header.topic, queue_id) for queue_id in queues]
        targets += [(each.topic_name, at) for each in configs for at in range(each.read_queue_nums)]
        for name, queue_id in targets:
            begin = self._pop.positions.peek((name, group, queue_id))
            rest += self._pop.store.max_offset(name, queue_id) - begin
            left = header.max_msg_nums - len(records)
            if left > 0 and size > 0:
                limits = ReadLimits(left, size)
                reading = QueueRead(name, queue_id, begin, limits, EVERYTHING)
                found: ReadResult = await self._pop.delivery.read_cold(reading)
                records += [bytes(record) for record in found.records]
                size -= found.size
        return records, rest

    def _now_ms(self) -> int:
        return int(self._now() * 1000)
