from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from bolide import Message
from tests.spark.kinds import send_all_kinds, wait_for
from tests.support.cluster_process import ClusterProcess


def load(spark: SparkSession, cluster: ClusterProcess, **options: Any) -> DataFrame:
    reader = spark.read.format("rocketmq").option("nameServer", cluster.address)
    return reader.options(**options).load()


def test_a_batch_is_exactly_what_was_sent(spark: SparkSession, cluster: ClusterProcess) -> None:
    cluster.create_topic("batch-kinds", 3)
    sent = send_all_kinds(cluster.address, "batch-kinds")
    wait_for(cluster.address, "batch-kinds", len(sent.rows) + 1)

    sent.check(load(spark, cluster, topic="batch-kinds").collect())
    split = load(spark, cluster, topic="batch-kinds", minPartitions=8)
    sent.check(split.collect())
    assert split.rdd.getNumPartitions() >= 8


def test_a_table_that_is_used_twice_has_the_right_rows_each_time(
    spark: SparkSession, cluster: ClusterProcess
) -> None:
    """Where a source takes filters Spark 4.3 returns wrong rows for every one of these."""
    cluster.create_topic("batch-twice", 2)
    cluster.send(Message("batch-twice", b'{"a": %d}' % n, tags=f"t{n}") for n in range(10))
    table = load(spark, cluster, topic="batch-twice", valueSchema="a int")

    assert table.where("value.a = 1").count() == 1
    assert table.count() == 10
    table.createOrReplaceTempView("twice")
    assert spark.sql("select * from twice where tags = 't1'").count() == 1
    assert spark.sql("select * from twice").count() == 10
    union = table.where("value.a = 1").union(table.where("value.a = 2"))
    assert sorted(row.value.a for row in union.collect()) == [1, 2]
    assert table.where("value.a = 1").union(table).count() == 11

    cluster.send([Message("batch-twice", b"later")])
    assert table.count() == 10, "a loaded table is a snapshot"
    assert load(spark, cluster, topic="batch-twice").count() == 11


def test_mistakes_are_told_when_a_table_is_loaded(
    spark: SparkSession, cluster: ClusterProcess
) -> None:
    with pytest.raises(PySparkException, match=r"unknown option topics; did you mean topic\?"):
        load(spark, cluster, topics="orders")
    cluster.create_topic("batch-none", 1)
    assert load(spark, cluster, topic="batch-none", includeProperties=False).collect() == []
    with pytest.raises(PySparkException, match=r"cannot be chosen by \.schema"):
        spark.read.format("rocketmq").schema("body binary").options(
            nameServer=cluster.address, topic="batch-none"
        ).load().collect()
