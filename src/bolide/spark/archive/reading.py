"""Archives as DataFrames; only files that the manifest names are read."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StringType, StructField, StructType

from bolide.arrow.range_fetcher import ReadOptions
from bolide.spark.archive.manifest import DataFile
from bolide.spark.archive.table import ArchiveTable, Settings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

HOUR = "%Y-%m-%d-%H"
"""Format of an hour (UTC) in paths; Spark and DuckDB read it as text."""


def read_archive(
    spark: "SparkSession",
    path: str,
    *,
    topics: Iterable[str] | None = None,
    start: datetime | None = None,
    end: datetime | None = None,
) -> "DataFrame":
    """The messages of an archive, each once: a snapshot, unaffected by concurrent runs.

    Args:
        spark: the session.
        path: the location of the archive.
        topics: read only these topics.
        start: only messages stored at that time or later; a time without a zone is UTC.
        end: only messages stored before that.

    Returns:
        The columns of the source `rocketmq`, and `hour`.

    Raises:
        NoArchive: there is no archive at the path.
    """
    table = ArchiveTable.at(spark, path)
    files = _between(table.state().files_of(topics), start, end)
    frame = read_files(spark, table, files, table.settings())
    if start is not None:
        frame = frame.where(frame.store_timestamp >= _utc(start))
    if end is not None:
        frame = frame.where(frame.store_timestamp < _utc(end))
    return frame


def read_files(
    spark: "SparkSession", table: ArchiveTable, files: Sequence[DataFile], settings: Settings
) -> "DataFrame":
    """The rows of some files, with the columns of the table and `hour`."""
    columns = columns_of(settings)
    schema = StructType([*columns.fields, StructField("hour", StringType())])
    if not files:
        return spark.createDataFrame([], schema)
    reader = spark.read.schema(schema).option("basePath", table.url)
    found = reader.parquet(*(table.url_of(each.path) for each in files))
    return found.select(*schema.names)  # Spark puts partition columns last


def columns_of(settings: Settings) -> StructType:
    """The columns of the source `rocketmq` with these settings."""
    options = ReadOptions(
        include_properties=settings.include_properties, value_schema=settings.value_schema
    )
    return from_arrow_schema(options.schema)


def hour_of(moment: datetime) -> str:
    return _utc(moment).astimezone(UTC).strftime(HOUR)


def _between(
    files: Iterable[DataFile], start: datetime | None, end: datetime | None
) -> list[DataFile]:
    first = hour_of(start) if start else ""
    last = hour_of(end) if end else "~"
    return [each for each in files if first <= each.hour <= last]


def _utc(moment: datetime) -> datetime:
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
