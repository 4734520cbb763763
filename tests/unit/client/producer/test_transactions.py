import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from bolide.client.producer import transactions as transaction_checks
from bolide.client.producer.results import TransactionState
from bolide.client.producer.transactions import TransactionProducer
from bolide.errors import ConfigError
from bolide.model.message import Message, StoredMessage, SysFlag
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.frame import Frame
from bolide.protocol.headers.send import SendHeader, SendReply
from bolide.protocol.headers.transactions import CheckTransactionHeader, EndTransactionHeader
from bolide.protocol.property_string import decode_properties, encode_properties
from bolide.protocol.record import Placement, RecordDraft, encode_record, place_record
from bolide.protocol.refusals import ServerError
from bolide.remoting.dispatch import Reply, Request, handles
from tests.support.aio import on_loop, until
from tests.support.cluster import FakeBroker, FakeNameServer, route_of, serving

COMMIT, ROLLBACK, UNKNOWN = (
    TransactionState.COMMIT, TransactionState.ROLLBACK, TransactionState.UNKNOWN,
)  # fmt: skip
HOST = b"\x7f\0\0\1\0\0\0\1"


class TransactionBroker(FakeBroker):
    """Stores halves at number 7, and keeps the ends that it is told."""

    def __init__(self) -> None:
        super().__init__("broker-a")
        self.ends: list[EndTransactionHeader] = []
        self.status = ResponseCode.SUCCESS
        self.refuses = False
        self.answer = self.half

    def half(self, header: SendHeader, _: Frame) -> Reply:
        unique_id = decode_properties(header.properties)["UNIQ_KEY"]
        reply = SendReply(
            msg_id=f"{'0' * 31}9",
            queue_id=header.queue_id,
            queue_offset=7,
            transaction_id=unique_id,
        )
        return Reply(code=self.status, header=reply)

    @handles(EndTransactionHeader, RequestCode.END_TRANSACTION)
    def end(self, request: Request[EndTransactionHeader]) -> Reply:
        self.ends.append(request.header)
        if self.refuses:
            raise ServerError("no")
        return Reply()

    async def ask(self, number: int, group: str = "g") -> None:
        """Ask every client what became of a transaction."""
        properties = encode_properties({"PGROUP": group, "UNIQ_KEY": f"id-{number}"}).encode()
        draft = RecordDraft(b"T", str(number).encode(), properties, 3, 0, HOST, HOST)
        record = encode_record(draft)
        place_record(record, 0, Placement(number, number + 1000, 0))
        header = CheckTransactionHeader(
            tran_state_table_offset=number, commit_log_offset=number + 1000, msg_id=f"id-{number}"
        )
        code = RequestCode.CHECK_TRANSACTION_STATE
        for connection in self.connections:
            await connection.notify(Frame(code=code, fields=header.to_fields(), body=bytes(record)))


@asynccontextmanager
async def playing(
    check: Any = lambda _: None, **settings: Any
) -> AsyncIterator[tuple[TransactionProducer, TransactionBroker]]:
    names, broker = FakeNameServer(), TransactionBroker()
    async with serving(names), serving(broker):
        wanted = settings.get("namespace", "")
        names.routes[f"{wanted}%T" if wanted else "T"] = route_of(broker)
        given: dict[str, Any] = {
            "name_server": names.address,
            "topics": ["T"],
            "send_timeout": 2.0,
        } | settings
        async with TransactionProducer("g", check=check, **given) as producer:
            await until(lambda: broker.connections)  # it has heard of the producer
            yield producer, broker


async def commit(_: Message) -> TransactionState:
    return COMMIT


@on_loop
async def test_the_half_and_its_end_say_which_transaction_it_is() -> None:
    async with playing() as (producer, broker):
        sent = await producer.send_in_transaction(Message("T", b"x"), commit)
        half = broker.sends[0]
        properties = decode_properties(half.properties)
        assert half.sys_flag == int(SysFlag.PREPARED)
        assert (properties["TRAN_MSG"], properties["PGROUP"]) == ("true", "g")
        (end,) = broker.ends
        assert (end.producer_group, end.topic, end.commit_or_rollback) == ("g", "T", 8)
        assert (end.tran_state_table_offset, end.commit_log_offset) == (7, 9)
        assert end.msg_id == end.transaction_id == sent.message_id == properties["UNIQ_KEY"]
        assert not end.from_transaction_check


@on_loop
async def test_with_a_namespace_brokers_know_its_names() -> None:
    async with playing(namespace="N") as (producer, broker):
        await producer.send_in_transaction(Message("T", b"x"), commit)
        assert decode_properties(broker.sends[0].properties)["PGROUP"] == "N%g"
        assert (broker.ends[0].producer_group, broker.ends[0].topic) == ("N%g", "N%T")


@on_loop
async def test_a_half_that_is_not_safe_is_rolled_back_without_a_local_transaction() -> None:
    async with playing() as (producer, broker):
        broker.status = ResponseCode.FLUSH_DISK_TIMEOUT
        sent = await producer.send_in_transaction(Message("T", b"x"), _must_not_run)
        assert (sent.state, broker.ends[0].commit_or_rollback) == (ROLLBACK, 12)


def _must_not_run(_: Message) -> TransactionState:
    raise AssertionError


@on_loop
async def test_a_broker_that_cannot_be_told_is_no_error_as_it_will_ask() -> None:
    async with playing() as (producer, broker):
        broker.refuses = True
        sent = await producer.send_in_transaction(Message("T", b"x"), commit)
        assert (sent.state, sent.is_confirmed) == (COMMIT, False)


@on_loop
async def test_a_plain_local_transaction_runs_in_a_thread_with_its_arguments() -> None:
    async with playing() as (producer, broker):

        def local(message: Message, *args: object) -> TransactionState | None:
            assert threading.current_thread() is not threading.main_thread()
            assert (message.body, args) == (b"x", (1, "two"))
            return None

        sent = await producer.send_in_transaction(Message("T", b"x"), local, 1, "two")
        assert sent.state is UNKNOWN
        await until(lambda: broker.ends)
        assert broker.ends[0].commit_or_rollback == 0


@on_loop
async def test_questions_are_answered_where_they_come_from() -> None:
    answers = {b"1": COMMIT, b"2": ROLLBACK, b"3": None}

    async def check(message: StoredMessage) -> TransactionState | None:
        assert (message.topic, message.queue_id) == ("T", 3)
        return answers[message.body]  # of number 4 it knows nothing, and raises

    async with playing(check) as (_, broker):
        for number in (1, 2, 3, 4):
            await broker.ask(number)
        await broker.ask(5, group="others")
        await until(lambda: len(broker.ends) == 4)
        told = {end.tran_state_table_offset: end for end in broker.ends}
        assert {number: end.commit_or_rollback for number, end in told.items()} == {
            1: 8, 2: 12, 3: 0, 4: 0,
        }  # fmt: skip
        assert all(end.from_transaction_check for end in broker.ends)
        assert (told[2].commit_log_offset, told[2].msg_id) == (1002, "id-2")


@on_loop
async def test_checks_have_their_threads_and_too_many_are_dropped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(transaction_checks, "_MAX_WAITING", 3)
    go_on, under_way = threading.Event(), []

    def check(message: StoredMessage) -> TransactionState:
        under_way.append(message.body)
        go_on.wait(10)
        return COMMIT

    async with playing(check, check_threads=2) as (_, broker):
        for number in range(2):
            await broker.ask(number)
        await until(lambda: len(under_way) == 2)
        for number in range(2, 9):
            await broker.ask(number)
        await asyncio.sleep(0.05)
        go_on.set()
        await until(lambda: len(broker.ends) == 5)
        await asyncio.sleep(0.05)
        assert len(under_way) == 5


@on_loop
async def test_what_is_under_way_at_the_end_is_given_up() -> None:
    begun, never = asyncio.Event(), asyncio.Event()

    async def check(_: StoredMessage) -> None:
        begun.set()
        await never.wait()

    async with playing(check) as (_, broker):
        await broker.ask(1)
        await begun.wait()
    assert broker.ends == []


def test_wrong_settings_are_named() -> None:
    with pytest.raises(ConfigError, match="check="):
        TransactionProducer("g", check=None)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="check_threads=0"):
        TransactionProducer("g", check=lambda _: None, check_threads=0)
