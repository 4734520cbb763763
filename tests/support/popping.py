"""A consumer that pops, request by request, and makes its receipts as RocketMQ's clients do."""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

from bolide.model.properties import PropertyName
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.frame import Frame
from bolide.protocol.headers.pop import (
    AckHeader,
    ChangeInvisibleTimeHeader,
    ChangeInvisibleTimeReply,
    PopHeader,
    PopReply,
)
from bolide.protocol.pop_info import (
    Receipt,
    read_message_offsets,
    read_order_counts,
    read_start_offsets,
    real_topic,
)
from bolide.protocol.record import Record, iter_records
from tests.support.broker import BrokerClient

POP_ANSWERS = (
    ResponseCode.POLLING_FULL,
    ResponseCode.POLLING_TIMEOUT,
    ResponseCode.PULL_NOT_FOUND,
)


class PoppedMessage(NamedTuple):
    record: Record
    receipt: Receipt
    times: int
    """How often it was consumed before."""

    @property
    def body(self) -> bytes:
        return bytes(self.record.body)


class Popped(NamedTuple):
    code: int
    header: PopReply
    messages: list[PoppedMessage]

    @property
    def bodies(self) -> list[bytes]:
        return [message.body for message in self.messages]


class PopClient(BrokerClient):
    """Of one group; `now` is the clock that its requests are born by."""

    def __init__(
        self, address: str, group: str = "poppers", now: Callable[[], float] = time.time
    ) -> None:
        super().__init__(address)
        self.group = group
        self.now = now

    def header(self, topic: str = "T", **given: Any) -> PopHeader:
        values: dict[str, Any] = {
            "consumer_group": self.group,
            "topic": topic,
            "queue_id": -1,
            "max_msg_nums": 32,
            "invisible_time": 60_000,
            "poll_time": 0,
            "born_time": int(self.now() * 1000),
            "init_mode": 0,
        }
        return PopHeader(**values | given)

    async def pop(self, topic: str = "T", **given: Any) -> Popped:
        answer = await self.remoting.call(
            self.address,
            RequestCode.POP_MESSAGE,
            self.header(topic, **given),
            within=15.0,
            accept=POP_ANSWERS,
        )
        return read_pop(topic, answer)

    async def ack(self, topic: str, message: PoppedMessage, **given: Any) -> None:
        receipt = message.receipt
        values: dict[str, Any] = {
            "consumer_group": self.group,
            "topic": real_topic(topic, self.group, receipt.retry),
            "queue_id": receipt.queue_id,
            "extra_info": receipt.encode(),
            "offset": receipt.offset,
        }
        await self.call(RequestCode.ACK_MESSAGE, AckHeader(**values | given))

    async def change(self, topic: str, message: PoppedMessage, invisible: int) -> PoppedMessage:
        """Keep a message for so many milliseconds from now on."""
        receipt = message.receipt
        answer = await self.call(
            RequestCode.CHANGE_MESSAGE_INVISIBLETIME,
            ChangeInvisibleTimeHeader(
                self.group,
                real_topic(topic, self.group, receipt.retry),
                receipt.queue_id,
                receipt.encode(),
                receipt.offset,
                invisible,
            ),
        )
        reply = ChangeInvisibleTimeReply.from_fields(answer.fields)
        renewed = receipt._replace(
            start_offset=receipt.offset,
            pop_time=reply.pop_time,
            invisible_time=reply.invisible_time,
            revive_queue=reply.revive_qid,
        )
        return message._replace(receipt=renewed)


def read_pop(topic: str, answer: Frame) -> Popped:
    """What a pop brought; each message with the receipt that a client makes for it."""
    header = PopReply.from_fields(answer.fields)
    starts = read_start_offsets(header.start_offset_info)
    offsets = read_message_offsets(header.msg_offset_info)
    counts = read_order_counts(header.order_count_info)
    messages = []
    for record in iter_records(answer.body):
        assert record.topic == topic
        written = record.decode_properties().get(PropertyName.POP_CHECKPOINT)
        receipt = Receipt.decode(written) if written else None
        if receipt is None:
            mark = ("0", record.queue_id)
            assert record.queue_offset in offsets[mark]
            receipt = Receipt(
                starts[mark], header.pop_time, header.invisible_time, header.revive_qid,
                "0", "broker-a", record.queue_id, record.queue_offset,
            )  # fmt: skip
        times = record.reconsume_times or counts.of("0", record.queue_id, record.queue_offset)
        messages.append(PoppedMessage(record, receipt, times))
    assert sum(map(len, offsets.values())) == len(messages)
    return Popped(answer.code, header, messages)
