"""What a peer on another machine cannot do to a controller without access control."""

import asyncio
import pickle
import struct
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from bolide.controller.liveness import LiveTable
from bolide.controller.server import Controller
from bolide.protocol.codes import RequestCode
from bolide.protocol.headers.controller import (
    AlterSyncStateSetHeader,
    CleanBrokerHeader,
    ElectMasterHeader,
    RegisterBrokerHeader,
)
from bolide.protocol.refusals import NoPermission, Refusal
from bolide.remoting.connection import Connection
from tests.support.aio import on_loop, until
from tests.support.attackers import EVERY_INTERFACE, own_address
from tests.support.controllers import RAFT_OFFSET, FakeBroker, controller, free_peers


@asynccontextmanager
async def attacked(directory: Path, **texts: str) -> AsyncIterator[tuple[Controller, FakeBroker]]:
    """A controller open to the network, with a master, and a remote peer that claims to be it."""
    settings = {"bindAddress": EVERY_INTERFACE} | texts
    async with controller(directory, free_peers(1), 0, **settings) as server:
        await until(lambda: server.is_acting)
        port = server.config.value.listen_port
        async with (
            FakeBroker(1, [f"127.0.0.1:{port}"]) as master,
            FakeBroker(1, [f"{own_address()}:{port}"]) as remote,
        ):
            await master.join()
            await master.elect()
            master.beat()
            await until(lambda: master.granted_by)
            yield server, remote


@on_loop
async def test_others_do_not_administer_a_controller(tmp_path: Path) -> None:
    async with attacked(tmp_path) as (_, remote):
        with pytest.raises(NoPermission):
            await remote.call(
                RequestCode.UPDATE_CONTROLLER_CONFIG, body=b"enableElectUncleanMaster=true"
            )
        with pytest.raises(NoPermission):
            await remote.call(RequestCode.CLEAN_BROKER_DATA, CleanBrokerHeader(broker_name="g"))
        for broker, designate in ((1, True), (-1, False)):
            header = ElectMasterHeader(
                cluster_name="c", broker_name="g", broker_id=broker, designate_elect=designate
            )
            with pytest.raises(NoPermission):
                await remote.call(RequestCode.CONTROLLER_ELECT_MASTER, header)


@on_loop
async def test_others_do_not_speak_for_a_broker_of_another_host(tmp_path: Path) -> None:
    async with attacked(tmp_path) as (server, remote):
        with pytest.raises(NoPermission):
            await remote.heartbeat(remote.addresses[0])
        register = RegisterBrokerHeader(
            cluster_name="c", broker_name="g", broker_id=1, broker_address="192.0.2.9:1"
        )
        with pytest.raises(NoPermission):
            await remote.call(RequestCode.CONTROLLER_REGISTER_BROKER, register)
        alter = AlterSyncStateSetHeader(broker_name="g", master_broker_id=1, master_epoch=1)
        with pytest.raises(NoPermission):
            await remote.call(
                RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET, alter, body=b'{"syncStateSet":[1]}'
            )
        assert server.view.groups["g"].master_address != "192.0.2.9:1"


@on_loop
async def test_others_do_not_take_over_a_broker_that_is_away(tmp_path: Path) -> None:
    async with attacked(tmp_path) as (server, remote):
        master = server.live.find("g", 1)
        assert master is not None and isinstance(master.connection, Connection)
        local = FakeBroker(2, [f"127.0.0.1:{server.config.value.listen_port}"])
        async with local:
            await local.join()
            local.beat()
            group = server.view.groups["g"]
            await _leave(server, master.connection)
            for _ in range(2):  # with a fresh heartbeat of the master, and when it has expired
                with pytest.raises(NoPermission, match="cleanBrokerMetadata"):
                    await remote.heartbeat(remote.addresses[0])
                with pytest.raises(NoPermission):
                    await remote.alter(group.epoch, group.sync_state_set_epoch, 1, 2)
                with pytest.raises(NoPermission):
                    await remote.register()
                with pytest.raises(NoPermission):
                    await remote.elect()
                server.live.restarted("g", 1)
            assert server.view.groups["g"] == group


async def _leave(server: Controller, connection: Connection) -> None:
    """End the connection of the master, which is silent from then on."""
    server.live.heartbeat = (  # type: ignore[method-assign]
        lambda header, *more, **named: (
            None
            if header.broker_id == 1
            else LiveTable.heartbeat(server.live, header, *more, **named)
        )
    )
    connection.abort()
    await until(lambda: connection.is_closed)


@on_loop
async def test_a_broker_on_another_host_may_announce_an_address_that_is_not_its_own(
    tmp_path: Path,
) -> None:
    async with attacked(tmp_path) as (server, remote):
        remote.id, remote.address = 2, "192.0.2.9:10911"
        await remote.join()
        await remote.heartbeat(remote.addresses[0])
        assert server.view.groups["g"].members[2].host == own_address()
        remote.address = "192.0.2.10:10911"
        with pytest.raises(Refusal, match=r"lives at 192\.0\.2\.9"):
            await remote.register()
        await until(lambda: server.live.find("g", 2) is None)
        await remote.register()
        assert server.view.groups["g"].address_of(2) == "192.0.2.10:10911"


@on_loop
async def test_a_member_does_not_change_the_set_of_the_master_on_its_host(tmp_path: Path) -> None:
    async with attacked(tmp_path) as (server, remote):
        address = remote.addresses
        remote.id = 2
        await remote.join()
        async with FakeBroker(3, address) as other:
            await other.join()
            await remote.heartbeat(address[0])
            await other.heartbeat(address[0])
            await until(lambda: len(server.live.alive("g")) == 3)
            alter = AlterSyncStateSetHeader(broker_name="g", master_broker_id=2, master_epoch=1)
            with pytest.raises(NoPermission, match="is broker 3"):
                await other.call(RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET, alter)
            with pytest.raises(Refusal) as refused:
                await remote.call(RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET, alter)
            assert not isinstance(refused.value, NoPermission)


@on_loop
async def test_with_access_control_requests_must_be_signed(tmp_path: Path) -> None:
    user = '{"username":"root","password":"12345678"}'
    peers = free_peers(1)
    async with controller(
        tmp_path, peers, 0, authenticationEnabled="true", initAuthenticationUser=user
    ) as server:
        await until(lambda: server.is_acting)
        async with FakeBroker(1, [server.address]) as stranger:
            for code in (RequestCode.CONTROLLER_GET_METADATA_INFO, RequestCode.BROKER_HEARTBEAT):
                with pytest.raises(NoPermission):
                    await stranger.client.call(server.address, code, stranger.heartbeat_header())


class _Code:
    """A pickle that runs code when it is read."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def __reduce__(self) -> tuple[object, tuple[str, str]]:
        return open, (str(self._file), "w")


@on_loop
async def test_with_a_password_the_raft_port_runs_no_code_of_others(tmp_path: Path) -> None:
    peers, ran = free_peers(2), tmp_path / "ran"
    data = zlib.compress(pickle.dumps(_Code(ran)), 3)
    async with controller(tmp_path, peers, 0, controllerRaftPassword="correct-horse"):
        host, _, port = peers.partition(";")[0].partition("-")[2].rpartition(":")
        for _ in range(3):
            reader, writer = await asyncio.open_connection(host, int(port) + RAFT_OFFSET)
            writer.write(struct.pack("i", len(data)) + data)
            with suppress(ConnectionError):
                assert await asyncio.wait_for(reader.read(), 10) == b""
            writer.close()
    assert not ran.exists()
    pickle.loads(pickle.dumps(_Code(ran))).close()
    assert ran.exists()
