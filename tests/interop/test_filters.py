"""SQL92 filters: Java's consumers on our broker, ours on Apache's, and the table of both."""

import asyncio
import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bolide.broker.filters.subscriptions import FilterTable, bloom_positions
from bolide.client.consumer.push.push_consumer import PushConsumer
from bolide.client.producer.producer import Producer
from bolide.errors import BolideError
from bolide.model.message import Message, StoredMessage
from bolide.protocol.refusals import SubscriptionMalformed
from bolide.store.tables import CONSUMER_FILTERS, Table
from tests.interop.bench import Bench
from tests.interop.conftest import NEWEST
from tests.interop.processes import ProcessFailed
from tests.support.aio import until
from tests.support.cluster_process import ClusterProcess, cluster_process
from tests.support.own_cluster import create_topic

CLIENTS = [NEWEST, pytest.param("4.9", marks=pytest.mark.long)]
EXPRESSION = "a between 3 and 5 and (TAGS is null or TAGS in ('A', 'B')) or body = 'end'"
WANTED = {"got 3", "got 4", "got 5"}


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterProcess]:
    with cluster_process(tmp_path_factory.mktemp("ours")) as cluster:
        yield cluster


def messages(topic: str) -> list[Message]:
    numbers = [
        Message(topic, str(number).encode(), properties={"a": str(number)}) for number in range(8)
    ]
    odd = Message(topic, b"odd", properties={"a": "four"})
    tagged = Message(topic, b"tagged", tags="C", properties={"a": "4"})
    return [*numbers, odd, tagged, Message(topic, b"end", properties={"body": "end"})]


@pytest.mark.parametrize("version", CLIENTS)
def test_java_consumers_filter_by_sql_on_our_broker(
    ours: ClusterProcess, java_bench: Bench, version: str
) -> None:
    topic = f"JavaSql-{version.replace('.', '-')}"
    ours.create_topic(topic, 1)
    consumer = java_bench.client(version, "SqlConsumer", ours.address, topic, topic, EXPRESSION)
    consumer.wait_for_line("ready", 60)
    ours.send(messages(topic))
    got = consumer.wait(60)
    assert {line for line in got if line.startswith("got")} == WANTED | {"got end"}


def test_a_java_consumer_is_told_what_is_wrong_with_its_expression(
    ours: ClusterProcess, java_bench: Bench
) -> None:
    ours.create_topic("Told", 1)
    consumer = java_bench.client(NEWEST, "SqlConsumer", ours.address, "Told", "told", "a != 5")
    with pytest.raises(ProcessFailed):
        consumer.wait(60)
    told = "\n".join(consumer.stdout)
    assert "CODE: 23" in told
    assert "write <> for 'not equal'" in told


def test_ours_filters_by_sql_on_apaches_broker(java_bench: Bench) -> None:
    namesrv = java_bench.namesrv(NEWEST)
    java_bench.broker(NEWEST, namesrv.address, enablePropertyFilter=True)
    asyncio.run(_consume(namesrv.address))


async def _consume(address: str) -> None:
    got: set[str] = set()

    async def take(message: StoredMessage) -> None:
        got.add(f"got {message.body.decode()}")

    async with (
        Producer("writers", name_server=address) as producer,
        PushConsumer("readers", consume_from="first", name_server=address) as consumer,
    ):
        await create_topic(producer, "OurSql", 1)
        await consumer.subscribe("OurSql", take, sql=EXPRESSION)
        for message in messages("OurSql"):
            await producer.send(message)
        await until(lambda: "got end" in got)
        assert got == WANTED | {"got end"}
        with pytest.raises(SubscriptionMalformed):
            await consumer.subscribe("OurSql", take, sql="a !! 5")
        with pytest.raises(BolideError):  # Apache's has no functions
            await consumer.subscribe("OurSql", take, filter="f")


@pytest.mark.long
def test_a_java_broker_takes_over_the_table_that_ours_wrote_and_ours_javas(
    java_bench: Bench, tmp_path: Path
) -> None:
    with cluster_process(tmp_path / "first") as cluster:
        asyncio.run(_subscribe(cluster.address, "T", "a > 5"))
    store = tmp_path / "first" / "broker-a" / "store"
    before = _filter_in(store)
    namesrv = java_bench.namesrv(NEWEST)
    java = java_bench.broker(
        NEWEST, namesrv.address, storePathRootDir=str(store), enablePropertyFilter=True
    )
    asyncio.run(_subscribe(namesrv.address, "U", "b in ('x')"))
    java.stop()  # it writes what it has read and did not throw away, and what it was told
    after = _filter_in(store)
    kept = ("expression", "clientVersion", "bornTime", "bloomFilterData")
    assert {key: after[key] for key in kept} == {key: before[key] for key in kept}
    table = Table(store / "config", CONSUMER_FILTERS)
    table.load()
    for topic, expression in (("T", "a > 5"), ("U", "b in ('x')")):
        found = FilterTable(table, time.time).find(topic, "readers")
        assert found is not None
        assert (found.expression, found.expression_type) == (expression, "SQL92")
        assert found.bloom_filter_data == bloom_positions("readers", topic)


async def _subscribe(address: str, topic: str, sql: str) -> None:
    async with (
        Producer("writers", name_server=address) as producer,
        PushConsumer("readers", name_server=address) as consumer,
    ):
        await create_topic(producer, topic, 1)
        await consumer.subscribe(topic, print, sql=sql)


def _filter_in(store: Path) -> dict[str, object]:
    table = json.loads((store / "config" / "consumerFilter.json").read_text())
    found: dict[str, object] = table["filterDataByTopic"]["T"]["groupFilterData"]["readers"]
    return found
