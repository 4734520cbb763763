import asyncio
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from bolide import Message, StoredMessage
from bolide.client.producer.producer import Producer
from tests.spark.kinds import wait_for
from tests.support.cluster_process import ClusterProcess
from tests.support.topic_contents import all_messages

BIG = bytes(range(256)) * 16 * 1024  # 4 MiB
SCHEMA = (
    "topic string, body binary, keys array<string>, tags string, flag int,"
    " properties map<string,string>, delay long, sharding_key string"
)


def save(frame: DataFrame, cluster: ClusterProcess, **options: Any) -> None:
    writer = frame.write.format("rocketmq").mode("append").option("nameServer", cluster.address)
    writer.options(**options).save()


def facts(message: StoredMessage) -> tuple[object, ...]:
    own = {name: message.properties.get(name) for name in ("p", "q")}
    return message.body, message.keys, message.tags, message.flag, message.sharding_key, own


def test_a_frame_is_sent_as_its_columns_say(spark: SparkSession, cluster: ClusterProcess) -> None:
    for topic in ("sink-a", "sink-b"):
        cluster.create_topic(topic, 2)
    rows: list[tuple[object, ...]] = [
        (
            "sink-a",
            b"\xff\x00no text",
            ["k1", "k2"],
            "t",
            7,
            {"p": "1", "UNIQ_KEY": "x"},
            None,
            "s",
        ),
        ("sink-a", BIG, None, None, None, None, None, None),
        ("sink-a", b"late", ["k3"], None, None, {"q": "ä"}, 5000, None),
    ]
    rows += [("sink-b", b"%d" % n, [f"k{n}"], "b", n, {"p": str(n)}, 0, None) for n in range(500)]
    save(spark.createDataFrame(rows, SCHEMA), cluster, batchSize=100)
    wait_for(cluster.address, "sink-a", 3)

    found = {message.body: facts(message) for message in all_messages(cluster.address, "sink-a")}
    assert found == {
        b"\xff\x00no text": (rows[0][1], ("k1", "k2"), "t", 7, "s", {"p": "1", "q": None}),
        BIG: (BIG, (), None, 0, None, {"p": None, "q": None}),
        b"late": (b"late", ("k3",), None, 0, None, {"p": None, "q": "ä"}),
    }
    many = all_messages(cluster.address, "sink-b")
    assert sorted((int(message.body), message.flag) for message in many) == [
        (number, number) for number in range(500)
    ]
    assert len({message.message_id for message in many}) == 500


def test_a_stream_from_topic_to_topic_stores_each_row_once_however_often_it_runs(
    spark: SparkSession, cluster: ClusterProcess, tmp_path: Path
) -> None:
    cluster.create_topic("sink-from", 2)
    cluster.send(Message("sink-from", b"%d" % n, keys=f"k{n}", tags="t") for n in range(200))
    make_topic(cluster, "sink-once", "10m")

    for run in range(2):  # another checkpoint: every row comes again
        stream = spark.readStream.format("rocketmq").options(
            nameServer=cluster.address, topic="sink-from", startingOffsets="earliest",
            maxOffsetsPerTrigger=150,
        ).load()  # fmt: skip
        query = stream.writeStream.format("rocketmq").options(
            nameServer=cluster.address, topic="sink-once", dedup="true",
            checkpointLocation=str(tmp_path / str(run)),
        ).trigger(availableNow=True).start()  # fmt: skip
        assert query.awaitTermination(60)
        assert query.lastProgress is not None
        assert query.lastProgress["batchId"] == 1
        sent = all_messages(cluster.address, "sink-once")
        assert sorted(int(message.body) for message in sent) == list(range(200))
        named = {message.properties["SPARK_ROW"] for message in sent}
        assert len(named) == 200
    first = next(message for message in sent if message.body == b"0")
    assert (first.keys, first.tags) == (("k0",), "t")
    assert first.properties["DEDUP_KEY"].startswith("src:sink-from/broker-a/")


def test_what_cannot_be_written_is_told_by_name(
    spark: SparkSession, cluster: ClusterProcess
) -> None:
    good = spark.range(5).selectExpr("cast(id as string) as body")
    with pytest.raises(PySparkException, match="a topic cannot be overwritten"):
        good.write.format("rocketmq").mode("overwrite").options(
            nameServer=cluster.address, topic="sink-no"
        ).save()
    with pytest.raises(PySparkException, match="column body is of type bigint, and must be"):
        save(spark.range(5).withColumnRenamed("id", "body"), cluster, topic="sink-no")
    bad = spark.range(5).selectExpr(
        "if(id = 3, '', 'x') as body", "concat('k', id) as keys"
    ).coalesce(1)  # fmt: skip
    failing = "row 3 of partition 0, topic 'sink-no', keys 'k3': column body: it is empty"
    with pytest.raises(PySparkException, match=failing):
        save(bad, cluster, topic="sink-no")


def make_topic(cluster: ClusterProcess, topic: str, window: str) -> None:
    async def make() -> None:
        async with Producer("setup", name_server=cluster.address) as producer:
            await producer.create_topic(topic, 2, attributes={"+dedup.window": window})

    asyncio.run(make())
