"""What a broker does not tell is shown as unknown, named on standard error, and an exit code."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
from typer.testing import CliRunner

from bolide.admin import AdminClient
from bolide.cli import app
from bolide.cli.admin import session
from bolide.protocol.bodies.consumers import Connection, ConsumerConnections
from bolide.protocol.bodies.groups import GroupList
from bolide.protocol.bodies.message_queue import MessageQueue
from bolide.protocol.bodies.routes import KvTable, TopicList
from bolide.protocol.bodies.stats import BrokerStats, ConsumeStats, QueueProgress, StatsWindow
from bolide.protocol.bodies.topics import TopicOffset, TopicStats
from bolide.protocol.codes import RequestCode
from bolide.protocol.refusals import NoPermission
from bolide.remoting.dispatch import Reply
from tests.support.aio import on_loop
from tests.unit.admin.scripted import Cast, Scripted, cast, describe

QUEUE = MessageQueue("Orders", "broker-a", 0)
ANSWERS: dict[RequestCode, object] = {
    RequestCode.GET_CONSUME_STATS: ConsumeStats(
        offset_table={QUEUE: QueueProgress(broker_offset=10, consumer_offset=4)}
    ),
    RequestCode.GET_CONSUMER_CONNECTION_LIST: ConsumerConnections(
        connection_set=[Connection(client_id="c", version=479)]
    ),
    RequestCode.VIEW_BROKER_STATS_DATA: BrokerStats(
        stats_minute=StatsWindow(tps=1.5), stats_day=StatsWindow(sum=90)
    ),
    RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: GroupList(group_list=["billing"]),
    RequestCode.GET_TOPIC_STATS_INFO: TopicStats(
        offset_table={QUEUE: TopicOffset(min_offset=0, max_offset=10)}
    ),
    RequestCode.GET_BROKER_RUNTIME_INFO: KvTable(table={"brokerVersionDesc": "V5_5_0"}),
}


def refuse(_fields: dict[str, str]) -> Reply:
    raise NoPermission("not yours")


def silence(broker: Scripted) -> None:
    for code in ANSWERS:
        broker.answers(code, refuse)


Run = Callable[..., Any]


@asynccontextmanager
async def two_brokers() -> AsyncIterator[tuple[Cast, Run]]:
    """The first one tells everything, the second one nothing."""
    async with cast("broker-a", "broker-b") as stage:
        telling, silent = stage.brokers.values()
        names = TopicList(topic_list=["Orders", "%RETRY%billing"])
        stage.name_server.answers(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, names)
        for code, answer in ANSWERS.items():
            telling.answers(code, answer)
        silence(silent)

        async def run(*words: str) -> Any:
            arguments = ["admin", *words, "-n", stage.name_server.address]
            return await asyncio.to_thread(CliRunner().invoke, app, arguments)

        yield stage, run


class Hanging:
    """A broker that takes requests and answers none; `asked` counts them."""

    def __init__(self) -> None:
        self.asked = 0
        self.address = ""

    async def take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                await reader.readexactly(int.from_bytes(await reader.readexactly(4)))
                self.asked += 1
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()


@asynccontextmanager
async def hanging() -> AsyncIterator[Hanging]:
    found = Hanging()
    async with await asyncio.start_server(found.take, "127.0.0.1") as server:
        found.address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        yield found


@pytest.fixture(autouse=True)
def _home(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))


@on_loop
async def test_sums_without_a_broker_are_marked_and_sums_of_none_are_unknown() -> None:
    async with two_brokers() as (stage, run):
        silent = stage.brokers["broker-b"].address
        lag = await run("consumerProgress")
        traffic = await run("statsAll", "-a", "-t", "Orders")
        documents = [
            json.loads((await run(*words, "--json")).stdout)[0]
            for words in (("consumerProgress",), ("statsAll",))
        ]
        load = await run("clusterList")
        silence(stage.first)
        unknown = await run("consumerProgress")

    for done in (lag, traffic, load, unknown):
        assert done.exit_code == 1
        assert f"not yours (asked of {silent})" in done.stderr
    assert lag.stdout.splitlines()[1].split() == ["billing", ">=1", "V5_3_3", "PUSH", "N/A", ">=6"]
    flows = [">=1.50", ">=1.50", ">=90", ">=90"]
    assert traffic.stdout.splitlines()[1].split() == ["Orders", "billing", ">=6", *flows]
    assert (documents[0]["diffTotal"], documents[0]["leastDiffTotal"]) == (None, 6)
    assert (documents[1]["inTps"], documents[1]["inMsg24Hour"]) == (None, None)
    rows = [line.split() for line in load.stdout.splitlines()[1:]]
    assert rows[0][4] == "V5_5_0"
    assert rows[1][4:] == ["N/A"] * 8
    assert unknown.stdout.splitlines()[1].split() == ["billing", "N/A", "N/A", "N/A", "N/A"]


@on_loop
async def test_the_monitor_reports_groups_of_which_it_learns_nothing() -> None:
    async with two_brokers() as (stage, run):
        refused = await run("startMonitoring", "--rounds", "1")
        await stage.brokers["broker-b"].server.close()
        away = await run("startMonitoring", "--rounds", "1", "--json")

    assert refused.exit_code == 1
    assert "ConsumerGroup: billing, not known: not yours" in refused.stdout
    assert away.exit_code == 3
    (report,) = json.loads(away.stdout)
    assert (report["consumerGroup"], report["stuck"]) == ("billing", None)
    assert "cannot connect" in report["failure"]


@on_loop
async def test_a_broker_that_hangs_is_not_asked_for_each_topic(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = [f"T{number}" for number in range(100)]
    monkeypatch.setattr(session, "AdminClient", partial(AdminClient, timeout=0.3))
    async with two_brokers() as (stage, run), hanging() as silent:
        name_server = stage.name_server
        describe(name_server, {"broker-a": stage.first, "broker-b": silent})
        name_server.answers(
            RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, TopicList(topic_list=names)
        )
        done = await run("topicList", "-c")

    assert done.exit_code == 3
    assert [line.split()[1:] for line in done.stdout.splitlines()[1:]] == [
        [name, "N/A"] for name in names
    ]
    assert done.stderr.count(silent.address) == len(done.stderr.splitlines()) == 1
    assert 0 < silent.asked <= 16  # those that were asked before the first one had failed
