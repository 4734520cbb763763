"""Rows split and encoded as a task of the sink does it, without Spark and without a broker."""

from collections.abc import Sequence

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema

from bolide.model.message import Message
from bolide.model.message_queue import MessageQueue
from bolide.protocol.batch import iter_batch
from bolide.spark.sink.columns import Columns
from bolide.spark.sink.options import SinkOptions
from bolide.spark.sink.routing import QueueList
from bolide.spark.sink.row_batches import RowBatch, RowBatcher
from bolide.spark.sink.rows import Task

TASK = Task("query", "7", 3)


def options(**given: str) -> SinkOptions:
    return SinkOptions.of({"nameServer": "127.0.0.1:9876", **given})


def kinds(schema: pa.Schema) -> dict[str, str]:
    """The Spark SQL type names of columns."""
    return {field.name: field.dataType.simpleString() for field in from_arrow_schema(schema)}


def batcher(chosen: SinkOptions, batch: pa.RecordBatch) -> RowBatcher:
    return RowBatcher(Columns.of(kinds(batch.schema), chosen), chosen, TASK)


def queues_of(topic: str) -> Sequence[MessageQueue]:
    return [MessageQueue(topic, f"broker-{name}", number) for name in "ab" for number in range(2)]


def pack(
    chosen: SinkOptions, queues: QueueList = queues_of, /, **columns: object
) -> list[RowBatch]:
    batch = pa.record_batch(columns)
    return list(batcher(chosen, batch).split(batch, queues))


def messages(row_batches: Sequence[RowBatch]) -> list[Message]:
    """The messages sent, in the order of the rows."""
    numbered = [
        (number, item.message(row_batch.topic))
        for row_batch in row_batches
        for number, item in zip(row_batch.rows, iter_batch(row_batch.body), strict=True)
    ]
    return [message for _, message in sorted(numbered, key=lambda pair: pair[0])]


def message(chosen: SinkOptions, **columns: object) -> Message:
    """The one message of one row."""
    (found,) = messages(pack(chosen, **columns))
    return found
