"""`lag`: looks at consumer groups again and again, and says when each will have caught up.

    PATH/samples/     every position of every group that was seen, as Parquet

With a path the samples are kept: a later run goes on from them, and any query may look back.
"""

import asyncio
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn
from pyspark.sql.pandas.types import from_arrow_schema

from bolide.errors import BolideError
from bolide.spark.archive.files import files_at
from bolide.spark.pipelines.builtin import BuiltIn, RunSettings, choice
from bolide.spark.pipelines.lag_forecast import forecast, trend_text
from bolide.spark.pipelines.lag_samples import SCHEMA, Sampler, to_table
from bolide.spark.pipelines.spans import parse_span
from bolide.spark.pipelines.work import Job, Outcome, Screen, Table

_LOOKS_A_SECOND = 10
_SHOWN = ("group_name", "topic", "lag", "in_rate", "out_rate", "forecast")


@dataclass(frozen=True, slots=True, kw_only=True)
class LagOptions:
    """Look at the positions of consumer groups, and forecast when their lag is gone.

    Looks every 10 seconds (`--every`) until it is stopped; with `--once` just long enough to tell
    speeds. Consumers commit every 5 seconds: shorter intervals see less than they promise.
    """

    group: tuple[str, ...] = choice("A consumer group; may be given often; else all.", default=())
    window: str = choice("Over how long speeds are taken, such as 5m.", default="5m")
    path: str | None = choice("Keep all samples there, as Parquet.", default=None, metavar="PATH")
    report_topic: str | None = choice(
        "Send each forecast there too, as JSON with the group as its key.", default=None
    )


def plan(options: LagOptions, run: RunSettings) -> Job:
    name = run.named("lag")
    watch = Watch(
        sampler=Sampler(run.connect(), options.group),
        interval=(run.trigger and run.trigger.interval) or 10.0,
        window=parse_span(options.window, option="window"),
        path=options.path,
        report=run.connection | {"topic": options.report_topic} if options.report_topic else None,
        once=run.once,
    )
    groups = ", ".join(options.group) or "all groups"
    return Job(name=name, text=f"lag of {groups} every {watch.interval:g} s", run=watch.run)


@dataclass(slots=True, kw_only=True)
class Watch:
    """Takes samples, keeps those of the last window, and tells what they say."""

    sampler: Sampler
    interval: float
    window: float
    path: str | None = None
    report: dict[str, str] | None = field(default=None, repr=False)
    once: bool = False
    _samples: pa.Table = field(default_factory=SCHEMA.empty_table)
    _silent: bool = False

    def run(self, spark: SparkSession, screen: Screen) -> Outcome:
        self._recall(spark)
        taken = 0
        table = Table("lag", (), ())
        while not screen.stop_asked:
            started = time.monotonic()
            taken += self._sample(spark, screen)
            table = self._tell(spark)
            if self.once and self._is_enough():
                break
            if not self.once:
                screen.show(table)
            screen.advance(taken)
            _wait(started + self.interval, screen)
        return Outcome((table,) if self.once else (), taken)

    def _sample(self, spark: SparkSession, screen: Screen) -> int:
        """How many positions there are; a cluster that is away is said once, and asked again."""
        try:
            found = to_table(asyncio.run(self.sampler.take()))
        except BolideError as exc:
            if self.once:
                raise
            if not self._silent:
                screen.say(f"no sample now: {exc}")
            self._silent = True
            return 0
        self._silent = False
        self._samples = _recent(pa.concat_tables([self._samples, found]), self.window)
        if self.path and len(found):
            written = spark.createDataFrame(found).coalesce(1).write
            written.mode("append").parquet(f"{self.path}/samples")
        return len(found)

    def _recall(self, spark: SparkSession) -> None:
        """What an earlier run saw within the window."""
        if self.path and files_at(spark, self.path).names("samples"):
            since = datetime.now(UTC) - timedelta(seconds=self.window)
            self._samples = samples_at(spark, self.path).where(fn.col("taken") >= since).toArrow()
            self._samples = self._samples.cast(SCHEMA)

    def _is_enough(self) -> bool:
        return len(set(self._samples.column("taken").to_pylist())) > 1 or not len(self._samples)

    def _tell(self, spark: SparkSession) -> Table:
        standing = forecast(spark.createDataFrame(self._samples))
        if self.report is not None:
            _send(standing, self.report)
        rows = standing.orderBy(fn.desc("lag"), "group_name", "topic").collect()
        return Table("lag", _SHOWN, _cells(rows))


def samples_at(spark: SparkSession, path: str) -> DataFrame:
    """All samples that were kept at a path; `lag_forecast.by_window` looks back over them."""
    return spark.read.schema(from_arrow_schema(SCHEMA)).parquet(f"{path}/samples")


def _recent(samples: pa.Table, window: float) -> pa.Table:
    oldest = datetime.now(UTC) - timedelta(seconds=window)
    return samples.filter(pa.compute.greater_equal(samples.column("taken"), pa.scalar(oldest)))


def _cells(rows: Iterable[Any]) -> list[list[object]]:
    return [
        [
            row.group_name,
            row.topic,
            row.lag,
            _rounded(row.in_rate),
            _rounded(row.out_rate),
            trend_text(row.lag, row.in_rate, row.out_rate, row.trend),
        ]
        for row in rows
    ]


def _rounded(rate: float | None) -> float | None:
    return None if rate is None else round(rate, 1)


def _send(standing: DataFrame, options: dict[str, str]) -> None:
    said = standing.select(
        fn.to_json(fn.struct("*")).alias("body"), fn.col("group_name").alias("keys")
    )
    said.coalesce(1).write.format("rocketmq").options(**options).mode("append").save()


def _wait(until: float, screen: Screen) -> None:
    while not screen.stop_asked and (left := until - time.monotonic()) > 0:
        time.sleep(min(left, 1 / _LOOKS_A_SECOND))


BUILT_IN = BuiltIn("lag", LagOptions, plan, example="--group orders-service")
