"""Our mqadmin shows what Java's shows; Java's shows of our broker what it shows of Apache's."""

import asyncio
import json
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from typer.testing import CliRunner

from bolide.admin import AdminClient
from bolide.cli import app
from bolide.model.message_queue import MessageQueue
from tests.interop.admin_cluster import BROKER, COMMANDS, AdminCluster, fill, present
from tests.interop.admin_facts import facts
from tests.interop.bench import Bench, Server
from tests.interop.conftest import obtain_or_skip
from tests.interop.ours import bolide_broker, bolide_namesrv

OURS = "bolide"
OLD = pytest.param("4.9", marks=pytest.mark.long)

REFUSED = {
    "route of missing": "No topic route info in name server for the topic: Missing",
    "set bad config": "",
    "by missing key": "",
}
TOLD = [name for name in COMMANDS if name not in REFUSED]

DIFFERENT = {"topics", "topics with groups", "broker status", "config"}
"""What tells of topics, figures and settings that a broker has of its own."""

CHANGED_SINCE_4 = {
    "set bad config", "by id", "by unique key", "by offset", "consume", "print", "print tags",
    "print by queue", "queue entries", "reset", "skip",
}  # fmt: skip
"""5.x brokers refuse some settings, add a property to messages, and reset offsets themselves."""

Clusters = Callable[[str], AdminCluster]


@pytest.fixture(scope="module")
def cluster_of(
    java_module_bench: Bench, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Clusters]:
    """Each cluster is started when it is first asked for, ours with the first."""
    started: dict[str, AdminCluster] = {}
    with ExitStack() as stack:

        def begin(kind: str) -> AdminCluster:
            directory = tmp_path_factory.mktemp("admin")
            servers = start(kind, java_module_bench, directory, stack)
            stack.enter_context(present(servers[1].address))
            known = asyncio.run(fill(servers[0].address, servers[1].address))
            cluster = AdminCluster(kind, *servers, known)
            cluster.begin_java(java_module_bench, cluster.version)
            return cluster

        def find(kind: str) -> AdminCluster:
            for wanted in (kind, OURS):
                if wanted not in started:
                    started[wanted] = begin(wanted)
            return started[kind]

        yield find


def start(kind: str, bench: Bench, directory: Path, stack: ExitStack) -> tuple[Server, Server]:
    if kind == OURS:
        namesrv = stack.enter_context(bolide_namesrv(directory / "namesrv"))
        settings = {"auditEnable": False}  # its records would move all offsets
        broker = stack.enter_context(
            bolide_broker(directory / "broker", namesrv.address, **settings)
        )
        return namesrv, broker
    obtain_or_skip(kind)
    namesrv = bench.namesrv(kind)
    # A 5.x broker cannot delete topics without its timer.
    return namesrv, bench.broker(kind, namesrv.address, timerWheelEnable=kind == "5.x")


@pytest.fixture(params=[OLD, "5.x", OURS])
def cluster(request: pytest.FixtureRequest, cluster_of: Clusters) -> AdminCluster:
    return cluster_of(request.param)


@pytest.mark.parametrize("command", TOLD)
def test_ours_shows_what_javas_shows(
    cluster: AdminCluster, command: str, java_module_bench: Bench
) -> None:
    java = cluster.java(java_module_bench)[command].replace("-java", "-ours")
    ours = cluster.ours()[command]

    assert not ours.startswith("failed")
    assert facts(command, ours) == facts(command, java), java


@pytest.mark.parametrize("command", REFUSED)
def test_ours_fails_where_javas_fails(
    cluster: AdminCluster, command: str, java_module_bench: Bench
) -> None:
    if (cluster.kind, command) == ("4.9", "set bad config"):
        pytest.skip("4.9 lets every setting be changed")
    java = cluster.java(java_module_bench)[command]
    ours = cluster.ours()[command]

    assert ours.startswith("failed")
    assert "CODE:" in java
    assert REFUSED[command] in java
    assert REFUSED[command] in ours


@pytest.mark.parametrize(
    ("version", "command"),
    [("5.x", name) for name in COMMANDS if name not in DIFFERENT]
    + [
        pytest.param("4.9", name, marks=pytest.mark.long)
        for name in COMMANDS
        if name not in DIFFERENT | CHANGED_SINCE_4
    ],
)
def test_javas_shows_of_our_broker_what_it_shows_of_apaches(
    version: str, command: str, cluster_of: Clusters, java_module_bench: Bench
) -> None:
    ours, apache = cluster_of(OURS), cluster_of(version)

    of_ours = masked(ours.java(java_module_bench, version)[command], ours)
    of_apache = masked(apache.java(java_module_bench)[command], apache)

    assert facts(command, of_ours) == facts(command, of_apache)


def masked(printed: str, cluster: AdminCluster) -> str:
    """Without what must differ between two clusters: addresses, ids and times."""
    text = printed.replace(cluster.broker.address, "<broker>")
    text = text.replace(cluster.name_server.address, "<name server>")
    text = re.sub(r"\b[0-9A-F]{32}\b", "<id>", text)
    text = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(,\d+)?", "<time>", text)
    text = re.sub(r"127\.0\.0\.1:\d+", "<client>", text)
    text = re.sub(r"\b17\d{11}\b|\b18\d{11}\b", "<ms>", text)
    return re.sub(r"V\d_\d_\d", "<version>", text)


def test_what_ours_shows_first_is_what_it_then_does(cluster: AdminCluster) -> None:
    topic, group = "Made-planned", "sleepers-planned"  # names that the other tests pass over
    broker, on_topic = ("-b", cluster.broker.address), ("-g", group, "-t", topic)

    def run(*words: str) -> str:
        done = CliRunner().invoke(app, ["admin", *words, "-n", cluster.name_server.address])
        assert done.exit_code == 0, (words, done.output)
        return done.stdout

    def plan(*words: str) -> list[tuple[int | None, ...]]:
        moves = json.loads(run(*words, *on_topic, "--dry-run", "--json"))
        names = ("before", "after", "deliveredAgain", "skipped")
        return [tuple(move[name] for name in names) for move in moves]

    run("updateTopic", *broker, "-t", topic, "-r", "2", "-w", "2")
    run("updateSubGroup", *broker, "-g", group)
    for queue_id in ("0", "0", "1"):
        run("sendMessage", "-t", topic, "-p", "text", "-b", BROKER, "-i", queue_id)

    asyncio.run(_begin(cluster, group, topic))
    assert plan("skipAccumulatedMessage") == [(0, 2, 0, 2), (0, 1, 0, 1)]
    assert plan("resetOffsetByTime", "-s", "now", "-f", "false") == [(0, 0, 0, 0)] * 2
    run("resetOffsetByTime", *on_topic, "-s", "now", "-f", "false", "--yes")
    run("skipAccumulatedMessage", *on_topic, "--yes")
    assert plan("resetOffsetByTime", "-s", "0") == [(2, 0, 2, 0), (1, 0, 1, 0)]
    one = ("resetOffsetByTime", "-s", "0", *broker, "-q", "0", "-o", "1")
    assert plan(*one) == [(2, 1, 1, 0)]

    of_topic = run("deleteTopic", "-c", "DefaultCluster", "-t", topic, "--dry-run", "--json")
    facts_of_topic = json.loads(of_topic)
    assert (facts_of_topic["queues"], facts_of_topic["messages"]) == (2, 3)
    assert facts_of_topic["groups"] == [{"group": group, "members": 0, "backlog": 0}]
    of_group = run("deleteSubGroup", *broker, "-g", group, "--dry-run", "--json")
    facts_of_group = json.loads(of_group)
    assert facts_of_group["brokers"] == [cluster.broker.address]
    assert {"topic": topic, "backlog": 0} in facts_of_group["topics"]
    if cluster.kind != "4.9":  # which cannot unmap files on a newer Java
        run("deleteTopic", "-c", "DefaultCluster", "-t", topic, "--yes")
    run("deleteSubGroup", *broker, "-g", group, "--yes")


async def _begin(cluster: AdminCluster, group: str, topic: str) -> None:
    """Commit the beginning of two queues: 4.9 refuses to reset a group without offsets."""
    async with AdminClient(cluster.name_server.address) as admin:
        for queue_id in range(2):
            queue = MessageQueue(topic, BROKER, queue_id)
            await admin.offsets.commit(cluster.broker.address, group, queue, 0)
