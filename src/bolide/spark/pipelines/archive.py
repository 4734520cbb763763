"""`archive`: topics to Parquet by topic and hour, each message exactly once.

Spark's checkpoint fixes the offsets of a batch; the manifest of the table records which offsets the
table has. Rows that the table has already are skipped, so a repeated batch or a lost checkpoint
adds no duplicates. The checkpoint lies inside the table, so that the two stay together.
"""

import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from bolide.arrow.cluster import Cluster, ask
from bolide.arrow.offsets import Bounds, Offsets, to_json
from bolide.errors import ConfigError
from bolide.model.message_queue import MessageQueue
from bolide.spark.archive.files import files_at
from bolide.spark.archive.maintenance import (
    TARGET_FILE_SIZE,
    CompactionGroup,
    CompactionResult,
    compact_groups,
    drop_before,
    find_compaction_groups,
)
from bolide.spark.archive.manifest import State
from bolide.spark.archive.reading import columns_of, hour_of
from bolide.spark.archive.seam import refuse_other_messages, refuse_shorter_log
from bolide.spark.archive.table import CHECKPOINT, ArchiveTable, Settings, TableWriter
from bolide.spark.archive.writing import append
from bolide.spark.options import SourceOptions
from bolide.spark.pipelines.builtin import BuiltIn, RunSettings, cli_option
from bolide.spark.pipelines.definition import EachBatch, Pipeline, Screen, Source, Table
from bolide.spark.pipelines.times import Trigger, parse_duration
from bolide.spark.planning import require_queues

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_DEFAULT_TRIGGER = Trigger(60.0)
_STARTS = {"startingoffsets", "startingtimestamp"}
MIN_FILES_PAST_HOUR = 8
"""Small files of a past hour from which on it is compacted during a run."""
MIN_FILES_CURRENT_HOUR = 200
"""The same for the current hour, which will get more files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveOptions:
    """Archive topics as Parquet by topic and hour, each message exactly once."""

    path: str = cli_option("Directory or URL of the table; made if there is none.", metavar="PATH")
    topic: str | None = cli_option("Topics, with commas between them.", default=None)
    topic_pattern: str | None = cli_option(
        "A regular expression that whole names of topics match, in place of --topic.", default=None
    )
    start: str = cli_option(
        "Where a new archive starts: earliest, latest, a time, -1h, group:NAME or JSON.",
        default="earliest",
    )
    value_schema: str | None = cli_option(
        "Columns of JSON bodies, such as 'id bigint, name string'; they become `value`.",
        default=None,
    )
    properties: bool = cli_option("Have the column `properties`.", default=True)
    batch_rows: int = cli_option("Messages in one change of the table.", default=250_000, low=1)
    compact: bool = cli_option(
        "Merge small files of hours that are over, by the way.", default=True
    )
    file_mib: int = cli_option("Size that merged files should have.", default=128, low=1)
    keep: str | None = cli_option(
        "Delete hours older than that, such as 30d; the log is not touched.", default=None
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenancePolicy:
    """Compaction and retention during a run; `keep` in seconds."""

    compact: bool = True
    file_size: int = TARGET_FILE_SIZE
    keep: float | None = None


def plan(options: ArchiveOptions, run: RunSettings) -> Pipeline:
    """Raises ConfigError, naming the option."""
    source = run.source(
        topic=options.topic,
        topicPattern=options.topic_pattern,
        startingOffsets=options.start,
        includeProperties="true" if options.properties else "false",
        valueSchema=options.value_schema,
        maxOffsetsPerTrigger=options.batch_rows,
    )
    wanted = SourceOptions.of(source.options)
    _check(wanted)
    checkpoint = run.checkpoint or f"{options.path.rstrip('/')}/{CHECKPOINT}"
    settings = Settings(wanted.include_properties, wanted.value_schema)
    work = ArchiveRun(options.path, checkpoint, wanted, settings, _maintenance(options))
    return Pipeline(
        kind="archive",
        name=run.named(_name(options)),
        source=ArchiveSource(options=source.options, path=options.path),
        sink=EachBatch(f"archive at {options.path}", work.write),
        checkpoint=checkpoint,
        trigger=run.trigger_of(_DEFAULT_TRIGGER),
        commit_group=run.commit_group,
        around=work.around,
        summarize=work.summarize,
    )


def _check(source: SourceOptions) -> None:
    """Check early, for a one-line error: Spark reports errors of the stream at length."""
    source.start(default="earliest")
    columns_of(Settings(source.include_properties, source.value_schema))
    if source.tags or source.sql:
        raise ConfigError(
            f"{'tags' if source.tags else 'sql'}: an archive has every message of its topics;"
            " filter when you read it, or declare a pipeline of your own"
        )


def _maintenance(options: ArchiveOptions) -> MaintenancePolicy:
    keep = parse_duration(options.keep, option="keep") if options.keep else None
    return MaintenancePolicy(
        compact=options.compact, file_size=options.file_mib * 1024 * 1024, keep=keep
    )


def _name(options: ArchiveOptions) -> str:
    words = options.topic or options.topic_pattern or ""
    return "archive-" + (re.sub(r"[^A-Za-z0-9_-]+", "-", words).strip("-") or "topics")


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveSource(Source):
    """A source that continues where the table ends, if there is no checkpoint."""

    path: str

    def load(self, spark: "SparkSession") -> "DataFrame":
        table = ArchiveTable.at(spark, self.path)
        if not table.exists:
            return Source.load(self, spark)
        options = {key: text for key, text in self.options.items() if key.lower() not in _STARTS}
        options["startingOffsets"] = to_json(self._start(table.state()))
        return Source.load(replace(self, options=options), spark)

    def _start(self, state: State) -> Offsets:
        options = SourceOptions.of(self.options)

        async def find(cluster: Cluster) -> dict[MessageQueue, int]:
            return {queue: state.next_of(queue) for queue in await require_queues(cluster, options)}

        return ask(options.connection(), find, patience=options.patience)


class ArchiveRun:
    """Writes the batches of one run; holds the table's lease while the stream runs."""

    def __init__(
        self,
        path: str,
        checkpoint: str,
        source: SourceOptions,
        settings: Settings,
        maintenance: MaintenancePolicy,
    ) -> None:
        self._path = path
        self._checkpoint = checkpoint
        self._source = source
        self._settings = settings
        self._maintenance = maintenance
        self._writer: TableWriter | None = None
        self._rows = 0
        self._dropped = 0
        self._compaction = CompactionResult()

    @contextmanager
    def around(self, spark: "SparkSession", screen: Screen) -> Iterator[None]:
        """Open the table, and record the start offsets of new queues.

        Raises:
            TableBusy: another run holds the table.
            OtherSettings: the table was created with other columns.
            SeamGap, OtherLog: a topic was recreated since it was archived.
        """
        del screen
        with ArchiveTable.at(spark, self._path).writing(self._settings) as writer:
            self._writer = writer
            self._begin_queues(spark, writer)
            yield

    def write(self, rows: "DataFrame", batch: int, screen: Screen) -> None:
        """Append a batch, and compact one hour if it has too many files.

        Raises:
            ArchiveGap: messages are missing, and data loss is not allowed.
        """
        del batch, screen  # the manifest identifies rows by offset
        writer, lossy = self._require_writer(), not self._source.fail_on_data_loss
        self._rows += append(rows, writer, allow_gaps=lossy)
        self._drop_old(writer)
        self._compact(rows.sparkSession, writer, self._compaction_groups(writer.state())[:1])

    def summarize(self, spark: "SparkSession", screen: Screen) -> Sequence[Table]:
        """Run the final maintenance; returns a summary of the table and the run."""
        writer = self._require_writer()
        self._drop_old(writer)
        if not screen.stop_requested:
            self._compact(spark, writer, self._compaction_groups(writer.state()))
        return [self._summary(writer.state())]

    def _summary(self, state: State) -> Table:
        rows = [_topic_row(state, topic) for topic in state.topics]
        hours, before, after = self._compaction
        title = f"Archive at {self._path}: {self._rows:,} rows added"
        if hours:
            title += f", {before:,} files of {hours:,} hours merged to {after:,}"
        if self._dropped:
            title += f", {self._dropped:,} old rows deleted"
        return Table(title, ("topic", "rows", "files", "bytes", "first hour", "last hour"), rows)

    def _require_writer(self) -> TableWriter:
        assert self._writer is not None, "the stream runs outside of `around`"
        return self._writer

    # Start offsets

    def _begin_queues(self, spark: "SparkSession", writer: TableWriter) -> None:
        """Record where new queues begin; once the stream has run, at their oldest message."""
        state = writer.state()
        has_begun = any(
            name.isdecimal() for name in files_at(spark, self._checkpoint).names("offsets")
        )

        async def lookup(cluster: Cluster) -> dict[MessageQueue, tuple[Bounds, int]]:
            queues = await require_queues(cluster, self._source)
            bounds = await cluster.bounds(queues)
            start = await cluster.resolve(self._source.start(default="earliest"), queues)
            return {
                queue: (bounds[queue], bounds[queue].oldest if has_begun else start[queue])
                for queue in queues
            }

        found = ask(self._source.connection(), lookup, patience=self._source.patience)
        bounds = {queue: each for queue, (each, _) in found.items()}
        refuse_shorter_log(state, bounds)
        refuse_other_messages(spark, writer, state, bounds, self._source)
        unseen = found.keys() - state.covered.keys()
        writer.begin({queue: found[queue][1] for queue in unseen})

    # Maintenance

    def _drop_old(self, writer: TableWriter) -> None:
        if self._maintenance.keep is not None:
            moment = datetime.now(UTC) - timedelta(seconds=self._maintenance.keep)
            self._dropped += drop_before(writer, moment)

    def _compaction_groups(self, state: State) -> list[CompactionGroup]:
        if not self._maintenance.compact:
            return []
        files, target = state.files_of(), self._maintenance.file_size
        now = hour_of(datetime.fromtimestamp(time.time(), UTC))
        past = find_compaction_groups(
            files, before_hour=now, least=MIN_FILES_PAST_HOUR, target=target
        )
        growing = [file for file in files if file.hour >= now]
        return past + find_compaction_groups(growing, least=MIN_FILES_CURRENT_HOUR, target=target)

    def _compact(
        self, spark: "SparkSession", writer: TableWriter, groups: Sequence[CompactionGroup]
    ) -> None:
        done = compact_groups(spark, writer, groups, target=self._maintenance.file_size)
        self._compaction = CompactionResult(
            *(a + b for a, b in zip(self._compaction, done, strict=True))
        )


def _topic_row(state: State, topic: str) -> tuple[object, ...]:
    files = state.files_of([topic])
    hours = [file.hour for file in files]
    rows, size = sum(file.rows for file in files), sum(file.size for file in files)
    return topic, rows, len(files), size, min(hours, default=None), max(hours, default=None)


BUILT_IN = BuiltIn(
    "archive", ArchiveOptions, plan, example="--topic orders --path /data/lake/orders --once"
)
