"""`trace`: message traces as tables of latencies, failures and slow messages.

    PATH/records/day=2026-01-31/      every trace record, including unreadable ones
    PATH/latencies/start=…/           percentiles and failure rates per window, topic and group
    PATH/failures/start=…/            failures per window, topic, group and outcome
    PATH/slowest/start=…/             the slowest messages of each window

Records are appended as they arrive; duplicates are identified by their location in the trace topic.
The windows that a batch touches are recomputed from all records, so late records count, and a
repeated batch is idempotent.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as fn
from pyspark.sql.types import StringType, StructField, StructType

from bolide.model.names import TRACE_TOPIC
from bolide.spark.archive.files import files_at
from bolide.spark.pipelines.builtin import BuiltIn, RunSettings, cli_option, pipeline_home
from bolide.spark.pipelines.dataframes import as_table
from bolide.spark.pipelines.definition import EachBatch, Pipeline, Screen, Step, Table
from bolide.spark.pipelines.times import Trigger, parse_duration
from bolide.spark.pipelines.trace_analysis import (
    RECORD_LOCATION,
    RECORDS,
    failures,
    latencies,
    paths,
    records_of,
    sends,
    slowest,
    windows,
)

_MAX_SEND_AGE = timedelta(days=1)
"""Maximum time between the traced send of a message and its consumption."""
_SORT_ORDERS: Mapping[str, tuple[str, ...]] = {
    "latencies": ("window_start", "topic", "group_name", "stage"),
    "failures": ("window_start", "topic", "group_name", "stage", "outcome"),
    "slowest": ("rank", "window_start"),
}
"""The tables, and the sort order of their rows."""
_SLOWEST_COLUMNS = (
    "topic", "group_name", "total_ms", "send_ms", "store_ms", "consume_ms", "retry_times",
    "outcome", "sent", "keys", "message_id",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceOptions:
    """Read message trace, as clients write it, and keep tables of how long messages took.

    Percentiles of the send, the time in the store, the consumption and all together per topic
    and group, the slowest messages, and what failed; per window of time.
    """

    topic: str = cli_option("The topic that clients trace to.", default=TRACE_TOPIC)
    path: str | None = cli_option(
        "Where the tables are; else below the pipelines' home.", default=None, metavar="PATH"
    )
    window: str = cli_option("How long a window is, such as 30s, 5m or 1h.", default="5m")
    slowest: int = cli_option("How many slow messages to keep of each window.", default=10, low=1)
    keep: str = cli_option("How long to keep the tables, such as 7d.", default="7d")


def plan(options: TraceOptions, run: RunSettings) -> Pipeline:
    name = run.named("trace")
    trigger = run.trigger_of(Trigger(60.0))
    tables = TraceTables(
        path=options.path or str(pipeline_home() / name / "tables"),
        width=parse_duration(options.window, option="window"),
        slowest=options.slowest,
        keep=parse_duration(options.keep, option="keep"),
        live=not trigger.once,
    )
    return Pipeline(
        kind="trace",
        name=name,
        source=run.source(topic=options.topic, includeProperties="false"),
        steps=(Step("the records in trace messages", records_of),),
        sink=EachBatch(f"tables of latencies in {tables.path}", tables.write_batch),
        checkpoint=run.checkpoint_of(name),
        trigger=trigger,
        commit_group=run.commit_group,
        summarize=tables.summarize,
    )


@dataclass(slots=True, kw_only=True)
class TraceTables:
    """The tables below a path, and the windows that this run has touched."""

    path: str
    width: float
    slowest: int = 10
    keep: float = 7 * 86400.0
    live: bool = False
    """Whether to show the windows of each batch, not only those of the run at its end."""
    _touched: set[int] = field(default_factory=set)

    def write_batch(self, records: DataFrame, batch: int, screen: Screen) -> None:
        """Append a batch of records, and recompute the windows it touches."""
        del batch  # records are identified by location, so a repeated batch is harmless
        spark = records.sparkSession
        records.persist()
        try:
            self._report_unreadable(records, screen)
            touched = windows(records, self.width)
            self._append(records)
        finally:
            records.unpersist()
        if touched:
            self._recompute(spark, touched)
            self._touched.update(touched)
        self._delete_expired(spark)
        if self.live and touched:
            screen.show(self._result_table(spark, "latencies", touched))

    def summarize(self, spark: SparkSession, screen: Screen) -> Sequence[Table]:
        """The result tables of all windows that the run has touched."""
        del screen
        return [
            self._result_table(spark, name, self._touched) for name in _SORT_ORDERS if self._touched
        ]

    def read(self, spark: SparkSession, name: str) -> DataFrame:
        """Read one of the tables."""
        computed = self._compute(spark.createDataFrame([], RECORDS))[name]
        return spark.read.schema(computed.schema).parquet(f"{self.path}/{name}").drop("start")

    def records(self, spark: SparkSession, since: datetime | None = None) -> DataFrame:
        """Distinct records, traced on the day of `since` or later."""
        schema = StructType([*RECORDS.fields, StructField("day", StringType())])
        stored = spark.read.schema(schema).parquet(f"{self.path}/records")
        if since is not None:
            stored = stored.where(fn.col("day") >= since.date().isoformat())
        return stored.drop("day").dropDuplicates([*RECORD_LOCATION])

    @staticmethod
    def _report_unreadable(records: DataFrame, screen: Screen) -> None:
        bad = records.where("problem is not null").agg(fn.count("*"), fn.min("problem")).head()
        if bad and bad[0]:
            screen.say(f"{bad[0]} trace records could not be read, such as: {bad[1]}")

    def _append(self, records: DataFrame) -> None:
        dated = records.withColumn("day", fn.date_format("traced", "yyyy-MM-dd")).coalesce(1)
        dated.write.partitionBy("day").mode("append").parquet(f"{self.path}/records")

    def _recompute(self, spark: SparkSession, touched: Collection[int]) -> None:
        first = datetime.fromtimestamp(min(touched) / 1000, UTC)
        records = self.records(spark, first - _MAX_SEND_AGE).persist()
        try:
            for name, frame in self._compute(records).items():
                self._write(name, frame.where(_within(touched)))
        finally:
            records.unpersist()

    def _compute(self, records: DataFrame) -> dict[str, DataFrame]:
        sent, consumed = sends(records), paths(records)
        return {
            "latencies": latencies(sent, consumed, self.width),
            "failures": failures(sent, consumed, self.width),
            "slowest": slowest(consumed, self.width, self.slowest),
        }

    def _write(self, name: str, recomputed: DataFrame) -> None:
        """One directory per window: only the windows written are replaced."""
        started = recomputed.withColumn(
            "start", fn.date_format("window_start", "yyyy-MM-dd-HH-mm-ss")
        )
        writer = started.coalesce(1).write.option("partitionOverwriteMode", "dynamic")
        writer.partitionBy("start").mode("overwrite").parquet(f"{self.path}/{name}")

    def _result_table(self, spark: SparkSession, name: str, touched: Collection[int]) -> Table:
        ordered = self.read(spark, name).where(_within(touched)).orderBy(*_SORT_ORDERS[name])
        if name == "slowest":
            ordered = ordered.select(*_SLOWEST_COLUMNS).limit(self.slowest)
        return as_table(name, ordered)

    def _delete_expired(self, spark: SparkSession) -> None:
        files = files_at(spark, self.path)
        oldest = datetime.now(UTC) - timedelta(seconds=self.keep)
        for name in ("records", *_SORT_ORDERS):
            for directory in files.names(name):
                _, found, value = directory.partition("=")
                if found and value < oldest.strftime("%Y-%m-%d-%H-%M-%S")[: len(value)]:
                    files.delete(f"{name}/{directory}")


def _within(touched: Collection[int]) -> Column:
    return fn.unix_millis("window_start").isin([*touched])


BUILT_IN = BuiltIn("trace", TraceOptions, plan, example="--once --window 1m")
