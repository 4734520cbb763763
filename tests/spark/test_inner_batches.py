import asyncio

from pyspark.sql import DataFrame, SparkSession

from tests.support.batches import create_batch_topic, items, send_batch
from tests.support.broker import BrokerClient
from tests.support.cluster_process import ClusterProcess


async def fill(address: str) -> None:
    async with BrokerClient(address) as client:
        await create_batch_topic(client, "Bulk")
        for first in range(0, 60, 6):
            await send_batch(client, items(first, 5))
            await client.send("Bulk", b"%d" % (first + 5))


def facts(table: DataFrame) -> list[tuple[int, bytes]]:
    rows = table.where("topic = 'Bulk'").select("queue_offset", "body").collect()
    return sorted((int(row.queue_offset), bytes(row.body)) for row in rows)


def test_both_sources_have_a_row_for_each_message_of_a_batch(
    spark: SparkSession, own_cluster: ClusterProcess
) -> None:
    asyncio.run(fill(f"127.0.0.1:{own_cluster.brokers['broker-a'].port}"))
    expected = [(number, b"%d" % number) for number in range(60)]
    options = {"nameServer": own_cluster.address, "topic": "Bulk"}
    pulled = spark.read.format("rocketmq").options(**options)
    assert facts(pulled.load()) == expected
    split = pulled.option("minPartitions", 7).load()
    assert split.rdd.getNumPartitions() >= 7
    assert facts(split) == expected
    store = own_cluster.directory / "broker-a" / "store"
    log = spark.read.format("rocketmq-commitlog").option("splitSize", 1024).load(str(store))
    assert facts(log) == expected
