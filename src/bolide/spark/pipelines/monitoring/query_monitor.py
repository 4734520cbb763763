"""Progress of a streaming query: what it has to read, what it has read, and a graceful stop.

A checkpoint is read as Spark writes it, without starting a query: `offsets/N` holds the offsets of
batch N, `commits/N` exists once that batch is done. A file of offsets has the line `v1`, a line
about the batch, and one line of JSON for each source.
"""

import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from bolide.arrow.cluster import Cluster, ask
from bolide.arrow.errors import BadPosition
from bolide.arrow.offsets import QueueRange, from_plain
from bolide.model.message_queue import MessageQueue
from bolide.protocol.bodies.pipelines import Progress
from bolide.spark import progress as spark_progress
from bolide.spark.options import SourceOptions
from bolide.spark.pipelines.definition import Pipeline
from bolide.spark.pipelines.monitoring.display import Meter, RunScreen
from bolide.spark.planning import find_queues

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_PATIENCE = 10.0
"""Seconds to wait for an absent broker: the backlog is informational."""
_POLL_INTERVAL = 0.25
_STOP_POLL_INTERVAL = 0.02


@dataclass(frozen=True, slots=True)
class Backlog:
    """The ranges to read; `batch` is the last one of the checkpoint, None if there is none."""

    ranges: tuple[QueueRange, ...] = ()
    batch: int | None = None
    start: dict[MessageQueue, int] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        return sum(each.size for each in self.ranges)


def measure_backlog(spark: "SparkSession", pipeline: Pipeline) -> Backlog:
    """What the pipeline would read if it ran now; empty for sources other than `rocketmq`.

    Raises:
        BolideError: the cluster cannot be reached.
    """
    if not pipeline.source.is_rocketmq:
        return Backlog()
    options = SourceOptions.of(pipeline.source.options)
    checkpoint = find_checkpoint_position(spark, pipeline.checkpoint)

    async def lookup(cluster: Cluster) -> Backlog:
        queues = await find_queues(cluster, options)
        bounds = await cluster.bounds(queues)
        if checkpoint is None:
            start = await cluster.resolve(options.start(default="latest"), queues)
        else:
            start = {queue: checkpoint.offsets.get(queue, bounds[queue].oldest) for queue in queues}
        ranges = tuple(QueueRange(queue, start[queue], bounds[queue].end) for queue in queues)
        return Backlog(ranges, None if checkpoint is None else checkpoint.batch, start)

    return ask(options.connection(), lookup, patience=_PATIENCE)


class QueryMonitor:
    """Follows a query until it ends.

    Other threads may read `position`, the offsets read so far, and `lag`, what queues have beyond
    it; both are replaced, not changed.
    """

    def __init__(
        self, query: "StreamingQuery", screen: RunScreen, backlog: Backlog, *, once: bool
    ) -> None:
        self.position: dict[MessageQueue, int] = {}
        self.lag: dict[MessageQueue, int] | None = None
        self._query = query
        self._screen = screen
        self._start = backlog.start
        self._total = backlog.rows if once and backlog.ranges else None
        self._rows = 0
        self._last_batch: tuple[int, str] | None = None
        self._meter = Meter()
        self._written: int | None = 0
        self._out_meter = Meter()

    def wait_for_end(self) -> None:
        """Return when the query has ended, by itself or on request.

        Raises:
            StreamingQueryException: the query failed.
        """
        self._show(None)
        while not self._query.awaitTermination(_POLL_INTERVAL):  # type: ignore[arg-type]  # accepts floats
            self._observe()
            if self._screen.stop_requested:
                self._stop()
        self._observe()

    def _stop(self) -> None:
        """Stop after the current batch, which Spark would otherwise abort and repeat later."""
        before = self._last_batch
        while self._last_batch == before and self._query.status["isTriggerActive"]:
            time.sleep(_STOP_POLL_INTERVAL)
            self._observe()
        self._query.stop()

    def _observe(self) -> None:
        """Count rows by offsets, which covers batches that ended between two observations."""
        batch: Any = self._query.lastProgress
        if batch is None or _batch_key(batch) == self._last_batch:
            return
        self._last_batch = _batch_key(batch)
        end = spark_progress.positions(batch)
        self._rows += self._size(batch, end)
        self.position = self.position | end
        self.lag = spark_progress.lag(batch)
        self._count_written(batch)
        self._show(batch)

    def _count_written(self, batch: Any) -> None:
        written = spark_progress.rows_written(batch)
        self._written = None if written is None else (self._written or 0) + written

    def _size(self, batch: Any, end: dict[MessageQueue, int]) -> int:
        if not end:
            return int(batch["numInputRows"])
        start = self._start | self.position
        return sum(offset - start.get(queue, offset) for queue, offset in end.items())

    def _show(self, batch: Any | None) -> None:
        rate = self._meter.rate(self._rows, time.monotonic())
        written = self._written
        out = None if written is None else self._out_meter.rate(written, time.monotonic())
        self._screen.update(
            Progress(
                rows=self._rows,
                total=self._total,
                rows_per_second=round(rate, 1),
                rows_out_per_second=None if out is None or batch is None else round(out, 1),
                batch=None if batch is None else batch["batchId"],
                behind=None if batch is None else _behind(batch),
            )
        )


def _batch_key(batch: Any) -> tuple[int, str]:
    return batch["batchId"], batch["timestamp"]


def _behind(batch: Any) -> dict[str, int] | None:
    by_topic: dict[str, int] = {}
    for queue, behind in spark_progress.lag(batch).items():
        by_topic[queue.topic] = by_topic.get(queue.topic, 0) + behind
    return by_topic or None


class CheckpointPosition(NamedTuple):
    """The last completed batch, and the start offsets of the next one."""

    batch: int
    offsets: dict[MessageQueue, int]


def find_checkpoint_position(spark: "SparkSession", checkpoint: str) -> CheckpointPosition | None:
    """The position of a checkpoint with one source; None if no batch is completed."""
    folder = (
        _LocalCheckpoint(checkpoint)
        if _is_local_path(checkpoint)
        else _HadoopCheckpoint(spark, checkpoint)
    )
    done = set(folder.numbers("commits")) & set(folder.numbers("offsets"))
    if not done:
        return None
    last = max(done)
    return CheckpointPosition(last, _offsets(folder.text("offsets", last)))


def _offsets(text: str) -> dict[MessageQueue, int]:
    """Offsets of the `rocketmq` sources in a file of offsets."""
    found: dict[MessageQueue, int] = {}
    for line in text.splitlines()[2:]:
        try:
            found |= from_plain(json.loads(line))
        except (ValueError, BadPosition):  # another kind of source, or "-" for one without offsets
            continue
    return found


def _is_local_path(checkpoint: str) -> bool:
    return urlsplit(checkpoint).scheme in {"", "file"}


class _LocalCheckpoint:
    def __init__(self, checkpoint: str) -> None:
        self._root = Path(urlsplit(checkpoint).path)

    def numbers(self, part: str) -> list[int]:
        folder = self._root / part
        names = [file.name for file in folder.iterdir()] if folder.is_dir() else []
        return [int(name) for name in names if name.isdecimal()]

    def text(self, part: str, number: int) -> str:
        return (self._root / part / str(number)).read_text(encoding="utf-8")


class _HadoopCheckpoint:
    """Reads through Hadoop's file systems, as Spark does."""

    def __init__(self, spark: "SparkSession", checkpoint: str) -> None:
        self._spark = spark
        jvm: Any = spark.sparkContext._jvm  # noqa: SLF001  no public accessor
        self._root = jvm.org.apache.hadoop.fs.Path(checkpoint)
        self._path = jvm.org.apache.hadoop.fs.Path
        context: Any = spark.sparkContext._jsc  # noqa: SLF001
        self._files = self._root.getFileSystem(context.hadoopConfiguration())

    def numbers(self, part: str) -> list[int]:
        folder = self._path(self._root, part)
        if not self._files.exists(folder):
            return []
        names = [status.getPath().getName() for status in self._files.listStatus(folder)]
        return [int(name) for name in names if name.isdecimal()]

    def text(self, part: str, number: int) -> str:
        file = self._path(self._path(self._root, part), str(number))
        found = self._spark.read.text(file.toString(), wholetext=True).head()
        return str(found[0]) if found else ""
