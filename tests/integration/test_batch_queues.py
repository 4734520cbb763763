"""Topics with `queue.type=BatchCQ`: batches of one record, and messages of their own."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from bolide.broker.server import Broker
from bolide.client.consumer.handlers.handler import Retry
from bolide.client.consumer.pop.pop_consumer import PopConsumer
from bolide.client.consumer.pull.lite_pull_consumer import LitePullConsumer
from bolide.client.consumer.pull.pull_consumer import PullConsumer
from bolide.client.consumer.push.push_consumer import PushConsumer
from bolide.client.producer.results import TransactionState
from bolide.client.producer.transactions import TransactionProducer
from bolide.model.message import Message, StoredMessage
from bolide.model.message_queue import MessageQueue
from bolide.protocol.batch import encode_batch
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.headers.offsets import (
    MaxOffsetHeader,
    OffsetReply,
    QueueHeader,
    SearchOffsetHeader,
)
from bolide.protocol.inner_batch import is_wrapped, unwrap
from bolide.protocol.refusals import InvalidParameter, MessageIllegal
from tests.support.aio import on_loop, until
from tests.support.batches import create_batch_topic, items, send_batch
from tests.support.broker import BrokerClient, Pulled, broker_in
from tests.support.own_cluster import OwnCluster, own_cluster

QUEUE = MessageQueue("Bulk", "broker-a", 0)
NAMED = {"UNIQ_KEY": "7F00000112345678ABCDEF0000010000"}


@asynccontextmanager
async def serving(directory: Path, **given: Any) -> AsyncIterator[tuple[Broker, BrokerClient]]:
    async with broker_in(directory, **given) as broker, BrokerClient(broker.address) as client:
        yield broker, client


@asynccontextmanager
async def filled(directory: Path, **given: Any) -> AsyncIterator[OwnCluster]:
    """A cluster with offsets 0 to 4 and 6 to 8 in batches, and 5 in a record of its own."""
    async with own_cluster(directory, **given) as cluster:
        async with BrokerClient(cluster.broker.address) as client:
            await create_batch_topic(client)
            await send_batch(client, items(0, 5))
            await client.send("Bulk", b"5")
            await send_batch(client, items(6, 3))
        yield cluster


def inner(pulled: Pulled) -> list[tuple[int, bytes]]:
    found = [message for record in pulled.records for message in unwrap(record)]
    return [(message.queue_offset, bytes(message.body)) for message in found]


def bodies(messages: object) -> list[str]:
    assert isinstance(messages, list | tuple)
    return [message.body.decode() for message in messages]


# ---- the broker


@on_loop
async def test_a_batch_is_one_record_and_its_messages_have_an_offset_each(tmp_path: Path) -> None:
    async with serving(tmp_path) as (_, client):
        await create_batch_topic(client)
        first = await send_batch(client, items(0, 3))
        second = await send_batch(client, items(3, 2))
        assert (first.queue_offset, second.queue_offset) == (0, 3)
        assert first.batch_uniq_id == "7F00000112345678ABCDEF0000010000"
        assert "," not in first.msg_id
        pulled = await client.pull("Bulk", 0)
        assert pulled.header.next_begin_offset == pulled.header.max_offset == 5
        assert len(pulled.records) == 2
        assert inner(pulled) == [(number, b"%d" % number) for number in range(5)]
        assert pulled.records[1].decode_properties()["INNER_BASE"] == "3"


@on_loop
async def test_an_offset_inside_a_batch_brings_the_whole_record(tmp_path: Path) -> None:
    async with serving(tmp_path) as (_, client):
        await create_batch_topic(client)
        await send_batch(client, items(0, 4))
        await send_batch(client, items(4, 4))
        pulled = await client.pull("Bulk", 6)
        assert [offset for offset, _ in inner(pulled)] == [4, 5, 6, 7]
        assert pulled.header.next_begin_offset == 8


@on_loop
async def test_single_messages_and_batches_without_an_id_have_records_of_their_own(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path) as (_, client):
        await create_batch_topic(client)
        assert (await client.send("Bulk", b"0")).queue_offset == 0
        answer = await send_batch(client, items(1, 3), batch_id="")
        assert (answer.queue_offset, len(answer.msg_id.split(","))) == (1, 3)
        assert answer.batch_uniq_id is None
        assert (await send_batch(client, items(4, 2))).queue_offset == 4
        assert (await client.send("Bulk", b"6")).queue_offset == 6
        pulled = await client.pull("Bulk", 0)
        assert [is_wrapped(record.sys_flag) for record in pulled.records] == [
            False, False, False, False, True, False,
        ]  # fmt: skip
        assert inner(pulled) == [(number, b"%d" % number) for number in range(7)]


@on_loop
async def test_a_pull_counts_messages_and_not_records(tmp_path: Path) -> None:
    async with serving(tmp_path) as (_, client):
        await create_batch_topic(client)
        for first in range(0, 30, 10):
            await send_batch(client, items(first, 10))
        two = await client.pull("Bulk", 0, max_msg_nums=25)
        assert (len(two.records), two.header.next_begin_offset) == (2, 20)
        whole = await client.pull("Bulk", 0, max_msg_nums=3)
        assert (len(whole.records), whole.header.next_begin_offset) == (1, 10)


@on_loop
async def test_tags_of_the_batch_choose_and_those_of_its_messages_do_not(tmp_path: Path) -> None:
    async with serving(tmp_path) as (_, client):
        await create_batch_topic(client)
        await send_batch(client, items(0, 2, TAGS="A"), properties={"TAGS": "A"})
        await send_batch(client, items(2, 2, TAGS="A"))
        await send_batch(client, items(4, 2, TAGS="B"), properties={"TAGS": "B"})
        found = await client.pull("Bulk", 0, subscription="A")
        assert [offset for offset, _ in inner(found)] == [0, 1]
        assert found.header.next_begin_offset == 6
        none = await client.pull("Bulk", 2, subscription="A")
        assert none.code == ResponseCode.PULL_RETRY_IMMEDIATELY
        assert none.header.next_begin_offset == 6


@on_loop
async def test_a_waiting_pull_gets_a_batch_at_once(tmp_path: Path) -> None:
    async with serving(tmp_path) as (_, client):
        await create_batch_topic(client)
        await send_batch(client, items(0, 2))
        waiting = asyncio.create_task(client.wait_for("Bulk", 2))
        await asyncio.sleep(0)
        async with BrokerClient(client.address) as other:
            await send_batch(other, items(2, 2))
        assert inner(await waiting) == [(2, b"2"), (3, b"3")]


@on_loop
async def test_positions_are_those_of_messages(tmp_path: Path) -> None:
    clock = [1_700_000_000.0]
    async with serving(tmp_path, now=lambda: clock[0]) as (_, client):
        await create_batch_topic(client)
        for first in (0, 4, 8):
            await send_batch(client, items(first, 4))
            clock[0] += 10
        header = MaxOffsetHeader(topic="Bulk", queue_id=0)
        high = await client.call(RequestCode.GET_MAX_OFFSET, header)
        assert OffsetReply.from_fields(high.fields).offset == 12
        low = await client.call(RequestCode.GET_MIN_OFFSET, QueueHeader("Bulk", 0))
        assert OffsetReply.from_fields(low.fields).offset == 0
        begin = 1_700_000_000_000
        times = [begin - 1, begin, begin + 1, begin + 10_000, begin + 20_000, begin + 99_999]
        found = [await offset_at(client, timestamp) for timestamp in times]
        assert found == [0, 0, 4, 4, 8, 8]


async def offset_at(client: BrokerClient, timestamp: int) -> int:
    header = SearchOffsetHeader(topic="Bulk", queue_id=0, timestamp=timestamp)
    answer = await client.call(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header)
    return OffsetReply.from_fields(answer.fields).offset


@pytest.mark.parametrize(
    "properties", [{"DELAY": "3"}, {"TIMER_DELAY_SEC": "5"}, {"TIMER_DELIVER_MS": "1"}]
)
@on_loop
async def test_a_batch_with_a_delivery_time_is_refused(
    tmp_path: Path, properties: dict[str, str]
) -> None:
    async with serving(tmp_path) as (_, client):
        await create_batch_topic(client)
        with pytest.raises(MessageIllegal, match="delivery time"):
            await send_batch(client, items(0, 2), properties=properties)


@pytest.mark.parametrize(
    ("sys_flag", "properties", "body"),
    [
        (0, {"INNER_NUM": "1"}, b"x"),
        (0xC0, {}, encode_batch(items(0, 1))),
        (0xC0, {"INNER_NUM": "2"}, encode_batch(items(0, 1))),
        (0xC0, {"INNER_NUM": "1", "INNER_BASE": "7"}, encode_batch(items(0, 1))),
        (0xC0, {"INNER_NUM": "1"}, b"no batch"),
    ],
)
@on_loop
async def test_a_message_that_is_no_batch_but_says_so_is_refused(
    tmp_path: Path, sys_flag: int, properties: dict[str, str], body: bytes
) -> None:
    async with serving(tmp_path) as (_, client):
        await create_batch_topic(client)
        with pytest.raises(MessageIllegal):
            await client.send("Bulk", body, sys_flag=sys_flag, properties=properties)
        assert (await client.send("Bulk", b"next")).queue_offset == 0


@pytest.mark.parametrize(
    ("changes", "reason"),
    [("+queue.type=SimpleCQ", "cannot be changed"), ("+dedup.window=60", "BatchCQ")],
)
@on_loop
async def test_the_kind_of_queues_stays_and_goes_with_no_deduplication(
    tmp_path: Path, changes: str, reason: str
) -> None:
    async with serving(tmp_path) as (_, client):
        await create_batch_topic(client)
        with pytest.raises(InvalidParameter, match=reason):
            await create_batch_topic(client, attributes=changes)


@on_loop
async def test_a_topic_may_come_again_with_other_queues(tmp_path: Path) -> None:
    async with serving(tmp_path) as (_, client):
        await create_batch_topic(client)
        await send_batch(client, items(0, 3))
        await client.call(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "Bulk"})
        assert (await client.send("Bulk", b"plain")).queue_offset == 0
        assert (await client.pull("Bulk", 0)).bodies == [b"plain"]
    async with serving(tmp_path) as (_, client):
        assert (await client.pull("Bulk", 0)).bodies == [b"plain"]
        assert (await client.send("Bulk", b"more")).queue_offset == 1


@pytest.mark.parametrize("mode", ["ASYNC_FLUSH", "SYNC_FLUSH"])
@on_loop
async def test_a_restart_keeps_batches_and_their_offsets(tmp_path: Path, mode: str) -> None:
    async with serving(tmp_path, flush_mode=mode) as (_, client):
        await create_batch_topic(client)
        await send_batch(client, items(0, 5))
    async with serving(tmp_path, flush_mode=mode) as (_, client):
        await send_batch(client, items(5, 5))
        pulled = await client.pull("Bulk", 3)
        assert inner(pulled) == [(number, b"%d" % number) for number in range(10)]


@on_loop
async def test_the_fast_path_prepares_nothing_for_batch_queues(tmp_path: Path) -> None:
    async with serving(tmp_path) as (broker, client):
        if broker.parts.fast_path is None:
            pytest.skip("there is no compiled fast path")
        plans = broker.parts.fast_path.plans
        await create_batch_topic(client)
        for number in range(5):
            assert (await client.send("Bulk", b"x", properties=NAMED)).queue_offset == number
            await client.pull("Bulk", number)
        assert len(plans) == 0
        for _ in range(5):
            await client.send("T", b"x", properties=NAMED)
            await client.pull("T", 0)
        assert len(plans) > 0


# ---- consumers


@on_loop
async def test_a_pull_consumer_gets_the_messages_from_its_offset_on(tmp_path: Path) -> None:
    async with (
        filled(tmp_path) as cluster,
        PullConsumer("readers", name_server=cluster.address) as consumer,
    ):
        found = await consumer.pull(QUEUE, "*", 2)
        assert bodies(found.messages) == ["2", "3", "4", "5", "6", "7", "8"]
        assert [each.queue_offset for each in found.messages] == list(range(2, 9))
        assert found.messages[0].message_id == "ID2"


@on_loop
async def test_a_lite_pull_consumer_and_a_push_consumer_get_single_messages(
    tmp_path: Path,
) -> None:
    async with filled(tmp_path) as cluster:
        settings: dict[str, Any] = {"consume_from": "first", "name_server": cluster.address}
        async with LitePullConsumer("lite", **settings) as lite:
            await lite.subscribe("Bulk")
            got: list[StoredMessage] = []
            while len(got) < 9:
                got += await lite.poll(5)
            assert sorted(bodies(got)) == list("012345678")
        seen: list[str] = []

        async def take(message: StoredMessage) -> None:
            seen.append(message.body.decode())

        async with PushConsumer("pushed", **settings) as push:
            await push.subscribe("Bulk", take)
            await until(lambda: len(seen) == 9)
        assert sorted(seen) == list("012345678")
        assert cluster.broker.parts.offsets.find("pushed", "Bulk", 0) == 9


@on_loop
async def test_a_committed_transaction_and_a_delayed_message_get_offsets_of_their_own(
    tmp_path: Path,
) -> None:
    async with filled(tmp_path) as cluster, BrokerClient(cluster.broker.address) as client:
        async with TransactionProducer(
            "ends", check=lambda _: TransactionState.COMMIT, name_server=cluster.address
        ) as producer:
            for body in (b"9", b"10"):
                result = await producer.send_in_transaction(
                    Message("Bulk", body), lambda _: TransactionState.COMMIT
                )
                assert result.is_confirmed
        await client.send("Bulk", b"11", properties={"DELAY": "1"})
        await until(lambda: cluster.broker.parts.store.max_offset("Bulk", 0) == 12)
        await send_batch(client, items(12, 2))
        found = inner(await client.pull("Bulk", 9))
        assert found == [(number, b"%d" % number) for number in range(9, 14)]


@on_loop
async def test_a_failed_message_of_a_batch_comes_again_alone(tmp_path: Path) -> None:
    async with filled(tmp_path) as cluster:
        seen: list[tuple[str, int]] = []

        async def take(message: StoredMessage) -> None:
            seen.append((message.body.decode(), message.reconsume_times))
            if message.body == b"2" and not message.reconsume_times:
                raise Retry

        async with PushConsumer(
            "retrying", consume_from="first", name_server=cluster.address
        ) as push:
            await push.subscribe("Bulk", take)
            await until(lambda: len(seen) == 10)
        assert seen[-1] == ("2", 1)
        assert sorted(text for text, times in seen if not times) == list("012345678")


@on_loop
async def test_a_pop_brings_single_messages_with_a_lease_each(tmp_path: Path) -> None:
    async with filled(tmp_path) as cluster:
        settings: dict[str, Any] = {"consume_from": "first", "name_server": cluster.address}
        async with PopConsumer("poppers", **settings) as consumer:
            await consumer.subscribe("Bulk")
            first = await consumer.receive(32, invisible=1.0)
            got = list(first)
            while len(got) < 9:
                got += await consumer.receive(32, invisible=1.0)
            assert [each.queue_offset for each in got] == list(range(9))
            await consumer.ack(*[each for each in got if each.body != b"7"])
            again = await consumer.receive(32, wait=20.0)
            assert [(each.body, each.reconsume_times) for each in again] == [(b"7", 1)]
