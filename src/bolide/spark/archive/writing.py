"""Appends rows to an archive: Spark stages files, which are checked and then committed."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING
from urllib.parse import unquote

from pyspark.sql import functions as F  # noqa: N812  conventional alias

from bolide.arrow.offsets import Offsets
from bolide.model.message_queue import MessageQueue
from bolide.spark.archive.errors import ArchiveGap
from bolide.spark.archive.manifest import DataFile, QueueSpan, State
from bolide.spark.archive.table import TableWriter

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

ORDER = ("topic", "hour", "broker", "queue_id", "queue_offset")

_HOUR_SECONDS = 3600
_TIMES = "spark.sql.parquet.outputTimestampType"
_KEYS = "broker string, queue_id int, queue_offset bigint, topic string, hour string"


def append(rows: "DataFrame", writer: TableWriter, *, allow_gaps: bool = False) -> int:
    """Append the rows of a batch that the table does not have yet.

    Args:
        rows: messages with the columns of the table; dense per queue.
        writer: the table.
        allow_gaps: accept missing messages, as the source may lose some.

    Returns:
        The number of rows appended.

    Raises:
        ArchiveGap: messages are missing; nothing was appended.
        LeaseLost: another run has taken the table over; nothing was appended.
    """
    fresh = without_covered(rows, writer.state().covered)
    files = stage(fresh.withColumn("hour", hour_column()), writer)
    if not files:
        return 0
    if not allow_gaps:
        refuse_gaps(files, writer.state())
    writer.commit("append", files)
    return sum(each.rows for each in files)


def without_covered(rows: "DataFrame", covered: Offsets) -> "DataFrame":
    """Leave out rows that the table has already, which makes a repeated batch idempotent."""
    if not covered:
        return rows
    ends = [(*key, offset) for key, offset in sorted(_keyed(covered).items())]
    schema = "topic string, broker string, queue_id int, covered bigint"
    known = F.broadcast(rows.sparkSession.createDataFrame(ends, schema))
    joined = rows.join(known, on=["topic", "broker", "queue_id"], how="left")
    is_new = F.col("covered").isNull() | (F.col("queue_offset") >= F.col("covered"))
    return joined.where(is_new).select(*rows.columns)


def hour_column() -> "Column":
    """The hour of the store time as `2026-07-01-05`, in UTC whatever the session's time zone."""
    hours = F.floor(F.unix_seconds("store_timestamp") / _HOUR_SECONDS)
    day = F.date_add(F.lit("1970-01-01").cast("date"), F.floor(hours / 24).cast("int"))
    hour = F.lpad((hours % 24).cast("string"), 2, "0")
    return F.concat_ws("-", day.cast("string"), hour)


def stage(rows: "DataFrame", writer: TableWriter) -> list[DataFile]:
    """Write rows to the staging directory, and describe each file."""
    directory = writer.new_staging()
    ordered = rows.sortWithinPartitions(*ORDER)
    with _instants(rows.sparkSession):
        ordered.write.partitionBy("topic", "hour").parquet(writer.url_of(directory))
    found = [each for each in writer.files.walk(directory) if _is_data(each.path, directory)]
    spans = _spans(rows.sparkSession, writer.url_of(directory)) if found else {}
    return [
        DataFile(each.path, *key[:2], each.size, tuple(spans[key]))
        for each in found
        if (key := _key(each.path)) in spans
    ]


@contextmanager
def _instants(spark: "SparkSession") -> Iterator[None]:
    """Write timestamps as UTC instants: DuckDB and pandas read Spark's INT96 as local time."""
    before = spark.conf.get(_TIMES) or ""
    spark.conf.set(_TIMES, "TIMESTAMP_MICROS")
    try:
        yield
    finally:
        spark.conf.set(_TIMES, before)


_FileKey = tuple[str, str, str]


def _is_data(path: str, directory: str) -> bool:
    """False for leftovers of failed tasks, which lie deeper."""
    return path.endswith(".parquet") and path.count("/") == directory.count("/") + 3


def _key(path: str) -> _FileKey:
    """Topic, hour and name of a file; Spark escapes characters in directory names."""
    topic, hour, name = path.split("/")[-3:]
    return unquote(topic.removeprefix("topic=")), unquote(hour.removeprefix("hour=")), name


def _spans(spark: "SparkSession", url: str) -> dict[_FileKey, list[QueueSpan]]:
    """The offset spans of each file, read back from the files."""
    rows = spark.read.schema(_KEYS).parquet(url)
    counted = rows.groupBy(
        "topic", "hour", F.col("_metadata.file_name").alias("name"), "broker", "queue_id"
    ).agg(
        F.min("queue_offset").alias("first"),
        F.max("queue_offset").alias("last"),
        F.count("*").alias("rows"),
    )
    spans = defaultdict(list)
    for row in sorted(counted.collect()):
        topic, hour, name, broker, queue_id, first, last, count = row
        spans[topic, hour, name].append(QueueSpan(broker, queue_id, first, last, count))
    return spans


def refuse_gaps(files: Iterable[DataFile], state: State) -> None:
    """Raises ArchiveGap unless the files continue the table without a gap."""
    for queue, spans in _by_queue(files).items():
        expected = state.next_of(queue)
        first, last = min(each.first for each in spans), max(each.last for each in spans)
        missing = last + 1 - expected - sum(each.rows for each in spans)
        if missing:
            raise ArchiveGap(queue, expected, first if first > expected else last, missing)


def _by_queue(files: Iterable[DataFile]) -> dict[MessageQueue, Sequence[QueueSpan]]:
    found = defaultdict(list)
    for file in files:
        for span in file.spans:
            found[file.queue_of(span)].append(span)
    return dict(found)


def _keyed(offsets: Offsets) -> dict[tuple[str, str, int], int]:
    return {(q.topic, q.broker_name, q.queue_id): offset for q, offset in offsets.items()}
