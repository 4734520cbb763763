"""Lag, rates and drain forecasts, computed from samples of group positions.

Rates count forward steps only: resetting a group's position backwards is no negative consumption,
and recreating a topic is no loss of messages.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn

from bolide.spark.pipelines.times import format_duration

_QUEUE = "group_name, topic, broker, queue_id"
_STEADY = 0.05
"""Relative difference below which two rates count as equal."""


def forecast(samples: DataFrame) -> DataFrame:
    """Lag of each group and topic at the last sample, and its forecast.

    `in_rate` and `out_rate` are messages per second over all samples; null for a single sample.
    `trend` is `none` (no lag), `drains`, `grows`, `steady`, or `idle` (lag without movement).
    """
    return _with_trend(_speeds(_steps(samples), []))


def by_window(samples: DataFrame, width: float) -> DataFrame:
    """The same for each window of `width` seconds; `lag` is that at the end of the window."""
    window = fn.window("taken", f"{width} seconds")["start"].alias("window_start")
    return _with_trend(
        _speeds(_steps(samples).withColumn("window_start", window), ["window_start"])
    )


def trend_text(lag: int, in_rate: float | None, out_rate: float | None, trend: str | None) -> str:
    """The forecast as a short text."""
    if trend == "none":
        return "no lag"
    if in_rate is None or out_rate is None:
        return "not known yet"
    if trend == "drains":
        return f"drains in {format_duration(lag / (out_rate - in_rate))}"
    if trend == "grows":
        return f"grows by {in_rate - out_rate:.3g}/s"
    return "nothing is consumed" if trend == "idle" else "stays as it is"


def _steps(samples: DataFrame) -> DataFrame:
    """Each sample with the messages produced and consumed since the previous one of its queue."""
    before = f"over (partition by {_QUEUE} order by taken)"
    return samples.selectExpr(
        "*",
        f"lag(taken) {before} as before",
        f"greatest(0, end_offset - lag(end_offset) {before}) as came",
        f"greatest(0, committed_offset - lag(committed_offset) {before}) as went",
    )


def _speeds(steps: DataFrame, by: list[str]) -> DataFrame:
    """Sums over queues, each as last seen: queues of an absent broker keep their lag."""
    keys = [*by, "group_name", "topic"]
    queues = steps.groupBy(*keys, "broker", "queue_id").agg(
        fn.expr("max_by(greatest(0, end_offset - committed_offset), taken)").alias("behind"),
        fn.sum("came").alias("came"),
        fn.sum("went").alias("went"),
        fn.expr("min(coalesce(before, taken))").alias("first"),
        fn.max("taken").alias("taken"),
    )
    seconds = fn.expr("nullif(unix_micros(max(taken)) - unix_micros(min(first)), 0) / 1e6")
    return queues.groupBy(*keys).agg(
        fn.max("taken").alias("taken"),
        fn.sum("behind").alias("lag"),
        (fn.coalesce(fn.sum("came"), fn.lit(0)) / seconds).alias("in_rate"),
        (fn.coalesce(fn.sum("went"), fn.lit(0)) / seconds).alias("out_rate"),
    )


def _with_trend(speeds: DataFrame) -> DataFrame:
    gain = fn.col("out_rate") - fn.col("in_rate")
    known = speeds.withColumn("trend", _trend(gain))
    seconds = fn.when(fn.col("trend") == "drains", fn.col("lag") / gain)
    return known.withColumn("drain_seconds", seconds)


def _trend(gain: Column) -> Column:
    enough = fn.greatest("in_rate", "out_rate") * _STEADY
    return (
        fn.when(fn.col("lag") == 0, "none")
        .when(gain.isNull(), fn.lit(None))
        .when((fn.col("in_rate") == 0) & (fn.col("out_rate") == 0), "idle")
        .when(gain > enough, "drains")
        .when(-gain > enough, "grows")
        .otherwise("steady")
    )
