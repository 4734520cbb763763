"""A group without its master, the slave that acts for it, another group, and a NameServer."""

import asyncio
from contextlib import suppress
from pathlib import Path

import pytest

from bolide import PopConsumer, PushConsumer
from bolide.broker.server import Broker
from bolide.errors import BolideError
from bolide.kernel import read_record
from bolide.model.message import StoredMessage
from bolide.model.properties import PropertyName
from bolide.protocol import fastjson
from bolide.protocol.bodies.message_queue import MessageQueue
from bolide.protocol.bodies.routes import TopicRoute
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.headers.namesrv import RouteHeader
from bolide.protocol.headers.offsets import CommitOffsetHeader
from bolide.protocol.refusals import Refusal
from bolide.store.reading import ReadLimits
from tests.support.acting_cluster import cluster
from tests.support.aio import on_loop, until
from tests.support.broker import COMMIT, SUBSCRIBED, BrokerClient
from tests.support.popping import PopClient

UNIQUE = PropertyName.UNIQUE_ID


def bodies(broker: Broker, topic: str = "T") -> list[bytes]:
    """Bodies of all messages of a topic, by queue."""
    limits = ReadLimits(max_count=1000, max_size=1 << 20, max_scanned=1000)
    return [
        bytes(read_record(bytes(data)).body)  # type: ignore[union-attr]
        for queue in range(4)
        for data in broker.store.read(topic, queue, 0, limits).records
    ]


@on_loop
async def test_consumption_goes_on_at_the_slave_and_offsets_come_home(tmp_path: Path) -> None:
    async with cluster(tmp_path, other=False) as found:
        async with BrokerClient(found.master.address) as client:
            for number in range(10):
                await client.send("T", b"%d" % number, queue_id=0)
        found.master.parts.groups.require("readers")
        found.master.parts.offsets.commit("readers", "T", 0, 3)
        await until(lambda: found.slave.parts.offsets.find("readers", "T", 0) == 3)
        await found.lose_master()

        async with BrokerClient(found.names) as client:
            answer = await client.call(RequestCode.GET_ROUTEINFO_BY_TOPIC, RouteHeader("T"))
        route = fastjson.decode(answer.body, TopicRoute)
        assert route.broker_datas[0].broker_addrs == {0: found.slave.address}
        assert route.queue_datas[0].perm == 4

        async with BrokerClient(found.slave.address) as client:
            pulled = await client.pull("T", 3, sys_flag=SUBSCRIBED | COMMIT, commit_offset=5)
            assert pulled.bodies == [b"%d" % number for number in range(3, 10)]
            assert found.slave.parts.offsets.find("readers", "T", 0) == 5
            header = CommitOffsetHeader("readers", "T", 0, 8)
            await client.call(RequestCode.UPDATE_CONSUMER_OFFSET, header)

        master = await found.start_master()
        assert master.parts.offsets.find("readers", "T", 0) == 8
        await until(lambda: not found.acts)
        assert found.slave.parts.offsets.find("readers", "T", 0) == 8
        assert master.store.log.written >= found.slave.store.log.written


@on_loop
async def test_messages_due_meanwhile_arrive_through_another_group_and_only_once(
    tmp_path: Path,
) -> None:
    async with cluster(tmp_path) as found:
        async with BrokerClient(found.master.address) as client:
            await client.send("T", b"plain")
            await client.send("T", b"delayed", properties={"DELAY": "2", UNIQUE: "1"})
            await client.send("T", b"timed", properties={"TIMER_DELAY_MS": "3000", UNIQUE: "2"})
            await client.send("T", b"later", properties={"TIMER_DELAY_MS": "9000", UNIQUE: "3"})
        await found.lose_master()

        await until(lambda: {b"delayed", b"timed"} <= set(bodies(found.other)))
        assert b"later" not in bodies(found.other)
        end = found.slave.store.log.written

        master = await found.start_master()
        assert not found.acts
        await until(lambda: b"later" in bodies(master))
        assert bodies(found.other).count(b"delayed") == 1
        assert bodies(found.other).count(b"timed") == 1
        assert sorted(bodies(master)) == [b"later", b"plain"]
        assert end <= found.slave.store.log.written


@on_loop
async def test_a_message_that_no_other_group_takes_waits_for_the_master(tmp_path: Path) -> None:
    async with cluster(tmp_path, other=False) as found:
        async with BrokerClient(found.master.address) as client:
            await client.send("T", b"delayed", properties={"DELAY": "1", UNIQUE: "1"})
            await client.send("T", b"timed", properties={"TIMER_DELAY_MS": "1000", UNIQUE: "2"})
        await found.lose_master()
        await asyncio.sleep(1.5)  # nothing tells that a message is not delivered
        assert found.slave.parts.delay.progress()[1] == (0, 1)

        master = await found.start_master()
        await until(lambda: sorted(bodies(master)) == [b"delayed", b"timed"])


@on_loop
async def test_queues_are_locked_at_the_slave(tmp_path: Path) -> None:
    async with cluster(tmp_path, other=False) as found:
        async with BrokerClient(found.master.address) as client:
            await client.send("T", b"x")
        await found.lose_master()
        body = fastjson.encode(
            {
                "consumerGroup": "readers",
                "clientId": "one",
                "mqSet": [MessageQueue("T", "broker-a", 0)],
            }
        )
        async with BrokerClient(found.slave.address) as client:
            answer = await client.call(RequestCode.LOCK_BATCH_MQ, {}, body)
        assert b'"queueId":0' in bytes(answer.body)


@on_loop
async def test_a_slave_learns_without_notices_that_it_acts(tmp_path: Path) -> None:
    async with cluster(tmp_path, other=False, notices=False) as found:
        async with BrokerClient(found.master.address) as client:
            await client.send("T", b"x")
        await found.lose_master()
        await found.start_master()
        await until(lambda: not found.acts)


@on_loop
async def test_an_ordered_consumer_goes_on_at_the_slave_and_back_at_the_master(
    tmp_path: Path,
) -> None:
    got: list[int] = []

    async def take(message: StoredMessage) -> None:
        got.append(int(message.body))

    async def consume(up_to: int) -> None:
        async with PushConsumer(
            "readers", name_server=found.names, consume_from="first", route_interval=0.2
        ) as consumer:
            await consumer.subscribe("T", take, ordered=True)
            await until(lambda: len(got) >= up_to)

    async with cluster(tmp_path, other=False) as found:
        async with BrokerClient(found.master.address) as client:
            for number in range(30):
                await client.send("T", b"%d" % number, queue_id=0)
        found.master.parts.groups.require("readers")
        found.master.parts.offsets.commit("readers", "T", 0, 10)
        await until(lambda: found.slave.parts.offsets.find("readers", "T", 0) == 10)
        await found.lose_master()

        await consume(20)
        await until(lambda: found.slave.parts.offsets.find("readers", "T", 0) == 30)
        master = await found.start_master()
        async with BrokerClient(master.address) as client:
            for number in range(30, 35):
                await client.send("T", b"%d" % number, queue_id=0)
        await consume(25)
        assert got == list(range(10, 35))


@on_loop
async def test_offsets_also_come_home_to_a_master_that_does_not_ask(tmp_path: Path) -> None:
    async with cluster(tmp_path, other=False) as found:
        async with BrokerClient(found.master.address) as client:
            for number in range(10):
                await client.send("T", b"%d" % number, queue_id=0)
        found.master.parts.groups.require("readers")
        found.master.parts.offsets.commit("readers", "T", 0, 3)
        await until(lambda: found.slave.parts.offsets.find("readers", "T", 0) == 3)
        await found.lose_master()
        async with BrokerClient(found.slave.address) as client:
            header = CommitOffsetHeader("readers", "T", 0, 8)
            await client.call(RequestCode.UPDATE_CONSUMER_OFFSET, header)

        master = await found.start_master(skip_pre_online=True)
        await until(lambda: master.parts.offsets.find("readers", "T", 0) == 8)
        await until(lambda: found.slave.parts.offsets.own() == [])
        assert found.slave.parts.offsets.find("readers", "T", 0) == 8


@on_loop
async def test_a_retry_goes_to_a_group_that_has_no_retry_topic_yet(tmp_path: Path) -> None:
    async with cluster(tmp_path) as found:
        async with BrokerClient(found.master.address) as client:
            await client.send("T", b"again", queue_id=0)
            found.master.parts.groups.require("readers")
            pulled = await client.pull("T", 0)
            await client.send_back(pulled.records[0], delay_level=2)
        await found.lose_master()

        retries = "%RETRY%readers"
        await until(lambda: retries in found.other.parts.topics)
        await until(lambda: bodies(found.other, retries) == [b"again"])


@on_loop
async def test_without_remote_escape_due_messages_wait(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with cluster(tmp_path, enable_remote_escape=False) as found:
        async with BrokerClient(found.master.address) as client:
            await client.send("T", b"delayed", properties={"DELAY": "1", UNIQUE: "1"})
        await found.lose_master()
        assert "enableRemoteEscape=true would" in caplog.text
        await asyncio.sleep(1.2)  # nothing tells that a message is not delivered
        assert bodies(found.other) == [b"first of b"]

        found.slave.config.apply({"enableRemoteEscape": "true"})
        await until(lambda: b"delayed" in bodies(found.other))


@on_loop
async def test_pops_go_on_at_the_slave_and_the_master_knows_of_them(tmp_path: Path) -> None:
    async with cluster(tmp_path, other=False) as found:
        async with PopClient(found.master.address) as client:
            for number in range(6):
                await client.send("T", b"%d" % number, queue_id=0)
            first = await client.pop(max_msg_nums=2)
            await client.ack("T", first.messages[0])
        await found.lose_master()

        async with PopClient(found.slave.address) as client:
            await client.ack("T", first.messages[1])  # leased by the master
            second = await client.pop(max_msg_nums=3)
            assert second.bodies == [b"2", b"3", b"4"]
            await client.ack("T", second.messages[1])
        assert found.slave.store.log.written <= found.master.store.log.written

        master = await found.start_master()
        async with PopClient(master.address) as client:
            await client.ack("T", second.messages[0])  # leased by the slave
            assert (await client.pop()).bodies == [b"5"]
            offset = master.parts.offsets
            await until(lambda: offset.find(client.group, "T", 0) == 4)
            await client.ack("T", second.messages[2])
            queue = master.parts.pop.state.queues["T", client.group, 0]
            assert [each.unacknowledged for each in queue.checkpoints.values()] == [[5]]


@on_loop
async def test_ordered_pops_go_on_at_the_slave(tmp_path: Path) -> None:
    async with cluster(tmp_path, other=False) as found:
        async with PopClient(found.master.address) as client:
            for number in range(3):
                await client.send("T", b"%d" % number, queue_id=0)
        found.master.parts.groups.require("poppers")
        await found.lose_master()
        async with PopClient(found.slave.address) as client:
            popped = await client.pop(max_msg_nums=2, order=True, queue_id=0)
            assert popped.bodies == [b"0", b"1"]
            await client.ack("T", popped.messages[0])

        master = await found.start_master()
        async with PopClient(master.address) as client:
            assert not (await client.pop(order=True, queue_id=0)).messages
            await client.ack("T", popped.messages[1])
            assert (await client.pop(order=True, queue_id=0)).bodies == [b"2"]


@on_loop
async def test_what_nobody_acknowledged_is_popped_at_another_group(tmp_path: Path) -> None:
    async with cluster(tmp_path) as found:
        async with PopClient(found.master.address) as client:
            await client.send("T", b"at the master", queue_id=0)
            await client.send("T", b"at the slave", queue_id=0)
            await client.pop(max_msg_nums=1, invisible_time=3000)
        await found.lose_master()
        async with PopClient(found.slave.address) as client:
            popped = await client.pop(max_msg_nums=1, invisible_time=500)
            assert popped.bodies == [b"at the slave"]

        retries = "%RETRY%poppers+T"
        await until(lambda: len(bodies(found.other, retries)) == 2)
        assert set(bodies(found.other, retries)) == {b"at the master", b"at the slave"}
        async with PopClient(found.other.address) as client:
            got = [*(await client.pop()).messages, *(await client.pop()).messages]
        times = {message.body: message.record.reconsume_times for message in got}
        assert times == {b"first of b": 0, b"at the master": 1, b"at the slave": 1}

        master = await found.start_master()
        async with PopClient(master.address) as client:
            assert not (await client.pop()).messages
        assert not master.parts.pop.state
        assert sorted(bodies(master)) == [b"at the master", b"at the slave"]


@on_loop
async def test_expired_pops_wait_for_the_master_if_no_other_group_has_the_topic(
    tmp_path: Path,
) -> None:
    async with cluster(tmp_path, other=False) as found:
        async with PopClient(found.master.address) as client:
            await client.send("T", b"x", queue_id=0)
        found.master.parts.groups.require("poppers")
        await found.lose_master()
        async with PopClient(found.slave.address) as client:
            popped = await client.pop(invisible_time=200)
            assert popped.bodies == [b"x"]
            await until(lambda: not found.slave.parts.pop.state.next_due or found.acts)
            await asyncio.sleep(1.0)  # nothing tells that a message is not moved

        master = await found.start_master()
        async with PopClient(master.address) as client:

            async def revived() -> bool:
                return (await client.pop()).bodies == [b"x"]

            async with asyncio.timeout(10):
                while not await revived():  # noqa: ASYNC110  each look is a request
                    await asyncio.sleep(0.1)


@on_loop
async def test_a_master_that_does_not_ask_delivers_again_and_loses_nothing(tmp_path: Path) -> None:
    async with cluster(tmp_path, other=False) as found:
        async with PopClient(found.master.address) as client:
            for number in range(4):
                await client.send("T", b"%d" % number, queue_id=0)
        found.master.parts.groups.require("poppers")
        await found.lose_master()
        async with PopClient(found.slave.address) as client:
            popped = await client.pop(max_msg_nums=3)
            await client.ack("T", popped.messages[0])
            await client.ack("T", popped.messages[2])

        master = await found.start_master(skip_pre_online=True)
        await until(lambda: master.parts.offsets.find("poppers", "T", 0) == 1)
        async with PopClient(master.address) as client:
            assert (await client.pop()).bodies == [b"1", b"2", b"3"]
        acting = found.slave.parts.acting
        assert acting is not None
        await until(lambda: not acting.popped_meanwhile())  # the log has grown without it


@on_loop
async def test_a_slave_that_does_not_act_serves_no_pops(tmp_path: Path) -> None:
    async with cluster(tmp_path, other=False) as found, PopClient(found.slave.address) as client:
        with pytest.raises(Refusal, match="slave") as refused:
            await client.pop()
        assert refused.value.code == ResponseCode.SERVICE_NOT_AVAILABLE


@on_loop
async def test_a_pop_consumer_goes_on_at_the_slave_and_back_at_the_master(tmp_path: Path) -> None:
    got: list[int] = []

    async def consume(consumer: PopConsumer) -> None:
        while True:
            with suppress(BolideError):  # while there is neither master nor acting master
                for message in await consumer.receive(wait=0.5):
                    await consumer.ack(message)
                    got.append(int(message.body))

    async def send(broker: Broker, numbers: range) -> None:
        async with BrokerClient(broker.address) as client:
            for number in numbers:
                await client.send("T", b"%d" % number, queue_id=number % 4)

    async with (
        cluster(tmp_path, other=False) as found,
        PopConsumer(
            "poppers", name_server=found.names, consume_from="first", route_interval=0.2
        ) as consumer,
    ):
        await send(found.master, range(10))
        await consumer.subscribe("T")
        consuming = asyncio.create_task(consume(consumer))
        try:
            await until(lambda: len(got) == 10)
            await send(found.master, range(10, 20))
            await found.lose_master()
            await until(lambda: set(got) == set(range(20)))
            await send(await found.start_master(), range(20, 30))
            await until(lambda: set(got) == set(range(30)))
        finally:
            consuming.cancel()
            await asyncio.gather(consuming, return_exceptions=True)
    assert len(got) <= 30 + 16  # those of one answer that was on its way
