"""Copies a topic to two others, by two streams of one driver, until it is through.

Run as a program: name server, source, plain target, target that knows repeats, checkpoints.
"""

import sys
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

ROWS_A_BATCH = 1000


def main(name_server: str, source: str, plain: str, once: str, checkpoints: str) -> None:
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "1g")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1")  # it lives briefly
        .getOrCreate()
    )

    def copy(target: str, dedup: str) -> StreamingQuery:
        # Each stream loads its own: Spark may serialise a shared one while it changes.
        stream = spark.readStream.format("rocketmq").options(
            nameServer=name_server,
            topic=source,
            startingOffsets="earliest",
            maxOffsetsPerTrigger=str(ROWS_A_BATCH),
        )
        writer = stream.load().writeStream.format("rocketmq").trigger(availableNow=True)
        return writer.options(
            nameServer=name_server,
            topic=target,
            dedup=dedup,
            batchSize="100",
            checkpointLocation=str(Path(checkpoints, target)),
        ).start()

    for query in [copy(plain, "false"), copy(once, "true")]:
        query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
