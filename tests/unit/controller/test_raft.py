"""One Raft node: what it says when it cannot start, passwords, names and snapshots."""

from pathlib import Path

import pytest
from pysyncobj import syncobj as library

from bolide.controller import raft
from bolide.controller.server import Controller
from bolide.errors import BolideError, ConfigError
from tests.support.aio import on_loop, until
from tests.support.controllers import FakeBroker, controller, free_peers, node_of


@on_loop
async def test_a_password_without_the_package_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(library, "HAS_CRYPTO", False)
    with pytest.raises(ConfigError, match="cryptography: install bolide"):
        async with controller(tmp_path, free_peers(1), 0, controllerRaftPassword="hush"):
            pass


@on_loop
async def test_controllers_with_a_password_understand_each_other(tmp_path: Path) -> None:
    pytest.importorskip("cryptography")
    peers = free_peers(3)
    secrets = ("hush", "hush", "other")
    servers = [
        controller(tmp_path, peers, number, controllerRaftPassword=secret)
        for number, secret in enumerate(secrets)
    ]
    async with servers[0], servers[1], servers[2]:
        await until(lambda: any(each.is_acting for each in servers))
        addresses = [each.address for each in servers]
        async with FakeBroker(1, addresses) as broker:
            await broker.join()
            await until(lambda: all("g" in each.view.groups for each in servers[:2]))
        assert not servers[2].view.groups and not servers[2].is_acting


@on_loop
async def test_controllers_find_each_other_by_ipv6(tmp_path: Path) -> None:
    peers = free_peers(2).replace("127.0.0.1", "[::1]")
    async with controller(tmp_path, peers, 0) as one, controller(tmp_path, peers, 1) as other:
        await until(lambda: one.is_acting or other.is_acting)
        await until(lambda: one.view.generation == other.view.generation)


# The library leaves the file that it has sent to the garbage collector.
@pytest.mark.filterwarnings("ignore:unclosed file.*snapshot:ResourceWarning")
@on_loop
async def test_a_controller_that_was_away_gets_a_snapshot(tmp_path: Path) -> None:
    peers = free_peers(3)
    servers = [controller(tmp_path, peers, number) for number in range(3)]
    addresses = [each.config.value.own.address for each in servers]
    async with servers[0], servers[1]:
        async with servers[2], FakeBroker(1, addresses) as broker:
            await broker.join()
            await until(lambda: "g" in servers[2].view.groups)
        async with FakeBroker(2, addresses) as broker:
            await broker.join()
        for each in servers[:2]:
            node_of(each).compact()
            place = each.config.value.journal_path.with_name("journal.snapshot")
            await until(place.exists)
        async with FakeBroker(3, addresses) as broker:
            await broker.join()
        back = controller(tmp_path, peers, 2)
        async with back:
            await until(lambda: members(back) == [1, 2, 3])
    again = controller(tmp_path, peers, 2)
    async with again, controller(tmp_path, peers, 1) as other:
        await until(lambda: again.is_acting or other.is_acting)
        await until(lambda: again.view.generation == other.view.generation)
        assert members(again) == members(other) == [1, 2, 3]


def members(server: Controller) -> list[int]:
    group = server.view.groups.get("g")
    return [] if group is None else sorted(group.members)


@on_loop
async def test_an_entry_of_a_newer_release_stops_the_controller(tmp_path: Path) -> None:
    newer = b'{"version":99,"node":"n0","generation":1,"commands":[{"type":"new"}]}'
    peers = free_peers(1)
    async with controller(tmp_path, peers) as server:
        await until(lambda: server.is_acting)
        node_of(server).propose(newer, lambda _: None)
        with pytest.raises(BolideError, match="newer release wrote version 99"):
            await server.failure()
        assert not server.is_acting
    again = controller(tmp_path, peers)  # the entry is in its journal
    async with again:
        with pytest.raises(BolideError, match="newer release"):
            await again.failure()


@on_loop
async def test_a_large_journal_is_shortened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(raft, "_COMPACT_BYTES", 5000)
    monkeypatch.setattr(raft, "_COMPACT_SPACING", 0.1)
    async with controller(tmp_path, free_peers(1)) as server:
        await until(lambda: server.is_acting)
        async with FakeBroker(1, [server.address]) as broker:
            await broker.join()
            for number in range(30):
                broker.address = f"{'a' * 200}:{number}"
                await broker.register()
        await until(lambda: node_of(server)._journal.size < 5000)
        assert node_of(server)._snapshot.exists()
    async with controller(tmp_path, server.config.value.controller_d_leger_peers) as server:
        await until(lambda: members(server) == [1])


@on_loop
async def test_a_snapshot_that_fails_is_not_tried_again_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    failures = 0

    def fail(*_: object) -> None:
        nonlocal failures
        failures += 1
        raise OSError("the disk is full")

    monkeypatch.setattr(raft, "_COMPACT_ENTRIES", 3)
    monkeypatch.setattr(raft, "write_snapshot", fail)
    async with controller(tmp_path, free_peers(1)) as server:
        await until(lambda: server.is_acting)
        async with FakeBroker(1, [server.address]) as broker:
            await broker.join()
            await until(lambda: failures > 0)
            for _ in range(20):
                await broker.heartbeat(server.address)
        assert failures == 1
    assert "the disk is full" in caplog.text
