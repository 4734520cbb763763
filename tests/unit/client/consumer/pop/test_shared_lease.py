"""A batch that a broker popped as one message: single messages with one lease."""

import asyncio
from typing import Any

from bolide.client.consumer.pop.pop_request import popped_messages
from bolide.client.consumer.pop.receipts import Receipts
from bolide.model.message import StoredMessage
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.frame import Frame
from bolide.protocol.headers.pop import AckHeader, ChangeInvisibleTimeReply
from bolide.protocol.record import Placement, encode_record, place_record
from tests.support.aio import on_loop
from tests.support.batches import batch_draft, items
from tests.unit.client.consumer.pop.test_pop_request import Brokers, record, reply


def batch(offset: int, count: int) -> bytes:
    data = encode_record(batch_draft(items(offset, count), "T"))
    place_record(data, 0, Placement(offset, 4096, 1))
    return bytes(data)


def popped() -> list[StoredMessage]:
    """A batch at 10 to 12, and a message of its own at 13."""
    header = reply(start_offset_info="0 0 10", msg_offset_info="0 0 10,13")
    return popped_messages(header, batch(10, 3) + record(13), "broker-a", "T")


def asked(brokers: Brokers) -> list[Any]:
    return [header for code, header in brokers.asked if code is RequestCode.ACK_MESSAGE]


def test_the_messages_of_a_batch_have_one_receipt() -> None:
    found = popped()
    assert [message.queue_offset for message in found] == [10, 11, 12, 13]
    assert [message.body for message in found] == [b"10", b"11", b"12", b"body"]
    assert [message.receipt for message in found] == [
        *["10 7 60000 3 0 broker-a 0 10"] * 3, "10 7 60000 3 0 broker-a 0 13",
    ]  # fmt: skip


@on_loop
async def test_a_batch_is_acknowledged_with_its_last_message() -> None:
    brokers, found = Brokers(), popped()
    receipts = Receipts(brokers, "G")  # type: ignore[arg-type]  # does what it needs
    await receipts.ack([found[2]])
    await receipts.ack([found[0]])
    assert brokers.asked == []
    await receipts.ack([found[1]])
    (header,) = asked(brokers)
    assert isinstance(header, AckHeader)
    assert (header.offset, header.extra_info) == (10, "10 7 60000 3 0 broker-a 0 10")


@on_loop
async def test_a_renewal_by_one_message_holds_for_all() -> None:
    changed = ChangeInvisibleTimeReply(pop_time=8, invisible_time=500, revive_qid=1)
    brokers = Brokers(Frame(code=ResponseCode.SUCCESS, fields=changed.to_fields()))
    receipts, found = Receipts(brokers, "G"), popped()  # type: ignore[arg-type]
    await asyncio.gather(*(receipts.change_invisible(each, 0.5) for each in found[:2]))
    given = [header.extra_info for _, header in brokers.asked]
    assert given == ["10 7 60000 3 0 broker-a 0 10", "10 8 500 1 0 broker-a 0 10"]
    await receipts.ack(found[:3])
    assert asked(brokers)[0].extra_info == "10 8 500 1 0 broker-a 0 10"
