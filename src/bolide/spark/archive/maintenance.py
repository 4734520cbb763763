"""Compaction and retention of an archive."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from bolide.errors import BolideError
from bolide.model.message_queue import MessageQueue
from bolide.spark.archive.manifest import DataFile
from bolide.spark.archive.reading import hour_of, read_files
from bolide.spark.archive.table import TableWriter
from bolide.spark.archive.writing import ORDER, stage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TARGET_FILE_SIZE = 128 * 1024 * 1024
"""Target size of a file in bytes; files of at least half that size are not compacted."""


class CompactionGroup(NamedTuple):
    """Small files of one hour of a topic."""

    topic: str
    hour: str
    files: Sequence[DataFile]

    @property
    def size(self) -> int:
        return sum(each.size for each in self.files)

    @property
    def rows(self) -> int:
        return sum(each.rows for each in self.files)


class CompactionResult(NamedTuple):
    hours: int = 0
    before: int = 0
    after: int = 0


class RowsDiffer(BolideError):
    """Compacted files differ from their inputs; the table is unchanged."""

    def __init__(self, group: CompactionGroup) -> None:
        super().__init__(
            f"topic {group.topic!r}, hour {group.hour}: the merged files do not have the rows of"
            f" the {len(group.files)} files they are made of; nothing was changed. Run the"
            " reconcile pipeline to see which file is damaged"
        )


def find_compaction_groups(
    files: Iterable[DataFile],
    *,
    before_hour: str = "~",
    least: int = 2,
    target: int = TARGET_FILE_SIZE,
) -> list[CompactionGroup]:
    """Hours before `before_hour` with at least `least` small files."""
    groups = defaultdict(list)
    for file in files:
        if file.hour < before_hour and file.size < target // 2:
            groups[file.topic, file.hour].append(file)
    return [
        CompactionGroup(*key, group) for key, group in sorted(groups.items()) if len(group) >= least
    ]


def compact_groups(
    spark: "SparkSession",
    writer: TableWriter,
    groups: Sequence[CompactionGroup],
    *,
    target: int = TARGET_FILE_SIZE,
    each: Callable[[CompactionGroup], bool] = lambda _: True,
) -> CompactionResult:
    """Compact group by group, one commit each; stops when `each` returns False."""
    done = CompactionResult()
    for group in groups:
        count_after = _compact_group(spark, writer, group, target)
        done = CompactionResult(
            done.hours + 1, done.before + len(group.files), done.after + count_after
        )
        if not each(group):
            break
    return done


def _compact_group(
    spark: "SparkSession", writer: TableWriter, group: CompactionGroup, target: int
) -> int:
    count = -(-group.size // target)
    rows = read_files(spark, writer, group.files, writer.settings())
    parts = rows.coalesce(1) if count == 1 else rows.repartitionByRange(count, *ORDER[2:])
    files = stage(parts, writer)
    if _totals(files) != _totals(group.files):
        raise RowsDiffer(group)
    writer.commit("compact", files, [each.path for each in group.files])
    return len(files)


class _Total(NamedTuple):
    first: int
    last: int
    rows: int


def _totals(files: Iterable[DataFile]) -> dict[MessageQueue, _Total]:
    """First offset, last offset and rows of each queue, over all files."""
    found: dict[MessageQueue, _Total] = {}
    for file in files:
        for span in file.spans:
            queue = file.queue_of(span)
            first, last, rows = found.get(queue, _Total(span.first, span.last, 0))
            found[queue] = _Total(min(first, span.first), max(last, span.last), rows + span.rows)
    return found


def drop_before(writer: TableWriter, moment: datetime) -> int:
    """Delete the files of hours that ended before `moment`; returns the number of rows deleted."""
    last = hour_of(moment)
    old = [each for each in writer.state().files_of() if each.hour < last]
    if old:
        writer.commit("drop", [], [each.path for each in old])
    return sum(each.rows for each in old)
