"""Looking at what there is to pop, without taking it (`NotificationProcessor`,
`PeekMessageProcessor`, `PollingInfoProcessor`)."""

from collections.abc import Callable

from bolide.broker.pop.delivery import Reading
from bolide.broker.pop.polling import MOST_MESSAGES, Asked, Place, remaining, waiting_queue
from bolide.broker.pop.pop import Pop
from bolide.broker.settings.config import BrokerConfig
from bolide.config import ConfigCell
from bolide.protocol.bodies.topics import TopicConfig
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.headers.pop import (
    NotificationHeader,
    NotificationReply,
    PeekHeader,
    PollingHeader,
    PollingReply,
    PopReply,
)
from bolide.protocol.refusals import InvalidParameter
from bolide.remoting.dispatch import DeferredReply, Reply, Request, handles
from bolide.store.reading import EVERYTHING, Found, ReadLimits

_TO_PEEK = "peeking message"


class NotificationHandlers:
    """Tell consumers what they could pop."""

    def __init__(self, pop: Pop, cell: ConfigCell[BrokerConfig], now: Callable[[], float]) -> None:
        self._pop = pop
        self._cell = cell
        self._now = now

    @handles(NotificationHeader, RequestCode.NOTIFICATION)
    def notify(self, request: Request[NotificationHeader]) -> Reply | DeferredReply:
        """Tell when there is something to pop."""
        header = request.header
        topic = self._pop.admission.admit(header, request.connection.peer, _TO_PEEK)
        if self._has_more(header, topic):
            return Reply(header=NotificationReply(has_msg=True))
        place = Place(
            Asked.NOTICE, header.topic, header.consumer_group, waiting_queue(header.queue_id)
        )
        left = remaining(header, self._now_ms())
        if left <= 0:
            return Reply(header=NotificationReply(has_msg=False))
        if self._pop.polling.is_full(place):
            return Reply(header=NotificationReply(has_msg=False, polling_full=True))

        def attempt(later: DeferredReply, is_last: bool) -> bool:
            has_more = self._has_more(header, topic)
            if has_more or is_last:
                later.answer(Reply(header=NotificationReply(has_msg=has_more)))
            return has_more or is_last

        return self._pop.polling.hold(place, left / 1000, attempt)

    def _has_more(self, header: NotificationHeader, topic: TopicConfig) -> bool:
        group, name = header.consumer_group, header.topic
        queues = range(topic.read_queue_nums) if header.queue_id < 0 else [header.queue_id]
        places = [(name, queue_id) for queue_id in queues]
        if not header.order:
            places += [
                (config.topic_name, queue_id)
                for config in self._pop.retries.readable(group, name)
                for queue_id in range(config.read_queue_nums)
            ]
        return any(
            self._pop.is_open(place, group, queue_id, header.attempt_id, ordered=header.order)
            and self._pop.has_more(place, group, queue_id)
            for place, queue_id in places
        )

    @handles(PollingHeader, RequestCode.POLLING_INFO)
    def polling_info(self, request: Request[PollingHeader]) -> Reply:
        header = request.header
        self._pop.admission.admit(header, request.connection.peer, _TO_PEEK)
        queue_id = waiting_queue(header.queue_id)
        place = Place(Asked.MESSAGES, header.topic, header.consumer_group, queue_id)
        return Reply(header=PollingReply(self._pop.polling.waiting(place)))

    # ---- looking

    @handles(PeekHeader, RequestCode.PEEK_MESSAGE)
    async def peek(self, request: Request[PeekHeader]) -> Reply:
        """As a pop, but nothing is taken."""
        header = request.header
        topic = self._pop.admission.admit(header, request.connection.peer, _TO_PEEK)
        if not 0 < header.max_msg_nums <= MOST_MESSAGES:
            raise InvalidParameter(
                f"maxMsgNums={header.max_msg_nums}: 1 to {MOST_MESSAGES} are fit"
            )
        records, rest = await self._look(header, topic)
        answer = PopReply(pop_time=self._now_ms(), invisible_time=0, revive_qid=0, rest_num=rest)
        code = ResponseCode.SUCCESS if records else ResponseCode.PULL_NOT_FOUND
        return Reply(code=code, header=answer, body=b"".join(records))

    async def _look(self, header: PeekHeader, topic: TopicConfig) -> tuple[list[bytes], int]:
        group, records, rest = header.consumer_group, list[bytes](), 0
        size = self._cell.value.max_pull_bytes
        queues = range(topic.read_queue_nums) if header.queue_id < 0 else [header.queue_id]
        configs = self._pop.retries.readable(group, header.topic)
        places = [(header.topic, queue_id) for queue_id in queues]
        places += [(each.topic_name, at) for each in configs for at in range(each.read_queue_nums)]
        for name, queue_id in places:
            begin = self._pop.positions.peek((name, group, queue_id))
            rest += self._pop.store.max_offset(name, queue_id) - begin
            left = header.max_msg_nums - len(records)
            if left > 0 and size > 0:
                limits = ReadLimits(left, size)
                reading = Reading(name, queue_id, begin, limits, EVERYTHING)
                found: Found = await self._pop.popping.read_cold(reading)
                records += [bytes(record) for record in found.records]
                size -= found.size
        return records, rest

    def _now_ms(self) -> int:
        return int(self._now() * 1000)
