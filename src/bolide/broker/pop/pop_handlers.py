"""POP_MESSAGE: admission, what a pop returns, and waiting for messages (`PopMessageProcessor`)."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count

from bolide.broker.background import Background
from bolide.broker.filters.filters import Filters
from bolide.broker.gate import Hooks
from bolide.broker.pop.delivery import Ask, Reading, Steps, Take, Taken
from bolide.broker.pop.polling import MOST_MESSAGES, Asked, Place, remaining, waiting_queue
from bolide.broker.pop.pop import Pop
from bolide.broker.pop.revival import shown
from bolide.broker.produce.durability import Answer, future_of, promise_of, unavailable
from bolide.broker.settings.config import BrokerConfig
from bolide.broker.statistics import Statistics
from bolide.config import ConfigCell
from bolide.kernel import read_record
from bolide.model.names import is_retry_topic
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.headers.pop import PopHeader, PopReply
from bolide.protocol.headers.pull import PullHeader
from bolide.protocol.pop_info import (
    ORDERED,
    Receipt,
    message_offsets,
    order_counts,
    retry_mark,
    start_offsets,
)
from bolide.protocol.record import Record
from bolide.protocol.record_errors import BadRecord
from bolide.protocol.refusals import InvalidParameter
from bolide.remoting.dispatch import DeferredReply, Reply, Request, handles
from bolide.store.errors import NotInMemory, StoreClosed, StoreUnwritable
from bolide.store.reading import EVERYTHING

_numbers = count()


def nothing_reply(header: PopHeader, code: ResponseCode, pop_time: int, rest: int) -> Reply:
    """Clients read the numbers whatever the code is."""
    answer = PopReply(
        pop_time=pop_time,
        invisible_time=header.invisible_time,
        revive_qid=ORDERED if header.order else 0,
        rest_num=rest,
    )
    return Reply(code=code, header=answer, remark="NO_MESSAGE_IN_QUEUE")


def found_reply(ask: Ask, taken: Taken, config: BrokerConfig) -> Reply:
    header = ask.header
    revive_queue = ORDERED if header.order else next(_numbers) % config.revive_queue_num
    takes = taken.takes
    counts = [
        order_counts(take.topic, take.queue_id, info.counts or {}, info.least_count)
        for take, info in taken.orders
    ]
    answer = PopReply(
        pop_time=taken.pop_time,
        invisible_time=max(header.invisible_time, 0),
        revive_qid=revive_queue,
        rest_num=taken.rest,
        start_offset_info=start_offsets((take.topic, take.queue_id, take.start) for take in takes),
        msg_offset_info=message_offsets(
            (take.topic, take.queue_id, take.offsets) for take in takes
        ),
        order_count_info=";".join(counts) if header.order else None,
    )
    body = b"".join(_body(ask, taken, take, revive_queue, config) for take in takes)
    return Reply(header=answer, body=body, remark="FOUND")


def _body(ask: Ask, taken: Taken, take: Take, revive_queue: int, config: BrokerConfig) -> bytes:
    if not is_retry_topic(take.topic) or config.pop_response_return_actual_retry_topic:
        return b"".join(take.found.records)
    if take.topic == ask.header.topic:
        return b"".join(take.found.records)
    return b"".join(
        _renamed(ask, taken, take, record, revive_queue, config.broker_name)
        for record in take.found.records
    )


def _renamed(
    ask: Ask, taken: Taken, take: Take, data: memoryview, revive_queue: int, broker_name: str
) -> bytes:
    try:
        record = read_record(data)
    except BadRecord:
        return bytes(data)  # its consumer finds out
    assert isinstance(record, Record)
    receipt = Receipt(
        take.start, taken.pop_time, max(ask.header.invisible_time, 0), revive_queue,
        retry_mark(take.topic), broker_name, take.queue_id, record.queue_offset,
    )  # fmt: skip
    return shown(record, ask.header.topic, receipt)


_TOO_LATE = 500
"""Milliseconds after its own deadline that nobody waits for a pop any more."""


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
    def pop(self, request: Request[PopHeader]) -> Reply | DeferredReply:
        header = request.header
        if remaining(header, self._now_ms()) < -_TOO_LATE:
            return nothing_reply(header, ResponseCode.POLLING_TIMEOUT, self._now_ms(), 0)
        topic = self._pop.admission.admit(header, request.connection.peer, "pop message")
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

    # ---- serving

    def _serve(self, ask: Ask) -> Reply | DeferredReply:
        taken = self._take(ask)
        if isinstance(taken, _Cold):
            return self._parts.background.answer(self._go_on(ask, taken))
        reply = self._answer(ask, taken)
        if reply is None:
            return self._hold(ask, taken)
        if not self._pop.durability.waits:
            return reply
        later = DeferredReply()
        self._give(later, reply)
        return later

    def _take(self, ask: Ask) -> "Taken | _Cold":
        """What can be taken without a wait for the disk, or how to go on with one."""
        if self._pop.is_closing:
            return Taken()
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
        except StopIteration as end:
            taken: Taken = end.value
        except (StoreUnwritable, StoreClosed) as exc:
            raise unavailable(exc) from exc
        finally:
            steps.close()
            self._pop.polling.wake(topic, group)  # those who have passed by meanwhile
        reply = self._answer(ask, taken)
        if reply is None:  # it asks again at once, and waits then
            return self._nothing(ask, taken)
        done: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._pop.journal.when_safe(Answer(future_of(done), reply=reply, even_late=True).tell)
        return await done

    def _give(self, later: DeferredReply, reply: Reply) -> None:
        """Hand messages over when it is safe that they were: or a crash would show them to others
        at once."""
        self._pop.journal.when_safe(Answer(promise_of(later), reply=reply, even_late=True).tell)

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

    def _hold(self, ask: Ask, taken: Taken) -> Reply | DeferredReply:
        header = ask.header
        place = Place(
            Asked.MESSAGES, header.topic, header.consumer_group, waiting_queue(header.queue_id)
        )
        left = remaining(header, self._now_ms())
        if left <= 0:
            return self._nothing(ask, taken)
        if self._pop.polling.is_full(place):
            return self._nothing(ask, taken, ResponseCode.POLLING_FULL)

        def attempt(later: DeferredReply, is_last: bool) -> bool:
            return self._look_again(ask, later, is_last=is_last)

        later = self._pop.polling.hold(place, left / 1000, attempt)
        self._have_go_on(ask, taken)
        return later

    def _have_go_on(self, ask: Ask, taken: Taken) -> None:
        """Have one of those who wait look further, if there is more to look at."""
        if taken.goes_on:
            self._pop.polling.wake(ask.header.topic, ask.header.consumer_group)

    def _look_again(self, ask: Ask, later: DeferredReply, *, is_last: bool) -> bool:
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
        if reply is not None:
            self._give(later, reply)
        elif is_last:
            later.answer(self._nothing(ask, taken))
        else:
            self._have_go_on(ask, taken)
        return reply is not None or is_last

    # ---- inside

    def _now_ms(self) -> int:
        return int(self._parts.now() * 1000)


@dataclass(frozen=True, slots=True)
class _Cold:
    """A pop that has to wait for the disk, and for what."""

    steps: Steps
    reading: Reading


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
