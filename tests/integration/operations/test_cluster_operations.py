"""Operations on brokers, controllers, settings and NameServers of ours."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from bolide import AdminClient, Message, Producer
from bolide.broker.server import Broker
from bolide.operations.cluster import Cluster
from bolide.operations.declaration import Operation, Role
from bolide.operations.door import CONFIRMED, AuditEntry, Caller, Door
from bolide.operations.errors import (
    BadInput,
    ConfirmationNeeded,
    Conflict,
    NotFound,
    NotSupported,
    RoleTooLow,
)
from bolide.operations.servers import connection, drains, health, replication
from bolide.operations.servers import members as cluster_members
from bolide.operations.servers import settings as server_settings
from bolide.operations.servers.connection import ConnectionChoice
from bolide.operations.servers.drains import DrainState
from bolide.operations.servers.health import CheckState
from bolide.operations.servers.members import MemberRole, MemberState, Product
from bolide.operations.servers.settings import ServerKind, Shown, TakesEffect
from bolide.protocol.codes import RequestCode
from bolide.remoting.client import RemotingClient
from bolide.remoting.tls import ClientTls
from tests.integration.test_elected_masters import Group, group
from tests.support.admin_cluster import NOBODY
from tests.support.aio import PATIENCE, on_loop
from tests.support.broker import broker_in
from tests.support.brokers import broker_header, plain, topics_body
from tests.support.own_cluster import create_topic

ADMIN = Caller(name="ada", role=Role.ADMIN, source="console 127.0.0.1")
VIEWER = Caller(name="vi", role=Role.VIEWER, source="api")


class Stage:
    """A group of two with a controller, a broker by itself, and who runs operations there."""

    def __init__(self, members: Group, alone: Broker, cluster: Cluster) -> None:
        self.members, self.alone, self.cluster = members, alone, cluster
        self.name_server = cluster.name_servers
        self.name = next(iter(members.brokers.values())).config.value.broker_name
        self.entries: list[AuditEntry] = []
        self._door = Door(self)

    async def write(self, entry: AuditEntry) -> None:
        self.entries.append(entry)

    async def run(
        self,
        operation: Operation[Any, Any],
        *,
        caller: Caller = ADMIN,
        confirmation: str | None = CONFIRMED,
        **arguments: Any,
    ) -> Any:
        return await self._door.run(
            operation, self.cluster, caller, arguments, confirmation=confirmation
        )

    async def brokers(self) -> Mapping[str, cluster_members.BrokerMember]:
        """All brokers, as they are now, by address."""
        self.cluster.forget()
        found = await self.run(cluster_members.list_brokers)
        return {each.address: each for each in found.brokers}


@asynccontextmanager
async def stage(directory: Path) -> AsyncIterator[Stage]:
    async with group(directory, "one", "two") as members:
        master = await members.master()
        name_server = master.config.value.name_servers[0]
        own: dict[str, Any] = {"broker_name": "alone", "name_servers": (name_server,)}
        async with (
            broker_in(directory / "alone", **own) as alone,
            AdminClient(name_server, timeout=2.0) as admin,
        ):
            await members.in_sync(2)
            try:
                yield Stage(members, alone, Cluster(admin=admin, name_servers=name_server))
            finally:
                await drains.end_drains()


@on_loop
async def test_a_cluster_is_shown_and_changed(tmp_path: Path) -> None:
    async with stage(tmp_path) as scene:
        await _check_brokers(scene)
        await _check_settings(scene)
        await _check_setting_changes(scene)
        await _check_name_servers_and_versions(scene)
        await _check_drain(scene)
        await _check_election(scene)
        await _check_a_stopped_broker(scene)
        await _check_a_silent_broker(scene)


async def _check_brokers(scene: Stage) -> None:
    found = await scene.brokers()
    master = await scene.members.master()
    (slave,) = scene.members.slaves()
    assert [each.state for each in found.values()] == [MemberState.UP] * 3
    one = found[master.address]
    assert (one.role, one.id, one.replicas, one.lag) == (MemberRole.MASTER, 0, 1, None)
    assert (one.product, one.protocol_version) == (Product.BOLIDE, "V5_5_0")
    assert one.up_since_ms is not None
    assert one.disk_used is not None
    assert 0 < one.disk_used <= 1
    assert one.disk_total is not None
    assert one.disk_free is not None
    assert one.disk_total > one.disk_free > 0
    two = found[slave.address]
    assert (two.role, two.id, two.lag, two.takes_messages) == (MemberRole.SLAVE, 2, 0, None)
    assert found[scene.alone.address].takes_messages is True
    assert found[scene.alone.address].replicas is None

    detail = await scene.run(cluster_members.show_broker, broker_name=scene.name, broker_id=0)
    assert detail.member.address == master.address
    assert [each.id for each in detail.siblings] == [2]
    assert detail.figures["bolideVersion"] == one.version
    assert {each.kind for each in detail.waiting} >= {"send", "pull"}
    assert len(detail.in_rates) == 3
    with pytest.raises(NotFound, match="no broker alone with id 7; known are alone 0"):
        await scene.run(cluster_members.show_broker, broker_name="alone", broker_id=7)

    state = await scene.run(replication.show_replication, broker_name=scene.name)
    assert state.has_controllers
    assert [(each.id, each.in_sync, each.alive) for each in state.members] == [
        (1, True, True), (2, True, True),
    ]  # fmt: skip
    assert [each.epoch for each in state.members[0].epochs] == [1]
    assert [each.behind for each in state.links] == [0]
    plain = await scene.run(replication.show_replication, broker_name="alone")
    assert not plain.has_controllers
    assert plain.members[0].epochs is None

    controllers = await scene.run(replication.list_controllers)
    (controller,) = controllers.controllers
    assert controller.leads
    assert (controller.product, controller.protocol_version) == (Product.BOLIDE, "V5_5_0")
    assert [each.broker_name for each in controllers.groups] == [scene.name]


async def _check_settings(scene: Stage) -> None:
    place: dict[str, Any] = {"kind": ServerKind.BROKER, "address": scene.alone.address}
    listed = await scene.run(server_settings.list_settings, **place, size=10, page=2)
    assert listed.product is Product.BOLIDE
    assert listed.settings.total > 200
    assert len(listed.settings.items) == 10
    found = await scene.run(server_settings.list_settings, **place, search="filereservedtime")
    (setting,) = [each for each in found.settings.items if each.key == "fileReservedTime"]
    assert (setting.value, setting.default, setting.differs) == ("72", "72", False)
    assert setting.takes_effect is TakesEffect.AT_ONCE
    assert setting.unit == "hours"
    changed = await scene.run(server_settings.list_settings, **place, shown=Shown.CHANGED, size=500)
    keys = {each.key for each in changed.settings.items}
    assert "brokerName" in keys
    assert "fileReservedTime" not in keys
    assert changed.settings.total == changed.changed == len(keys)

    differences = await scene.run(server_settings.list_differences)
    by_key = {each.key: each for each in differences.items}
    assert {each.value for each in by_key["enableControllerMode"].values} == {"true", "false"}
    assert "brokerName" not in by_key
    everything = await scene.run(server_settings.list_differences, expected=True, size=500)
    assert any(each.key == "brokerName" and each.is_expected for each in everything.items)

    with pytest.raises(NotFound, match="is no broker of this cluster"):
        await scene.run(
            server_settings.list_settings, kind=ServerKind.BROKER, address="127.0.0.1:22"
        )
    with pytest.raises(NotFound, match="did you mean fileReservedTime"):
        await scene.run(server_settings.show_setting, **place, key="fileReservdTime")
    controllers = await scene.run(replication.list_controllers)
    for kind, address in (
        (ServerKind.NAME_SERVER, scene.name_server),
        (ServerKind.CONTROLLER, controllers.controllers[0].address),
    ):
        page = await scene.run(server_settings.list_settings, kind=kind, address=address)
        assert page.product is Product.BOLIDE
        assert page.settings.total > 5


async def _check_setting_changes(scene: Stage) -> None:
    place: dict[str, Any] = {"kind": ServerKind.BROKER, "address": scene.alone.address}
    change: dict[str, Any] = {**place, "key": "fileReservedTime", "value": "24"}
    with pytest.raises(RoleTooLow):
        await scene.run(server_settings.change_setting, caller=VIEWER, **change)
    with pytest.raises(ConfirmationNeeded) as needed:
        await scene.run(server_settings.change_setting, confirmation=None, **change)
    effect = needed.value.effect
    assert isinstance(effect, server_settings.SettingEffect)
    assert (effect.before, effect.after, effect.warnings) == ("72", "24", [])
    assert [each.value for each in effect.elsewhere] == ["72", "72"]

    done = await scene.run(
        server_settings.change_setting, confirmation=needed.value.token, **change
    )
    assert (done.value, done.differs, done.in_force) == ("24", True, None)
    entry = scene.entries[-1]
    assert entry.target == f"setting fileReservedTime of the broker {scene.alone.address}"
    assert isinstance(entry.before, server_settings.ServerSetting)
    assert isinstance(entry.after, server_settings.ServerSetting)
    assert (entry.before.value, entry.after.value) == ("72", "24")

    later: dict[str, Any] = {**place, "key": "maxIndexNum", "value": "5000"}
    pending = await scene.run(server_settings.change_setting, **later)
    assert pending.value == "5000"
    assert pending.in_force not in {None, "5000"}
    waiting = await scene.run(server_settings.list_settings, **place, shown=Shown.WAITING)
    assert [each.key for each in waiting.settings.items] == ["maxIndexNum"]

    for key, value, error, text in (
        ("fileReservedTime", "soon", BadInput, "must be a whole number"),
        ("fileReservedTime", "24", Conflict, "is 24 already"),
        ("storePathRootDir", "/elsewhere", NotSupported, "is fixed"),
        ("fileReservedTime", "1\nbrokerName=x", BadInput, "one line"),
        ("noSuchThing", "1", NotFound, "not a setting"),
    ):
        with pytest.raises(error, match=text):
            await scene.run(server_settings.change_setting, **place, key=key, value=value)


async def _check_name_servers_and_versions(scene: Stage) -> None:
    versions = await scene.run(health.list_versions)
    kinds = sorted(each.kind for each in versions.servers)
    assert kinds == ["broker", "broker", "broker", "console", "controller", "namesrv"]
    assert not versions.is_mixed
    alone = await scene.run(health.list_name_servers)
    assert alone.agree is None

    names = f"{scene.name_server};{NOBODY}"
    async with AdminClient(names, timeout=2.0) as admin:
        scene.cluster, whole = Cluster(admin=admin, name_servers=names), scene.cluster
        servers = await scene.run(health.list_name_servers)
        report = await scene.run(health.show_health)
        scene.cluster = whole
    first, second = servers.name_servers
    assert (first.answers, first.brokers, first.agrees) == (True, 3, True)
    assert first.product is Product.BOLIDE
    assert (second.answers, second.agrees, second.brokers) == (False, None, None)
    assert f"cannot connect to {NOBODY}" in second.reason
    assert servers.agree is None
    assert report.is_reachable
    assert report.state is CheckState.ERROR
    by_id = {each.id: each for each in report.checks}
    assert by_id["name-server-reachable"].state is CheckState.ERROR
    assert by_id["name-server-reachable"].findings[0].where == NOBODY
    assert by_id["name-server-reachable"].findings[-1].state is CheckState.OK
    assert by_id["broker-reachable"].state is CheckState.OK
    assert by_id["broker-identity"].state is CheckState.OK
    assert by_id["controller-reachable"].state is CheckState.OK
    assert by_id["ha-port"].title == "Not everybody may copy the log."


async def _check_drain(scene: Stage) -> None:
    alone = scene.alone.address
    async with Producer("shop", name_server=scene.name_server) as producer:
        await create_topic(producer, "Orders", 1)
        plan = await scene.run(cluster_members.list_brokers)
        assert plan.failures == []
        with pytest.raises(ConfirmationNeeded) as needed:
            await scene.run(drains.start_drain, broker_name="alone", confirmation=None)
        effect = needed.value.effect
        assert isinstance(effect, drains.DrainPlan)
        assert (effect.address, effect.broker_name) == (alone, "alone")

        await scene.run(drains.start_drain, broker_name="alone", settle=0.2)
        assert (await scene.brokers())[alone].takes_messages is False
        with pytest.raises(Conflict, match="drained already"):
            await scene.run(drains.start_drain, broker_name="alone")
        async with asyncio.timeout(PATIENCE):
            while True:
                progress = await scene.run(drains.show_drain, broker_name="alone")
                if progress.state is DrainState.SAFE:
                    break
                await asyncio.sleep(0.05)
        assert progress.is_safe
        assert any("no replica" in each for each in progress.remarks)

        undone = await scene.run(drains.undo_drain, broker_name="alone")
        assert undone.failures == []
        assert (await scene.brokers())[alone].takes_messages is True
        over = await scene.run(drains.show_drain, broker_name="alone")
        assert (over.state, over.is_safe, over.looked_ms) == (DrainState.NONE, None, None)
        await producer.send(Message("Orders", b"again"))
        looked = await scene.run(drains.look_at_open_work, broker_name="alone")
        assert (looked.state, looked.began_ms, looked.open) == (DrainState.NONE, None, [])
        assert looked.looked_ms is not None
        with pytest.raises(NotFound, match="no broker nobody"):
            await scene.run(drains.start_drain, broker_name="nobody")


async def _check_election(scene: Stage) -> None:
    elect: dict[str, Any] = {"broker_name": scene.name, "broker_id": 2}
    with pytest.raises(ConfirmationNeeded) as needed:
        await scene.run(replication.elect_master, confirmation=None, **elect)
    effect = needed.value.effect
    assert isinstance(effect, replication.ElectionEffect)
    assert (effect.master_id, effect.new_master_id, effect.loses_messages) == (1, 2, False)
    with pytest.raises(BadInput, match="has the members 1, 2"):
        await scene.run(replication.elect_master, broker_name=scene.name, broker_id=9)
    with pytest.raises(Conflict, match="is the master"):
        await scene.run(replication.elect_master, broker_name=scene.name, broker_id=1)
    with pytest.raises(NotFound, match=f"no broker group alone; they know {scene.name}"):
        await scene.run(replication.elect_master, broker_name="alone", broker_id=1)
    done = await scene.run(replication.elect_master, confirmation=needed.value.token, **elect)
    assert done.master_id == 2
    before, after = scene.entries[-1].before, scene.entries[-1].after
    assert isinstance(before, replication.ElectedGroup)
    assert isinstance(after, replication.ElectedGroup)
    assert (before.master_id, after.master_id) == (1, 2)


async def _check_a_stopped_broker(scene: Stage) -> None:
    await scene.brokers()
    await scene.members.in_sync(2)
    (slave,) = scene.members.slaves()
    address = slave.address
    name = next(key for key, each in scene.members.brokers.items() if each is slave)
    with pytest.raises(Conflict, match="is registered"):
        await scene.run(cluster_members.forget_stopped, address=address)
    await scene.members.stop(name)

    gone = (await scene.brokers())[address]
    assert gone.state is MemberState.STOPPED
    assert gone.last_seen_ms is not None
    assert gone.in_rate is None
    await scene.run(cluster_members.forget_stopped, address=address)
    assert address not in await scene.brokers()
    with pytest.raises(NotFound):
        await scene.run(cluster_members.forget_stopped, address=address)


async def _check_a_silent_broker(scene: Stage) -> None:
    async with RemotingClient() as client:
        await client.call(
            scene.name_server,
            RequestCode.REGISTER_BROKER,
            broker_header(NOBODY, name="mute"),
            body=plain(topics_body("T")),
        )
        silent = (await scene.brokers())[NOBODY]
        listed = await scene.run(cluster_members.list_brokers)
    assert silent.state is MemberState.SILENT
    assert f"cannot connect to {NOBODY}" in silent.reason
    assert (silent.in_rate, silent.disk_used, silent.last_seen_ms) == (None, None, None)
    assert [each.server for each in listed.failures] == [NOBODY]


class Owner:
    """Keeps the choice, as a console does."""

    def __init__(self) -> None:
        self.choice = ConnectionChoice(use_tls=False, vip_channel=False)
        self.tls = ClientTls()

    async def switch(self, choice: ConnectionChoice) -> None:
        self.choice = choice


@on_loop
async def test_the_connection_of_the_process_is_shown_tried_and_switched(tmp_path: Path) -> None:
    async with stage(tmp_path) as scene:
        shown = await scene.run(connection.show_connection)
        assert (shown.use_tls, shown.vip_channel, shown.can_change) == (False, False, False)
        switch: dict[str, Any] = {"use_tls": False, "vip_channel": True}
        with pytest.raises(NotSupported, match="--tls"):
            await scene.run(connection.change_connection, **switch)
        connection.own_connections(Owner())
        try:
            with pytest.raises(ConfirmationNeeded) as needed:
                await scene.run(connection.change_connection, confirmation=None, **switch)
            effect = needed.value.effect
            assert isinstance(effect, connection.ConnectionEffect)
            assert effect.works
            ports = {each.address for each in effect.trials}
            assert connection.vip_address(scene.alone.address) in ports
            done = await scene.run(connection.change_connection, **switch)
            assert (done.vip_channel, done.can_change) == (True, True)
            with pytest.raises(Conflict, match="no NameServer would answer"):
                await scene.run(connection.change_connection, use_tls=True, vip_channel=False)
            assert not (await scene.run(connection.show_connection)).use_tls
        finally:
            connection.own_connections(None)
