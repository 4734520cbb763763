"""Batch reads of `rocketmq`: ranges of queues, fixed when the first action is planned."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from bolide.arrow.cluster import Cluster, ask
from bolide.arrow.errors import BadPosition
from bolide.arrow.offsets import (
    EARLIEST,
    LATEST,
    Bounds,
    Earliest,
    Exact,
    Latest,
    Offsets,
    Position,
    QueueRange,
    between,
    refuse_past_end,
    split,
)
from bolide.arrow.topic_reader import read_range_blocking
from bolide.model.message_queue import MessageQueue
from bolide.spark.options import SourceOptions
from bolide.spark.subscription import require_queues


class Plan(NamedTuple):
    """Where a batch begins and ends, and what the queues hold."""

    start: Offsets
    end: Offsets
    bounds: Mapping[MessageQueue, Bounds]


class BatchReader(DataSourceReader):
    """Plans on the driver, reads in tasks; a copy of it travels to each."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._connection = options.connection()
        self._reading = options.reading()
        self._start = _start_of(options)
        self._end = _end_of(options)

    def partitions(self) -> list[InputPartition]:
        """One for each queue, or more. Raises ConfigError for a range that is not there."""
        plan = ask(self._connection, self._plan, patience=self._options.patience)
        # What is gone at the beginning of a queue the tasks judge.
        refuse_past_end(plan.start, plan.bounds, option="startingOffsets")
        refuse_past_end(plan.end, plan.bounds, option="endingOffsets")
        return to_partitions(between(plan.start, plan.end), self._options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if partition.value is None:  # what Spark makes of an empty plan
            return iter(())
        return read_range_blocking(self._connection, partition.value, self._reading)

    async def _plan(self, cluster: Cluster) -> Plan:
        queues = await require_queues(cluster, self._options)
        start = await cluster.resolve(self._start, queues)
        end = await cluster.resolve(self._end, queues)
        return Plan(start, end, await cluster.bounds(queues))


def to_partitions(ranges: list[QueueRange], options: SourceOptions) -> list[InputPartition]:
    """Ranges cut as the options ask, the queues still in order."""
    parts = split(ranges, options.min_partitions or 1, options.max_records_per_partition)
    return [InputPartition(part) for part in parts]


def _start_of(options: SourceOptions) -> Position:
    position = options.start(default="earliest")
    if position == Latest() or _names(position, LATEST):
        raise BadPosition(
            "startingOffsets: a batch cannot begin at latest (-1): nothing would be read"
        )
    return position


def _end_of(options: SourceOptions) -> Position:
    position = options.end()
    if position == Earliest() or _names(position, EARLIEST):
        raise BadPosition(
            "endingOffsets: a batch cannot end at earliest (-2): nothing would be read"
        )
    return position


def _names(position: Position, offset: int) -> bool:
    return isinstance(position, Exact) and offset in position.offsets.values()
