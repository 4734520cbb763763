"""A run of `archive`: the table it holds, the batches it adds, and its care of old hours."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from bolide.arrow.cluster import Cluster, ask
from bolide.arrow.offsets import Bounds
from bolide.model.message_queue import MessageQueue
from bolide.spark.archive.files import files_at
from bolide.spark.archive.identity import refuse_other_messages
from bolide.spark.archive.manifest import State
from bolide.spark.archive.merging import TARGET, Heap, Merged, find_heaps, merge
from bolide.spark.archive.reading import hour_of
from bolide.spark.archive.retention import drop_before
from bolide.spark.archive.seam import refuse_other_log
from bolide.spark.archive.table import ArchiveTable, Settings, TableWriter
from bolide.spark.archive.writing import append
from bolide.spark.options import SourceOptions
from bolide.spark.pipelines.work import Screen, Table
from bolide.spark.subscription import require_queues

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MANY_OVER = 8
"""Small files that an hour which is over must have to be merged by the way."""
MANY_NOW = 200
"""The same of the hour that is not over, as more are to come."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Care:
    """What a run does beside adding rows; `keep` in seconds."""

    compact: bool = True
    file_size: int = TARGET
    keep: float | None = None


class Archiving:
    """Holds the table while the stream runs."""

    def __init__(
        self,
        path: str,
        checkpoint: str,
        source: SourceOptions,
        settings: Settings,
        care: Care,
    ) -> None:
        self._path = path
        self._checkpoint = checkpoint
        self._source = source
        self._settings = settings
        self._care = care
        self._writer: TableWriter | None = None
        self._rows = 0
        self._dropped = 0
        self._merged = Merged()

    @contextmanager
    def around(self, spark: "SparkSession", screen: Screen) -> Iterator[None]:
        """Hold the table, and say where queues begin that it has not seen.

        Raises:
            TableBusy: another run holds it.
            OtherSettings: it was made with other columns.
            SeamGap, OtherLog: a topic was made anew since.
        """
        del screen
        with ArchiveTable.at(spark, self._path).writing(self._settings) as writer:
            self._writer = writer
            self._begin(spark, writer)
            yield

    def write(self, rows: "DataFrame", batch: int, screen: Screen) -> None:
        """Add a batch, and merge the files of one hour if there are too many.

        Raises:
            ArchiveGap: messages are missing, and none may be.
        """
        del batch, screen  # the table knows by offsets what it has
        writer, lossy = self._require_writer(), not self._source.fail_on_data_loss
        self._rows += append(rows, writer, allow_gaps=lossy)
        self._drop_old(writer)
        self._merge(rows.sparkSession, writer, self._heaps(writer.state())[:1])

    def closing(self, spark: "SparkSession", screen: Screen) -> Sequence[Table]:
        """Tidy the table; tell what it has now, and what this run did."""
        writer = self._require_writer()
        self._drop_old(writer)
        if not screen.stop_asked:
            self._merge(spark, writer, self._heaps(writer.state()))
        return [self._summary(writer.state())]

    def _summary(self, state: State) -> Table:
        rows = [_topic_row(state, topic) for topic in state.topics]
        hours, before, after = self._merged
        title = f"Archive at {self._path}: {self._rows:,} rows added"
        if hours:
            title += f", {before:,} files of {hours:,} hours merged to {after:,}"
        if self._dropped:
            title += f", {self._dropped:,} old rows deleted"
        return Table(title, ("topic", "rows", "files", "bytes", "first hour", "last hour"), rows)

    def _require_writer(self) -> TableWriter:
        assert self._writer is not None, "the stream runs outside of `around`"
        return self._writer

    # Where it begins

    def _begin(self, spark: "SparkSession", writer: TableWriter) -> None:
        """Queues that come later are read from their oldest message, as the source does."""
        state = writer.state()
        has_begun = any(
            name.isdecimal() for name in files_at(spark, self._checkpoint).names("offsets")
        )

        async def look(cluster: Cluster) -> dict[MessageQueue, tuple[Bounds, int]]:
            queues = await require_queues(cluster, self._source)
            bounds = await cluster.bounds(queues)
            start = await cluster.resolve(self._source.start(default="earliest"), queues)
            return {
                queue: (bounds[queue], bounds[queue].oldest if has_begun else start[queue])
                for queue in queues
            }

        found = ask(self._source.connection(), look, patience=self._source.patience)
        bounds = {queue: each for queue, (each, _) in found.items()}
        refuse_other_log(state, bounds)
        refuse_other_messages(spark, writer, state, bounds, self._source)
        unseen = found.keys() - state.covered.keys()
        writer.begin({queue: found[queue][1] for queue in unseen})

    # Care

    def _drop_old(self, writer: TableWriter) -> None:
        if self._care.keep is not None:
            moment = datetime.now(UTC) - timedelta(seconds=self._care.keep)
            self._dropped += drop_before(writer, moment)

    def _heaps(self, state: State) -> list[Heap]:
        if not self._care.compact:
            return []
        files, target = state.files_of(), self._care.file_size
        now = hour_of(datetime.fromtimestamp(time.time(), UTC))
        over = find_heaps(files, before_hour=now, least=MANY_OVER, target=target)
        growing = [file for file in files if file.hour >= now]
        return over + find_heaps(growing, least=MANY_NOW, target=target)

    def _merge(self, spark: "SparkSession", writer: TableWriter, heaps: Sequence[Heap]) -> None:
        done = merge(spark, writer, heaps, target=self._care.file_size)
        self._merged = Merged(*(a + b for a, b in zip(self._merged, done, strict=True)))


def _topic_row(state: State, topic: str) -> tuple[object, ...]:
    files = state.files_of([topic])
    hours = [file.hour for file in files]
    rows, size = sum(file.rows for file in files), sum(file.size for file in files)
    return topic, rows, len(files), size, min(hours, default=None), max(hours, default=None)
