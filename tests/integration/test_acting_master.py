"""A group without its master, the slave that acts for it, another group, and a NameServer."""

import asyncio
from pathlib import Path

import pytest

from bolide import PushConsumer
from bolide.broker.server import Broker
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
async def test_an_acting_master_serves_no_pops(tmp_path: Path) -> None:
    async with cluster(tmp_path, other=False) as found:
        async with PopClient(found.master.address) as client:
            await client.send("T", b"first")
            await client.send("T", b"second")
            popped = await client.pop(max_msg_nums=1)
        await found.lose_master()
        async with PopClient(found.slave.address) as client:
            with pytest.raises(Refusal, match="slave") as refused:
                await client.pop()
            assert refused.value.code == ResponseCode.SERVICE_NOT_AVAILABLE
            with pytest.raises(Refusal) as refused:
                await client.ack("T", popped.messages[0])
            assert refused.value.code == ResponseCode.SERVICE_NOT_AVAILABLE

        master = await found.start_master()
        async with PopClient(master.address) as client:
            await client.ack("T", popped.messages[0])
            rest = await client.pop()
        assert {*popped.bodies, *rest.bodies} == {b"first", b"second"}
        assert len(rest.bodies) == 1
