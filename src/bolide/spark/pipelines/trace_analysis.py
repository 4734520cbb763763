"""Trace records (`protocol.trace`) as rows, and the latencies and failures computed from them.

A message passes the stages `send` (from the producer's call to the broker's answer), `store` (from
that answer until a consumer starts on it), `consume` (in the listener) and `total`. Only `send` and
`consume` are measured by one clock; the other two are as accurate as the clocks of producers and
consumers agree.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Final

import pyarrow as pa
from msgspec import structs
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn
from pyspark.sql.pandas.types import from_arrow_schema

from bolide.arrow.schema import TIMESTAMP
from bolide.protocol.trace import Unreadable, read_records

SCHEMA: Final = pa.schema([
    pa.field("kind", pa.string()),
    pa.field("time", TIMESTAMP),
    pa.field("region", pa.string()),
    pa.field("group_name", pa.string()),
    pa.field("topic", pa.string()),
    pa.field("message_id", pa.string()),
    pa.field("offset_message_id", pa.string()),
    pa.field("tags", pa.string()),
    pa.field("keys", pa.string()),
    pa.field("store_host", pa.string()),
    pa.field("client_host", pa.string()),
    pa.field("body_length", pa.int32()),
    pa.field("cost_ms", pa.int64()),
    pa.field("success", pa.bool_()),
    pa.field("message_type", pa.string()),
    pa.field("request_id", pa.string()),
    pa.field("retry_times", pa.int32()),
    pa.field("outcome", pa.string()),
    pa.field("transaction_id", pa.string()),
    pa.field("transaction_state", pa.string()),
    pa.field("from_check", pa.bool_()),
    pa.field("problem", pa.string()),
    pa.field("traced", TIMESTAMP),
    pa.field("broker", pa.string()),
    pa.field("queue_id", pa.int32()),
    pa.field("queue_offset", pa.int64()),
    pa.field("number", pa.int32()),
])  # fmt: skip
"""One row per record. A row with a `problem` describes an unreadable record and nothing else.
`traced` is the store time of the message with the record; the last four columns locate the record.
"""
RECORD_LOCATION: Final = ("broker", "queue_id", "queue_offset", "number")
"""Columns that identify a record uniquely, also when it is read twice."""
Row = dict[str, Any]
RECORDS = from_arrow_schema(SCHEMA)
_PERCENTILES = {"p50_ms": 0.5, "p90_ms": 0.9, "p99_ms": 0.99}


def record_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Extract the records of messages (`body`, `store_timestamp` and location)."""
    for batch in batches:
        rows = [row for message in batch.to_pylist() for row in _rows_of(message)]
        yield pa.RecordBatch.from_pylist(rows, schema=SCHEMA)


def _rows_of(message: Row) -> Iterator[Row]:
    location = {name: message[name] for name in RECORD_LOCATION[:-1]} | {
        "traced": message["store_timestamp"]
    }
    records = read_records(message["body"].decode("utf-8", "replace"))
    for number, record in enumerate(records):
        row = structs.asdict(record)
        if not isinstance(record, Unreadable):
            row["group_name"] = row.pop("group")
            row["time"] = None if record.time_ms is None else record.time_ms * 1000  # microseconds
            del row["time_ms"]
        yield row | location | {"number": number}


def records_of(messages: DataFrame) -> DataFrame:
    """The records of trace messages, including unreadable ones."""
    return messages.select("body", "store_timestamp", *RECORD_LOCATION[:-1]).mapInArrow(
        record_batches, RECORDS
    )


def sends(records: DataFrame) -> DataFrame:
    """One row per acknowledged send; Java traces no others."""
    return records.where("kind = 'Pub'")


def consumptions(records: DataFrame) -> DataFrame:
    """One row per delivery of a message to a consumer.

    A consumption that has not ended has no `ended`. For clients up to 4.7 group and time are taken
    from its beginning.
    """
    began = records.where("kind = 'SubBefore'").selectExpr(
        "request_id",
        "message_id",
        "time as began",
        "group_name as began_group",
        "retry_times",
        "keys",
    )
    ended = records.where("kind = 'SubAfter'").selectExpr(
        "request_id", "message_id", "time as after", "group_name as after_group",
        "cost_ms as consume_ms", "success", "outcome",
    )  # fmt: skip
    both = began.join(ended, ["request_id", "message_id"], "full_outer")
    closing = fn.expr("began + make_dt_interval(0, 0, 0, consume_ms / 1000)")
    return both.select(
        "message_id",
        fn.coalesce("began_group", "after_group").alias("group_name"),
        "began",
        fn.coalesce("after", closing).alias("ended"),
        "consume_ms",
        "success",
        "outcome",
        "retry_times",
        "keys",
    )


def paths(records: DataFrame) -> DataFrame:
    """One row per consumption, with the send of its message if that was traced."""
    joined = consumptions(records).join(_first_sends(records), "message_id", "left")
    first = fn.expr("coalesce(retry_times, 0) = 0 and message_type != 'Delay'")
    return joined.select(
        "message_id",
        "topic",
        "producer_group",
        "group_name",
        "keys",
        "sent",
        "began",
        "ended",
        "retry_times",
        "success",
        "outcome",
        "send_ms",
        # the delay of retries and delayed messages is not broker latency
        fn.when(first, _ms_between("stored", "began")).alias("store_ms"),
        "consume_ms",
        _ms_between("sent", "ended").alias("total_ms"),
    )


def latencies(sent: DataFrame, consumed: DataFrame, width: float) -> DataFrame:
    """Percentiles and failure rates per window, topic, group and stage; `width` in seconds.

    Takes the results of `sends` and `paths`. A row belongs to the window of the send, or of the end
    of the consumption. The topic is null if the send was not traced, as consumers do not record it.
    """
    stages = fn.explode(
        fn.array(
            _stage("store", "store_ms"),
            _stage("consume", "consume_ms", "success"),
            _stage("total", "total_ms"),
        )
    )
    by = ("window_start", "topic", "group_name")
    first = sent.select(_window(width, "time"), *by[1:], _stage("send", "cost_ms", "success"))
    ended = consumed.where("ended is not null")
    others = ended.select(_window(width, "ended"), *by[1:], stages.alias("stage"))
    measured = first.unionByName(others).select(*by, "stage.stage", "stage.ms", "stage.success")
    percentiles = fn.percentile_approx("ms", [*_PERCENTILES.values()], 10_000)
    failed = fn.count_if(~fn.col("success"))
    summed = measured.where("ms is not null").groupBy(*by, "stage")
    return summed.agg(
        fn.count("*").alias("messages"),
        fn.when(fn.count("success") > 0, failed).alias("failed"),
        fn.when(fn.count("success") > 0, failed / fn.count("success")).alias("failure_rate"),
        *(percentiles[i].alias(name) for i, name in enumerate(_PERCENTILES)),
        fn.max("ms").alias("max_ms"),
    )


def failures(sent: DataFrame, consumed: DataFrame, width: float) -> DataFrame:
    """Failures per window, topic, group and outcome, with the id of an example message."""
    by = ("window_start", "topic", "group_name", "stage", "outcome")
    unsent = sent.where("not success").select(
        _window(width, "time"),
        *by[1:3],
        fn.lit("send").alias("stage"),
        fn.lit("NOT_STORED_AS_ASKED").alias("outcome"),
        "message_id",
    )
    broken = consumed.where("not success").select(
        _window(width, "ended"), *by[1:3], fn.lit("consume").alias("stage"), "outcome", "message_id"
    )
    return (
        unsent.unionByName(broken)
        .groupBy(*by)
        .agg(fn.count("*").alias("messages"), fn.min("message_id").alias("such_as"))
    )


def slowest(consumed: DataFrame, width: float, count: int) -> DataFrame:
    """The slowest paths of each window, from send to end of consumption."""
    windowed = consumed.where("total_ms is not null").select(_window(width, "ended"), "*")
    rank = fn.expr(
        "row_number() over (partition by window_start order by total_ms desc, message_id)"
    )
    return windowed.withColumn("rank", rank).where(fn.col("rank") <= count)


def windows(records: DataFrame, width: float) -> set[int]:
    """Start times (ms) of the windows of the records, and of the windows after them.

    The next window is included because the send of a message may be traced after its consumption.
    """
    start = fn.unix_millis(_window(width, "time"))
    row = records.agg(fn.collect_set(start)).head()
    found = row[0] if row else []
    return {*found, *(start + round(width * 1000) for start in found)}


def _first_sends(records: DataFrame) -> DataFrame:
    """The first send by message id; a batch is one record with comma-separated ids."""
    each = sends(records).withColumn("message_id", fn.explode(fn.split("message_id", ",")))
    return each.groupBy("message_id").agg(
        fn.min_by("topic", "time").alias("topic"),
        fn.min_by("group_name", "time").alias("producer_group"),
        fn.min_by("message_type", "time").alias("message_type"),
        fn.min("time").alias("sent"),
        fn.min_by("cost_ms", "time").alias("send_ms"),
        fn.expr("min(time + make_dt_interval(0, 0, 0, cost_ms / 1000))").alias("stored"),
    )


def _ms_between(start: str, end: str) -> Column:
    """Clamped at zero, as clocks differ."""
    return fn.expr(f"greatest(0, unix_millis({end}) - unix_millis({start}))")


def _stage(name: str, ms: str, success: str | None = None) -> Column:
    succeeded = fn.col(success) if success else fn.lit(None).cast("boolean")
    values = fn.lit(name).alias("stage"), fn.col(ms).alias("ms"), succeeded.alias("success")
    return fn.struct(*values).alias("stage")


def _window(width: float, time: str) -> Column:
    ms = round(width * 1000)
    start = fn.expr(f"timestamp_millis({ms} * (unix_millis({time}) div {ms}))")
    return start.alias("window_start")
