"""Operations on brokers, settings and NameServers against Apache's servers."""

from bolide import AdminClient
from bolide.operations.cluster import Cluster
from bolide.operations.servers import connection, drains, health, replication
from bolide.operations.servers import members as cluster_members
from bolide.operations.servers import settings as server_settings
from bolide.operations.servers.drains import DrainState
from bolide.operations.servers.health import CheckState
from bolide.operations.servers.members import MemberRole, MemberState, Product
from bolide.operations.servers.settings import ServerKind, Shown, TakesEffect
from bolide.protocol.bodies.topics import TopicConfig
from tests.interop.bench import Bench
from tests.support.aio import on_loop


def test_apache_servers_are_shown_and_changed(java_bench: Bench, rocketmq: str) -> None:
    server = java_bench.namesrv(rocketmq)
    broker = java_bench.broker(rocketmq, server.address)
    _look(server.address, broker.address, rocketmq)
    broker.stop()
    _look_again(server.address, broker.address)


@on_loop
async def _look(name_server: str, address: str, release: str) -> None:
    async with AdminClient(name_server) as admin:
        cluster = Cluster(admin=admin, name_servers=name_server)
        await _check_members(cluster, address, release)
        await _check_settings(cluster, address)
        await _check_drain(cluster, address)


async def _check_members(cluster: Cluster, address: str, release: str) -> None:
    async def member() -> cluster_members.BrokerMember:
        cluster.forget()
        (found,) = (await cluster_members.list_brokers.function(cluster)).brokers
        return found

    found = await member()
    while found.up_since_ms is None:  # it has no figures in its first second
        found = await member()
    assert (found.address, found.role, found.state) == (
        address, MemberRole.MASTER, MemberState.UP,
    )  # fmt: skip
    assert found.product is Product.ROCKETMQ
    assert found.protocol_version is not None
    assert found.protocol_version.startswith("V5" if release == "5.x" else "V4")
    assert found.version == found.protocol_version
    assert found.disk_used is not None
    assert found.disk_total is not None
    assert found.takes_messages is True

    detail = await cluster_members.show_broker.function(
        cluster, broker_name="broker-a", broker_id=0
    )
    assert detail.figures
    assert {each.kind for each in detail.waiting} >= {"send", "pull"}
    state = await replication.show_replication.function(cluster, broker_name="broker-a")
    assert not state.has_controllers
    assert (state.links is None) == (release == "4.9")
    controllers = await replication.list_controllers.function(cluster)
    assert (controllers.controllers, controllers.groups) == ([], [])

    versions = await health.list_versions.function(cluster)
    assert [each.kind for each in versions.servers] == ["broker", "namesrv", "console"]
    assert [each.product for each in versions.servers[:2]] == [Product.ROCKETMQ] * 2
    report = await health.show_health.function(cluster)
    by_id = {each.id: each.state for each in report.checks}
    assert by_id["name-server-reachable"] is CheckState.OK
    assert by_id["broker-reachable"] is CheckState.OK
    shown = await connection.show_connection.function(cluster)
    assert not shown.can_change


async def _check_settings(cluster: Cluster, address: str) -> None:
    show = server_settings.list_settings.function
    page = await show(cluster, kind=ServerKind.BROKER, address=address, size=500)
    assert page.product is Product.ROCKETMQ
    assert page.waiting == 0
    assert not any(each.is_ours for each in page.settings.items)
    hours = await server_settings.show_setting.function(
        cluster, kind=ServerKind.BROKER, address=address, key="fileReservedTime"
    )
    assert (hours.value, hours.takes_effect) == ("72", TakesEffect.UNKNOWN)
    changed = await server_settings.change_setting.function(
        cluster, kind=ServerKind.BROKER, address=address, key="fileReservedTime", value="24"
    )
    assert (changed.value, changed.differs) == ("24", True)
    page = await show(
        cluster, kind=ServerKind.BROKER, address=address, shown=Shown.CHANGED, size=500
    )
    assert "fileReservedTime" in {each.key for each in page.settings.items}
    name_server = cluster.admin.name_servers.addresses[0]
    page = await show(cluster, kind=ServerKind.NAME_SERVER, address=name_server)
    assert page.settings.total > 5


async def _check_drain(cluster: Cluster, address: str) -> None:
    await cluster.admin.topics.update(address, TopicConfig(topic_name="Orders"))
    plan = await drains.plan_drain(cluster, broker_name="broker-a")
    assert plan.sole_topics == ["Orders"]
    await drains.start_drain.function(cluster, broker_name="broker-a", settle=0)
    try:
        cluster.forget()
        (found,) = (await cluster_members.list_brokers.function(cluster)).brokers
        assert found.takes_messages is False
        progress = await drains.show_drain.function(cluster, broker_name="broker-a")
        assert progress.state in {DrainState.DRAINING, DrainState.UNKNOWN, DrainState.SAFE}
        undone = await drains.undo_drain.function(cluster, broker_name="broker-a")
        assert undone.still_closed == []
    finally:
        await drains.end_drains()
    cluster.forget()
    (found,) = (await cluster_members.list_brokers.function(cluster)).brokers
    assert found.takes_messages is True


@on_loop
async def _look_again(name_server: str, address: str) -> None:
    """The broker has ended; in order, so that it is not registered any more."""
    async with AdminClient(name_server) as admin:
        cluster = Cluster(admin=admin, name_servers=name_server)
        (found,) = (await cluster_members.list_brokers.function(cluster)).brokers
    assert found.address == address
    assert found.state in {MemberState.STOPPED, MemberState.SILENT}
    assert found.last_seen_ms is not None
