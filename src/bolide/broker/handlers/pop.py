"""Pops: who may, what they get, and the waiting for what is not there yet
(`PopMessageProcessor`, `NotificationProcessor`, `PeekMessageProcessor`)."""

from collections.abc import Callable
from dataclasses import dataclass

from bolide.broker.background import Background
from bolide.broker.config import BrokerConfig
from bolide.broker.durability import unavailable
from bolide.broker.filters.filters import Filters
from bolide.broker.hooks import Hooks
from bolide.broker.pop.polling import ALL_QUEUES, Asked, Place
from bolide.broker.pop.replies import found_reply, nothing_reply
from bolide.broker.pop.service import Pop
from bolide.broker.pop.serving import Ask, Reading, Steps, Taken
from bolide.broker.statistics import Statistics
from bolide.config import ConfigCell
from bolide.model.names import READ
from bolide.protocol.bodies.topics import TopicConfig
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.headers.pop import (
    NotificationHeader,
    NotificationReply,
    PeekHeader,
    PollingHeader,
    PollingReply,
    PopHeader,
    PopReply,
)
from bolide.protocol.headers.pull import PullHeader
from bolide.protocol.refusals import InvalidParameter, NoPermission
from bolide.remoting.dispatch import Later, Reply, Request, handles
from bolide.store.errors import NotInMemory, StoreClosed, StoreUnwritable
from bolide.store.reading import EVERYTHING, Found, ReadLimits

MOST_MESSAGES = 32
"""That a pop may ask for."""
_TOO_LATE = 500
"""Milliseconds after its own deadline that nobody waits for a pop any more."""
_LONGEST_POLL = 3_600_000

AnyHeader = PopHeader | PeekHeader | NotificationHeader | PollingHeader


@dataclass(frozen=True, slots=True, kw_only=True)
class PopParts:
    """What pops need of the broker."""

    cell: ConfigCell[BrokerConfig]
    pop: Pop
    filters: Filters
    statistics: Statistics
    background: Background
    hooks: Hooks
    now: Callable[[], float]


class PopHandlers:
    """Give messages to consumers that pop."""

    def __init__(self, parts: PopParts) -> None:
        self._parts = parts
        self._pop = parts.pop

    @handles(PopHeader, RequestCode.POP_MESSAGE)
    def pop(self, request: Request[PopHeader]) -> Reply | Later:
        header = request.header
        if self._remaining(header) < -_TOO_LATE:
            return nothing_reply(header, ResponseCode.POLLING_TIMEOUT, self._now_ms(), 0)
        topic = self._admit(request.header, request.connection.peer, "pop message")
        if not 0 < header.max_msg_nums <= MOST_MESSAGES:
            raise InvalidParameter(
                f"the broker[{self._parts.cell.value.broker_ip1}] pop message's num is"
                f" {header.max_msg_nums}: it must be from 1 to {MOST_MESSAGES}"
            )
        self._pop.retries.check(header.consumer_group, header.topic)
        wanted = EVERYTHING
        if header.exp:
            wanted = self._parts.filters.wanted_by(header.exp_type, header.exp)
        ask = Ask(header, topic, wanted, request.connection.peer, self._parts.now())
        return self._serve(ask)

    # ---- admission

    def _admit(
        self,
        header: PopHeader | PeekHeader | NotificationHeader | PollingHeader,
        peer: str,
        to: str,
    ) -> TopicConfig:
        config = self._parts.cell.value
        if not config.broker_permission & READ:
            raise NoPermission(f"the broker[{config.broker_ip1}] {to} is forbidden")
        topic = self._pop.topics.require(header.topic)
        if not topic.perm & READ:
            raise NoPermission(f"the topic[{header.topic}] {to} is forbidden")
        if header.queue_id >= topic.read_queue_nums:
            raise InvalidParameter(
                f"queueId[{header.queue_id}] is illegal, topic:[{header.topic}]"
                f" topicConfig.readQueueNums:[{topic.read_queue_nums}] consumer:[{peer}]"
            )
        group = self._pop.groups.require(header.consumer_group)
        if not group.consume_enable:
            raise NoPermission(f"subscription group no permission, {header.consumer_group}")
        if not self._pop.groups.is_readable(header.consumer_group, header.topic):
            raise NoPermission(
                f"the consumer group[{header.consumer_group}] is forbidden for"
                f" topic[{header.topic}]"
            )
        return topic

    # ---- serving

    def _serve(self, ask: Ask) -> Reply | Later:
        taken = self._take(ask)
        if isinstance(taken, _Cold):
            return self._parts.background.answer(self._go_on(ask, taken))
        return self._answer(ask, taken) or self._hold(ask, taken)

    def _take(self, ask: Ask) -> "Taken | _Cold":
        """What can be taken without a wait for the disk, or how to go on with one."""
        steps = self._pop.popping.steps(ask)
        reading: Reading | None = None
        try:
            reading = next(steps)
            while True:
                reading = steps.send(self._pop.popping.read(reading, may_block=False))
        except StopIteration as done:
            taken: Taken = done.value
            return taken
        except NotInMemory:
            assert reading is not None
            return _Cold(steps, reading)
        except (StoreUnwritable, StoreClosed) as exc:
            raise unavailable(exc) from exc

    async def _go_on(self, ask: Ask, cold: "_Cold") -> Reply:
        steps, reading = cold.steps, cold.reading
        group, topic = ask.header.consumer_group, ask.header.topic
        try:
            while True:
                reading = steps.send(await self._pop.popping.read_cold(reading))
        except StopIteration as done:
            taken: Taken = done.value
        except (StoreUnwritable, StoreClosed) as exc:
            raise unavailable(exc) from exc
        finally:
            steps.close()
            self._pop.polling.wake(topic, group)  # those who have passed by meanwhile
        # Nothing for it: it asks again at once, and waits then.
        return self._answer(ask, taken) or self._nothing(ask, taken)

    def _answer(self, ask: Ask, taken: Taken) -> Reply | None:
        """The answer to a pop that got something."""
        if not taken.takes:
            return None
        self._pop.wake()
        self._count(ask, taken)
        if taken.rest > 0:
            self._pop.polling.wake(ask.header.topic, ask.header.consumer_group)
        return found_reply(ask, taken, self._parts.cell.value)

    def _count(self, ask: Ask, taken: Taken) -> None:
        statistics, group = self._parts.statistics, ask.header.consumer_group
        took = self._parts.now() - ask.begun
        for take in taken.takes:
            count, size = len(take.offsets), take.found.size
            statistics.got(group, take.topic, take.queue_id, count, size, took)
            for hook in self._parts.hooks.consume:
                hook.after_pull(ask.peer, _as_pull(ask, take.queue_id, take.start), count, size)
        statistics.popped(group, ask.header.topic)

    def _nothing(
        self, ask: Ask, taken: Taken, code: ResponseCode = ResponseCode.POLLING_TIMEOUT
    ) -> Reply:
        self._parts.statistics.got_nothing()
        return nothing_reply(ask.header, code, self._now_ms(), taken.rest)

    # ---- waiting

    def _hold(self, ask: Ask, taken: Taken) -> Reply | Later:
        header = ask.header
        place = Place(Asked.MESSAGES, header.topic, header.consumer_group, _queue(header.queue_id))
        remaining = self._remaining(header)
        if remaining <= 0:
            return self._nothing(ask, taken)
        if self._pop.polling.is_full(place):
            return self._nothing(ask, taken, ResponseCode.POLLING_FULL)

        def attempt(later: Later, is_last: bool) -> bool:
            return self._look_again(ask, later, is_last=is_last)

        return self._pop.polling.hold(place, remaining / 1000, attempt)

    def _look_again(self, ask: Ask, later: Later, *, is_last: bool) -> bool:
        ask.begun = self._parts.now()
        try:
            if later.is_blocked:  # it gets no messages on top of what it does not read
                later.answer(self._nothing(ask, Taken()))
                return True
            taken = self._take(ask)
        except Exception as exc:  # noqa: BLE001  the dispatcher turns it into a response
            later.fail(exc)
            return True
        if isinstance(taken, _Cold):
            self._parts.background.settle(later, self._go_on(ask, taken))
            return True
        reply = self._answer(ask, taken)
        if reply is None and is_last:
            reply = self._nothing(ask, taken)
        if reply is not None:
            later.answer(reply)
        return reply is not None

    @handles(NotificationHeader, RequestCode.NOTIFICATION)
    def notify(self, request: Request[NotificationHeader]) -> Reply | Later:
        """Tell when there is something to pop."""
        header = request.header
        topic = self._admit(header, request.connection.peer, "peeking message")
        if self._has_more(header, topic):
            return Reply(header=NotificationReply(has_msg=True))
        place = Place(Asked.NOTICE, header.topic, header.consumer_group, _queue(header.queue_id))
        remaining = self._remaining(header)
        if remaining <= 0:
            return Reply(header=NotificationReply(has_msg=False))
        if self._pop.polling.is_full(place):
            return Reply(header=NotificationReply(has_msg=False, polling_full=True))

        def attempt(later: Later, is_last: bool) -> bool:
            has_more = self._has_more(header, topic)
            if has_more or is_last:
                later.answer(Reply(header=NotificationReply(has_msg=has_more)))
            return has_more or is_last

        return self._pop.polling.hold(place, remaining / 1000, attempt)

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
        self._admit(header, request.connection.peer, "peeking message")
        queue_id = _queue(header.queue_id)
        place = Place(Asked.MESSAGES, header.topic, header.consumer_group, queue_id)
        return Reply(header=PollingReply(self._pop.polling.waiting(place)))

    # ---- looking

    @handles(PeekHeader, RequestCode.PEEK_MESSAGE)
    async def peek(self, request: Request[PeekHeader]) -> Reply:
        """As a pop, but nothing is taken."""
        header = request.header
        topic = self._admit(header, request.connection.peer, "peeking message")
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
        size = self._parts.cell.value.max_pull_bytes
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

    # ---- inside

    def _now_ms(self) -> int:
        return int(self._parts.now() * 1000)

    def _remaining(self, header: PopHeader | NotificationHeader) -> int:
        """Milliseconds until the client gives up; the clock is its own."""
        if header.poll_time <= 0:
            return 0
        born = header.born_time or self._now_ms()
        left = born + header.poll_time - self._now_ms()
        return min(left, header.poll_time, _LONGEST_POLL)


@dataclass(frozen=True, slots=True)
class _Cold:
    """A pop that has to wait for the disk, and for what."""

    steps: Steps
    reading: Reading


def _queue(queue_id: int) -> int:
    return queue_id if queue_id >= 0 else ALL_QUEUES


def _as_pull(ask: Ask, queue_id: int, start: int) -> PullHeader:
    """A delivery as hooks see it."""
    header = ask.header
    return PullHeader(
        consumer_group=header.consumer_group,
        topic=header.topic,
        queue_id=queue_id,
        queue_offset=start,
        max_msg_nums=header.max_msg_nums,
        sys_flag=0,
        commit_offset=0,
        suspend_timeout_millis=header.poll_time,
        subscription=header.exp or "*",
        sub_version=0,
    )
