"""Pops: who may, what they get, and the waiting for what is not there yet
(`PopMessageProcessor`)."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from bolide.broker.background import Background
from bolide.broker.config import BrokerConfig
from bolide.broker.durability import unavailable
from bolide.broker.filters.filters import Filters
from bolide.broker.hooks import Hooks
from bolide.broker.pop.admission import MOST_MESSAGES, remaining, waiting_queue
from bolide.broker.pop.answers import Answer, future_of, promise_of
from bolide.broker.pop.polling import Asked, Place
from bolide.broker.pop.replies import found_reply, nothing_reply
from bolide.broker.pop.service import Pop
from bolide.broker.pop.serving import Ask, Reading, Steps, Taken
from bolide.broker.statistics import Statistics
from bolide.config import ConfigCell
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.headers.pop import (
    PopHeader,
)
from bolide.protocol.headers.pull import PullHeader
from bolide.protocol.refusals import InvalidParameter
from bolide.remoting.dispatch import Later, Reply, Request, handles
from bolide.store.errors import NotInMemory, StoreClosed, StoreUnwritable
from bolide.store.reading import EVERYTHING

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
    def pop(self, request: Request[PopHeader]) -> Reply | Later:
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

    def _serve(self, ask: Ask) -> Reply | Later:
        taken = self._take(ask)
        if isinstance(taken, _Cold):
            return self._parts.background.answer(self._go_on(ask, taken))
        reply = self._answer(ask, taken)
        if reply is None:
            return self._hold(ask, taken)
        if not self._pop.durability.waits:
            return reply
        later = Later()
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

    def _give(self, later: Later, reply: Reply) -> None:
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

    def _hold(self, ask: Ask, taken: Taken) -> Reply | Later:
        header = ask.header
        place = Place(
            Asked.MESSAGES, header.topic, header.consumer_group, waiting_queue(header.queue_id)
        )
        left = remaining(header, self._now_ms())
        if left <= 0:
            return self._nothing(ask, taken)
        if self._pop.polling.is_full(place):
            return self._nothing(ask, taken, ResponseCode.POLLING_FULL)

        def attempt(later: Later, is_last: bool) -> bool:
            return self._look_again(ask, later, is_last=is_last)

        later = self._pop.polling.hold(place, left / 1000, attempt)
        self._have_go_on(ask, taken)
        return later

    def _have_go_on(self, ask: Ask, taken: Taken) -> None:
        """Have one of those who wait look further, if there is more to look at."""
        if taken.goes_on:
            self._pop.polling.wake(ask.header.topic, ask.header.consumer_group)

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
