"""`replay`: rows of Parquet back to a topic, as they were."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import Row, SparkSession

from bolide.arrow.schema import message_schema
from bolide.errors import ConfigError
from bolide.spark.pipelines.builtin import RunSettings
from bolide.spark.pipelines.replay import ReplayOptions, plan
from tests.spark.recording import RecordingScreen, dicts
from tests.support.cluster_process import ClusterProcess

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
QUEUES, EACH = 3, 40


def lay_down(path: Path) -> None:
    """An archive of two hours, as plain Parquet: 40 messages a queue, a minute between them."""
    rows = [
        {
            "topic": "0123",
            "broker": "broker-a",
            "queue_id": queue,
            "queue_offset": offset,
            "physical_offset": offset * 100,
            "message_id": f"ID{queue}-{offset}",
            "keys": f"k{offset}" if offset else None,
            "tags": "even" if offset % 2 == 0 else None,
            "body": b"\xff%d/%d" % (queue, offset),
            "born_timestamp": NOON,
            "store_timestamp": NOON + timedelta(minutes=offset * 3),
            "flag": offset,
            "properties": [("shop", "7"), ("UNIQ_KEY", "first"), ("REPLAYED_FROM", "before")],
        }
        for queue in range(QUEUES)
        for offset in range(EACH)
    ]
    table = pa.Table.from_pylist(rows, schema=message_schema())
    for hour in (12, 13):
        place = path / "topic=0123" / f"hour=2026-01-31-{hour}"
        place.mkdir(parents=True)
        stamps = table.column("store_timestamp").to_pylist()
        part = table.filter(pa.array([stamp.hour == hour for stamp in stamps]))
        pq.write_table(part.drop_columns(["topic"]), place / "part.parquet")


def sent_to(spark: SparkSession, cluster: ClusterProcess, topic: str) -> list[Row]:
    reader = spark.read.format("rocketmq").option("nameServer", cluster.address)
    return reader.option("topic", topic).load().orderBy("queue_id", "queue_offset").collect()


def test_an_archive_is_counted_and_sent_in_order_with_all_that_users_said(
    spark: SparkSession, cluster: ClusterProcess, tmp_path: Path
) -> None:
    lay_down(tmp_path)
    cluster.create_topic("replayed", 4)
    settings = RunSettings(name_server=cluster.address)
    chosen: dict[str, Any] = {
        "archive": str(tmp_path),
        "topic": "0123",
        "to": "replayed",
        "since": "2026-01-31T12:30",
    }

    counted = plan(ReplayOptions(**chosen, dry_run=True), settings).run(spark, RecordingScreen())
    assert [(row["hour"], row["messages"]) for row in dicts(counted.tables[0])] == [
        ("2026-01-31 12:00", 10 * QUEUES),
        ("2026-01-31 13:00", 20 * QUEUES),
    ]
    assert sent_to(spark, cluster, "replayed") == []

    screen = RecordingScreen()
    assert plan(ReplayOptions(**chosen), settings).run(spark, screen).rows == 30 * QUEUES
    assert screen.done == [(0, 90), (90, 90)]
    rows = sent_to(spark, cluster, "replayed")
    assert sorted(row.body for row in rows) == sorted(
        b"\xff%d/%d" % (queue, offset) for queue in range(QUEUES) for offset in range(10, EACH)
    )
    for row in rows:
        queue, offset = map(int, row.body[1:].split(b"/"))
        assert (row.keys, row.tags) == (f"k{offset}", "even" if offset % 2 == 0 else None)
        assert (row.flag, row.properties["shop"]) == (offset, "7")
        assert row.properties["REPLAYED_FROM"] == f"0123/broker-a/{queue}@{offset}"
        assert row.properties["UNIQ_KEY"] != "first"
    for queue in range(QUEUES):
        of_queue = [row for row in rows if row.body.startswith(b"\xff%d/" % queue)]
        assert len({row.queue_id for row in of_queue}) == 1
        offsets = [int(row.body.split(b"/")[1]) for row in of_queue]
        assert offsets == sorted(offsets)


def test_a_rate_is_kept_and_a_stop_says_where_to_go_on(
    spark: SparkSession, cluster: ClusterProcess, tmp_path: Path
) -> None:
    lake, ids = tmp_path / "lake", tmp_path / "ids.txt"
    lay_down(lake)
    ids.write_text("".join(f"ID{queue}-39\n" for queue in range(5)))
    cluster.create_topic("slowly", 1)
    settings = RunSettings(name_server=cluster.address)
    options = ReplayOptions(archive=str(lake), to="slowly", where="queue_id = 0", rate=20.0)
    assert plan(options, settings).run(spark, RecordingScreen()).rows == EACH
    stamps = [row.store_timestamp for row in sent_to(spark, cluster, "slowly")]
    assert len(stamps) == EACH
    assert stamps[-1] - stamps[0] > timedelta(seconds=(EACH - 2) / 20 * 0.9)

    stopped = plan(options, settings).run(spark, RecordingScreen(stop_requested=True))
    assert stopped.rows == 0
    assert stopped.failure is not None
    assert stopped.failure.endswith("go on with --since 2026-01-31T12:00:00+00:00")

    listed = ReplayOptions(archive=str(lake), to="slowly", ids=str(ids))
    outcome = plan(listed, settings).run(spark, RecordingScreen())
    assert (outcome.rows, outcome.failure) == (3, "2 of 5 listed are not there")

    failure = ReplayOptions(archive=str(lake), where="quue_id = 0")
    with pytest.raises(ConfigError, match=r"where='quue_id = 0'.*quue_id"):
        plan(failure, settings).run(spark, RecordingScreen())
