"""A controller inside a NameServer whose files fail: the NameServer goes on without it."""

import asyncio
import errno
import os
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from bolide.config import load
from bolide.controller.config import ControllerConfig
from bolide.controller.server import Controller
from bolide.errors import ConfigError
from bolide.namesrv.server import NameServer
from bolide.protocol.codes import RequestCode
from bolide.protocol.headers.namesrv import RouteHeader
from bolide.remoting.client import RemotingClient
from tests.support.aio import on_loop, until
from tests.support.brokers import broker_header, plain, topics_body
from tests.support.controllers import FakeBroker, free_peers
from tests.support.faults import path_of
from tests.support.name_servers import config_in, name_server_process


@asynccontextmanager
async def name_server_with_controller(directory: Path, peers: str) -> AsyncIterator[NameServer]:
    settings = load(
        ControllerConfig,
        {
            "controllerDLegerPeers": peers,
            "controllerStorePath": str(directory / "store"),
        },
    )
    config = config_in(directory, enable_controller_in_namesrv=True)
    async with NameServer(config, controller=settings) as server:
        yield server
        await serves_routes(server.address)  # whatever became of the controller


async def leading(server: NameServer) -> Controller:
    controller = server.controller
    assert controller is not None
    await until(lambda: controller.is_acting)
    return controller


async def serves_routes(address: str) -> None:
    async with RemotingClient() as client:
        body = plain(topics_body("orders"))
        header = broker_header("10.0.0.1:10911")
        await client.call(address, RequestCode.REGISTER_BROKER, header, body=body)
        route = RouteHeader(topic="orders")
        await client.call(address, RequestCode.GET_ROUTEINFO_BY_TOPIC, route)


@on_loop
async def test_a_name_server_goes_on_without_a_controller_that_cannot_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    peers = free_peers(1)
    async with name_server_with_controller(tmp_path, peers) as server:
        controller = await leading(server)
        address = controller.address
        async with FakeBroker(1, [address]) as broker:
            monkeypatch.setattr(os, "fdatasync", full_disk_at(tmp_path / "store", os.fdatasync))
            joining = asyncio.create_task(broker.join())
            await until(lambda: server.controller is None)
            await until(lambda: is_free(address))
            joining.cancel()
            await asyncio.wait([joining])
        reports = [each.message for each in caplog.records if each.levelname == "CRITICAL"]
        assert "goes on serving routes, but without its controller" in reports[-1]
        assert str(tmp_path / "store") in reports[-1]
        assert caplog.text.count("Traceback") < 10  # the Raft thread does not go on trying

    monkeypatch.undo()
    async with name_server_with_controller(tmp_path, peers) as server:
        await leading(server)


@on_loop
async def test_a_name_server_starts_without_a_controller_whose_disk_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(os, "fsync", full_disk_at(tmp_path / "store", os.fsync))
    async with name_server_with_controller(tmp_path, free_peers(1)) as server:
        assert server.controller is None
        assert "No space left on device" in caplog.text


def full_disk_at(directory: Path, call: Callable[[int], None]) -> Callable[[int], None]:
    """A system call that fails for files of a directory."""

    def fail(descriptor: int) -> None:
        if path_of(descriptor).is_relative_to(directory):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        call(descriptor)

    return fail


def is_free(address: str) -> bool:
    with suppress(OSError), socket.create_server(("127.0.0.1", int(address.rpartition(":")[2]))):
        return True
    return False


def damage_journal(place: Path) -> None:
    (place / "journal").write_bytes(b"something else")


def damage_snapshot(place: Path) -> None:
    (place / "journal.snapshot").write_bytes(b"something else")


def put_file_in_the_way(place: Path) -> None:
    place.rmdir()
    place.write_bytes(b"")


def put_directory_in_the_way(place: Path) -> None:
    (place / "journal").mkdir()


@pytest.mark.parametrize(
    "spoil", [damage_journal, damage_snapshot, put_file_in_the_way, put_directory_in_the_way]
)
@on_loop
async def test_a_name_server_starts_without_a_controller_whose_files_cannot_be_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, spoil: Callable[[Path], None]
) -> None:
    place = tmp_path / "store" / "DefaultControllerGroup-n0"
    place.mkdir(parents=True)
    spoil(place)
    peers = free_peers(1)
    async with name_server_with_controller(tmp_path, peers) as server:
        assert server.controller is None
        assert is_free(peers.partition("-")[2])
        (report,) = (each for each in caplog.records if each.levelname == "CRITICAL")
        assert "goes on serving routes" in report.message
        assert str(place) in report.message


def test_a_name_server_whose_controller_has_wrong_settings_does_not_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="controllerRaftPassword"):
        NameServer(
            config_in(tmp_path),
            controller=ControllerConfig(
                controller_d_leger_peers="n0-192.0.2.1:9878", controller_store_path=tmp_path
            ),
        )


@on_loop
async def test_a_name_server_process_outlives_the_files_of_its_controller(tmp_path: Path) -> None:
    place = tmp_path / "store" / "DefaultControllerGroup-n0"
    place.mkdir(parents=True)
    damage_journal(place)
    given = ["enableControllerInNamesrv=true", f"controllerStorePath={tmp_path / 'store'}"]
    with name_server_process(tmp_path, *given, f"controllerDLegerPeers={free_peers(1)}") as process:
        await serves_routes(process.address)
        assert process.is_running
