"""Copies a topic to two others, by one stream after the other, until both are through.

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

    # Not at once: Spark 4.3 may fail to serialise the sinks of two streams of one driver.
    copy(plain, "false").awaitTermination()
    copy(once, "true").awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
