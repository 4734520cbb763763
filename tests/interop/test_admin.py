"""Our mqadmin shows what Java's shows, of our brokers and of Apache's."""

import asyncio
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.interop.admin_cluster import COMMANDS, AdminCluster, fill, present
from tests.interop.bench import Bench, Server
from tests.interop.conftest import obtain_or_skip
from tests.interop.ours import bolide_broker, bolide_namesrv

OURS = "bolide"
CLUSTERS = ["4.9", "5.x", OURS]
MQADMIN = "5.x"
"""Whose columns ours has."""

Clusters = Callable[[str], AdminCluster]


@pytest.fixture(scope="module")
def cluster_of(
    java_module_bench: Bench, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Clusters]:
    """Each cluster is started when it is first asked for."""
    started: dict[str, AdminCluster] = {}
    with ExitStack() as stack:

        def find(kind: str) -> AdminCluster:
            if kind not in started:
                directory = tmp_path_factory.mktemp("admin")
                servers = start(kind, java_module_bench, directory, stack)
                stack.enter_context(present(servers[1].address))
                facts = asyncio.run(fill(servers[0].address, servers[1].address))
                started[kind] = AdminCluster(kind, *servers, facts)
            return started[kind]

        yield find


def start(kind: str, bench: Bench, directory: Path, stack: ExitStack) -> tuple[Server, Server]:
    if kind == OURS:
        namesrv = stack.enter_context(bolide_namesrv(directory / "namesrv"))
        broker = stack.enter_context(bolide_broker(directory / "broker", namesrv.address))
        return namesrv, broker
    obtain_or_skip(kind)
    namesrv = bench.namesrv(kind)
    # A 5.x broker cannot delete topics without its timer.
    timer = {"timerWheelEnable": True} if kind == "5.x" else {}
    return namesrv, bench.broker(kind, namesrv.address, **timer)


@pytest.fixture(params=CLUSTERS)
def cluster(request: pytest.FixtureRequest, cluster_of: Clusters) -> AdminCluster:
    return cluster_of(request.param)


@pytest.mark.parametrize("command", COMMANDS)
def test_ours_shows_what_javas_shows(
    cluster: AdminCluster, command: str, java_module_bench: Bench
) -> None:
    java = cluster.java(java_module_bench, MQADMIN)[command]
    ours = cluster.ours()[command]

    print("JAVA", java)
    print("OURS", ours)
    assert facts(command, ours, cluster, "ours") == facts(command, java, cluster, "java")


def facts(command: str, printed: str, cluster: AdminCluster, me: str) -> list[str]:
    return sorted(" ".join(l.split()) for l in printed.splitlines() if l.strip())
