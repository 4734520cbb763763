"""The source, the sink and a pipeline with Apache RocketMQ's servers."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from bolide import Message
from bolide.arrow.cluster import Connection
from bolide.protocol.bodies.pipelines import State
from bolide.spark.pipelines.builtin import BUILT_INS, RunSettings, make_options
from bolide.spark.pipelines.errors import RunFailed
from bolide.spark.pipelines.monitoring.status_topic import StatusTopic
from bolide.spark.pipelines.runner import run
from tests.interop.bench import Bench
from tests.interop.conftest import obtain_or_skip
from tests.spark.kinds import WriteResult, send, send_all_kinds, wait_for
from tests.support.cluster_process import QUICK_DELAYS

pytestmark = pytest.mark.interop

TOPIC = "java-kinds"


@pytest.fixture(scope="module")
def java(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    with Bench(tmp_path_factory.mktemp("java"), obtain_or_skip) as bench:
        yield bench


@pytest.fixture(scope="module")
def name_server(java: Bench) -> str:
    """Of a cluster whose broker judges SQL92 expressions."""
    address = java.namesrv("5.x").address
    java.broker("5.x", address, messageDelayLevel=QUICK_DELAYS, enablePropertyFilter=True)
    return address


@pytest.fixture(scope="module")
def sent(name_server: str) -> WriteResult:
    """Messages of all kinds; the broker makes the topic with the first."""
    found = send_all_kinds(name_server, TOPIC)
    wait_for(name_server, TOPIC, len(found.rows) + 1)
    return found


def test_batches_and_streams_of_a_java_broker_are_exactly_what_was_sent(
    spark: SparkSession, java: Bench, name_server: str, sent: WriteResult, tmp_path: Path
) -> None:
    options = {"nameServer": name_server, "topic": TOPIC, "startingOffsets": "earliest"}
    batch = spark.read.format("rocketmq").options(**options).load()
    filtered = spark.read.format("rocketmq").options(**options, sql="a BETWEEN 7 AND 7").load()
    table = spark.readStream.format("rocketmq").options(**options, commitGroup="spark-lag").load()
    taken: list[Any] = []

    def take(rows: DataFrame, _: int) -> None:
        taken.extend(rows.collect())

    sent.check(batch.collect())
    assert [row.properties["a"] for row in filtered.collect()] == ["7"]
    writer = table.writeStream.option("checkpointLocation", str(tmp_path)).foreachBatch(take)
    assert writer.trigger(availableNow=True).start().awaitTermination(60)
    sent.check(taken)

    send(name_server, [Message(TOPIC, b"one more")])  # Spark commits when there is a next batch
    assert writer.trigger(availableNow=True).start().awaitTermination(60)
    assert taken[-1].body == b"one more"
    printed = java.mqadmin("5.x", "consumerProgress", "-g", "spark-lag", namesrv=name_server)
    assert "Consume Diff Total: 1" in printed


@pytest.mark.long
def test_a_mirror_of_a_java_broker_has_every_message_and_reports_there(
    spark: SparkSession, java: Bench, name_server: str, sent: WriteResult, tmp_path: Path
) -> None:
    mirror = BUILT_INS["mirror"]
    settings = RunSettings(name_server=name_server, once=True, checkpoint=str(tmp_path))
    pipeline = mirror.plan(make_options(mirror, {"topic": TOPIC, "to": "java-copy"}), settings)
    connection = Connection(name_server=name_server)

    with pytest.raises(RunFailed, match="TopicAbsent: topic 'java-copy': none of the brokers"):
        run(pipeline, spark, connection)
    words = ["updateTopic", "-c", "DefaultCluster", "-t", "java-copy", "-r", "2", "-w", "2"]
    java.mqadmin("5.x", *words, namesrv=name_server)
    run(pipeline, spark, connection)

    read = spark.read.format("rocketmq").option("nameServer", name_server)
    there, copied = (
        sorted((bytes(row.body), row.keys or "", row.tags or "") for row in frame.collect())
        for frame in (read.load(topic=TOPIC), read.load(topic="java-copy"))
    )
    assert copied == there
    with StatusTopic(connection) as status_topic:
        states = [state.state for state in status_topic.states(600)]
    assert states == [State.FINISHED, State.FAILED]
