"""A master and its slaves as brokers, with a NameServer, in one event loop."""

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from bolide.broker.server import Broker
from bolide.broker.settings.config import BrokerRole
from bolide.namesrv.server import NameServer
from bolide.protocol import fastjson
from bolide.protocol.bodies.replication import HaStatus
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.refusals import Refusal, ServerError
from bolide.remoting.client import RemotingClient
from tests.support.aio import on_loop, until
from tests.support.broker import BrokerClient, broker_in
from tests.support.name_servers import name_server
from tests.unit.store.test_replica_log import log_bytes


@asynccontextmanager
async def group(
    directory: Path, *, slaves: int = 1, role: BrokerRole = BrokerRole.ASYNC_MASTER, **settings: Any
) -> AsyncIterator[tuple[NameServer, Broker, list[Broker]]]:
    """A NameServer, a master and slaves that follow it."""
    async with AsyncExitStack() as stack:
        names = await stack.enter_async_context(name_server(directory / "names"))
        common = {"name_servers": (names.address,), **settings}
        master = await stack.enter_async_context(
            broker_in(directory / "master", broker_role=role, **common)
        )
        followers = [
            await stack.enter_async_context(slave_in(directory / f"slave-{number}", number, common))
            for number in range(1, slaves + 1)
        ]
        primary = master.parts.master
        assert primary is not None
        await until(lambda: len(primary.primary.slaves) == slaves)
        yield names, master, followers


@asynccontextmanager
async def slave_in(directory: Path, number: int, common: dict[str, Any]) -> AsyncIterator[Broker]:
    async with broker_in(
        directory, broker_role=BrokerRole.SLAVE, broker_id=number, **common
    ) as broker:
        yield broker


def ends(*brokers: Broker) -> list[int]:
    return [broker.store.log.written for broker in brokers]


@on_loop
async def test_a_slave_has_messages_topics_groups_and_offsets_of_its_master(
    tmp_path: Path,
) -> None:
    async with group(tmp_path) as (_, master, (slave,)), BrokerClient(master.address) as client:
        for number in range(100):
            await client.send("T", b"%d" % number)
        master.parts.offsets.commit("readers", "T", 0, 7)
        master.parts.groups.require("readers")
        await until(lambda: ends(slave) == ends(master))
        await until(lambda: slave.parts.offsets.find("readers", "T", 0) == 7)
        await until(lambda: "readers" in slave.parts.groups)  # with the next copy, perhaps

        assert log_bytes(slave.store) == log_bytes(master.store)
        assert "T" in slave.parts.topics
        assert slave.store.max_offset("T", 0) == master.store.max_offset("T", 0)


@on_loop
async def test_a_slave_takes_no_messages(tmp_path: Path) -> None:
    async with group(tmp_path) as (_, _, (slave,)), BrokerClient(slave.address) as client:
        with pytest.raises(Refusal, match="slave") as refused:
            await client.send("T", b"x")
        assert refused.value.code in {
            ResponseCode.SERVICE_NOT_AVAILABLE,
            ResponseCode.SYSTEM_BUSY,
        }


@on_loop
async def test_a_sync_master_acknowledges_what_a_slave_has(tmp_path: Path) -> None:
    async with (
        group(tmp_path, role=BrokerRole.SYNC_MASTER) as (_, master, (slave,)),
        BrokerClient(master.address) as client,
    ):
        for number in range(50):
            await client.send("T", b"%d" % number)
            assert slave.store.log.written >= master.store.log.written


async def code_of(client: BrokerClient) -> int:
    """Response code of a send."""
    try:
        await client.send("T", b"x")
    except Refusal as exc:
        return exc.code
    return ResponseCode.SUCCESS


@on_loop
async def test_a_sync_master_without_slaves_says_so_at_once(tmp_path: Path) -> None:
    async with (
        broker_in(tmp_path, broker_role=BrokerRole.SYNC_MASTER) as master,
        BrokerClient(master.address) as client,
    ):
        assert await code_of(client) == ResponseCode.SLAVE_NOT_AVAILABLE
        assert await code_of(client) == ResponseCode.SLAVE_NOT_AVAILABLE  # on the fast path
        assert sum(master.store.max_offset("T", queue) for queue in range(4)) == 2


@on_loop
async def test_a_sync_master_whose_slave_is_stuck_says_so_after_the_timeout(tmp_path: Path) -> None:
    async with (
        broker_in(tmp_path, broker_role=BrokerRole.SYNC_MASTER, slave_timeout=0.2) as master,
        BrokerClient(master.address) as client,
    ):
        assert master.parts.master is not None
        _, writer = await asyncio.open_connection("127.0.0.1", master.parts.master.primary.port)
        writer.write(bytes(8))
        await until(lambda: master.parts.master and master.parts.master.primary.slaves)

        assert await code_of(client) == ResponseCode.FLUSH_SLAVE_TIMEOUT
        assert await code_of(client) == ResponseCode.FLUSH_SLAVE_TIMEOUT
        writer.close()


@on_loop
async def test_more_replicas_can_be_asked_for(tmp_path: Path) -> None:
    async with (
        group(tmp_path, role=BrokerRole.SYNC_MASTER, in_sync_replicas=3, slave_timeout=0.3) as (
            _,
            master,
            (_,),
        ),
        BrokerClient(master.address) as client,
    ):
        assert await code_of(client) == ResponseCode.FLUSH_SLAVE_TIMEOUT


@on_loop
async def test_a_master_of_an_acting_group_refuses_messages_without_its_slaves(
    tmp_path: Path,
) -> None:
    """As RocketMQ 5.x does with an explicit inSyncReplicas above 1."""
    acting: dict[str, Any] = {"enable_slave_acting_master": True, "in_sync_replicas": 2}
    async with name_server(tmp_path / "names") as names:
        common = {"name_servers": (names.address,), **acting}
        role = BrokerRole.SYNC_MASTER
        async with (
            broker_in(tmp_path / "master", broker_role=role, **common) as master,
            BrokerClient(master.address) as client,
        ):
            with pytest.raises(ServerError, match="not enough: 1, and inSyncReplicas=2"):
                await client.send("T", b"x")
            async with slave_in(tmp_path / "slave", 1, common):
                await until(lambda: master.store.refusal is None)
                assert await code_of(client) == ResponseCode.SUCCESS
            await until(lambda: master.store.refusal is not None)
            assert await code_of(client) == ResponseCode.SYSTEM_ERROR
            assert master.store.max_offset("T", 0) == 1


@on_loop
async def test_a_slave_of_an_acting_group_that_is_far_behind_is_not_in_sync(
    tmp_path: Path,
) -> None:
    async with (
        broker_in(
            tmp_path,
            broker_role=BrokerRole.SYNC_MASTER,
            enable_slave_acting_master=True,
            in_sync_replicas=2,
            ha_max_gap_not_in_sync=100,
            slave_timeout=0.2,
        ) as master,
        BrokerClient(master.address) as client,
    ):
        assert master.parts.master is not None
        _, writer = await asyncio.open_connection("127.0.0.1", master.parts.master.primary.port)
        writer.write(bytes(8))
        await until(lambda: master.store.refusal is None)

        assert await code_of(client) == ResponseCode.FLUSH_SLAVE_TIMEOUT
        assert await code_of(client) == ResponseCode.SYSTEM_ERROR
        writer.close()


@pytest.mark.parametrize(
    "settings",
    [
        {"broker_role": BrokerRole.ASYNC_MASTER, "in_sync_replicas": 2},
        {"broker_role": BrokerRole.SYNC_MASTER, "in_sync_replicas": 1},
        {"broker_role": BrokerRole.SYNC_MASTER},
    ],
)
@on_loop
async def test_a_master_of_an_acting_group_takes_messages_if_nothing_else_is_asked_for(
    tmp_path: Path, settings: dict[str, Any]
) -> None:
    async with (
        broker_in(tmp_path, enable_slave_acting_master=True, **settings) as master,
        BrokerClient(master.address) as client,
    ):
        await code_of(client)
        assert master.store.max_offset("T", 0) == 1


@on_loop
async def test_a_minimum_of_replicas_without_effect_is_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with broker_in(tmp_path, min_in_sync_replicas=2) as master:
        assert caplog.text.count("minInSyncReplicas=2 has no effect") == 1
        master.config.apply({"haMaxGapNotInSync": "1"})
        assert caplog.text.count("has no effect") == 1
        master.config.apply({"minInSyncReplicas": "3"})
        assert caplog.text.count("minInSyncReplicas=3 has no effect") == 1


@on_loop
async def test_the_state_of_replication_is_told_on_both_sides(tmp_path: Path) -> None:
    async with (
        group(tmp_path) as (_, master, (slave,)),
        BrokerClient(master.address) as client,
        RemotingClient() as caller,
    ):
        await client.send("T", b"x")
        await until(lambda: ends(slave) == ends(master))
        await until(lambda: master.parts.replication.status().ha_connection_info[0].diff == 0)
        answers = [
            await caller.call(each.address, RequestCode.GET_BROKER_HA_STATUS)
            for each in (master, slave)
        ]
        of_master, of_slave = [fastjson.decode(each.body, HaStatus) for each in answers]

        assert of_master.master
        assert not of_slave.master
        assert of_master.in_sync_slave_nums == 1
        assert of_slave.ha_client_runtime_info.max_offset == master.store.log.written


@on_loop
async def test_a_slave_becomes_master_by_hand(tmp_path: Path) -> None:
    async with group(tmp_path) as (_, master, (slave,)), BrokerClient(master.address) as client:
        for number in range(20):
            await client.send("T", b"%d" % number)
        master.parts.offsets.commit("readers", "T", 0, 3)
        await until(lambda: ends(slave) == ends(master))
        await until(lambda: slave.parts.offsets.find("readers", "T", 0) == 3)
        counts = [master.store.max_offset("T", queue) for queue in range(4)]
    async with (
        broker_in(tmp_path / "slave-1") as promoted,
        BrokerClient(promoted.address) as client,
    ):
        assert [promoted.store.max_offset("T", queue) for queue in range(4)] == counts
        assert promoted.parts.offsets.find("readers", "T", 0) == 3
        assert (await client.send("T", b"next", queue_id=0)).queue_offset == counts[0]


@on_loop
async def test_a_master_that_lost_its_log_takes_nothing_away_from_its_slave(
    tmp_path: Path,
) -> None:
    async with name_server(tmp_path / "names") as names:
        common: dict[str, Any] = {"name_servers": (names.address,)}
        sync = {"broker_role": BrokerRole.SYNC_MASTER, **common}
        async with slave_in(tmp_path / "slave", 1, common) as slave:
            async with broker_in(tmp_path / "master", **sync) as master:
                primary = master.parts.master
                assert primary is not None
                await until(lambda: primary.is_available(0))
                async with BrokerClient(master.address) as client:
                    for _ in range(10):
                        await client.send("T", b"x", queue_id=0)
                master.parts.offsets.commit("readers", "T", 0, 7)
                await until(lambda: slave.parts.offsets.find("readers", "T", 0) == 7)
            shutil.rmtree(tmp_path / "master")
            async with broker_in(tmp_path / "master", **sync):
                await asyncio.sleep(3.0)  # the slave asks every second
                assert "T" in slave.parts.topics
                assert slave.store.max_offset("T", 0) == 10
                assert slave.parts.offsets.find("readers", "T", 0) == 7
        async with broker_in(tmp_path / "slave", **sync) as promoted:
            assert promoted.store.max_offset("T", 0) == 10
            assert "T" in promoted.parts.topics
