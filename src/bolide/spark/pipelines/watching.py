"""A query while it runs: how far it is, where it is, and how to end it between two batches."""

import time
from typing import TYPE_CHECKING, Any

from bolide.model.message_queue import MessageQueue
from bolide.spark import progress as spark_progress
from bolide.spark.pipelines.events import Progress
from bolide.spark.pipelines.extent import Extent
from bolide.spark.pipelines.screens import Meter, RunScreen

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

_LOOK = 0.25
_LOOK_CLOSELY = 0.02


class Watch:
    """Looks at a query until it ends; `position` is up to where it has read."""

    def __init__(
        self, query: "StreamingQuery", screen: RunScreen, extent: Extent, *, once: bool
    ) -> None:
        self.position: dict[MessageQueue, int] = {}
        self._query = query
        self._screen = screen
        self._start = extent.start
        self._total = extent.rows if once and extent.ranges else None
        self._rows = 0
        self._seen: tuple[int, str] | None = None
        self._meter = Meter()

    def until_end(self) -> None:
        """Return when the query has ended, by itself or because that was asked for.

        Raises:
            StreamingQueryException: it failed.
        """
        self._show(None)
        while not self._query.awaitTermination(_LOOK):  # type: ignore[arg-type]  # floats are fine
            self._look()
            if self._screen.stop_asked:
                self._stop()
        self._look()

    def _stop(self) -> None:
        """Let the batch under way be done: Spark would drop it, and do it again another time."""
        before = self._seen
        while self._seen == before and self._query.status["isTriggerActive"]:
            time.sleep(_LOOK_CLOSELY)
            self._look()
        self._query.stop()

    def _look(self) -> None:
        """Batches that were done between two looks are counted by the offsets of the last."""
        batch: Any = self._query.lastProgress
        if batch is None or _mark(batch) == self._seen:
            return
        self._seen = _mark(batch)
        end = spark_progress.positions(batch)
        self._rows += self._size(batch, end)
        self.position |= end
        self._show(batch)

    def _size(self, batch: Any, end: dict[MessageQueue, int]) -> int:
        if not end:
            return int(batch["numInputRows"])
        start = self._start | self.position
        return sum(offset - start.get(queue, offset) for queue, offset in end.items())

    def _show(self, batch: Any | None) -> None:
        rate = self._meter.rate(self._rows, time.monotonic())
        self._screen.update(
            Progress(
                rows=self._rows,
                total=self._total,
                rows_per_second=round(rate, 1),
                batch=None if batch is None else batch["batchId"],
                behind=None if batch is None else _behind(batch),
            )
        )


def _mark(batch: Any) -> tuple[int, str]:
    return batch["batchId"], batch["timestamp"]


def _behind(batch: Any) -> dict[str, int] | None:
    by_topic: dict[str, int] = {}
    for queue, behind in spark_progress.lag(batch).items():
        by_topic[queue.topic] = by_topic.get(queue.topic, 0) + behind
    return by_topic or None
