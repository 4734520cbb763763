"""The data source `rocketmq-commitlog`: commit log files as rows, without a broker.

Each split of the log is one task. Every worker must see the files under the same path.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema

from bolide.arrow.commit_log import LogOptions, plan_splits, read_split, time_of
from bolide.arrow.log_splits import SPLIT_SIZE
from bolide.config import option
from bolide.errors import ConfigError
from bolide.kernel.column_buffers import END_LONG, FIRST_LONG
from bolide.spark.options import load
from bolide.spark.source import check_schema

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitLogOptions:
    """Options of the data source `rocketmq-commitlog`."""

    path: str | None = option(
        None,
        "A store directory, its `commitlog` directory or one log file, the same for every worker;"
        " `.load(path)` sets it too.",
    )
    topic: tuple[str, ...] = option(
        (),
        "One topic, or several separated by commas; defaults to all but internal topics.",
        separator=",",
    )
    starting_timestamp: str | None = option(
        None,
        "Earliest store time (inclusive): a time such as `2026-01-31T12:00:00Z` or `-10m`, or"
        " milliseconds since 1970.",
    )
    ending_timestamp: str | None = option(None, "Latest store time (exclusive), in the same forms.")
    split_size: int = option(
        SPLIT_SIZE,
        "Bytes of the log per task; 0 makes each file one task, which is safe even against bodies"
        " crafted to look like records.",
        bounds=(0, None),
    )
    verify_crc: bool = option(True, "Verify the checksums of bodies.")
    include_internal: bool = option(
        False, "Include internal topics, and half and rolled-back messages."
    )
    include_properties: bool = option(True, "Include the column `properties`.")
    value_schema: str | None = option(
        None,
        "Columns such as `id bigint, name string`: adds a column `value` with these, decoded from"
        " JSON bodies; null if a body is not JSON.",
    )
    fail_on_data_loss: bool = option(
        True,
        "Fail if a record is damaged or a file is missing; else log it and continue after it.",
    )
    broker: str | None = option(
        None, "Value of the column `broker`, which the log does not contain; null by default."
    )

    @classmethod
    def of(cls, options: Mapping[str, str]) -> "CommitLogOptions":
        """Raises ConfigError, naming the option that is unknown, missing or invalid."""
        found = load(cls, options)
        if not found.path:
            raise ConfigError("path is missing: call .load(path) with a store directory")
        found.reading()
        return found

    def reading(self) -> LogOptions:
        """Raises ConfigError, naming the option."""
        since, until = self.starting_timestamp, self.ending_timestamp
        return LogOptions(
            topics=self.topic,
            since=time_of(since, option="startingTimestamp") if since else FIRST_LONG,
            until=time_of(until, option="endingTimestamp") if until else END_LONG,
            split_size=self.split_size,
            broker=self.broker,
            include_internal=self.include_internal,
            include_properties=self.include_properties,
            value_schema=self.value_schema,
            verify_crc=self.verify_crc,
            fail_on_data_loss=self.fail_on_data_loss,
        )


class CommitLogSource(DataSource):
    """Messages of a commit log as rows; batch reads only."""

    @classmethod
    def name(cls) -> str:
        return "rocketmq-commitlog"

    def schema(self) -> "StructType":
        """The columns of a message. Raises ConfigError for invalid options."""
        return from_arrow_schema(CommitLogOptions.of(self.options).reading().schema)

    def reader(self, schema: "StructType") -> DataSourceReader:
        check_schema(schema, self)
        options = CommitLogOptions.of(self.options)
        return CommitLogReader(options.path or "", options.reading())


class CommitLogReader(DataSourceReader):
    """Plans splits on the driver and reads them in tasks; Spark pickles a copy for each task."""

    def __init__(self, path: str, options: LogOptions) -> None:
        self._path = path
        self._options = options

    def partitions(self) -> list[InputPartition]:
        """One for each split. Raises NoCommitLog, or LogFileGone unless data loss is allowed."""
        return [InputPartition(split) for split in plan_splits(self._path, self._options)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if partition.value is None:  # Spark's placeholder for an empty plan
            return iter(())
        return read_split(partition.value, self._options)
