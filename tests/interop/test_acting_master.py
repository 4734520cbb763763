"""Our slave acts: under a NameServer of RocketMQ 5.x, and for a master of RocketMQ 5.x."""

import asyncio
from functools import partial
from pathlib import Path

import pytest

from bolide.broker.settings.config import BrokerRole
from bolide.protocol import fastjson
from bolide.protocol.bodies.routes import TopicRoute
from bolide.protocol.codes import RequestCode
from bolide.protocol.headers.namesrv import RouteHeader
from bolide.protocol.headers.offsets import CommitOffsetHeader, OffsetReply, QueryOffsetHeader
from tests.interop.bench import BROKER_NEIGHBOURS, Bench
from tests.interop.conftest import NEWEST
from tests.support.acting_cluster import cluster
from tests.support.aio import on_loop, until
from tests.support.broker import BrokerClient, broker_in
from tests.support.name_servers import name_server
from tests.support.ports import free_port


@on_loop
async def test_a_java_name_server_shows_our_slave_as_master_without_permission_to_write(
    java_bench: Bench, tmp_path: Path
) -> None:
    names = java_bench.namesrv(NEWEST, supportActingMaster=True, notifyMinBrokerIdChanged=True)
    async with cluster(tmp_path, names=names.address) as found:
        async with BrokerClient(found.master.address) as client:
            await client.send("T", b"plain", queue_id=0)
            await client.send("T", b"delayed", properties={"DELAY": "2", "UNIQ_KEY": "1"})
        found.master.parts.groups.require("readers")
        await until(lambda: "readers" in found.slave.parts.groups)
        await found.lose_master()

        async with BrokerClient(found.names) as client:
            answer = await client.call(RequestCode.GET_ROUTEINFO_BY_TOPIC, RouteHeader("T"))
        route = fastjson.decode(answer.body, TopicRoute)
        addresses = {each.broker_name: each.broker_addrs for each in route.broker_datas}
        perms = {each.broker_name: each.perm for each in route.queue_datas}
        assert addresses["broker-a"] == {0: found.slave.address}
        assert perms == {"broker-a": 4, "broker-b": 6}

        async with BrokerClient(found.slave.address) as client:
            header = CommitOffsetHeader("readers", "T", 0, 1)
            await client.call(RequestCode.UPDATE_CONSUMER_OFFSET, header)
        escape = found.slave.parts.acting.escape  # type: ignore[union-attr]
        await until(lambda: escape.sent == 1)

        master = await found.start_master()
        assert master.parts.offsets.find("readers", "T", 0) == 1
        assert master.parts.delay.progress()[2] == (1, 1)
        await until(lambda: not found.acts)


async def committed(address: str) -> int:
    """The offset of the readers at a broker."""
    header = QueryOffsetHeader(consumer_group="readers", topic="T", queue_id=0)
    async with BrokerClient(address) as client:
        answer = await client.call(RequestCode.QUERY_CONSUMER_OFFSET, header)
    return OffsetReply.from_fields(answer.fields).offset


@pytest.mark.long
@on_loop
async def test_offsets_come_home_to_a_java_master(java_bench: Bench, tmp_path: Path) -> None:
    store, port = tmp_path / "java", free_port(BROKER_NEIGHBOURS)
    async with name_server(tmp_path / "names", support_acting_master=True) as names:
        start = partial(
            java_bench.broker,
            NEWEST,
            names.address,
            brokerRole="ASYNC_MASTER",
            listenPort=port,
            storePathRootDir=str(store),
            storePathCommitLog=str(store / "commitlog"),
            enableSlaveActingMaster=True,
        )
        master = await asyncio.to_thread(start)
        async with broker_in(
            tmp_path / "slave",
            name_servers=(names.address,),
            broker_role=BrokerRole.SLAVE,
            broker_id=1,
            enable_slave_acting_master=True,
        ) as slave:
            acting = slave.parts.acting
            assert acting is not None
            async with BrokerClient(master.address) as client:
                for _ in range(10):
                    await client.send("T", b"x", queue_id=0)
                group = b'{"groupName":"readers"}'
                await client.call(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=group)
            await until(lambda: slave.store.max_offset("T", 0) == 10, within=30)
            await until(lambda: "readers" in slave.parts.groups, within=30)
            await asyncio.to_thread(master.stop)
            await until(lambda: acting.is_acting, within=30)
            async with BrokerClient(slave.address) as client:
                header = CommitOffsetHeader("readers", "T", 0, 7)
                await client.call(RequestCode.UPDATE_CONSUMER_OFFSET, header)

            master = await asyncio.to_thread(start)
            async with asyncio.timeout(60):
                while await committed(master.address) != 7:  # noqa: ASYNC110
                    await asyncio.sleep(0.1)
            await until(lambda: not acting.is_acting, within=30)
            assert slave.parts.offsets.find("readers", "T", 0) == 7
