"""Requests to one controller, by brokers and administrators."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bolide.auth.choice import choose_access
from bolide.config import ConfigCell, load
from bolide.controller.commands import Group, Member
from bolide.controller.config import ControllerConfig
from bolide.controller.liveness import LiveTable
from bolide.controller.own_brokers import OwnBrokers
from bolide.controller.proposals import View
from bolide.controller.server import Controller
from bolide.protocol.codes import RequestCode
from bolide.protocol.headers.controller import (
    ApplyBrokerIdHeader,
    CleanBrokerHeader,
    ElectMasterHeader,
    MetadataReply,
    NextBrokerIdHeader,
    RegisterBrokerHeader,
    ReplicaHeader,
)
from bolide.protocol.headers.namesrv import BrokerHeartbeatHeader
from bolide.protocol.refusals import InvalidParameter, NoPermission, Refusal
from bolide.remoting.client import RemotingClient
from tests.support.aio import PATIENCE, on_loop, until
from tests.support.controllers import FakeBroker, controller, free_peers, node_of


@asynccontextmanager
async def cluster(
    directory: Path, brokers: int = 2, **texts: str
) -> AsyncIterator[tuple[Controller, list[FakeBroker]]]:
    """One controller and brokers that have joined; the first is master, all are in sync."""
    async with controller(directory, free_peers(1), 0, **texts) as server:
        await until(lambda: server.is_acting)
        fakes = [FakeBroker(id_, [server.address]) for id_ in range(1, brokers + 1)]
        for fake in fakes:
            await fake.__aenter__()
            await fake.join()
            fake.beat()
        await fakes[0].elect()
        await until(lambda: fakes[0].epoch == 1)
        if brokers > 1:
            await fakes[0].alter(1, 1, *(fake.id for fake in fakes))
        try:
            yield server, fakes
        finally:
            for fake in fakes:
                await fake.__aexit__(None, None, None)


@on_loop
async def test_a_new_group_gets_ids_a_master_and_its_sync_state_set(tmp_path: Path) -> None:
    async with controller(tmp_path, free_peers(1)) as server:
        await until(lambda: server.is_acting)
        async with FakeBroker(1, [server.address]) as broker:
            asked = NextBrokerIdHeader("c", "g")
            found = await broker.call(RequestCode.CONTROLLER_GET_NEXT_BROKER_ID, asked)
            assert found.fields == {"clusterName": "c", "brokerName": "g", "nextBrokerId": "1"}
            await broker.join()
            found = await broker.call(RequestCode.CONTROLLER_GET_NEXT_BROKER_ID, asked)
            assert (found.fields or {})["nextBrokerId"] == "2"
            registered = await broker.register()
            assert registered.fields == {
                "clusterName": "c", "brokerName": "g", "masterEpoch": "0", "syncStateSetEpoch": "0",
                "quorumId": server.view.quorum,
            }  # fmt: skip
            assert registered.body == b'{"syncStateSet":[],"syncStateSetEpoch":0}'
            elected = await broker.elect()
            assert elected.code == 0
            assert elected.fields == {
                "masterBrokerId": "1", "masterAddress": broker.address,
                "masterEpoch": "1", "syncStateSetEpoch": "1",
            }  # fmt: skip
            assert b'"syncStateSet":[1]' in elected.body


@on_loop
async def test_only_the_master_gets_a_lease(tmp_path: Path) -> None:
    async with cluster(tmp_path) as (server, (master, follower)):
        found = await master.heartbeat(server.address)
        assert found.fields == {
            "leaseMillis": "1800", "heartbeatMillis": "300", "masterBrokerId": "1",
            "masterAddress": master.address, "masterEpoch": "1", "syncStateSetEpoch": "2",
            "controllerLeaderAddress": server.address, "quorumId": server.view.quorum,
        }  # fmt: skip
        assert found.body == b'{"syncStateSet":[1,2],"syncStateSetEpoch":2}'
        found = await follower.heartbeat(server.address)
        assert (found.fields or {})["leaseMillis"] == "0"


@on_loop
async def test_a_silent_master_is_replaced_after_its_lease_and_brokers_are_told(
    tmp_path: Path,
) -> None:
    async with cluster(tmp_path) as (_, (master, follower)):
        await until(lambda: master.granted_by)
        await master.fall_silent()
        until_then = master.lease_until
        await until(lambda: follower.master == 2)
        assert time.monotonic() > until_then
        header, members = follower.notices[-1]
        assert (header.master_broker_id, header.master_epoch) == (2, 2)
        assert header.master_address == follower.address
        assert members.sync_state_set == [2] and members.sync_state_set_epoch == 3


@on_loop
async def test_a_scan_that_fails_does_not_end_elections(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with cluster(tmp_path) as (server, (master, follower)):
        scan = server.elections.scan

        def fail() -> None:
            monkeypatch.setattr(server.elections, "scan", scan)
            raise ValueError("once")

        monkeypatch.setattr(server.elections, "scan", fail)
        await until(lambda: "a scan failed: once" in caplog.text)
        await master.fall_silent()
        await until(lambda: follower.master == 2)


@on_loop
async def test_a_living_master_is_replaced_by_an_administrator_after_its_lease(
    tmp_path: Path,
) -> None:
    async with cluster(tmp_path) as (server, (master, follower)):
        await master.heartbeat(server.address)
        elected = await follower.elect(designate=True)
        assert (elected.fields or {})["masterBrokerId"] == "2"
        assert time.monotonic() > master.lease_until
        await until(lambda: master.master == 2)


@on_loop
async def test_an_election_with_a_living_master_answers_with_it(tmp_path: Path) -> None:
    async with cluster(tmp_path) as (_, (_, follower)):
        found = await follower.elect()
        assert found.code == 2011
        assert (found.fields or {})["masterBrokerId"] == "1"
        assert json.loads(found.body)["syncStateSet"] == [1, 2]


@on_loop
async def test_a_winner_that_dies_before_its_term_begins_is_replaced(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with cluster(tmp_path, brokers=3) as (server, (master, second, third)):
        for each in (master, second, third):
            each.confirms = True
            await each.register()
        await master.fall_silent()
        await until(lambda: second.master == 2)
        assert "1 was silent" in caplog.text
        await second.fall_silent()
        await until(lambda: third.master == 3)

        await third.begin(3)
        await third.fall_silent()
        second.beat()
        await until(lambda: server.view.groups["g"].master is None)
        await asyncio.sleep(0.3)
        assert server.view.groups["g"].master is None
        third.beat()
        await until(lambda: third.master == 3 and third.epoch == 5)
        assert "is 3 in epoch 5: there was none" in caplog.text


@on_loop
async def test_controllers_tell_their_quorum(tmp_path: Path) -> None:
    peers = free_peers(2)
    async with (
        controller(tmp_path, peers, 0) as one,
        controller(tmp_path, peers, 1) as other,
        controller(tmp_path / "alone", free_peers(1)) as alone,
        RemotingClient() as client,
    ):
        await until(lambda: one.view.quorum and other.view.quorum and alone.view.quorum)
        told = []
        for server in (one, other, alone):
            code = RequestCode.CONTROLLER_GET_METADATA_INFO
            answer = await client.call(server.address, code)
            told.append(MetadataReply.from_fields(answer.fields))
        assert told[0].quorum_id == told[1].quorum_id != told[2].quorum_id
        assert told[0].peers == told[1].peers != told[2].peers


@on_loop
async def test_a_master_of_an_old_epoch_cannot_change_the_set(tmp_path: Path) -> None:
    async with cluster(tmp_path) as (_, (master, _)):
        with pytest.raises(Refusal) as refused:
            await master.alter(0, 2, 1)
        assert refused.value.code == 2000
        with pytest.raises(Refusal) as refused:
            await master.alter(1, 1, 1)
        assert refused.value.code == 2001


@on_loop
async def test_replicas_are_shown_with_their_state(tmp_path: Path) -> None:
    async with cluster(tmp_path) as (_, (master, follower)):
        await master.alter(1, 2, 1)
        found = await master.call(RequestCode.CONTROLLER_GET_SYNC_STATE_DATA, body=b'["g","h"]')
        assert json.loads(found.body) == {
            "replicasInfoTable": {
                "g": {
                    "inSyncReplicas": [
                        {"alive": True, "brokerAddress": master.address, "brokerId": 1,
                         "brokerName": "g"},
                    ],
                    "masterAddress": master.address,
                    "masterBrokerId": 1,
                    "masterEpoch": 1,
                    "notInSyncReplicas": [
                        {"alive": True, "brokerAddress": follower.address, "brokerId": 2,
                         "brokerName": "g"},
                    ],
                    "syncStateSetEpoch": 3,
                }
            }
        }  # fmt: skip
        found = await master.call(RequestCode.CONTROLLER_GET_REPLICA_INFO, ReplicaHeader("g"))
        assert found.fields == {
            "masterBrokerId": "1", "masterAddress": master.address, "masterEpoch": "1",
        }  # fmt: skip
        with pytest.raises(Refusal) as refused:
            await master.call(RequestCode.CONTROLLER_GET_REPLICA_INFO, ReplicaHeader("h"))
        assert refused.value.code == 2008


@on_loop
async def test_brokers_are_cleaned_when_they_are_dead(tmp_path: Path) -> None:
    async with cluster(tmp_path) as (server, (master, follower)):
        clean = CleanBrokerHeader(broker_name="g", broker_controller_ids_to_clean="2")
        with pytest.raises(Refusal) as refused:
            await master.call(RequestCode.CLEAN_BROKER_DATA, clean)
        assert refused.value.code == 2009
        await follower.fall_silent()
        await until(lambda: server.live.find("g", 2) is None)
        await master.call(RequestCode.CLEAN_BROKER_DATA, clean)
        assert sorted(server.view.groups["g"].members) == [1]
        bad = CleanBrokerHeader(broker_name="g", broker_controller_ids_to_clean="x")
        with pytest.raises(Refusal) as refused:
            await master.call(RequestCode.CLEAN_BROKER_DATA, bad)
        assert refused.value.code == 2009


@on_loop
async def test_a_broker_of_rocketmq_is_called_at_its_address(tmp_path: Path) -> None:
    called: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        called.set_result(await reader.read(65536))
        writer.close()

    async with (
        cluster(tmp_path) as (server, (master, _)),
        FakeBroker(3, [server.address]) as java,
        await asyncio.start_server(accept, "127.0.0.1", 0) as listener,
    ):
        java.address = f"127.0.0.1:{listener.sockets[0].getsockname()[1]}"
        await java.join()
        header = BrokerHeartbeatHeader("c", java.address, "g", 3, 1, 100, 100, 10_000, 2**31 - 1)
        await java.client.notify(server.address, RequestCode.BROKER_HEARTBEAT, header)
        await until(lambda: server.live.find("g", 3) is not None)
        await master.alter(1, 2, 1, 2, 3)
        assert not called.done()
        await _elect(server, 3)
        sent = await asyncio.wait_for(called, PATIENCE)
    assert b'"masterBrokerId":"3"' in sent and b'"masterEpoch":"2"' in sent


async def _elect(server: Controller, broker: int) -> None:
    async with FakeBroker(broker, [server.address]) as asking:
        await asking.elect(designate=True)


@on_loop
async def test_a_heartbeat_without_an_id_is_refused(tmp_path: Path) -> None:
    async with cluster(tmp_path, brokers=1) as (server, (broker,)):
        header = BrokerHeartbeatHeader("c", broker.address, "g")
        with pytest.raises(Refusal) as refused:
            await broker.client.call(server.address, RequestCode.BROKER_HEARTBEAT, header)
        assert refused.value.code == 2005


@pytest.mark.parametrize("name", ["", "x" * 256, "a\nb"])
@on_loop
async def test_names_and_addresses_that_are_too_long_or_not_printable_are_refused(
    tmp_path: Path, name: str
) -> None:
    async with cluster(tmp_path, brokers=1) as (server, (broker,)):
        calls = (
            ApplyBrokerIdHeader("c", name, 1, "x;1"),
            ApplyBrokerIdHeader(name, "g", 2, "x;1"),
            ApplyBrokerIdHeader("c", "g", 2, name * 2),
        )
        for header in calls:
            with pytest.raises(InvalidParameter):
                await broker.call(RequestCode.CONTROLLER_APPLY_BROKER_ID, header)
        broker.address = name
        with pytest.raises(InvalidParameter):
            await broker.register()
        with pytest.raises(InvalidParameter):
            await broker.heartbeat(server.address)


@on_loop
async def test_requests_that_cannot_succeed_are_not_logged(tmp_path: Path) -> None:
    async with cluster(tmp_path, brokers=1) as (server, (broker,)):
        await broker.fall_silent()
        node = server._log.node
        assert node is not None
        journal, last = node._journal, node._journal[-1][1]
        stranger = FakeBroker(1, [server.address], "h")
        async with stranger:
            with pytest.raises(Refusal):
                await stranger.register()
            with pytest.raises(Refusal):
                await stranger.elect()
            with pytest.raises(Refusal):
                await stranger.alter(1, 1, *range(1000))
        with pytest.raises(Refusal):
            await broker.alter(1, 1, 1, *range(5, 1000))
        written = [entry for entry in journal[:] if entry[1] > last]
        assert written and all(b'"commands":[]' in command for command, _, _ in written)


@on_loop
async def test_settings_are_shown_and_changed_except_fixed_ones(tmp_path: Path) -> None:
    async with cluster(tmp_path, brokers=1) as (server, (broker,)):
        shown = (await broker.call(RequestCode.GET_CONTROLLER_CONFIG)).body.decode()
        assert "enableElectUncleanMaster=false" in shown
        assert "controllerRaftPassword" not in shown and "electMasterMaxRetryCount=3" in shown
        change = RequestCode.UPDATE_CONTROLLER_CONFIG
        await broker.call(change, body=b"enableElectUncleanMaster=true")
        assert server.config.value.enable_elect_unclean_master
        assert "enableElectUncleanMaster=true" in (tmp_path / "n0.properties").read_text()
        for body in (b"controllerStorePath=/tmp/x", b"configStorePath=/tmp/x"):
            with pytest.raises(NoPermission):
                await broker.call(change, body=body)
        with pytest.raises(InvalidParameter):
            await broker.call(change, body=b"notifyBrokerRoleChanged=perhaps")


@on_loop
async def test_unclean_elections_need_the_setting(tmp_path: Path) -> None:
    async with cluster(tmp_path) as (server, (master, follower)):
        await master.alter(1, 2, 1)
        await master.fall_silent()
        await until(lambda: server.view.groups["g"].master is None)
        await asyncio.sleep(0.3)
        assert server.view.groups["g"].master is None
        await follower.call(
            RequestCode.UPDATE_CONTROLLER_CONFIG, body=b"enableElectUncleanMaster=true"
        )
        await until(lambda: server.view.groups["g"].master == 2)


@on_loop
async def test_an_unclean_election_waits_for_a_member_that_has_just_started(tmp_path: Path) -> None:
    async with cluster(tmp_path, 2, enableElectUncleanMaster="true") as (server, (master, _)):
        await until(lambda: server.elections._leases.is_settled)
        await master.alter(1, 2, 1)
        await master.fall_silent()
        await master.register(restarted=True)
        assert server.view.groups["g"].master is None
        await asyncio.sleep(0.5)
        assert server.view.groups["g"].master is None
        master.beat()
        await until(lambda: server.view.groups["g"].master is not None)
        assert server.view.groups["g"].master == 1

        await master.fall_silent()
        await master.register(restarted=True)
        await until(lambda: server.view.groups["g"].master == 2)


@on_loop
async def test_a_designation_that_cannot_win_leaves_the_master_its_lease(tmp_path: Path) -> None:
    async with cluster(tmp_path) as (server, (master, follower)):
        await master.alter(1, 2, 1)
        granted = len(master.granted_by)
        begun = time.monotonic()
        with pytest.raises(Refusal) as refused:
            await follower.elect(designate=True)
        assert refused.value.code == 2012
        assert time.monotonic() - begun < server.config.value.times.lease
        await master.heartbeat(server.address)
        assert len(master.granted_by) > granted


@on_loop
async def test_a_group_that_was_removed_stops_its_master_and_starts_behind_it(
    tmp_path: Path,
) -> None:
    async with cluster(tmp_path) as (server, (master, follower)):
        await follower.fall_silent()
        clean = CleanBrokerHeader(broker_name="g", is_clean_living_broker=True)
        await follower.call(RequestCode.CLEAN_BROKER_DATA, clean)
        await until(lambda: master.notices and master.notices[-1][0].master_epoch == 2)
        assert master.notices[-1][0].master_broker_id is None
        found = (await master.heartbeat(server.address)).fields or {}
        assert found["isMember"] == "false"
        assert "masterEpoch" not in found
        with pytest.raises(Refusal, match="not existed"):
            await follower.call(RequestCode.CONTROLLER_GET_REPLICA_INFO, ReplicaHeader("g"))
        shown = await follower.call(RequestCode.CONTROLLER_GET_SYNC_STATE_DATA, body=b'["g"]')
        assert json.loads(shown.body)["replicasInfoTable"] == {}

        async with FakeBroker(3, [server.address]) as new:
            asked = NextBrokerIdHeader("c", "g")
            next_id = (await new.call(RequestCode.CONTROLLER_GET_NEXT_BROKER_ID, asked)).fields
            assert (next_id or {})["nextBrokerId"] == "3"
            await new.join()
            elected = (await new.elect()).fields or {}
            assert (elected["masterBrokerId"], elected["masterEpoch"]) == ("3", "3")
            with pytest.raises(Refusal) as refused:
                await master.register()
            assert refused.value.code == 2010


@on_loop
async def test_a_copy_of_a_broker_is_not_taken_for_it(tmp_path: Path) -> None:
    async with (
        cluster(tmp_path) as (server, (master, follower)),
        FakeBroker(1, [server.address]) as copy,
    ):
        copy.address = "127.0.0.1:19999"
        with pytest.raises(Refusal, match=r"lives at 127\.0\.0\.1:10901"):
            await copy.register(restarted=True)
        found = (await copy.heartbeat(server.address)).fields or {}
        assert (found["isMember"], found["leaseMillis"]) == ("false", "0")

        await master.fall_silent()
        await until(lambda: follower.master == 2)
        await copy.heartbeat(server.address)
        assert server.live.find("g", 1) is None
        await copy.register(restarted=True)  # it has moved
        await copy.heartbeat(server.address)
        assert server.live.find("g", 1) is not None


@on_loop
async def test_requests_for_one_cluster_do_not_reach_groups_of_another(tmp_path: Path) -> None:
    async with cluster(tmp_path) as (server, (master, _)):
        before = server.view.groups["g"]
        heartbeat = BrokerHeartbeatHeader("other", master.address, "g", 1)
        requests: list[tuple[RequestCode, Any]] = [
            (RequestCode.CONTROLLER_ELECT_MASTER,
             ElectMasterHeader(cluster_name="other", broker_name="g", broker_id=2,
                               designate_elect=True)),
            (RequestCode.CLEAN_BROKER_DATA,
             CleanBrokerHeader(cluster_name="other", broker_name="g", is_clean_living_broker=True)),
            (RequestCode.CONTROLLER_REGISTER_BROKER,
             RegisterBrokerHeader(cluster_name="other", broker_name="g", broker_id=1,
                                  broker_address=master.address, restarted=True)),
            (RequestCode.CONTROLLER_APPLY_BROKER_ID,
             ApplyBrokerIdHeader("other", "g", 3, "x;1")),
            (RequestCode.BROKER_HEARTBEAT, heartbeat),
        ]  # fmt: skip
        for code, header in requests:
            with pytest.raises(Refusal, match="is one of cluster c, not of other"):
                await master.client.call(server.address, code, header)
        assert server.view.groups["g"] == before


@on_loop
async def test_state_survives_a_restart_and_a_snapshot(tmp_path: Path) -> None:
    peers = free_peers(1)
    for expected in (1, 2, 3):
        async with controller(tmp_path, peers) as server:
            await until(lambda server=server: server.is_acting)  # type: ignore[misc]
            async with FakeBroker(expected, [server.address]) as broker:
                await broker.join()
            assert sorted(server.view.groups["g"].members) == list(range(1, expected + 1))
            assert server.view.generation == expected
            if expected == 2:
                node_of(server).compact()
                place = server.config.value.journal_path.with_name("journal.snapshot")
                await until(place.exists)
                await asyncio.sleep(0.1)


@pytest.mark.parametrize(
    ("address", "host", "peer", "is_owner"),
    [
        ("192.0.2.1:1", "", "192.0.2.1:9", True),
        ("192.0.2.1:1", "", "[::ffff:192.0.2.1]:9", True),
        ("192.0.2.1:1", "", "192.0.2.2:9", False),
        ("192.0.2.1:1", "192.0.2.2", "192.0.2.2:9", True),
        ("192.0.2.1:1", "", "127.0.0.1:9", True),
        ("broker.test:1", "", "192.0.2.3:9", True),
        ("broker.test:1", "", "192.0.2.4:9", False),
        ("unknown.test:1", "", "192.0.2.3:9", False),
    ],
)
@on_loop
async def test_a_broker_belongs_to_the_host_of_its_address_or_of_its_registration(
    monkeypatch: pytest.MonkeyPatch, address: str, host: str, peer: str, is_owner: bool
) -> None:
    async def lookup(name: str, *_: object, **__: object) -> list[Any]:
        if name != "broker.test":
            raise OSError("unknown")
        return [(0, 0, 0, "", ("192.0.2.3", 0))]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", lookup, raising=False)
    config = load(ControllerConfig, {})
    view = View()
    view.groups["g"] = Group(cluster="c", name="g", members={1: Member(address, "x", host)})
    live = LiveTable(config.times, time.monotonic)
    own = OwnBrokers(choose_access(config), ConfigCell(config), view, live)
    request: Any = SimpleNamespace(connection=SimpleNamespace(peer=peer))
    await own.require(request, "g", 2)
    await own.require(request, "h", 1)
    if is_owner:
        await own.require(request, "g", 1)
    else:
        with pytest.raises(NoPermission, match="only its own host"):
            await own.require(request, "g", 1)
