"""Real members: started, killed, paused and cut, in each network."""

import asyncio
from contextlib import suppress
from pathlib import Path

import pytest

from bolide.admin import AdminClient
from bolide.client.producer.producer import Producer
from bolide.cluster.control import masters
from bolide.cluster.data_directory import ClusterState, read_state
from bolide.cluster.local_cluster import LocalCluster
from bolide.cluster.member_process import MemberFailed
from bolide.cluster.network import why_no_namespaces
from bolide.cluster.plan import ClusterOptions
from bolide.errors import BolideError, ConfigError
from bolide.model.message import Message
from bolide.protocol.refusals import TopicNotFound
from tests.support.aio import PATIENCE, on_loop
from tests.support.ports import free_port

NEIGHBOURS = (10, 1033, 1035, 1036, 1133, 1135, 1136)
needs_namespaces = pytest.mark.skipif(bool(why_no_namespaces()), reason=why_no_namespaces())
networks = pytest.mark.parametrize(
    "network", ["proxy", pytest.param("namespaces", marks=needs_namespaces)]
)


def options(directory: Path, network: str = "plain", **more: object) -> ClusterOptions:
    settings = {"mappedFileSizeCommitLog": str(1024 * 1024)}
    chosen = {"network": network, "settings": settings, **more}
    return ClusterOptions(data=directory, base_port=free_port(NEIGHBOURS), **chosen)  # type: ignore[arg-type]


def states(cluster: LocalCluster) -> dict[str, str]:
    return {each.name: each.state for each in cluster.states()}


async def sends(cluster: LocalCluster, within: float = 1.0) -> bool:
    async with Producer("tests", name_server=cluster.name_servers, retries=0) as producer:
        try:
            await producer.send(Message("Orders", b"one"), timeout=within)
        except BolideError:
            return False
    return True


@networks
@on_loop
async def test_members_are_killed_paused_and_cut(tmp_path: Path, network: str) -> None:
    async with LocalCluster(options(tmp_path, network)) as cluster:
        broker = "broker-a-0"
        assert await sends(cluster, 5.0)

        cluster.pause(broker)
        assert states(cluster) == {"namesrv-0": "alive", broker: "paused"}
        assert not await sends(cluster)
        cluster.resume(broker)
        assert await sends(cluster, 5.0)

        await cluster.cut(broker, ["clients"])
        assert states(cluster) == {"namesrv-0": "alive", broker: "cut"}
        assert not await sends(cluster)
        await cluster.heal()
        assert await sends(cluster, 5.0)

        await cluster.kill(broker)
        assert states(cluster)[broker] == "dead"
        assert not await sends(cluster)
        await cluster.start(broker)
        assert await sends(cluster, 5.0)

    assert set(states(cluster).values()) == {"dead"}


@networks
@pytest.mark.parametrize("direction", ["in", "out"])
@on_loop
async def test_a_cut_of_one_way_is_a_cut_for_requests(
    tmp_path: Path, network: str, direction: str
) -> None:
    async with LocalCluster(options(tmp_path, network)) as cluster:
        assert await sends(cluster, 5.0)

        await cluster.cut("broker-a-0", ["clients"], direction)

        assert not await sends(cluster)


@networks
@on_loop
async def test_a_cut_between_two_members_leaves_the_clients_alone(
    tmp_path: Path, network: str
) -> None:
    settings = {"registerNameServerPeriod": "10000", "mappedFileSizeCommitLog": "1048576"}
    async with LocalCluster(options(tmp_path, network, settings=settings)) as cluster:
        await cluster.cut("broker-a-0", ["namesrv-0"])

        assert await sends(cluster, 5.0)
        await cluster.kill("namesrv-0")
        await cluster.start("namesrv-0")  # it knows only what brokers tell it now
        async with AdminClient(cluster.name_servers) as admin:
            assert (await admin.clusters.info()).broker_addr_table == {}
            await cluster.heal("broker-a-0")
            async with asyncio.timeout(45):
                while not (await admin.clusters.info()).broker_addr_table:  # noqa: ASYNC110
                    await asyncio.sleep(0.1)


@networks
@on_loop
async def test_a_member_without_its_cable_is_alone_until_it_is_plugged_in(
    tmp_path: Path, network: str
) -> None:
    async with LocalCluster(options(tmp_path, network)) as cluster:
        await cluster.unplug("broker-a-0")

        assert states(cluster)["broker-a-0"] == "cut"
        assert not await sends(cluster, 1.0)
        await cluster.heal("broker-a-0")
        assert states(cluster)["broker-a-0"] == "alive"
        assert await sends(cluster, 10.0)


@networks
@on_loop
async def test_a_slow_link_is_slow(tmp_path: Path, network: str) -> None:
    async with LocalCluster(options(tmp_path, network)) as cluster:
        await cluster.slow("broker-a-0", delay=0.05, rate=64 * 1024)

        assert states(cluster)["broker-a-0"] == "slow"
        assert await sends(cluster, 10.0)
        await cluster.heal("broker-a-0")
        assert states(cluster)["broker-a-0"] == "alive"


@needs_namespaces
@on_loop
async def test_clusters_in_namespaces_start_together(tmp_path: Path) -> None:
    one, other = (LocalCluster(options(tmp_path / name, "namespaces")) for name in "ab")
    async with asyncio.timeout(60):
        await asyncio.gather(one.__aenter__(), other.__aenter__())

    try:
        assert one.name_servers != other.name_servers
        await other.close()
        assert await sends(one, 5.0)
    finally:
        await one.close()
        await other.close()


@networks
@on_loop
async def test_the_state_is_written_before_the_first_member_starts(
    tmp_path: Path, network: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[ClusterState | None] = []
    cluster = LocalCluster(options(tmp_path, network))

    async def start(name: str) -> None:
        seen.append(read_state(tmp_path))
        raise MemberFailed(cluster.plan.require(name), "is not started")

    monkeypatch.setattr(cluster, "start", start)
    with pytest.raises(MemberFailed):
        async with cluster:
            pass

    (state,) = seen
    assert state is not None
    assert state.is_starting
    assert (state.bridge is not None) == (network == "namespaces")
    assert {each.name for each in state.members} == {"namesrv-0", "broker-a-0"}
    assert read_state(tmp_path) is None


@on_loop
async def test_the_state_follows_the_members(tmp_path: Path) -> None:
    async with LocalCluster(options(tmp_path)) as cluster:
        await cluster.kill("broker-a-0")

        state = read_state(tmp_path)

        assert state is not None
        assert not state.is_starting
        assert {each.name: each.state for each in state.members} == states(cluster)
        with pytest.raises(ConfigError, match="a cluster runs there already"):
            async with LocalCluster(options(tmp_path)):
                pass
        assert read_state(tmp_path) == state


@on_loop
async def test_workers_are_one_member(tmp_path: Path) -> None:
    async with LocalCluster(options(tmp_path, "proxy", workers=2)) as cluster:
        process = cluster.process("broker-a-0")
        assert len(process.pids) == 3  # the supervisor and two workers
        async with AdminClient(cluster.name_servers) as admin:
            assert len((await admin.clusters.info()).broker_addr_table) == 2

        await cluster.kill("broker-a-0")

        assert process.pids == []
        await cluster.start("broker-a-0")
        assert await sends(cluster, 5.0)


@pytest.mark.parametrize("controllers", [0, 1])
@on_loop
async def test_workers_have_replicas(tmp_path: Path, controllers: int) -> None:
    chosen = options(tmp_path, "proxy", workers=2, replicas=2, controllers=controllers)
    async with LocalCluster(chosen) as cluster:
        topic = "Orders"
        await _two_masters(cluster, chosen.base_port)
        async with AdminClient(cluster.name_servers) as admin:
            await admin.topics.create(topic, "DefaultCluster", queues=1)
        async with Producer("tests", name_server=cluster.name_servers) as producer:
            sent = [await producer.send(Message(topic, b"%d" % n), timeout=10) for n in range(8)]
        assert {each.queue.broker_name for each in sent} == {"broker-a-0", "broker-a-1"}
        if not controllers:
            return

        await _copied(cluster, topic)
        await cluster.kill("broker-a-0")
        await _two_masters(cluster, chosen.base_port + 1135)  # those of broker-a-1
        async with Producer("tests", name_server=cluster.name_servers) as producer:
            again = [await producer.send(Message(topic, b"%d" % n), timeout=10) for n in range(8)]
        assert {each.queue.broker_name for each in again} == {"broker-a-0", "broker-a-1"}
        last = {each.queue: each.queue_offset for each in sent}
        assert all(each.queue_offset > last[each.queue] for each in again)


async def _two_masters(cluster: LocalCluster, lowest_port: int) -> None:
    """Wait until two groups have masters, whose ports are not lower."""
    async with asyncio.timeout(PATIENCE):
        while True:
            found = (await masters(cluster.name_servers) or {}).values()
            ports = [int(group[0].rpartition(":")[2]) for group in found if 0 in group]
            if len(ports) == 2 and min(ports) >= lowest_port:
                return
            await asyncio.sleep(0.1)


async def _copied(cluster: LocalCluster, topic: str) -> None:
    """Wait until all replicas have a topic: they follow a moment behind its messages."""
    async with asyncio.timeout(PATIENCE), AdminClient(cluster.name_servers) as admin:
        for group in (await masters(cluster.name_servers) or {}).values():
            for address in group.values():
                while True:
                    with suppress(TopicNotFound):
                        await admin.topics.config(address, topic)
                        break
                    await asyncio.sleep(0.05)


MEMBERS = ["namesrv-0", "broker-a-0", "broker-b-0"]


@pytest.mark.parametrize(
    ("cuts", "expected"),
    [
        ([("broker-a-0", ["namesrv-0"], "both")],
         {"namesrv-0": {"broker-a-0": "both"}, "broker-a-0": {"namesrv-0": "both"}}),
        ([("broker-a-0", ["namesrv-0", "clients"], "in")],
         {"namesrv-0": {"broker-a-0": "out"},
          "broker-a-0": {"clients": "in", "namesrv-0": "in"}}),
        ([("broker-a-0", [], "both")], {"broker-a-0": {"all": "both"}}),
        ([("broker-a-0", [], "in")], {"broker-a-0": {"all": "in"}}),
        ([("broker-a-0", [], "in"), ("broker-a-0", ["namesrv-0"], "out")],
         {"namesrv-0": {"broker-a-0": "in"},
          "broker-a-0": {"all": "in", "namesrv-0": "out"}}),
        ([("broker-a-0", [], "both"), ("broker-b-0", [], "out")],
         {"broker-a-0": {"all": "both"}, "broker-b-0": {"all": "out"}}),
    ],
)  # fmt: skip
@on_loop
async def test_a_cut_is_shown_with_its_direction_and_one_from_all_once(
    tmp_path: Path,
    cuts: list[tuple[str, list[str], str]],
    expected: dict[str, dict[str, str]],
) -> None:
    cluster = LocalCluster(options(tmp_path, "proxy", brokers=2))
    await cluster.slow("namesrv-0", 0.1)
    for cut in cuts:
        await cluster.cut(*cut)

    found = {each.name: each for each in cluster.states()}

    assert list(found) == MEMBERS
    assert {name: each.cut_from for name, each in found.items() if each.cut_from} == expected
    assert [name for name, each in found.items() if each.is_slow] == ["namesrv-0"]
    await cluster.heal("broker-a-0")
    await cluster.unplug("broker-a-0")
    assert cluster.states()[1].cut_from == {"all": "both"}
    assert cluster.states()[0].cut_from == {}


@on_loop
async def test_links_of_a_plain_network_cannot_be_cut(tmp_path: Path) -> None:
    cluster = LocalCluster(options(tmp_path))

    with pytest.raises(ConfigError, match="--network proxy"):
        await cluster.cut("broker-a-0")
    with pytest.raises(ConfigError, match="--direction up"):
        await cluster.cut("broker-a-0", (), "up")
    with pytest.raises(ConfigError, match="nobody: no such member"):
        await cluster.cut("broker-a-0", ["nobody"])


@on_loop
async def test_a_member_that_does_not_start_says_why(tmp_path: Path) -> None:
    chosen = options(tmp_path)
    bad = ClusterOptions(
        data=tmp_path, base_port=chosen.base_port, network="plain",
        settings={"tls.server.certPath": "none.pem", "tls.server.keyPath": "none.key"},
    )  # fmt: skip

    with pytest.raises(MemberFailed, match=r"broker-a-0 ended before it served: .*none\.pem"):
        async with LocalCluster(bad):
            pass


@on_loop
async def test_a_taken_port_is_named(tmp_path: Path) -> None:
    first = options(tmp_path / "a", "proxy")
    second = ClusterOptions(data=tmp_path / "b", base_port=first.base_port, network="proxy")
    async with LocalCluster(first):
        with pytest.raises(ConfigError, match=f"port {first.base_port}"):
            async with LocalCluster(second):
                pass
