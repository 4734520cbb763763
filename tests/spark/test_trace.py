"""`trace`: from what Java clients told to latencies, failures and slow messages."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, Row, SparkSession

from bolide.spark.pipelines.builtin import RunSettings
from bolide.spark.pipelines.runner import run
from bolide.spark.pipelines.trace import TraceOptions, TraceTables, plan
from bolide.spark.pipelines.trace_analysis import records_of
from tests.interop.bench import Bench
from tests.interop.conftest import obtain_or_skip
from tests.spark.recording import RecordingScreen, dicts
from tests.support.cluster_process import ClusterProcess

REBALANCE_OFTEN = "-Drocketmq.client.rebalance.waitInterval=500"
NOON = 1_700_000_100_000  # the start of a window of five minutes


def text(*fields: object) -> str:
    return "\x01".join(map(str, fields)) + "\x02"


def pub(message: str, sent: int, cost: int, kind: int = 0, success: str = "true") -> str:
    said = ("R", "PG", "orders", message, "paid", "k", "h:1", 10, cost, kind)
    return text("Pub", NOON + sent, *said, f"offset-{message}", success)


def consumed(
    message: str, request: str, began: int, cost: int, outcome: int = 0, tries: int = 0
) -> str:
    success = "false" if outcome else "true"
    before = text("SubBefore", NOON + began, "R", "CG", request, message, tries, "k")
    end = NOON + began + cost
    return before + text("SubAfter", request, message, cost, success, "k", outcome, end, "CG")


def messages(spark: SparkSession, *bodies: str) -> DataFrame:
    stored = datetime.fromtimestamp(NOON / 1000, UTC)
    rows = [
        Row(body=body.encode(), store_timestamp=stored, broker="a", queue_id=0, queue_offset=n)
        for n, body in enumerate(bodies)
    ]
    schema = (
        "body binary, store_timestamp timestamp, broker string, queue_id int, queue_offset long"
    )
    return spark.createDataFrame(rows, schema)


def test_stages_are_measured_by_topic_group_and_window(spark: SparkSession, tmp_path: Path) -> None:
    told = messages(
        spark,
        pub("A", 0, 10) + pub("B,C", 100, 20) + pub("D", 400_000, 7, success="false"),
        consumed("A", "r1", 60, 5) + consumed("B", "r2", 220, 50) + consumed("C", "r2", 220, 50),
        consumed("A", "r3", 5_060, 1, outcome=2, tries=1) + consumed("X", "r4", 70, 3),
        "nonsense\x02",
    )
    tables = TraceTables(path=str(tmp_path), width=300.0, slowest=1, keep=1e9)
    screen = RecordingScreen()
    tables.write_batch(
        records_of(told.union(told)), 0, screen
    )  # as if the batch came a second time
    assert screen.lines == [
        "2 trace records could not be read, such as: no kind of record is called 'nonsense'"
    ]
    latencies, failures, slowest = map(dicts, tables.summarize(spark, screen))
    found = {
        (row["topic"], row["group_name"], row["stage"], str(row["window_start"])[11:16]): row
        for row in latencies
    }
    sent = found["orders", "PG", "send", "22:15"]
    assert (sent["messages"], sent["failed"], sent["max_ms"]) == (2, 0, 20)
    late = found["orders", "PG", "send", "22:20"]
    assert (late["messages"], late["failed"], late["failure_rate"]) == (1, 1, 1.0)
    stored = found["orders", "CG", "store", "22:15"]
    assert (stored["messages"], stored["p50_ms"], stored["max_ms"]) == (3, 100, 100)  # no retry
    assert stored["failed"] is None
    taken = found["orders", "CG", "consume", "22:15"]
    assert (taken["messages"], taken["failed"], taken["failure_rate"]) == (4, 1, 0.25)
    assert found[None, "CG", "consume", "22:15"]["max_ms"] == 3  # nobody traced the send of X
    assert found["orders", "CG", "total", "22:15"]["max_ms"] == 5_061

    [broken, unsent] = failures
    assert (broken["outcome"], broken["such_as"], broken["messages"]) == ("EXCEPTION", "A", 1)
    assert (unsent["topic"], unsent["stage"], unsent["such_as"]) == ("orders", "send", "D")
    [slow] = slowest
    assert (slow["message_id"], slow["total_ms"], slow["retry_times"]) == ("A", 5_061, 1)

    strict = TraceTables(path=str(tmp_path), width=300.0, keep=60.0)
    strict.write_batch(records_of(messages(spark)), 1, screen)
    assert [*tmp_path.glob("*/*=*")] == []  # all of it was too old


@pytest.fixture
def java(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    with Bench(tmp_path_factory.mktemp("java"), obtain_or_skip) as bench:
        yield bench


@pytest.mark.long
@pytest.mark.interop
def test_what_java_clients_trace_is_read_by_the_pipeline(
    spark: SparkSession, cluster: ClusterProcess, java: Bench, tmp_path: Path
) -> None:
    for topic in ("traced", "traces"):
        cluster.create_topic(topic, 2)
    arguments = (cluster.address, "traced", "traces", 20)
    java.client("5.x", "TracedMessages", *arguments, jvm=(REBALANCE_OFTEN,)).wait(90)

    settings = RunSettings(
        name_server=cluster.address, once=True, checkpoint=str(tmp_path / "checkpoint")
    )
    options = TraceOptions(topic="traces", path=str(tmp_path / "tables"), window="1d")
    outcome = run(plan(options, settings), spark, None)

    latencies, failures, slowest = map(dicts, outcome.tables)
    rows = {(row["group_name"], row["stage"]): row for row in latencies}
    assert {row["topic"] for row in latencies} == {"traced"}
    assert rows["PG-traced", "send"]["messages"] == 20
    assert rows["CG-traced", "store"]["messages"] == 20
    taken = rows["CG-traced", "consume"]
    assert (taken["messages"], taken["failed"]) == (21, 1)
    assert [row["outcome"] for row in failures] == ["EXCEPTION"]
    assert slowest[0]["keys"] == "key-0"  # the one that was tried again after a second
