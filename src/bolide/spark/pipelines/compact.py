"""`compact`: merges the small files of an archive, and deletes old hours."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from bolide.spark.archive.maintenance import (
    CompactionGroup,
    compact_groups,
    drop_before,
    find_compaction_groups,
)
from bolide.spark.archive.reading import hour_of
from bolide.spark.archive.table import ArchiveTable
from bolide.spark.pipelines.builtin import BuiltIn, RunSettings, cli_option
from bolide.spark.pipelines.definition import Job, Outcome, Screen, Table
from bolide.spark.pipelines.times import parse_duration

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactOptions:
    """Merge the small files of an archive, hour by hour, and delete hours that are too old."""

    path: str = cli_option("Directory or URL of the archive.", metavar="PATH")
    file_mib: int = cli_option("Size that files should have.", default=128, low=1)
    all_hours: bool = cli_option("The current hour as well.", default=False)
    keep: str | None = cli_option("Delete hours older than that, such as 30d.", default=None)


def plan(options: CompactOptions, run: RunSettings) -> Job:
    """Raises ConfigError, naming the option."""
    keep = parse_duration(options.keep, option="keep") if options.keep else None

    def work(spark: "SparkSession", screen: Screen) -> Outcome:
        return _compact(spark, screen, options, keep)

    return Job(
        kind="compact",
        name=run.named("compact"),
        text=f"merge small files of {options.path}",
        run=work,
    )


def _compact(
    spark: "SparkSession", screen: Screen, options: CompactOptions, keep: float | None
) -> Outcome:
    target, now = options.file_mib * 1024 * 1024, datetime.now(UTC)
    with ArchiveTable.at(spark, options.path).writing() as writer:
        dropped = drop_before(writer, now - timedelta(seconds=keep)) if keep is not None else 0
        last = "~" if options.all_hours else hour_of(now)
        groups = find_compaction_groups(writer.state().files_of(), before_hour=last, target=target)
        progress = _CompactionProgress(screen, sum(group.rows for group in groups))
        done = compact_groups(spark, writer, groups, target=target, each=progress)
        files = len(writer.state().files)
    columns = ("hours merged", "files before", "files after", "rows deleted", "files in all")
    row = (done.hours, done.before, done.after, dropped, files)
    return Outcome((Table(f"Archive at {options.path}", columns, [row]),), rows=progress.rows)


class _CompactionProgress:
    """Reports each compacted hour, and stops the compaction on request."""

    def __init__(self, screen: Screen, rows: int) -> None:
        self._screen = screen
        self._total = rows
        self.rows = 0

    def __call__(self, group: CompactionGroup) -> bool:
        self.rows += group.rows
        self._screen.advance(self.rows, self._total)
        return not self._screen.stop_requested


BUILT_IN = BuiltIn("compact", CompactOptions, plan, example="--path /data/lake/orders --keep 90d")
