"""Which messages to send again, in which order, and as what."""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StringType, StructField, StructType

from bolide.arrow.schema import message_schema
from bolide.errors import ConfigError
from bolide.model.names import DEAD_LETTER_PREFIX, RETRY_PREFIX
from bolide.model.properties import PropertyName
from bolide.spark.archive.reading import read_archive
from bolide.spark.archive.table import ArchiveTable
from bolide.spark.pipelines.letters import PLACE

REPLAYED_FROM: Final = "REPLAYED_FROM"
"""The property of a replayed message that says where its first copy was:
topic/broker/queue@offset."""

_NEEDED = ("topic", "broker", "queue_id", "queue_offset", "store_timestamp", "body")


class Chunk(NamedTuple):
    """Messages stored from `start` up to and without `end`."""

    start: datetime
    end: datetime
    messages: int


def archived(
    spark: SparkSession, path: str, start: datetime | None, end: datetime | None
) -> DataFrame:
    """Messages of an archive, or of other Parquet with its columns; by when they were stored.

    Raises:
        ConfigError: columns are missing; names them.
    """
    if ArchiveTable.at(spark, path).exists:
        return read_archive(spark, path, start=start, end=end)
    found = spark.read.parquet(path)
    if missing := [name for name in _NEEDED if name not in found.columns]:
        raise ConfigError(f"{path} is no archive, and lacks the columns {', '.join(missing)}")
    # Said and not guessed: a topic called 0123 is no number.
    columns = [*from_arrow_schema(message_schema()).fields, StructField("hour", StringType())]
    return stored_between(spark.read.schema(StructType(columns)).parquet(path), start, end)


def stored_between(messages: DataFrame, start: datetime | None, end: datetime | None) -> DataFrame:
    if start is not None:
        messages = messages.where(fn.col("store_timestamp") >= start)
    return messages if end is None else messages.where(fn.col("store_timestamp") < end)


def listed(messages: DataFrame, ids: DataFrame) -> DataFrame:
    """Those on a list, each once however often it was stored.

    A list with places (of dead letters) chooses among dead letters by these; else ids choose,
    among the messages of `origin_topic` if the list says so.
    """
    is_dead = fn.col("topic").startswith(DEAD_LETTER_PREFIX)
    by_id = _by_id(messages.where(~is_dead), ids)
    if "dead_topic" not in ids.columns:
        return _first_of_each(by_id)
    places = ids.select(fn.col("dead_topic").alias("topic"), *PLACE[1:]).distinct()
    by_place = messages.where(is_dead).join(places, ["topic", *PLACE[1:]], "left_semi")
    return _first_of_each(by_id.unionByName(by_place))


def with_target(messages: DataFrame, to: str | None) -> DataFrame:
    """Add `target`, the topic that each goes to; retries and dead letters to their first one."""
    marks = (DEAD_LETTER_PREFIX, RETRY_PREFIX)
    is_returned = fn.col("topic").startswith(marks[0]) | fn.col("topic").startswith(marks[1])
    origin = fn.when(is_returned, fn.col("properties")[PropertyName.RETRY_TOPIC])
    own = fn.coalesce(origin, fn.col("topic"))
    return messages.withColumn("target", own if to is None else fn.lit(to))


def in_order(messages: DataFrame, tasks: int) -> DataFrame:
    """Each queue's messages in one task and in their order, those of several by time."""
    queue = ["topic", "broker", "queue_id"]
    # Never earlier than one before it in its queue, though a clock may have been set back.
    latest = fn.expr(
        f"max(store_timestamp) over (partition by {', '.join(queue)} order by queue_offset)"
    )
    gathered = messages.repartition(tasks, *queue).withColumn("_latest", latest)
    return gathered.sortWithinPartitions("_latest", *queue, "queue_offset").drop("_latest")


def outgoing(messages: DataFrame) -> DataFrame:
    """The columns that the sink takes."""
    place = fn.expr("concat(topic, '/', broker, '/', queue_id, '@', queue_offset)")
    said = fn.coalesce("properties", fn.expr("cast(map() as map<string,string>)"))
    others = fn.map_filter(said, lambda name, _: name != REPLAYED_FROM)
    mark = fn.create_map(fn.lit(REPLAYED_FROM), place)
    return messages.select(
        fn.col("target").alias("topic"),
        "body",
        "keys",
        "tags",
        "flag",
        fn.map_concat(others, mark).alias("properties"),
        fn.col("topic").alias("source_topic"),
        fn.col("broker").alias("source_broker"),
        fn.col("queue_id").alias("source_queue_id"),
        fn.col("queue_offset").alias("source_queue_offset"),
    )


def by_minute(messages: DataFrame) -> DataFrame:
    minute = fn.date_trunc("minute", "store_timestamp").alias("minute")
    return messages.groupBy("topic", "target", minute).agg(
        fn.count("*").alias("messages"), fn.sum(fn.octet_length("body")).alias("bytes")
    )


def by_hour(minutes: DataFrame) -> DataFrame:
    """Counts for people: per topic, target and hour."""
    hour = fn.date_format("minute", "yyyy-MM-dd HH:00").alias("hour")
    counted = minutes.groupBy("topic", "target", hour)
    sums = counted.agg(fn.sum("messages").alias("messages"), fn.sum("bytes").alias("bytes"))
    return sums.orderBy("hour", "topic", "target")


def chunks(minutes: DataFrame, size: int) -> list[Chunk]:
    """Whole minutes one after the other, until each chunk has about `size` messages."""
    start = fn.unix_seconds("minute").alias("start")
    rows = minutes.groupBy(start).agg(fn.sum("messages").alias("messages")).orderBy("start")
    return [*chunks_of(rows.collect(), size)]


def chunks_of(minutes: Iterable[Any], size: int) -> Iterator[Chunk]:
    start, end, messages = None, None, 0
    for second, count in minutes:
        start = start or datetime.fromtimestamp(second, UTC)
        end = datetime.fromtimestamp(second, UTC) + timedelta(minutes=1)
        messages += count
        if messages >= size:
            yield Chunk(start, end, messages)
            start, messages = None, 0
    if start is not None and end is not None:
        yield Chunk(start, end, messages)


def _by_id(messages: DataFrame, ids: DataFrame) -> DataFrame:
    if "origin_topic" not in ids.columns:
        return messages.join(ids.select("message_id").distinct(), "message_id", "left_semi")
    wanted = ids.select("message_id", fn.col("origin_topic").alias("topic")).distinct()
    return messages.join(wanted, ["message_id", "topic"], "left_semi")


def _first_of_each(messages: DataFrame) -> DataFrame:
    """By id and the topic that it goes to: a message may be dead for several groups."""
    number = fn.expr(
        "row_number() over (partition by message_id, target"
        " order by store_timestamp, topic, broker, queue_id, queue_offset)"
    )
    return messages.withColumn("_number", number).where("_number = 1").drop("_number")
