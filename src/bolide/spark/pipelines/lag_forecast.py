"""From positions over time to lag, speeds, and when a group will have caught up.

Speeds count steps forward only: a group whose position was reset backwards has not consumed less
than nothing, and a topic that was made anew has not lost messages.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as fn

from bolide.spark.pipelines.times import format_duration

_QUEUE = "group_name, topic, broker, queue_id"
_STEADY = 0.05
"""Speeds that differ by less than this share of the larger one are taken for equal."""


def forecast(samples: DataFrame) -> DataFrame:
    """Where each group stands in each topic at the last sample, and what becomes of its lag.

    `in_rate` and `out_rate` are messages a second over all the samples; null if there is only
    one. `trend` is `none` (no lag), `drains`, `grows`, `steady` or `idle`: lag, and nothing moves.
    """
    return _with_trend(_speeds(_steps(samples), []))


def by_window(samples: DataFrame, width: float) -> DataFrame:
    """The same for each window of `width` seconds: `lag` is that at its end."""
    window = fn.window("taken", f"{width} seconds")["start"].alias("window_start")
    return _with_trend(
        _speeds(_steps(samples).withColumn("window_start", window), ["window_start"])
    )


def trend_text(lag: int, in_rate: float | None, out_rate: float | None, trend: str | None) -> str:
    """What a person wants to know."""
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
    """Each sample with what came and went in its queue since the sample before."""
    before = f"over (partition by {_QUEUE} order by taken)"
    return samples.selectExpr(
        "*",
        f"lag(taken) {before} as before",
        f"greatest(0, end_offset - lag(end_offset) {before}) as came",
        f"greatest(0, committed_offset - lag(committed_offset) {before}) as went",
    )


def _speeds(steps: DataFrame, by: list[str]) -> DataFrame:
    """Summed over queues, each as it was last seen: a broker that is away keeps its lag."""
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
