"""`lag`: positions of real groups over time, and what they forecast."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from bolide import Message
from bolide.arrow.cluster import Connection, ask
from bolide.model.message_queue import MessageQueue
from bolide.spark.pipelines.definition import Table
from bolide.spark.pipelines.lag import GroupPosition, LagMonitor, Sampler, samples_at, to_table
from bolide.spark.pipelines.lag_forecast import by_window, forecast
from tests.spark.recording import RecordingScreen, dicts
from tests.support.cluster_process import ClusterProcess

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


def positions(group: str, *samples: tuple[int, int, int]) -> list[GroupPosition]:
    """Of two queues alike: seconds after noon, end, committed."""
    return [
        GroupPosition(
            NOON + timedelta(seconds=at), group, "orders", "broker-a", queue, end, committed
        )
        for at, end, committed in samples
        for queue in (0, 1)
    ]


def test_lag_is_forecast_by_the_speeds_at_which_messages_come_and_go(spark: SparkSession) -> None:
    seen = [
        *positions("draining", (0, 1000, 0), (60, 1060, 180)),
        *positions("growing", (0, 1000, 0), (60, 1120, 60)),
        *positions("reset", (0, 1000, 900), (30, 1000, 100), (60, 1000, 400)),
        *positions("stuck", (0, 1000, 0), (60, 1000, 0)),
        *positions("done", (0, 1000, 1000), (60, 1000, 1000)),
        *positions("new", (60, 1000, 0)),
    ]
    samples = spark.createDataFrame(to_table(seen)).persist()
    found = {row.group_name: row for row in forecast(samples).collect()}
    draining = found["draining"]
    assert (draining.lag, draining.in_rate, draining.out_rate) == (1760, 2.0, 6.0)
    assert (draining.trend, draining.drain_seconds) == ("drains", 440.0)
    assert (found["growing"].trend, found["growing"].drain_seconds) == ("grows", None)
    assert found["reset"].out_rate == pytest.approx(10.0)  # and not below zero
    assert [found[name].trend for name in ("stuck", "done", "new")] == ["idle", "none", None]
    assert found["new"].in_rate is None

    windows = by_window(samples.where("group_name = 'reset'"), 30).orderBy("window_start").collect()
    assert [(row.lag, row.out_rate) for row in windows] == [(200, None), (1800, 0.0), (1200, 20.0)]
    samples.unpersist()


def test_real_groups_are_watched_until_somebody_stops_it(
    spark: SparkSession, cluster: ClusterProcess, tmp_path: Path
) -> None:
    cluster.create_topic("watched", 1)
    connection = Connection(name_server=cluster.address)
    queue = MessageQueue("watched", "broker-a", 0)

    def commit(offset: int) -> None:
        ask(connection, lambda served: served.commit("watcher", {queue: offset}))

    def go_on(table: Table) -> None:
        """After the first look half is consumed; after the second it is enough."""
        if len(screen.tables) == 1:
            commit(10)
        else:
            screen.stop_requested = True

    cluster.send([Message("watched", b"x")] * 20)
    commit(0)
    screen = RecordingScreen(on_show=go_on)
    monitor = LagMonitor(
        sampler=Sampler(connection, ("watcher",)), interval=1.0, window=300.0, path=str(tmp_path)
    )
    assert monitor.run(spark, screen).rows == 2
    first, second = (dicts(table)[0] for table in screen.tables)
    assert (first["group_name"], first["topic"], first["lag"]) == ("watcher", "watched", 20)
    assert first["forecast"] == "not known yet"
    assert second["lag"] == 10
    assert str(second["forecast"]).startswith("drains in ")
    assert samples_at(spark, str(tmp_path)).count() == 2

    later = LagMonitor(
        sampler=Sampler(connection), interval=600.0, window=300.0, path=str(tmp_path), once=True,
        report={"nameServer": cluster.address, "topic": "lag-reports"},
    )  # fmt: skip
    cluster.create_topic("lag-reports", 1)
    [table] = later.run(spark, RecordingScreen()).tables  # what was kept is enough to tell at once
    assert "watcher" in {row["group_name"] for row in dicts(table)}
    reader = spark.read.format("rocketmq").option("nameServer", cluster.address)
    reports = reader.option("topic", "lag-reports").load().selectExpr("keys", "string(body) body")
    [report] = reports.where("keys = 'watcher'").collect()
    assert '"lag":10' in report.body
