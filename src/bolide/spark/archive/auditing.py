"""What the files of an archive really have, counted by Spark for a comparison with the log."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql import functions as F  # noqa: N812  as everybody calls it

from bolide.arrow.offsets import Bounds, QueueRange, to_json
from bolide.model.message_queue import MessageQueue
from bolide.spark.archive.comparing import Fault, QueueHour, Rows
from bolide.spark.archive.manifest import DataFile, State
from bolide.spark.archive.table import ArchiveTable
from bolide.spark.archive.writing import hour_column

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_QUEUE = ("topic", "broker", "queue_id")


def check_files(table: ArchiveTable, state: State) -> tuple[list[DataFile], list[Fault]]:
    """The files of the manifest that are there, and what is wrong with files."""
    directories = [name for name in table.files.names("") if name.startswith("topic=")]
    there = {
        found.path: found.size
        for directory in directories
        for found in table.files.walk(directory)
        if found.path.endswith(".parquet")
    }
    faults = [
        Fault(path, "is not in the manifest; whoever reads the directories sees its rows as well")
        for path in sorted(there.keys() - table.state().files.keys())
    ]
    readable = []
    for file in state.files_of():
        if file.path not in there:
            faults.append(Fault(file.path, f"is gone, and with it {file.rows:,} rows"))
        elif there[file.path] != file.size:
            faults.append(Fault(file.path, f"has {there[file.path]} bytes instead of {file.size}"))
        else:
            readable.append(file)
    return readable, faults


def count_rows(
    frame: "DataFrame", parts: Mapping[MessageQueue, QueueRange]
) -> dict[QueueHour, Rows]:
    """Rows of the table by queue and hour; those that the log still has by themselves."""
    marked = _mark(frame.select(*_QUEUE, "hour", "queue_offset"), parts)
    counted = marked.groupBy(*_QUEUE, "hour").agg(
        F.count("*"), F.countDistinct("queue_offset"), F.count_if("in_reach")
    )
    return {
        (MessageQueue(topic, broker, queue_id), hour): Rows(*counts)
        for topic, broker, queue_id, hour, *counts in counted.collect()
    }


class Content(NamedTuple):
    rows: int
    sum: int


def compare_content(
    frame: "DataFrame",
    parts: Mapping[MessageQueue, QueueRange],
    bounds: Mapping[MessageQueue, Bounds],
    source: Mapping[str, str],
) -> tuple[dict[QueueHour, int], list[Fault]]:
    """Read the log again: its messages by queue and hour, and where contents differ."""
    spark = frame.sparkSession
    with_properties = "properties" in frame.columns
    log = _contents(_read_log(spark, parts, bounds, source), with_properties=with_properties)
    table = _contents(_mark(frame, parts).where("in_reach"), with_properties=with_properties)
    faults = [
        Fault(str(key[0]), f"hour {key[1]}: contents differ although the numbers are the same")
        for key, found in sorted(log.items())
        if key in table and table[key].rows == found.rows and table[key].sum != found.sum
    ]
    return {key: found.rows for key, found in log.items()}, faults


def _read_log(
    spark: "SparkSession",
    parts: Mapping[MessageQueue, QueueRange],
    bounds: Mapping[MessageQueue, Bounds],
    source: Mapping[str, str],
) -> "DataFrame":
    """All queues must be named; those that the archive has nothing of are read from end to end."""
    ends = {queue: QueueRange(queue, end, end) for queue, (_, end) in bounds.items()} | dict(parts)
    options = {
        **source,
        "topic": ",".join(sorted({queue.topic for queue in bounds})),
        "startingOffsets": to_json({queue: part.start for queue, part in ends.items()}),
        "endingOffsets": to_json({queue: part.end for queue, part in ends.items()}),
    }
    frame = spark.read.format("rocketmq").options(**options).load()
    return frame.withColumn("hour", hour_column())


def _contents(frame: "DataFrame", *, with_properties: bool) -> dict[QueueHour, Content]:
    summed = frame.groupBy(*_QUEUE, "hour").agg(
        F.count("*"), F.bit_xor(_hash(with_properties=with_properties))
    )
    return {
        (MessageQueue(topic, broker, queue_id), hour): Content(*found)
        for topic, broker, queue_id, hour, *found in summed.collect()
    }


def _hash(*, with_properties: bool) -> "Column":
    columns = ["queue_offset", "physical_offset", "message_id", "keys", "tags", "body"]
    columns += ["born_timestamp", "store_timestamp", "reconsume_times", "flag"]
    of_message = [F.col(name) for name in columns]
    if with_properties:  # maps have no order, and so no hash
        of_message.append(F.array_sort(F.map_entries("properties")))
    return F.xxhash64(*of_message)


def _mark(frame: "DataFrame", parts: Mapping[MessageQueue, QueueRange]) -> "DataFrame":
    """Add `in_reach`: whether the log still has the row."""
    rows = [
        (queue.topic, queue.broker_name, queue.queue_id, part.start, part.end)
        for queue, part in parts.items()
    ]
    schema = "topic string, broker string, queue_id int, low bigint, high bigint"
    known = F.broadcast(frame.sparkSession.createDataFrame(rows, schema))
    is_there = (F.col("queue_offset") >= F.col("low")) & (F.col("queue_offset") < F.col("high"))
    joined = frame.join(known, on=list(_QUEUE), how="left")
    return joined.withColumn("in_reach", F.coalesce(is_there, F.lit(False))).drop("low", "high")
