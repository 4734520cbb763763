"""Consumers that pop, on a broker with sockets and files."""

import asyncio
import shutil
import struct
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import msgspec
import pytest

from bolide.broker.pop.pop_queue import Checkpoint
from bolide.broker.server import Broker
from bolide.model.message import Message
from bolide.model.properties import PropertyName
from bolide.protocol import fastjson
from bolide.protocol.batch import encode_batch
from bolide.protocol.bodies.pop import BatchAck, BatchAcks, bit_set
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.headers.groups import DeleteGroupHeader
from bolide.protocol.headers.offsets import ResetOffsetHeader
from bolide.protocol.headers.pop import (
    ChangeInvisibleTimeHeader,
    ChangeInvisibleTimeReply,
    NotificationHeader,
    NotificationReply,
    PeekHeader,
    PollingHeader,
    PollingReply,
    PopReply,
)
from bolide.protocol.headers.topics import TopicHeader
from bolide.protocol.record import iter_records
from bolide.protocol.refusals import (
    InvalidParameter,
    MessageIllegal,
    NoMessage,
    ServiceNotAvailable,
    TopicNotFound,
)
from bolide.store.config import FlushMode
from tests.support.aio import on_loop, until
from tests.support.broker import BrokerClient, broker_in, send_header
from tests.support.clock import FakeClock
from tests.support.popping import PopClient

NOON = 1_800_000_000.0


async def later(broker: Broker, clock: FakeClock, seconds: float) -> None:
    """Let time pass, and have the broker do what is due."""
    clock.now += seconds
    state = broker.parts.pop.state
    while any(live.due <= state.now for live in state.by_age() if isinstance(live, Checkpoint)):
        broker.parts.pop.wake()
        await asyncio.sleep(0.005)


def committed(broker: Broker, topic: str, queue_id: int = 0, group: str = "poppers") -> int | None:
    return broker.parts.offsets.find(group, topic, queue_id)


@on_loop
async def test_a_message_is_with_one_consumer_until_it_is_acknowledged(tmp_path: Path) -> None:
    async with broker_in(tmp_path) as broker, PopClient(broker.address) as client:
        for number in range(5):
            await client.send("T", b"%d" % number, queue_id=number % 2)
        first = await client.pop("T", max_msg_nums=3)
        second = await client.pop("T")
        assert len(first.messages) == 3
        assert sorted(first.bodies + second.bodies) == [b"%d" % number for number in range(5)]
        assert (await client.pop("T")).code == ResponseCode.POLLING_TIMEOUT
        for message in first.messages + second.messages:
            await client.ack("T", message)
        await until(lambda: committed(broker, "T") == 3 and committed(broker, "T", 1) == 2)
        assert not len(broker.parts.pop.state)


@on_loop
async def test_what_is_not_acknowledged_in_time_is_seen_again(tmp_path: Path) -> None:
    clock = FakeClock(NOON)
    async with (
        broker_in(tmp_path, now=clock) as broker,
        PopClient(broker.address, now=clock) as client,
    ):
        for number in range(3):
            await client.send("T", b"%d" % number, properties={"TAGS": "A", "KEYS": "k"})
        popped = await client.pop("T", invisible_time=10_000)
        await client.ack("T", popped.messages[1])
        await later(broker, clock, 9)
        assert not (await client.pop("T")).messages
        await later(broker, clock, 2)
        again = await client.pop("T", invisible_time=10_000)
        assert again.bodies == [b"0", b"2"]
        message = again.messages[0]
        assert message.record.reconsume_times == 1
        assert message.receipt.retry == "1"
        properties = message.record.decode_properties()
        first_time = str(popped.header.pop_time)
        assert properties[PropertyName.FIRST_POP_TIME] == first_time
        assert (properties["TAGS"], properties["KEYS"]) == ("A", "k")
        assert properties[PropertyName.RETRY_TOPIC] == "T"
        # The old receipt does nothing any more, the new one does.
        await client.ack("T", popped.messages[0])
        await client.ack("T", again.messages[1])
        await later(broker, clock, 11)
        third = await client.pop("T")
        assert third.bodies == [b"0"]
        assert third.messages[0].record.reconsume_times == 2
        assert third.messages[0].record.decode_properties()["1ST_POP_TIME"] == first_time


@on_loop
async def test_a_consumer_may_keep_a_message_longer_or_give_it_back(tmp_path: Path) -> None:
    clock = FakeClock(NOON)
    async with (
        broker_in(tmp_path, now=clock) as broker,
        PopClient(broker.address, now=clock) as client,
    ):
        await client.send("T", b"slow")
        await client.send("T", b"failed")
        slow, failed = (await client.pop("T", invisible_time=10_000)).messages
        kept = await client.change("T", slow, 60_000)
        with pytest.raises(NoMessage, match="not leased to this consumer"):
            await client.change("T", slow, 60_000)
        await client.ack("T", slow)  # a receipt of before
        await client.change("T", failed, 0)
        await later(broker, clock, 0)
        assert (await client.pop("T")).bodies == [b"failed"]
        await later(broker, clock, 50)
        assert not (await client.pop("T")).messages
        await client.ack("T", kept)
        await later(broker, clock, 100)
        assert (await client.pop("T")).bodies == [b"failed"]


@on_loop
async def test_a_crash_forgets_neither_what_is_settled_nor_what_is_not(tmp_path: Path) -> None:
    clock = FakeClock(NOON)
    async with (
        broker_in(tmp_path, now=clock) as broker,
        PopClient(broker.address, now=clock) as client,
    ):
        for number in range(6):
            await client.send("T", b"%d" % number)
        popped = await client.pop("T", max_msg_nums=4, invisible_time=30_000)
        for at in (0, 2):
            await client.ack("T", popped.messages[at])
        kept = await client.change("T", popped.messages[3], 90_000)
        shutil.copytree(tmp_path / "store", tmp_path / "crashed" / "store")
    clock.now += 20
    async with (
        broker_in(tmp_path / "crashed", now=clock) as broker,
        PopClient(broker.address, now=clock) as client,
    ):
        rest = await client.pop("T")
        assert rest.bodies == [b"4", b"5"]
        await client.ack("T", kept)
        for message in rest.messages:
            await client.ack("T", message)
        await later(broker, clock, 11)
        assert (await client.pop("T")).bodies == [b"1"]
        await later(broker, clock, 200)
        assert (await client.pop("T")).bodies == [b"1"]
        await until(lambda: committed(broker, "T") == 6)


@on_loop
async def test_a_pop_waits_for_messages_and_one_is_woken(tmp_path: Path) -> None:
    async with broker_in(tmp_path) as broker, PopClient(broker.address) as client:
        await client.send("T", b"first")
        await client.ack("T", (await client.pop("T")).messages[0])
        waiting = [
            asyncio.create_task(client.pop("T", poll_time=10_000, queue_id=queue_id))
            for queue_id in (-1, -1, 2)
        ]
        polling = broker.parts.pop.polling
        await until(lambda: len(polling) == 3)
        header = PollingHeader("poppers", "T", -1)
        answer = await client.call(RequestCode.POLLING_INFO, header)
        assert PollingReply.from_fields(answer.fields).polling_num == 2
        await client.send("T", b"a", queue_id=1)
        done, left = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        assert [task.result().bodies for task in done] == [[b"a"]]
        assert len(left) == 2
        await client.send("T", b"b", queue_id=2)
        await client.send("T", b"c", queue_id=2)
        bodies = [body for task in left for body in (await task).bodies]
        assert sorted(bodies) == [b"b", b"c"]
        assert not len(polling)


@on_loop
async def test_who_waits_gets_what_comes_back(tmp_path: Path) -> None:
    clock = FakeClock(NOON)
    async with (
        broker_in(tmp_path, now=clock) as broker,
        PopClient(broker.address, now=clock) as client,
    ):
        await client.send("T", b"again")
        await client.pop("T", invisible_time=5000)
        waiting = asyncio.create_task(client.pop("T", poll_time=10_000, queue_id=3))
        await until(lambda: len(broker.parts.pop.polling) == 1)
        await later(broker, clock, 6)
        assert (await waiting).bodies == [b"again"]
        notice = NotificationHeader(
            consumer_group="poppers", topic="T", queue_id=-1, poll_time=10_000, born_time=0
        )
        noticed = asyncio.create_task(client.call(RequestCode.NOTIFICATION, notice))
        await until(lambda: len(broker.parts.pop.polling) == 1)
        await client.change("T", (await waiting).messages[0], 0)
        answer = await noticed
        assert NotificationReply.from_fields(answer.fields).has_msg


@on_loop
async def test_a_pop_that_waited_in_vain_is_told_so_and_too_many_may_not(tmp_path: Path) -> None:
    async with (
        broker_in(tmp_path, pop_polling_size=0) as broker,
        PopClient(broker.address) as client,
    ):
        await client.send("T", b"x", queue_id=0)
        await client.pop("T")
        held = asyncio.create_task(client.pop("T", poll_time=300))
        await until(lambda: len(broker.parts.pop.polling) == 1)
        full = await client.pop("T", poll_time=300)
        assert full.code == ResponseCode.POLLING_FULL
        assert (await held).code == ResponseCode.POLLING_TIMEOUT
        late = await client.pop("T", poll_time=1000, born_time=1_000)
        assert late.code == ResponseCode.POLLING_TIMEOUT


@on_loop
async def test_batches_of_acknowledgements_settle_all_that_they_list(tmp_path: Path) -> None:
    clock = FakeClock(NOON)
    async with (
        broker_in(tmp_path, now=clock) as broker,
        PopClient(broker.address, now=clock) as client,
    ):
        for number in range(10):
            await client.send("T", b"%d" % number)
        popped = await client.pop("T", invisible_time=5000)
        receipt = popped.messages[0].receipt
        ack = BatchAck(
            consumer_group="poppers", topic="T", start_offset=receipt.start_offset,
            queue_id=0, revive_queue_id=receipt.revive_queue, pop_time=receipt.pop_time,
            invisible_time=5000, bit_set=bit_set([0, 1, 2, 5, 9, 700]),
        )  # fmt: skip
        unknown = BatchAck(
            consumer_group="poppers", topic="T", start_offset=0, queue_id=3,
            revive_queue_id=0, pop_time=1, invisible_time=1, bit_set=b"\xff" * 100,
        )  # fmt: skip
        bad = msgspec.structs.replace(unknown, retry="7")
        rest = msgspec.structs.replace(ack, bit_set=bit_set([7]))
        body = fastjson.encode(BatchAcks(broker_name="broker-a", acks=[ack, unknown]))
        await client.call(RequestCode.BATCH_ACK_MESSAGE, body=body)
        body = fastjson.encode(BatchAcks(broker_name="broker-a", acks=[bad, rest]))
        with pytest.raises(MessageIllegal, match="'7'"):
            await client.call(RequestCode.BATCH_ACK_MESSAGE, body=body)
        await later(broker, clock, 6)
        assert (await client.pop("T")).bodies == [b"3", b"4", b"6", b"8"]
        with pytest.raises(NoMessage):
            await client.call(RequestCode.BATCH_ACK_MESSAGE, body=b"{}")


@on_loop
async def test_in_order_a_queue_waits_for_what_it_gave_away(tmp_path: Path) -> None:
    clock = FakeClock(NOON)
    async with (
        broker_in(tmp_path, now=clock) as broker,
        PopClient(broker.address, now=clock) as client,
    ):
        for number in range(4):
            await client.send("T", b"%d" % number)
        given = {"order": True, "max_msg_nums": 2, "invisible_time": 10_000}
        first = await client.pop("T", attempt_id="one", **given)
        assert first.bodies == [b"0", b"1"]
        assert first.header.revive_qid == 999
        assert not (await client.pop("T", attempt_id="two", **given)).messages
        assert (await client.pop("T", attempt_id="one", **given)).bodies == [b"0", b"1"]
        await later(broker, clock, 11)
        again = await client.pop("T", attempt_id="three", **given)
        assert [(each.body, each.times) for each in again.messages] == [(b"0", 1), (b"1", 1)]
        await client.ack("T", first.messages[0])  # of a pop that is over
        await client.ack("T", again.messages[0])
        assert not (await client.pop("T", attempt_id="four", **given)).messages
        waiting = asyncio.create_task(client.pop("T", attempt_id="five", poll_time=5000, **given))
        await until(lambda: len(broker.parts.pop.polling) == 1)
        await client.ack("T", again.messages[1])
        assert (await waiting).bodies == [b"2", b"3"]
        await until(lambda: committed(broker, "T") == 2)
    async with (
        broker_in(tmp_path, now=clock) as broker,
        PopClient(broker.address, now=clock) as client,
    ):
        assert not (await client.pop("T", attempt_id="six", **given)).messages
        held = (await waiting).messages
        await client.ack("T", held[0])
        kept = await client.change("T", held[1], 30_000)
        await later(broker, clock, 20)
        assert not (await client.pop("T", attempt_id="seven", **given)).messages
        await client.ack("T", kept)
        assert not (await client.pop("T", attempt_id="eight", **given)).messages
        await until(lambda: committed(broker, "T") == 4)


def notification(client: PopClient, **given: Any) -> NotificationHeader:
    values: dict[str, Any] = {
        "consumer_group": client.group, "topic": "T", "queue_id": -1, "poll_time": 0,
        "born_time": int(client.now() * 1000),
    }  # fmt: skip
    return NotificationHeader(**values | given)


async def is_notified(client: PopClient, **given: Any) -> bool:
    answer = await client.call(RequestCode.NOTIFICATION, notification(client, **given))
    return NotificationReply.from_fields(answer.fields).has_msg


@on_loop
async def test_who_repeats_an_ordered_pop_is_notified_of_its_messages(tmp_path: Path) -> None:
    async with broker_in(tmp_path) as broker, PopClient(broker.address) as client:
        for number in range(2):
            await client.send("T", b"%d" % number)
        popped = await client.pop("T", order=True, attempt_id="one")
        assert popped.bodies == [b"0", b"1"]
        assert await is_notified(client, order=True, attempt_id="one")
        assert not await is_notified(client, order=True, attempt_id="two")
        for message in popped.messages:
            await client.ack("T", message)
        assert not await is_notified(client, order=True, attempt_id="one")
        await client.send("T", b"2")
        assert await is_notified(client, order=True, attempt_id="two")


@on_loop
async def test_as_many_are_notified_as_there_are_messages(tmp_path: Path) -> None:
    async with broker_in(tmp_path) as broker, AsyncExitStack() as stack:
        sender = await stack.enter_async_context(BrokerClient(broker.address))
        clients = [await stack.enter_async_context(PopClient(broker.address)) for _ in range(4)]
        await sender.send("T", b"0")
        await clients[0].ack("T", (await clients[0].pop("T")).messages[0])
        waiting = [asyncio.create_task(is_notified(client, poll_time=3000)) for client in clients]
        await until(lambda: len(broker.parts.pop.polling) == 4)
        await sender.send("T", b"1")
        await until(lambda: len(broker.parts.pop.polling) == 3)
        await asyncio.sleep(0.2)
        assert len(broker.parts.pop.polling) == 3, "one message, one notification"
        header = send_header("T", batch=True)
        batch = encode_batch([Message("T", b"2"), Message("T", b"3"), Message("T", b"4")])
        await sender.call(RequestCode.SEND_BATCH_MESSAGE, header.to_short(), body=batch)
        async with asyncio.timeout(1.5):
            assert all(await asyncio.gather(*waiting))


@on_loop
async def test_longer_receipts_acknowledge_and_change_as_well(tmp_path: Path) -> None:
    """Apache's proxy appends the physical offset of the message."""
    async with broker_in(tmp_path) as broker, PopClient(broker.address) as client:
        for number in range(2):
            await client.send("T", b"%d" % number)
        first, second = (await client.pop("T")).messages
        await client.ack("T", first, extra_info=f"{first.receipt.encode()} 0")
        await until(lambda: committed(broker, "T") == 1)
        receipt = second.receipt
        answer = await client.call(
            RequestCode.CHANGE_MESSAGE_INVISIBLETIME,
            ChangeInvisibleTimeHeader(
                client.group, "T", receipt.queue_id, f"{receipt.encode()} 321", receipt.offset, 9000
            ),
        )
        assert ChangeInvisibleTimeReply.from_fields(answer.fields).invisible_time == 9000


@on_loop
async def test_filters_new_groups_and_peeks(tmp_path: Path) -> None:
    async with broker_in(tmp_path) as broker, PopClient(broker.address) as client:
        for number in range(6):
            tags = {"TAGS": "A" if number % 2 else "B"}
            await client.send("T", b"%d" % number, properties=tags)
        peeked = await client.call(RequestCode.PEEK_MESSAGE, PeekHeader("T", -1, 32, "poppers"))
        assert len(list(iter_records(peeked.body))) == 6
        assert PopReply.from_fields(peeked.fields).rest_num == 6
        chosen = await client.pop("T", exp="A", exp_type="TAG")
        assert chosen.bodies == [b"1", b"3", b"5"]
        by_sql = await client.pop("T", consumer_group="others", exp="TAGS = 'B'", exp_type="SQL92")
        assert by_sql.bodies == [b"0", b"2", b"4"]
        # What nobody wanted is settled with the rest.
        for message in chosen.messages:
            await client.ack("T", message)
        await until(lambda: committed(broker, "T") == 6)
        late = await client.pop("T", consumer_group="late", init_mode=1)
        assert len(late.messages) == 6  # the queue is young


@on_loop
async def test_resets_and_deletions_forget_what_was_popped(tmp_path: Path) -> None:
    clock = FakeClock(NOON)
    async with (
        broker_in(tmp_path, now=clock) as broker,
        PopClient(broker.address, now=clock) as client,
    ):
        for number in range(4):
            await client.send("T", b"%d" % number)
        await client.ack("T", (await client.pop("T", max_msg_nums=1)).messages[0])
        await client.pop("T", invisible_time=5000)
        reset = ResetOffsetHeader(topic="T", group="poppers", timestamp=0, is_force=True)
        await client.call(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, reset)
        assert (await client.pop("T", invisible_time=5000)).bodies == [b"0", b"1", b"2", b"3"]
        await later(broker, clock, 6)
        again = await client.pop("T")
        assert again.bodies == [b"0", b"1", b"2", b"3"]  # once, not twice
        await client.call(RequestCode.DELETE_TOPIC_IN_BROKER, TopicHeader("T"))
        assert not broker.parts.pop.state.queues
        with pytest.raises(TopicNotFound):
            await client.ack("T", again.messages[0])
        await client.send("T", b"new")
        assert (await client.pop("T")).bodies == [b"new"]
        header = DeleteGroupHeader(group_name="poppers", clean_offset=True)
        await client.call(RequestCode.DELETE_SUBSCRIPTIONGROUP, header)
        assert not broker.parts.pop.state.queues


@on_loop
async def test_bad_requests_are_refused_by_name(tmp_path: Path) -> None:
    async with broker_in(tmp_path) as broker, PopClient(broker.address) as client:
        await client.send("T", b"x", queue_id=0)
        message = (await client.pop("T")).messages[0]
        with pytest.raises(InvalidParameter, match="33"):
            await client.pop("T", max_msg_nums=33)
        with pytest.raises(InvalidParameter, match="queueId"):
            await client.pop("T", queue_id=9)
        with pytest.raises(MessageIllegal, match="extraInfo 'rubbish'"):
            await client.ack("T", message, extra_info="rubbish")
        with pytest.raises(MessageIllegal, match="queueId"):
            await client.ack("T", message, queue_id=7)
        with pytest.raises(NoMessage, match="offset is illegal"):
            await client.ack("T", message, offset=100)
        with pytest.raises(InvalidParameter, match="retry topic"):
            await client.pop("T", consumer_group="g" * 248)
        await client.call(RequestCode.POP_ROLLBACK)


@on_loop
async def test_messages_too_many_to_have_in_hand_wait(tmp_path: Path) -> None:
    config = broker_in(
        tmp_path, enable_pop_message_threshold=True, pop_inflight_message_threshold=2
    )
    async with config as broker, PopClient(broker.address) as client:
        for number in range(5):
            await client.send("T", b"%d" % number)
        first = await client.pop("T", max_msg_nums=3)
        more = await client.pop("T")
        assert not more.messages
        assert more.header.rest_num == 2
        for message in first.messages:
            await client.ack("T", message)
        assert (await client.pop("T")).bodies == [b"3", b"4"]


@on_loop
async def test_a_torn_journal_has_messages_delivered_again(tmp_path: Path) -> None:
    async with broker_in(tmp_path) as broker, PopClient(broker.address) as client:
        for number in range(3):
            await client.send("T", b"%d" % number)
        popped = await client.pop("T")
        await client.ack("T", popped.messages[1])
        await until(lambda: committed(broker, "T") == 0)
        place = broker.store.read("rmq_sys_bolide_pop", 0, 1).records[0]
        (position,) = struct.unpack_from(">q", place, 28)
    log = next((tmp_path / "store" / "commitlog").iterdir())
    data = bytearray(log.read_bytes())
    at = data.index(b'[["pop"', position)
    data[at : at + 4] = b"####"
    log.write_bytes(data)
    async with broker_in(tmp_path) as broker, PopClient(broker.address) as client:
        assert (await client.pop("T")).bodies == [b"0", b"1", b"2"]


@on_loop
async def test_on_a_full_disk_nothing_is_given_away_and_nothing_is_lost(tmp_path: Path) -> None:
    clock = FakeClock(NOON)
    async with (
        broker_in(tmp_path, now=clock, flush_mode=FlushMode.SYNC) as broker,
        PopClient(broker.address, now=clock) as client,
    ):
        for number in range(4):
            await client.send("T", b"%d" % number)
        popped = await client.pop("T", max_msg_nums=3, invisible_time=5000)
        await client.ack("T", popped.messages[0])
        broker.store.health.refuse("test", "the disk is full")
        for refused in (
            client.pop("T"),
            client.ack("T", popped.messages[1]),
            client.change("T", popped.messages[2], 1),
        ):
            with pytest.raises(ServiceNotAvailable, match="the disk is full"):
                await refused
        clock.now += 10
        await until(lambda: broker.parts.pop.reviver.is_stuck)
        broker.store.health.allow("test")
        await client.ack("T", popped.messages[1])
        clock.now += 2
        await later(broker, clock, 0)
        assert sorted((await client.pop("T")).bodies) == [b"2", b"3"]
        shutil.copytree(tmp_path / "store", tmp_path / "crashed" / "store")
    async with (
        broker_in(tmp_path / "crashed", now=clock, flush_mode=FlushMode.SYNC) as broker,
        PopClient(broker.address, now=clock) as client,
    ):
        assert not (await client.pop("T")).messages
