"""Archives as DataFrames: the files that the manifest names, and no others."""

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
"""The form of an hour (UTC) in paths; Spark and DuckDB take it for text."""


def read_archive(
    spark: "SparkSession",
    path: str,
    *,
    topics: Iterable[str] | None = None,
    start: datetime | None = None,
    end: datetime | None = None,
) -> "DataFrame":
    """The messages of an archive as it is now, by its manifest: each once, whatever runs meanwhile.

    Args:
        spark: the session.
        path: where the archive is.
        topics: only these.
        start: only messages stored at that time or later; a time without a zone is UTC.
        end: only messages stored before that.

    Returns:
        The columns of the source `rocketmq`, and `hour`.

    Raises:
        NoArchive: there is none.
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
    """The rows of these files, with the columns of the table and `hour`."""
    columns = columns_of(settings)
    schema = StructType([*columns.fields, StructField("hour", StringType())])
    if not files:
        return spark.createDataFrame([], schema)
    reader = spark.read.schema(schema).option("basePath", table.url)
    found = reader.parquet(*(table.url_of(each.path) for each in files))
    return found.select(*schema.names)  # Spark has the columns of directories last


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
