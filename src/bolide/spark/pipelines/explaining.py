"""What a pipeline would do, told without running it."""

import contextlib
import io
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from bolide.spark.pipelines.extent import Extent, measure
from bolide.spark.pipelines.runner import build, text_of
from bolide.spark.pipelines.work import Job, Pipeline

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_SECRETS = ("secret", "password", "token", "accesskey")


def explain(work: Pipeline | Job, spark: "SparkSession") -> str:
    """Source, queues and offsets, steps, sink, checkpoint and Spark's plan.

    Raises:
        BolideError: the cluster cannot be asked, or a step or a column does not fit.
    """
    if isinstance(work, Job):
        return f"job       {work.name}\ndoes      {work.text}"
    extent = measure(spark, work)
    frame = build(work, spark)
    lines = [
        f"pipeline  {work.name}: {text_of(work)}",
        f"source    {work.source.format}",
        *_indented(_options(work.source.options)),
        *_indented(_ranges(extent)),
        "steps     " + ("" if work.steps else "none"),
        *_indented(f"{number}. {step.text}" for number, step in enumerate(work.steps, 1)),
        f"columns   {', '.join(f'{name} {kind}' for name, kind in frame.dtypes)}",
        f"sink      {work.sink.text}",
        *_indented(_options(getattr(work.sink, "options", {}))),
        f"checkpoint {work.checkpoint}, {_reached(extent)}",
        f"trigger   {work.trigger.text}",
        f"group     {work.group}",
        "",
        _plan(frame),
    ]
    return "\n".join(lines)


def _options(options: Mapping[str, str]) -> Iterable[str]:
    for key, value in sorted(options.items()):
        is_secret = any(word in f"{key} {value}".lower() for word in _SECRETS)
        yield f"{key}={'***' if is_secret else value}"


def _ranges(extent: Extent) -> Iterable[str]:
    for queue, start, end in extent.ranges:
        place = f"{queue.topic} {queue.broker_name} {queue.queue_id}"
        yield f"{place}: from {start:,} to {end:,}, {max(0, end - start):,} to read"
    if extent.ranges:
        yield f"all: {extent.rows:,} to read"


def _reached(extent: Extent) -> str:
    return "new" if extent.batch is None else f"goes on after batch {extent.batch}"


def _plan(frame: "DataFrame") -> str:
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        # Spark only prints it, and of a frame that is plain SQL does not know that it is a stream.
        frame.select("*").explain()
    return text.getvalue().strip()


def _indented(lines: Iterable[str]) -> list[str]:
    return [f"          {line}" for line in lines]
