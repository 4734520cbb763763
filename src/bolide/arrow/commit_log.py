"""The commit log as a table, read from its files: no broker takes part.

The log is cut into splits where records begin; a record belongs to the split that holds its first
byte. The log ends where it does when it is planned: what a broker appends later is not read.
"""

from collections.abc import Iterable, Iterator
from os import PathLike, fspath

import pyarrow as pa

from bolide.arrow.log_options import LogOptions, When, time_of
from bolide.arrow.log_planning import Split, Times, plan
from bolide.arrow.log_reading import read_split
from bolide.arrow.table_source import TableSource
from bolide.kernel.column_buffers import END_LONG, FIRST_LONG


def read_commit_log(  # noqa: PLR0913  the options that it has
    path: str | PathLike[str],
    *,
    topics: str | Iterable[str] = (),
    start: When | None = None,
    end: When | None = None,
    broker: str | None = None,
    value_schema: str | None = None,
    include_properties: bool = True,
    include_internal: bool = False,
    verify_crc: bool = True,
    fail_on_data_loss: bool = True,
) -> "LogReader":
    """Read the messages of a store directory, or of a copy of it, without a broker.

    ```python
    orders = read_commit_log("/var/lib/bolide/store", topics="orders", start="2026-01-31")
    print(orders.to_table().num_rows)
    ```

    Where the log ends is found out now. Messages come in the order in which they were stored.

    Args:
        path: a store directory, its commitlog directory, or one log file.
        topics: one or several; by default all but the broker's own.
        start: the first store time wanted; see `When`.
        end: the first store time that is not wanted any more.
        broker: what the column `broker` says; null by default, as the log does not know.
        value_schema: columns of JSON bodies, such as `"id bigint, name string"`; they become the
            column `value`, which is null where a body does not fit.
        include_properties: whether there is a column with all properties.
        include_internal: whether to have the broker's own topics, half and rolled-back messages.
        verify_crc: whether to compare bodies with their checksums.
        fail_on_data_loss: whether to raise for damaged records and missing files.

    Raises:
        ConfigError: an option cannot be used, or there is no log; names it.
        LogFileGone: a file is missing, and that is not allowed.
    """
    options = LogOptions(
        topics=(topics,) if isinstance(topics, str) else tuple(topics),
        since=FIRST_LONG if start is None else time_of(start, option="start"),
        until=END_LONG if end is None else time_of(end, option="end"),
        broker=broker,
        value_schema=value_schema,
        include_properties=include_properties,
        include_internal=include_internal,
        verify_crc=verify_crc,
        fail_on_data_loss=fail_on_data_loss,
    )
    return LogReader(plan_splits(fspath(path), options), options)


class LogReader(TableSource):
    """The messages of parts of a log, in the order in which they were stored."""

    def __init__(self, splits: Iterable[Split], options: LogOptions) -> None:
        """Raises BadValueSchema."""
        self.splits = tuple(splits)
        self._options = options
        self._schema = options.schema

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for split in self.splits:
            yield from read_split(split, self._options)


def plan_splits(path: str, options: LogOptions) -> list[Split]:
    """Cut a log into splits.

    Raises:
        NoCommitLog: there is none at that path.
        LogFileGone: a file is missing, and that is not allowed.
    """
    times = Times(options.since, options.until)
    return plan(path, times, options.split_size, options.lose)
