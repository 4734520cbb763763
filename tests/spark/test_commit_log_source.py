from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from bolide import Message
from tests.spark.kinds import send_all_kinds, wait_for
from tests.support.cluster_process import ClusterProcess
from tests.support.filled_store import filled, flip, log_file

TOPIC = "log-kinds"


def load(spark: SparkSession, path: Path, **options: Any) -> DataFrame:
    return spark.read.format("rocketmq-commitlog").options(**options).load(str(path))


def by_place(table: DataFrame) -> list[Any]:
    return sorted(table.collect(), key=lambda row: int(row.physical_offset))


def test_the_log_of_a_live_broker_has_exactly_what_was_sent(
    spark: SparkSession, cluster: ClusterProcess
) -> None:
    cluster.create_topic(TOPIC, 3)
    sent = send_all_kinds(cluster.address, TOPIC)
    wait_for(cluster.address, TOPIC, len(sent.rows) + 1)
    store = cluster.directory / "broker-a" / "store"

    table = load(spark, store, topic=TOPIC, broker="broker-a", splitSize=512 * 1024)
    sent.check(table.collect())
    assert table.rdd.getNumPartitions() > 1
    pulled = spark.read.format("rocketmq").options(nameServer=cluster.address, topic=TOPIC).load()
    assert by_place(table) == by_place(pulled)

    cluster.send([Message(TOPIC, b"later")])
    assert table.count() == len(sent.rows) + 1, "a loaded table is a snapshot"
    assert load(spark, store, topic=TOPIC).count() == len(sent.rows) + 2
    assert load(spark, store, topic=TOPIC, endingTimestamp=1000).count() == 0


def test_damage_fails_the_query_or_is_passed_over(spark: SparkSession, tmp_path: Path) -> None:
    root = filled(tmp_path).root
    places = [row.physical_offset for row in load(spark, root, splitSize=4096).collect()]
    assert len(places) == len(set(places)) == 300
    flip(log_file(root), places[10] + 90)

    with pytest.raises(PySparkException, match=f"physical offset {places[10]}: the body's CRC"):
        load(spark, root).count()
    assert load(spark, root, failOnDataLoss=False).count() == 299
    assert load(spark, root, topic="Bills", verifyCrc=False).groupBy("topic").count().collect() == [
        ("Bills", 100)
    ]
