"""Acknowledgements and changes of the invisible time of popped messages (`AckMessageProcessor`)."""

import asyncio
from collections.abc import Sequence

from bolide.broker.background import MAX_BODY, read_json
from bolide.broker.pop.delivery import FROM_START
from bolide.broker.pop.events import (
    Acknowledged,
    Adopted,
    Changed,
    OrderAcknowledged,
    OrderChanged,
    QueueName,
)
from bolide.broker.pop.pop import Pop
from bolide.broker.produce.durability import (
    OnDurable,
    ReplyWhenDurable,
    complete_deferred,
    complete_future,
    unavailable,
)
from bolide.broker.statistics import Statistics
from bolide.protocol.bodies.pop import BatchAck, BatchAcks
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.header import NoHeader
from bolide.protocol.headers.pop import (
    AckHeader,
    ChangeInvisibleTimeHeader,
    ChangeInvisibleTimeReply,
)
from bolide.protocol.pop_info import BadPopInfo, Receipt, real_topic
from bolide.protocol.refusals import MessageIllegal, NoMessage
from bolide.remoting.dispatch import DeferredReply, Reply, Request, handles
from bolide.store.errors import StoreClosed, StoreUnwritable

_MAX_INVISIBLE_MS = 2**62
_MAX_FOREIGN_MESSAGES = 1024
"""Messages that a batch acknowledgement of another broker's pop may cover."""


class PopAckHandlers:
    """Serve ACK_MESSAGE, BATCH_ACK_MESSAGE and CHANGE_MESSAGE_INVISIBLETIME.

    A reply is sent once the journal record is as durable as a sent message.
    """

    def __init__(self, pop: Pop, statistics: Statistics) -> None:
        self._pop = pop
        self._statistics = statistics

    # ---- acknowledging

    @handles(AckHeader, RequestCode.ACK_MESSAGE)
    def ack(self, request: Request[AckHeader]) -> Reply | DeferredReply:
        header = request.header
        self._pop.require_serving()
        name = self._queue(header, request.connection.peer)
        receipt = _receipt(header)
        low, high = self._bounds(name)
        if not low <= header.offset <= high:
            raise NoMessage(
                f"offset is illegal, key:{header.topic}@{header.queue_id},"
                f" commit:{header.offset}, store:{low}~{high}"
            )
        deferred = DeferredReply()
        answer = ReplyWhenDurable(complete_deferred(deferred))
        if receipt.is_ordered:
            self._acknowledge_ordered(name, receipt.pop_time, [header.offset], answer)
        else:
            self._acknowledge(name, receipt, [header.offset], answer)
        return deferred

    @handles(NoHeader, RequestCode.BATCH_ACK_MESSAGE, max_body=MAX_BODY)
    async def batch_ack(self, request: Request[NoHeader]) -> Reply:
        self._pop.require_serving()
        batch = await read_json(request, BatchAcks)
        if not batch.acks:
            raise NoMessage("the batch holds no acknowledgement")
        done: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        answer = ReplyWhenDurable(complete_future(done), awaited=len(batch.acks))
        bad: BadPopInfo | None = None
        for ack in batch.acks:  # a malformed entry does not stop the others
            try:
                self._acknowledge_batch(ack, batch.broker_name or "", answer)
            except BadPopInfo as exc:
                bad = exc
        if bad is not None:
            raise MessageIllegal(str(bad)) from bad
        return await done

    def _acknowledge_batch(self, ack: BatchAck, broker_name: str, answer: ReplyWhenDurable) -> None:
        topic = real_topic(ack.topic, ack.consumer_group, ack.retry)
        name = (topic, ack.consumer_group, ack.queue_id)
        receipt = Receipt(
            ack.start_offset, ack.pop_time, ack.invisible_time, ack.revive_queue_id, ack.retry,
            broker_name, ack.queue_id, ack.start_offset,
        )  # fmt: skip
        if receipt.is_ordered:
            order = self._ordered_offsets(name)
            offsets = [each for each in order if _has(ack, each)]
            self._acknowledge_ordered(name, ack.pop_time, offsets, answer)
            return
        checkpoint = self._pop.state.find(name, ack.start_offset, ack.pop_time)
        if checkpoint is not None:
            offsets = [each for each in checkpoint.offsets if _has(ack, each)]
        else:
            low, high = self._bounds(name)
            begin = max(ack.start_offset, low)
            end = min(ack.start_offset + _MAX_FOREIGN_MESSAGES, high)
            offsets = [offset for offset in range(begin, end) if _has(ack, offset)]
        self._acknowledge(name, receipt, offsets, answer)

    def _acknowledge(
        self, name: QueueName, receipt: Receipt, offsets: Sequence[int], answer: ReplyWhenDurable
    ) -> None:
        start, pop_time, journal = receipt.start_offset, receipt.pop_time, self._pop.journal
        checkpoint = self._pop.state.find(name, start, pop_time)
        if checkpoint is None and self._pop.java_revive_log.may_own(receipt):
            self._acknowledge_foreign(
                name, [receipt._replace(offset=one) for one in offsets], answer
            )
            return
        claims = [
            (name, start, pop_time, offset)
            for offset in offsets
            if checkpoint is not None and checkpoint.has(offset)
        ]
        fresh = [claim for claim in claims if not journal.is_claimed(claim)]
        if not fresh:  # already acknowledged, or leased to another consumer by now
            journal.when_durable(answer.complete)
            return
        self._statistics.acknowledged(name[1], name[0], len(fresh))
        event = Acknowledged(*name, start, pop_time, [claim[3] for claim in fresh])
        journal.enqueue(event, answer.complete, fresh)

    def _acknowledge_foreign(
        self, name: QueueName, receipts: list[Receipt], answer: ReplyWhenDurable
    ) -> None:
        """Acknowledge messages that the previous owner of the store popped."""
        try:
            appended = self._pop.java_revive_log.acknowledge(name, receipts)
        except (StoreUnwritable, StoreClosed) as exc:
            raise unavailable(exc) from exc
        if appended is None:
            answer.complete(ResponseCode.SUCCESS)
        else:
            self._pop.durability.when_durable(appended, answer.complete)

    def _ordered_offsets(self, name: QueueName) -> list[int]:
        queue = self._pop.state.queues.get(name)
        return queue.order.info.offsets if queue and queue.order else []

    def _acknowledge_ordered(
        self, name: QueueName, pop_time: int, offsets: Sequence[int], answer: ReplyWhenDurable
    ) -> None:
        queue = self._pop.state.queues.get(name)
        order = queue.order if queue else None
        if queue is None or order is None or order.info.pop_time != pop_time or not offsets:
            self._pop.journal.when_durable(answer.complete)
            return
        answer.wait_for(len(offsets) - 1)
        for offset in offsets:
            if offset not in order.info.offsets:
                raise MessageIllegal(
                    f"offset is illegal, key:{'@'.join(map(str, name))}, commit:{offset}:"
                    f" the pop of {pop_time} has {order.info.offsets}"
                )
            event = OrderAcknowledged(*name, pop_time, offset)
            self._pop.journal.enqueue(event, self._then_wake(name, answer.complete))
        self._statistics.acknowledged(name[1], name[0], len(offsets))

    def _then_wake(self, name: QueueName, on_durable: OnDurable) -> OnDurable:
        """Wrap `on_durable` to wake long polls on the queue once its ordered pop is complete."""

        def complete(outcome: int | StoreUnwritable) -> None:
            on_durable(outcome)
            queue = self._pop.state.queues.get(name)
            if queue is None or queue.order is None or not queue.order.pending_count:
                self._pop.polling.wake(*name)

        return complete

    # ---- changing the invisible time

    @handles(
        ChangeInvisibleTimeHeader,
        RequestCode.CHANGE_MESSAGE_INVISIBLETIME,
        refused_with=ChangeInvisibleTimeReply(0, 0, 0),
    )
    def change(self, request: Request[ChangeInvisibleTimeHeader]) -> Reply | DeferredReply:
        header = request.header
        self._pop.require_serving()
        name = self._queue(header, request.connection.peer)
        receipt = _receipt(header)
        low, high = self._bounds(name)
        if not low <= header.offset < high:
            raise NoMessage(f"offset {header.offset} is not between {low} and {high}")
        invisible = min(max(header.invisible_time, 0), _MAX_INVISIBLE_MS)
        change = self._change_ordered if receipt.is_ordered else self._change_one
        deferred = DeferredReply()
        if not change(name, receipt, invisible, deferred):
            raise NoMessage(
                f"message {header.offset} of {header.topic}-{header.queue_id} is not leased to"
                f" this consumer any more: {header.extra_info!r} was acknowledged or has expired"
            )
        return deferred

    def _change_one(
        self, name: QueueName, receipt: Receipt, invisible: int, deferred: DeferredReply
    ) -> bool:
        """Return False if the consumer no longer holds the message."""
        state, journal = self._pop.state, self._pop.journal
        claim = (name, receipt.start_offset, receipt.pop_time, receipt.offset)
        checkpoint = state.find(*claim[:3])
        pop_time = (
            checkpoint.queue.unique_pop_time(receipt.offset, state.now) if checkpoint else state.now
        )
        reply = Reply(header=ChangeInvisibleTimeReply(pop_time, invisible, receipt.revive_queue))
        answer = ReplyWhenDurable(complete_deferred(deferred), reply=reply, then=self._pop.wake)
        if (
            checkpoint is not None
            and checkpoint.has(receipt.offset)
            and not journal.is_claimed(claim)
        ):
            next_offset = checkpoint.queue.next_offset
            event = Changed(*name, *claim[1:], pop_time, invisible, next_offset)
            journal.enqueue(event, answer.complete, [claim])
            self._count_change(name)
            return True
        if checkpoint is None and self._pop.java_revive_log.may_own(receipt):
            self._change_foreign(name, receipt, pop_time, invisible, answer)
            self._count_change(name)
            return True
        return False

    def _count_change(self, name: QueueName) -> None:
        """RocketMQ acknowledges the message and leases it again."""
        self._statistics.acknowledged(name[1], name[0], 1)
        self._statistics.leased(name[1], name[0])

    def _change_foreign(
        self,
        name: QueueName,
        receipt: Receipt,
        pop_time: int,
        invisible: int,
        answer: ReplyWhenDurable,
    ) -> None:
        """Turn a message popped by the previous owner of the store into a pop of this broker."""
        try:
            queue, _ = self._pop.positions.require(name, FROM_START)
            event = Adopted(*name, receipt.offset, pop_time, invisible, queue.next_offset, [0])
            self._pop.journal.append([event])
        except (StoreUnwritable, StoreClosed) as exc:
            raise unavailable(exc) from exc
        self._acknowledge_foreign(name, [receipt], answer)

    def _change_ordered(
        self, name: QueueName, receipt: Receipt, invisible: int, deferred: DeferredReply
    ) -> bool:
        queue = self._pop.state.queues.get(name)
        order = queue.order if queue else None
        if order is None or order.info.pop_time != receipt.pop_time:
            return False
        if receipt.offset not in order.info.unacknowledged:
            return False
        visible_at = self._pop.state.now + invisible
        lasts = max(visible_at - receipt.pop_time, 0)
        reply = ChangeInvisibleTimeReply(receipt.pop_time, lasts, receipt.revive_queue)
        answer = ReplyWhenDurable(
            complete_deferred(deferred), reply=Reply(header=reply), then=self._pop.wake
        )
        event = OrderChanged(*name, receipt.pop_time, receipt.offset, visible_at)
        self._pop.journal.enqueue(event, answer.complete)
        return True

    @handles(NoHeader, RequestCode.POP_ROLLBACK)
    def rollback(self, request: Request[NoHeader]) -> Reply:
        """Answer success: RocketMQ moves popped messages out of RocksDB here, which this broker
        does not use."""
        return Reply()

    # ---- inside

    def _queue(self, header: AckHeader | ChangeInvisibleTimeHeader, peer: str) -> QueueName:
        topic = self._pop.topics.require(header.topic)
        if not 0 <= header.queue_id < topic.read_queue_nums:
            raise MessageIllegal(
                f"queueId[{header.queue_id}] is illegal, topic:[{header.topic}]"
                f" topicConfig.readQueueNums:[{topic.read_queue_nums}] consumer:[{peer}]"
            )
        return header.topic, header.consumer_group, header.queue_id

    def _bounds(self, name: QueueName) -> tuple[int, int]:
        topic, _, queue_id = name
        store = self._pop.store
        return store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)


def _receipt(header: AckHeader | ChangeInvisibleTimeHeader) -> Receipt:
    try:
        return Receipt.decode(header.extra_info, (header.queue_id, header.offset))
    except BadPopInfo as exc:
        raise MessageIllegal(str(exc)) from exc


def _has(ack: BatchAck, offset: int) -> bool:
    byte, bit = divmod(offset - ack.start_offset, 8)
    return 0 <= byte < len(ack.bit_set) and bool(ack.bit_set[byte] >> bit & 1)
