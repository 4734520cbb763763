"""The `rocketmq` sink: rows of a DataFrame become messages with at-least-once delivery.

`write` runs in tasks and returns when every row is stored. There is no rollback: messages that a
failed task has sent stay stored, and are sent again when Spark retries the task or the batch.
"""

import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Self

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from bolide.errors import ConfigError
from bolide.spark.sink.columns import Columns
from bolide.spark.sink.options import SinkOptions
from bolide.spark.sink.row_batches import RowBatcher
from bolide.spark.sink.rows import Task
from bolide.spark.sink.sender import BlockingSender

_SLICES_A_SECOND = 10


@dataclass(frozen=True, slots=True)
class WriteResult(WriterCommitMessage):
    """Rows and requests of one task."""

    partition: int
    rows: int
    requests: int


class _SinkWriter:
    """Base of both writers; holds plain values, as it is pickled to workers."""

    def __init__(self, options: SinkOptions, columns: Columns) -> None:
        self._options = options
        self._columns = columns
        self._connection = options.connection()
        self._job = uuid.uuid4().hex

    @classmethod
    def of(cls, options: Mapping[str, str], schema: StructType, *, overwrite: bool = False) -> Self:
        """Check options and columns; sends nothing.

        Raises:
            ConfigError: an option or a column is invalid; names it.
        """
        if overwrite:
            raise ConfigError(
                "a topic cannot be overwritten: use .mode('append'), or .outputMode('append') or"
                " 'update' for a stream"
            )
        chosen = SinkOptions.of(options)
        kinds = {field.name: field.dataType.simpleString() for field in schema.fields}
        return cls(chosen, Columns.of(kinds, chosen))

    def write(self, iterator: Iterator[Any]) -> "WriteResult":
        """Send all rows of a task and wait until they are stored.

        Raises:
            RowFailed, RowsFailed: rows cannot be sent; names them.
        """
        task = current_task(self._job)
        batcher = RowBatcher(self._columns, self._options, task)
        with BlockingSender(self._connection, self._options, task) as sender:
            for batch in paced(iterator, self._options.max_rows_per_second):
                for row_batch in batcher.split(batch, sender.queues_of):
                    sender.send(row_batch)
        return WriteResult(task.partition, batcher.rows, sender.requests)


class BatchSink(_SinkWriter, DataSourceArrowWriter):
    """Writes a DataFrame once."""


class StreamSink(_SinkWriter, DataSourceStreamArrowWriter):
    """Writes the micro-batches of a stream."""


def current_task(job: str) -> Task:
    """Identity of the task, stable over retries: query and batch of a stream, else `job`."""
    context = TaskContext.get()
    if context is None:
        return Task(job)
    query = context.getLocalProperty("sql.streaming.queryId") or job
    batch = context.getLocalProperty("streaming.sql.batchId") or "0"
    return Task(query, batch, context.partitionId())


def paced(
    batches: Iterable[Any],
    rate: float | None,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[Any]:
    """Slice record batches, and delay each slice until the rate allows it.

    The sink paces rows itself: Spark's operators buffer rows between two tasks, which would delay
    them until the buffers are full.

    Args:
        batches: record batches to send.
        rate: maximum rows per second; None for no limit.
        clock: monotonic seconds.
        sleep: blocks for a number of seconds.
    """
    if rate is None:
        yield from batches
        return
    began, rows = clock(), 0
    for part in _paced_slices(batches, max(1, int(rate / _SLICES_A_SECOND))):
        early = began + rows / rate - clock()
        if early > 0:
            sleep(early)
        yield part
        rows += part.num_rows


def _paced_slices(batches: Iterable[Any], size: int) -> Iterator[Any]:
    for batch in batches:
        for start in range(0, batch.num_rows, size):
            yield batch.slice(start, size)
