"""What comes of a pop: receipts, real topics, and what is said of them afterwards."""

from typing import Any

import pytest

from bolide.client.consumer.pop.pop_request import (
    Pop,
    Popper,
    PopStatus,
    popped_messages,
    receipt_of,
)
from bolide.client.consumer.pop.receipts import Receipts, back_off
from bolide.client.consumer.subscription import Filter
from bolide.client.errors import PopNotSupported
from bolide.client.instance.settings import ClientSettings
from bolide.model.message_queue import MessageQueue
from bolide.protocol import fastjson
from bolide.protocol.bodies.pop import BatchAcks
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.frame import Frame
from bolide.protocol.headers.pop import (
    AckHeader,
    ChangeInvisibleTimeHeader,
    ChangeInvisibleTimeReply,
    PopHeader,
    PopReply,
)
from bolide.protocol.pop_info import BadPopInfo
from bolide.protocol.property_string import encode_properties
from bolide.protocol.record import Placement, RecordDraft, encode_record, place_record
from bolide.protocol.refusals import RequestCodeNotSupported
from tests.support.aio import on_loop
from tests.unit.client.stored import stored

HOST = bytes(8)


def record(
    offset: int, *, topic: str = "T", queue_id: int = 0, times: int = 0, **said: str
) -> bytes:
    properties = encode_properties(said).encode()
    draft = RecordDraft(
        topic.encode(), b"body", properties, queue_id, 1, HOST, HOST, reconsume_times=times
    )
    data = bytearray(encode_record(draft))
    place_record(data, 0, Placement(offset, 1000 + offset, 1))
    return bytes(data)


def reply(**given: Any) -> PopReply:
    values: dict[str, Any] = {"pop_time": 7, "invisible_time": 60000, "revive_qid": 3}
    return PopReply(rest_num=0, **values | given)


class Brokers:
    """An instance that writes down what it is asked, and answers as it is told."""

    def __init__(self, answer: Frame | Exception | None = None) -> None:
        self.answer = answer or Frame(code=ResponseCode.SUCCESS)
        self.settings = ClientSettings(namespace="ns")
        self.routes = self
        self.asked: list[tuple[RequestCode, Any]] = []
        self.refused: set[RequestCode] = set()

    async def require_master(self, broker_name: str, topic: str) -> str:
        assert topic.startswith("ns%")
        return f"{broker_name}:1"

    async def call(
        self, address: str, code: RequestCode, header: Any = None, *, body: bytes = b"", **_: object
    ) -> Frame:
        self.asked.append((code, header if header is not None else body))
        if code in self.refused:
            raise RequestCodeNotSupported(f"request type {code} not supported")
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def popped(offset: int, receipt: str) -> Any:
    message = stored(offset)
    message.properties["POP_CK"] = receipt
    return message


def test_every_message_gets_the_receipt_of_its_queue() -> None:
    body = record(100) + record(101) + record(9, queue_id=2)
    header = reply(start_offset_info="0 0 100;0 2 9", msg_offset_info="0 0 100,101;0 2 9")
    found = popped_messages(header, body, "broker-a", "T")
    assert [message.receipt for message in found] == [
        "100 7 60000 3 0 broker-a 0 100",
        "100 7 60000 3 0 broker-a 0 101",
        "9 7 60000 3 0 broker-a 2 9",
    ]
    assert {message.properties["1ST_POP_TIME"] for message in found} == {"7"}


def test_retries_have_the_topic_that_was_popped_whatever_the_broker_calls_it() -> None:
    given = "5 6 60000 3 1 broker-a 0 5"
    body = record(5, POP_CK=given, times=2) + record(6, topic="%RETRY%G+T", times=1)
    header = reply(start_offset_info="1 0 5;2 0 6", msg_offset_info="1 0 5;2 0 6")
    found = popped_messages(header, body, "broker-a", "T")
    assert [message.topic for message in found] == ["T", "T"]
    assert [message.receipt for message in found] == [given, "6 7 60000 3 2 broker-a 0 6"]
    assert [message.reconsume_times for message in found] == [2, 1]


def test_in_order_the_broker_counts_the_deliveries() -> None:
    header = reply(start_offset_info="0 0 1", order_count_info="0 qo0%1 4;0 0 2")
    found = popped_messages(header, record(1) + record(2), "broker-a", "T")
    assert [message.reconsume_times for message in found] == [4, 2]


def test_an_answer_that_cannot_be_read_says_so() -> None:
    with pytest.raises(BadPopInfo, match="1 2"):
        popped_messages(reply(start_offset_info="1 2"), record(1), "broker-a", "T")
    with pytest.raises(ValueError, match="was not popped"):
        receipt_of(stored(1))


def pop(tags: str = "*") -> Pop:
    queue = MessageQueue("ns%T", "broker-a", -1)
    wanted = Filter.of("ns%T", tags, 1)
    return Pop(queue=queue, filter=wanted, max_count=8, invisible=30.0, wait=1.5, from_first=True)


@on_loop
async def test_what_the_subscription_does_not_want_is_to_be_acknowledged() -> None:
    body = record(1, TAGS="A") + record(2, TAGS="B")
    fields = reply(start_offset_info="0 0 1").to_fields()
    brokers: Any = Brokers(Frame(code=ResponseCode.SUCCESS, fields=fields, body=body))
    result = await Popper(brokers, "ns%G").pop(pop("A"))
    assert [message.queue_offset for message in result.messages] == [1]
    assert [message.queue_offset for message in result.unwanted] == [2]
    ((code, header),) = brokers.asked
    assert code is RequestCode.POP_MESSAGE
    assert isinstance(header, PopHeader)
    assert (header.poll_time, header.invisible_time, header.init_mode) == (1500, 30000, 0)
    assert (header.exp_type, header.exp, header.queue_id) == ("TAG", "A", -1)


@on_loop
async def test_a_broker_without_messages_or_without_pops_is_understood() -> None:
    nothing: Any = Brokers(Frame(code=ResponseCode.POLLING_TIMEOUT))
    assert (await Popper(nothing, "G").pop(pop())).status is PopStatus.NOTHING
    full: Any = Brokers(Frame(code=ResponseCode.POLLING_FULL))
    assert (await Popper(full, "G").pop(pop())).status is PopStatus.FULL
    old: Any = Brokers(RequestCodeNotSupported("request type 200050 not supported"))
    with pytest.raises(PopNotSupported, match="broker-a at broker-a:1 does not serve pops: use a"):
        await Popper(old, "G").pop(pop())


@on_loop
async def test_one_message_is_acknowledged_by_itself_and_several_together() -> None:
    brokers: Any = Brokers()
    receipts = Receipts(brokers, "ns%G")
    await receipts.ack([popped(101, "100 7 60000 3 1 broker-a 0 101")])
    code, header = brokers.asked.pop()
    assert code is RequestCode.ACK_MESSAGE
    assert header == AckHeader("ns%G", "%RETRY%ns%G_ns%T", 0, "100 7 60000 3 1 broker-a 0 101", 101)
    await receipts.ack(
        [
            popped(100, "100 7 60000 3 0 broker-a 0 100"),
            popped(103, "100 7 60000 3 0 broker-a 0 103"),
            popped(5, "5 8 60000 4 0 broker-a 1 5"),
        ]
    )
    ((code, body),) = brokers.asked
    acks = fastjson.decode(body, BatchAcks).acks
    assert code is RequestCode.BATCH_ACK_MESSAGE
    assert [(ack.topic, list(ack.offsets())) for ack in acks] == [
        ("ns%T", [100, 103]),
        ("ns%T", [5]),
    ]


@on_loop
async def test_brokers_that_do_not_know_the_batch_get_one_after_the_other() -> None:
    brokers: Any = Brokers()
    brokers.refused.add(RequestCode.BATCH_ACK_MESSAGE)
    both = [popped(n, f"100 7 60000 3 0 broker-a 0 {n}") for n in (100, 101)]
    await Receipts(brokers, "G").ack(both)
    assert [code for code, _ in brokers.asked[1:]] == [RequestCode.ACK_MESSAGE] * 2


@on_loop
async def test_more_time_makes_another_receipt() -> None:
    fields = ChangeInvisibleTimeReply(9, 20000, 5).to_fields()
    brokers: Any = Brokers(Frame(code=ResponseCode.SUCCESS, fields=fields))
    message = popped(101, "100 7 60000 3 2 broker-a 0 101")
    await Receipts(brokers, "G").change_invisible(message, 20.0)
    assert message.receipt == "101 9 20000 5 2 broker-a 0 101"
    ((_, header),) = brokers.asked
    assert isinstance(header, ChangeInvisibleTimeHeader)
    assert (header.topic, header.invisible_time) == ("%RETRY%G+ns%T", 20000)


def test_the_wait_grows_with_the_tries_up_to_two_hours() -> None:
    assert [back_off(times) for times in (-1, 0, 1, 2, 15, 99)] == [10, 10, 30, 60, 7200, 7200]
