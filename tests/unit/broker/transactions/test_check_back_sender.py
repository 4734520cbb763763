from types import SimpleNamespace
from typing import Any, cast

import pytest

from bolide.auth.access import Identity
from bolide.broker.transactions.check_back import AllBlocked, CheckBackSender, MaySend
from bolide.protocol.codes import RequestCode
from bolide.protocol.frame import Frame
from bolide.protocol.headers.transactions import CheckTransactionHeader
from bolide.protocol.record import Record, read_record
from bolide.remoting.errors import ConnectionLost
from tests.support.aio import on_loop
from tests.support.transaction_core import HOST
from tests.unit.broker.transactions.test_half_messages import half


class Producer:
    """The connection of a producer, as `CheckBackSender` sees it."""

    def __init__(
        self, *, blocked: bool = False, lost: bool = False, access_key: str | None = None
    ) -> None:
        self.peer = "10.0.0.2:1"
        self.identity = Identity(access_key, self.peer) if access_key else None
        self.is_blocked = blocked
        self.connection = self
        self.frames: list[Frame] = []
        self._lost = lost

    async def notify(self, frame: Frame) -> None:
        if self._lost:
            raise ConnectionLost("10.0.0.2:1")
        self.frames.append(frame)


def sender_for(*producers: Producer, may_send: MaySend | None = None) -> CheckBackSender:
    clients = SimpleNamespace(producers=lambda group: list(producers) if group == "g" else [])
    return CheckBackSender(cast("Any", clients), HOST, "broker-a", may_send)


def test_producers_of_the_group_take_turns_and_those_that_do_not_read_are_passed_over() -> None:
    first, second, busy = Producer(), Producer(), Producer(blocked=True)
    sender = sender_for(first, busy, second)
    chosen: list[object] = [sender.choose(half()) for _ in range(4)]
    assert chosen == [first, second, first, second]
    assert sender.choose(half(PGROUP="nobody")) is None
    with pytest.raises(AllBlocked):
        sender_for(busy).choose(half())


def test_only_producers_that_may_send_to_the_topic_are_asked() -> None:
    own, other, unknown = Producer(access_key="own"), Producer(access_key="other"), Producer()

    def may_send(identity: Identity, topic: str) -> bool:
        return (identity.access_key, topic) == ("own", "T")

    sender = sender_for(other, own, unknown, may_send=may_send)
    assert [cast("Any", sender.choose(half())) for _ in range(3)] == [own] * 3
    assert sender_for(other, unknown, may_send=may_send).choose(half()) is None


@on_loop
async def test_the_question_names_the_place_of_the_half_and_shows_the_message() -> None:
    producer = Producer()
    await sender_for(producer).send_check(cast("Any", producer), half())
    (frame,) = producer.frames
    header = CheckTransactionHeader.from_fields(frame.fields)
    assert frame.code == RequestCode.CHECK_TRANSACTION_STATE
    assert (header.tran_state_table_offset, header.commit_log_offset) == (5, 1005)
    assert (header.msg_id, header.transaction_id, header.broker_name) == ("id", "id", "broker-a")
    assert header.offset_msg_id == "0A00000100002A9F00000000000003ED"
    shown = read_record(frame.body)
    assert isinstance(shown, Record)
    assert (shown.topic, shown.queue_id) == ("T", 3)


@on_loop
async def test_a_producer_that_is_gone_meanwhile_hurts_nobody() -> None:
    producer = Producer(lost=True)
    await sender_for(producer).send_check(cast("Any", producer), half())
