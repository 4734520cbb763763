"""Three controllers as processes: leaders that die or sleep, restarts, the Raft port."""

import asyncio
import os
import pickle
import socket
import struct
import subprocess
import sys
import time
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from signal import SIGCONT, SIGSTOP

import pytest

from bolide.config import load
from bolide.controller.config import ControllerConfig
from bolide.namesrv.server import NameServer
from bolide.protocol.codes import RequestCode
from bolide.protocol.frame import Frame
from bolide.protocol.headers.controller import ReplicaHeader
from bolide.protocol.refusals import Refusal
from bolide.remoting.errors import RemotingError
from tests.support.aio import on_loop, until
from tests.support.controllers import (
    RAFT_OFFSET,
    ControllerProcess,
    FakeBroker,
    free_peers,
    quorum,
)
from tests.support.name_servers import config_in


@asynccontextmanager
async def brokers_of(controllers: list[ControllerProcess]) -> AsyncIterator[list[FakeBroker]]:
    """Two brokers; the first is master, both are in sync and send heartbeats."""
    addresses = [each.address for each in controllers]
    async with FakeBroker(1, addresses) as master, FakeBroker(2, addresses) as follower:
        for broker in (master, follower):
            await broker.join()
            broker.beat()
        await master.elect()
        await until(lambda: master.granted_by)
        await master.alter(1, 1, 1, 2)
        yield [master, follower]


def at(controllers: list[ControllerProcess], address: str) -> ControllerProcess:
    return next(each for each in controllers if each.address == address)


@on_loop
async def test_a_killed_leader_is_replaced_before_the_master_loses_its_lease(
    tmp_path: Path,
) -> None:
    with quorum(tmp_path) as controllers:
        async with brokers_of(controllers) as (master, _):
            old = await master.leader()
            at(controllers, old).kill()
            master.granted_by.clear()
            await until(lambda: master.granted_by)
            new = await master.leader()
            assert new != old
            found = await master.call(RequestCode.CONTROLLER_GET_REPLICA_INFO, ReplicaHeader("g"))
            assert (found.fields or {})["masterEpoch"] == "1"
            at(controllers, old).start()
            await until(lambda: "Controller boot success" in at(controllers, old).output)


@on_loop
async def test_master_and_leader_die_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with quorum(tmp_path) as controllers:
        async with brokers_of(controllers) as (master, follower):
            old = await master.leader()
            await master.fall_silent()
            at(controllers, old).kill()
            by_leader = 0
            heartbeat = follower.heartbeat

            async def counted(address: str) -> Frame:
                nonlocal by_leader
                found = await heartbeat(address)
                by_leader += found.code == 0 and follower.master != 2
                return found

            monkeypatch.setattr(follower, "heartbeat", counted)
            await until(lambda: follower.master == 2, within=60)
            # A heartbeat is sent each 0.3 s, and a new leader waits for a lease of less than two
            # seconds. If it took the master for a broker of RocketMQ, it would wait for ten, which
            # is more than 30 answers.
            assert by_leader < 20
            assert follower.epoch == 2
            assert time.monotonic() > master.lease_until
            await until(lambda: any(each.master_epoch == 2 for each, _ in follower.notices))


@on_loop
async def test_all_controllers_killed_and_restarted_keep_the_state(tmp_path: Path) -> None:
    with quorum(tmp_path) as controllers:
        async with brokers_of(controllers) as (master, _):
            for each in controllers:
                each.kill()
            for each in controllers:
                each.start()
            found = await master.call(RequestCode.CONTROLLER_GET_REPLICA_INFO, ReplicaHeader("g"))
            assert (found.fields or {})["masterBrokerId"] == "1"
            assert (found.fields or {})["masterEpoch"] == "1"
            assert found.body == b'{"syncStateSet":[1,2],"syncStateSetEpoch":2}'


@on_loop
async def test_a_leader_that_slept_grants_nothing(tmp_path: Path) -> None:
    with quorum(tmp_path) as controllers:
        async with brokers_of(controllers) as (master, _):
            old = await master.leader()
            at(controllers, old).signal(SIGSTOP)
            # These wait in the socket of the sleeping leader, which will read them first.
            waiting = [asyncio.create_task(_outcome(master, old)) for _ in range(5)]
            await master.leader(but=old)
            at(controllers, old).signal(SIGCONT)
            assert 0 not in await asyncio.gather(*waiting)
            found = await master.heartbeat(old)
            assert found.code == 2007 and (found.fields or {})["leaseMillis"] == "0"


async def _outcome(broker: FakeBroker, address: str) -> int | None:
    try:
        found = await broker.client.call(
            address, RequestCode.BROKER_HEARTBEAT, broker.heartbeat_header(), within=8
        )
    except Refusal as exc:
        return exc.code
    except RemotingError:
        return None
    return found.code


@on_loop
async def test_without_a_majority_nobody_leads(tmp_path: Path) -> None:
    with quorum(tmp_path) as controllers:
        async with brokers_of(controllers) as (master, _):
            leader = await master.leader()
            for each in controllers:
                if each.address != leader:
                    each.kill()
            await master.refused_by(leader)
            granted = len(master.granted_by)
            await until(lambda: time.monotonic() > master.lease_until)
            assert (await master.heartbeat(leader)).code == 2007
            assert len(master.granted_by) == granted


def start(tmp_path: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "bolide", "controller", f"controllerStorePath={tmp_path}", *words],
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
        env=os.environ | {"HOME": str(tmp_path)},
    )


def test_a_raft_port_on_the_network_without_a_password_is_refused(tmp_path: Path) -> None:
    ended = start(tmp_path, "controllerDLegerPeers=n0-192.0.2.1:9878;n1-192.0.2.2:9878")
    assert ended.returncode == 3
    assert "controllerRaftPassword" in ended.stderr + ended.stdout


def test_a_taken_raft_port_is_named(tmp_path: Path) -> None:
    peers = free_peers(1)
    port = int(peers.rpartition(":")[2]) + RAFT_OFFSET
    with socket.create_server(("127.0.0.1", port)):
        ended = start(tmp_path, f"controllerDLegerPeers={peers}")
    assert ended.returncode == 3
    assert str(port) in ended.stderr + ended.stdout


def test_a_damaged_journal_stops_the_start(tmp_path: Path) -> None:
    place = tmp_path / "DefaultControllerGroup-n0"
    place.mkdir()
    (place / "journal").write_bytes(b"something else")
    ended = start(tmp_path, f"controllerDLegerPeers={free_peers(1)}")
    assert ended.returncode == 3
    assert "not a journal" in ended.stderr + ended.stdout


@on_loop
async def test_the_raft_port_takes_no_strangers(tmp_path: Path) -> None:
    with quorum(tmp_path, count=2) as controllers:
        async with FakeBroker(1, [each.address for each in controllers]) as broker:
            leader = await broker.leader()
            host, port = controllers[0].address.split(":")
            for message in (["status"], ["add", "127.0.0.1:1"], "readonly", "127.0.0.1:1"):
                reader, writer = await asyncio.open_connection(host, int(port) + RAFT_OFFSET)
                data = zlib.compress(pickle.dumps(message), 3)
                writer.write(struct.pack("i", len(data)) + data)
                assert await asyncio.wait_for(reader.read(), 5) == b""
                writer.close()
            assert await broker.leader() == leader


@pytest.mark.long
@on_loop
async def test_nothing_answered_is_lost_when_controllers_are_killed_again_and_again(
    tmp_path: Path,
) -> None:
    with quorum(tmp_path) as controllers:
        addresses = [each.address for each in controllers]
        for round_ in range(1, 16):
            async with FakeBroker(round_, addresses) as broker:
                await broker.join()
                for each in controllers[: 2 + round_ % 2]:
                    each.kill()
                for each in controllers[: 2 + round_ % 2]:
                    each.start()
                body = b'["g"]'
                found = await broker.call(RequestCode.CONTROLLER_GET_SYNC_STATE_DATA, body=body)
                assert found.body.count(b'"brokerId"') == round_


@on_loop
async def test_a_name_server_runs_a_controller_and_both_share_access_control(
    tmp_path: Path,
) -> None:
    peers = free_peers(1)
    settings = load(
        ControllerConfig,
        {"controllerDLegerPeers": peers, "controllerStorePath": str(tmp_path / "store")},
    )
    config = config_in(tmp_path, enable_controller_in_namesrv=True)
    async with NameServer(config, controller=settings) as server:
        assert server.controller is not None
        assert server.controller.access is server.access
        async with FakeBroker(1, [server.controller.address]) as broker:
            await broker.join()
            assert sorted(server.controller.view.groups["g"].members) == [1]
