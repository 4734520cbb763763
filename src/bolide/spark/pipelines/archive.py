"""`archive`: topics to Parquet by topic and hour, each message exactly once.

Spark's checkpoint says which offsets a batch has; the table's own manifest says which are in the
table. Rows that are in it already are left out, so a batch that comes again, or a checkpoint that
was lost, adds nothing twice. The checkpoint lies in the table, so that the two stay together.
"""

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from bolide.arrow.cluster import Cluster, ask
from bolide.arrow.offsets import Offsets, to_json
from bolide.errors import ConfigError
from bolide.model.message_queue import MessageQueue
from bolide.spark.archive.manifest import State
from bolide.spark.archive.reading import columns_of
from bolide.spark.archive.table import CHECKPOINT, ArchiveTable, Settings
from bolide.spark.options import SourceOptions
from bolide.spark.pipelines.archiving import Archiving, Care
from bolide.spark.pipelines.builtin import BuiltIn, RunSettings, choice
from bolide.spark.pipelines.spans import parse_span
from bolide.spark.pipelines.triggers import Trigger
from bolide.spark.pipelines.work import EachBatch, Pipeline, Source
from bolide.spark.subscription import require_queues

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

EVERY = Trigger(60.0)

_STARTS = {"startingoffsets", "startingtimestamp"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveOptions:
    """Archive topics as Parquet by topic and hour, each message exactly once."""

    path: str = choice("Directory or URL of the table; made if there is none.", metavar="PATH")
    topic: str | None = choice("Topics, with commas between them.", default=None)
    topic_pattern: str | None = choice(
        "A regular expression that whole names of topics match, in place of --topic.", default=None
    )
    start: str = choice(
        "Where a new archive starts: earliest, latest, a time, -1h, group:NAME or JSON.",
        default="earliest",
    )
    value_schema: str | None = choice(
        "Columns of JSON bodies, such as 'id bigint, name string'; they become `value`.",
        default=None,
    )
    properties: bool = choice("Have the column `properties`.", default=True)
    batch_rows: int = choice("Messages in one change of the table.", default=250_000, low=1)
    compact: bool = choice("Merge small files of hours that are over, by the way.", default=True)
    file_mib: int = choice("Size that merged files should have.", default=128, low=1)
    keep: str | None = choice(
        "Delete hours older than that, such as 30d; the log is not touched.", default=None
    )


def plan(options: ArchiveOptions, run: RunSettings) -> Pipeline:
    """Raises ConfigError; names the option."""
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
    work = Archiving(options.path, checkpoint, wanted, settings, _care(options))
    return Pipeline(
        name=run.named(_name(options)),
        source=ArchiveSource(options=source.options, path=options.path),
        sink=EachBatch(f"archive at {options.path}", work.write),
        checkpoint=checkpoint,
        trigger=run.trigger_of(EVERY),
        commit_group=run.commit_group,
        around=work.around,
        closing=work.closing,
    )


def _check(source: SourceOptions) -> None:
    """Here, where a mistake is told in a line: in the stream it would be told by Spark."""
    source.start(default="earliest")
    columns_of(Settings(source.include_properties, source.value_schema))
    if source.tags or source.sql:
        raise ConfigError(
            f"{'tags' if source.tags else 'sql'}: an archive has every message of its topics;"
            " filter when you read it, or declare a pipeline of your own"
        )


def _care(options: ArchiveOptions) -> Care:
    keep = parse_span(options.keep, option="keep") if options.keep else None
    return Care(compact=options.compact, file_size=options.file_mib * 1024 * 1024, keep=keep)


def _name(options: ArchiveOptions) -> str:
    words = options.topic or options.topic_pattern or ""
    return "archive-" + (re.sub(r"[^A-Za-z0-9_-]+", "-", words).strip("-") or "topics")


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveSource(Source):
    """Without a checkpoint it goes on from where the table ends."""

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


BUILT_IN = BuiltIn(
    "archive", ArchiveOptions, plan, example="--topic orders --path /data/lake/orders --once"
)
