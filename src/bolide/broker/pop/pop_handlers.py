"""POP_MESSAGE: admission, delivery and long polling (`PopMessageProcessor`)."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count

from bolide.broker.background import Background
from bolide.broker.filters.filters import Filters
from bolide.broker.gate import Hooks
from bolide.broker.pop.delivery import AdmittedPop, PopResult, PopSteps, QueueBatch, QueueRead
from bolide.broker.pop.polling import MAX_MESSAGES, PollKey, PollKind, remaining, waiting_queue
from bolide.broker.pop.pop import Pop
from bolide.broker.pop.revival import with_original_topic
from bolide.broker.produce.durability import (
    ReplyWhenDurable,
    complete_deferred,
    complete_future,
    unavailable,
)
from bolide.broker.settings.config import BrokerConfig
from bolide.broker.statistics import Statistics
from bolide.config import ConfigCell
from bolide.kernel import read_record
from bolide.model.names import is_retry_topic
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.headers.pop import NOTHING_POPPED, PopHeader, PopReply
from bolide.protocol.headers.pull import PullHeader
from bolide.protocol.pop_info import (
    ORDERED,
    Receipt,
    message_offsets,
    order_counts,
    retry_kind,
    start_offsets,
)
from bolide.protocol.record import Record
from bolide.protocol.record_errors import BadRecord
from bolide.protocol.refusals import InvalidParameter
from bolide.remoting.dispatch import DeferredReply, Reply, Request, handles
from bolide.store.errors import NotInMemory, StoreClosed, StoreUnwritable
from bolide.store.reading import EVERYTHING

_ABANDONED_AFTER_MS = 500
"""Milliseconds after its deadline at which the client of a pop has given up."""

_revive_numbers = count()


@dataclass(frozen=True, slots=True, kw_only=True)
class PopParts:
    """Collaborators of `PopHandlers`."""

    cell: ConfigCell[BrokerConfig]
    pop: Pop
    filters: Filters
    statistics: Statistics
    background: Background
    hooks: Hooks
    now: Callable[[], float]


class PopHandlers:
    """Serve POP_MESSAGE."""

    def __init__(self, parts: PopParts) -> None:
        self._parts = parts
        self._pop = parts.pop

    @handles(PopHeader, RequestCode.POP_MESSAGE, refused_with=NOTHING_POPPED)
    def pop(self, request: Request[PopHeader]) -> Reply | DeferredReply:
        header = request.header
        self._pop.require_serving()
        if remaining(header, self._now_ms()) < -_ABANDONED_AFTER_MS:
            return empty_reply(header, ResponseCode.POLLING_TIMEOUT, self._now_ms(), 0)
        topic = self._pop.admission.admit(header, request.connection.peer, "pop message")
        if not 0 < header.max_msg_nums <= MAX_MESSAGES:
            raise InvalidParameter(
                f"the broker[{self._parts.cell.value.broker_ip1}] pop message's num is"
                f" {header.max_msg_nums}: it must be from 1 to {MAX_MESSAGES}"
            )
        self._pop.retry_topics.check(header.consumer_group, header.topic)
        wanted = EVERYTHING
        if header.exp:
            wanted = self._parts.filters.filter_for(header.exp_type, header.exp)
        admitted = AdmittedPop(header, topic, wanted, request.connection.peer, self._parts.now())
        return self._serve(admitted)

    # ---- serving

    def _serve(self, admitted: AdmittedPop) -> Reply | DeferredReply:
        result = self._try_pop(admitted)
        if isinstance(result, _ColdPop):
            return self._parts.background.defer(self._finish_cold(admitted, result))
        reply = self._reply_with_messages(admitted, result)
        if reply is None:
            return self._hold(admitted, result)
        if not self._pop.durability.waits:
            return reply
        deferred = DeferredReply()
        self._reply_when_durable(deferred, reply)
        return deferred

    def _try_pop(self, admitted: AdmittedPop) -> "PopResult | _ColdPop":
        """Pop from memory; return the state of the pop if a read needs the disk."""
        if self._pop.is_closing or not self._pop.is_serving:
            return PopResult()
        steps = self._pop.delivery.steps(admitted)
        reading: QueueRead | None = None
        try:
            reading = next(steps)
            while True:
                reading = steps.send(self._pop.delivery.read(reading, may_block=False))
        except StopIteration as done:
            result: PopResult = done.value
            return result
        except NotInMemory:
            assert reading is not None
            return _ColdPop(steps, reading)
        except (StoreUnwritable, StoreClosed) as exc:
            raise unavailable(exc) from exc

    async def _finish_cold(self, admitted: AdmittedPop, cold: "_ColdPop") -> Reply:
        steps, reading = cold.steps, cold.reading
        group, topic = admitted.header.consumer_group, admitted.header.topic
        try:
            while True:
                reading = steps.send(await self._pop.delivery.read_cold(reading))
        except StopIteration as end:
            result: PopResult = end.value
        except (StoreUnwritable, StoreClosed) as exc:
            raise unavailable(exc) from exc
        finally:
            steps.close()
            self._pop.polling.wake(topic, group)  # pops that skipped the busy queues meanwhile
        reply = self._reply_with_messages(admitted, result)
        if reply is None:  # the client polls again at once, and may wait then
            return self._empty(admitted, result)
        done: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._pop.journal.when_durable(
            ReplyWhenDurable(complete_future(done), reply=reply, even_late=True).complete
        )
        return await done

    def _reply_when_durable(self, deferred: DeferredReply, reply: Reply) -> None:
        """Answer once the journal record is durable: a crash before that would deliver the
        messages to other consumers at once."""
        self._pop.journal.when_durable(
            ReplyWhenDurable(complete_deferred(deferred), reply=reply, even_late=True).complete
        )

    def _reply_with_messages(self, admitted: AdmittedPop, result: PopResult) -> Reply | None:
        """Build the reply to a pop that got messages; None if it got none."""
        if not result.batches:
            return None
        self._pop.wake()
        self._record_delivery(admitted, result)
        if result.rest > 0:
            self._pop.polling.wake(admitted.header.topic, admitted.header.consumer_group)
        return found_reply(admitted, result, self._parts.cell.value)

    def _record_delivery(self, admitted: AdmittedPop, result: PopResult) -> None:
        statistics, group = self._parts.statistics, admitted.header.consumer_group
        elapsed = self._parts.now() - admitted.begun
        for batch in result.batches:
            count, size = len(batch.offsets), batch.found.size
            statistics.got_by_calls(1, group, batch.topic, batch.queue_id, count, size, None)
            statistics.traffic.popped(group, batch.topic, count, size)
            for hook in self._parts.hooks.consume:
                hook.after_pull(
                    admitted.peer, _as_pull(admitted, batch.queue_id, batch.start), count, size
                )
        header = admitted.header
        statistics.popped(group, header.topic, header.queue_id, elapsed)
        if not header.order:
            statistics.leased(group, header.topic, len(result.batches))

    def _empty(
        self,
        admitted: AdmittedPop,
        result: PopResult,
        code: ResponseCode = ResponseCode.POLLING_TIMEOUT,
    ) -> Reply:
        self._parts.statistics.got_nothing()
        return empty_reply(admitted.header, code, self._now_ms(), result.rest)

    # ---- waiting

    def _hold(self, admitted: AdmittedPop, result: PopResult) -> Reply | DeferredReply:
        header = admitted.header
        key = PollKey(
            PollKind.MESSAGES, header.topic, header.consumer_group, waiting_queue(header.queue_id)
        )
        left = remaining(header, self._now_ms())
        if left <= 0:
            return self._empty(admitted, result)
        if self._pop.polling.is_full(key):
            return self._empty(admitted, result, ResponseCode.POLLING_FULL)

        def attempt(deferred: DeferredReply, is_last: bool) -> bool:
            return self._retry(admitted, deferred, is_last=is_last)

        deferred = self._pop.polling.hold(key, left / 1000, attempt)
        self._continue_scan(admitted, result)
        return deferred

    def _continue_scan(self, admitted: AdmittedPop, result: PopResult) -> None:
        """Wake a waiter to scan on if this pop stopped at the scan limit."""
        if result.hit_scan_limit:
            self._pop.polling.wake(admitted.header.topic, admitted.header.consumer_group)

    def _retry(self, admitted: AdmittedPop, deferred: DeferredReply, *, is_last: bool) -> bool:
        admitted.begun = self._parts.now()
        try:
            # No messages on top of unread replies, and none without a permission.
            if deferred.is_blocked or self._pop.polling.withholds:
                deferred.answer(self._empty(admitted, PopResult()))
                return True
            result = self._try_pop(admitted)
        except Exception as exc:  # noqa: BLE001  the dispatcher turns it into a response
            deferred.fail(exc)
            return True
        if isinstance(result, _ColdPop):
            self._parts.background.complete(deferred, self._finish_cold(admitted, result))
            return True
        reply = self._reply_with_messages(admitted, result)
        if reply is not None:
            self._reply_when_durable(deferred, reply)
        elif is_last:
            deferred.answer(self._empty(admitted, result))
        else:
            self._continue_scan(admitted, result)
        return reply is not None or is_last

    # ---- inside

    def _now_ms(self) -> int:
        return int(self._parts.now() * 1000)


@dataclass(frozen=True, slots=True)
class _ColdPop:
    """A pop suspended at a read that needs the disk."""

    steps: PopSteps
    reading: QueueRead


def empty_reply(header: PopHeader, code: ResponseCode, pop_time: int, rest: int) -> Reply:
    """Build the reply without messages; clients read its header whatever the code is."""
    answer = PopReply(
        pop_time=pop_time,
        invisible_time=header.invisible_time,
        revive_qid=ORDERED if header.order else 0,
        rest_num=rest,
    )
    return Reply(code=code, header=answer, remark="NO_MESSAGE_IN_QUEUE")


def found_reply(admitted: AdmittedPop, result: PopResult, config: BrokerConfig) -> Reply:
    header = admitted.header
    revive_queue = ORDERED if header.order else next(_revive_numbers) % config.revive_queue_num
    batches = result.batches
    counts = [
        order_counts(batch.topic, batch.queue_id, info.counts or {}, info.least_count)
        for batch, info in result.orders
    ]
    answer = PopReply(
        pop_time=result.pop_time,
        invisible_time=max(header.invisible_time, 0),
        revive_qid=revive_queue,
        rest_num=result.rest,
        start_offset_info=start_offsets(
            (batch.topic, batch.queue_id, batch.start) for batch in batches
        ),
        msg_offset_info=message_offsets(
            (batch.topic, batch.queue_id, batch.offsets) for batch in batches
        ),
        order_count_info=";".join(counts) if header.order else None,
    )
    body = b"".join(_body(admitted, result, batch, revive_queue, config) for batch in batches)
    return Reply(header=answer, body=body, remark="FOUND")


def _body(
    admitted: AdmittedPop,
    result: PopResult,
    batch: QueueBatch,
    revive_queue: int,
    config: BrokerConfig,
) -> bytes:
    if not is_retry_topic(batch.topic) or config.pop_response_return_actual_retry_topic:
        return b"".join(batch.found.records)
    if batch.topic == admitted.header.topic:
        return b"".join(batch.found.records)
    return b"".join(
        _with_original_topic(admitted, result, batch, record, revive_queue, config.broker_name)
        for record in batch.found.records
    )


def _with_original_topic(
    admitted: AdmittedPop,
    result: PopResult,
    batch: QueueBatch,
    data: memoryview,
    revive_queue: int,
    broker_name: str,
) -> bytes:
    try:
        record = read_record(data)
    except BadRecord:
        return bytes(data)  # the consumer reports the damage
    assert isinstance(record, Record)
    receipt = Receipt(
        batch.start, result.pop_time, max(admitted.header.invisible_time, 0), revive_queue,
        retry_kind(batch.topic), broker_name, batch.queue_id, record.queue_offset,
    )  # fmt: skip
    return with_original_topic(record, admitted.header.topic, receipt)


def _as_pull(admitted: AdmittedPop, queue_id: int, start: int) -> PullHeader:
    """Describe a pop to consume hooks as a pull."""
    header = admitted.header
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
