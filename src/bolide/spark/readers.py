"""Batch and streaming readers of `rocketmq`.

A reader lives on the driver, where it resolves offsets and plans partitions; Spark pickles a copy
of it for each task, which reads one partition. A reader therefore opens nothing in its constructor.

A streaming plan depends on its arguments alone: after a failure a new process makes the same plan
again. A queue that is in the end of a batch but not in its start is new and begins at 0. A queue
whose end lies before its start was recreated and begins at 0 too. In both cases the tasks find out
which of those messages still exist.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, TypeVar

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

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
    from_plain,
    refuse_past_end,
    split,
    to_plain,
)
from bolide.arrow.position_lookup import record_size
from bolide.arrow.topic_reader import read_range_blocking
from bolide.errors import BolideError
from bolide.logs import ThrottledLog
from bolide.model.message_queue import MessageQueue
from bolide.spark.options import SourceOptions
from bolide.spark.planning import (
    AbsenceTracker,
    advance,
    find_queues,
    is_subscribed,
    ranges_between,
    require_queues,
)

T = TypeVar("T")
_rare_log = ThrottledLog(logging.getLogger(__name__))
_ABSENT_POLL_INTERVAL = 0.5
"""Seconds between two lookups of an absent broker."""
_MIN_POLL_INTERVAL = 0.2
"""Minimum seconds between two lookups of offsets: an idle query asks a hundred times a second."""


class BatchPlan(NamedTuple):
    """Start and end offsets of a batch, and the offsets that the queues hold."""

    start: Offsets
    end: Offsets
    bounds: Mapping[MessageQueue, Bounds]


class BatchReader(DataSourceReader):
    """Plans on the driver and reads in tasks; Spark pickles a copy for each task."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._connection = options.connection()
        self._read_options = options.reading()
        self._start = _start_of(options)
        self._end = _end_of(options)

    def partitions(self) -> list[InputPartition]:
        """One or more for each queue. Raises ConfigError for a range that does not exist."""
        plan = ask(self._connection, self._plan, patience=self._options.patience)
        # Deleted messages at the beginning of a queue are detected by the tasks.
        refuse_past_end(plan.start, plan.bounds, option="startingOffsets")
        refuse_past_end(plan.end, plan.bounds, option="endingOffsets")
        return to_partitions(between(plan.start, plan.end), self._options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if partition.value is None:  # Spark's placeholder for an empty plan
            return iter(())
        return read_range_blocking(self._connection, partition.value, self._read_options)

    async def _plan(self, cluster: Cluster) -> BatchPlan:
        queues = await require_queues(cluster, self._options)
        start = await cluster.resolve(self._start, queues)
        end = await cluster.resolve(self._end, queues)
        return BatchPlan(start, end, await cluster.bounds(queues))


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Streaming reader; offsets are `{"topic": {"broker": {"queue": offset}}}`."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._connection = options.connection()
        self._read_options = options.reading()
        self._start = options.start(default="latest")
        self._absences = AbsenceTracker(options.patience, fail=options.fail_on_data_loss)
        self._initial: dict[MessageQueue, int] | None = None
        self._latest: dict[MessageQueue, int] | None = None
        self._absent: set[MessageQueue] = set()
        self._last_poll = -_MIN_POLL_INTERVAL
        self._target: dict[MessageQueue, int] | None = None
        """Where a run with the trigger `availableNow` ends."""

    # Offsets, on the driver

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Resolved once: Spark calls this twice, and `latest` may move in between."""
        if self._initial is None:
            self._initial = self._query(self._resolve)
        return dict(to_plain(self._initial))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        if self._options.max_offsets_per_trigger is not None:
            return ReadMaxRows(self._options.max_offsets_per_trigger)
        if self._options.max_bytes_per_trigger is not None:
            return ReadMaxBytes(self._options.max_bytes_per_trigger)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._target = _ends(self._query(self._bounds))

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """The end of the next batch; equal to `start` if there is nothing new.

        Raises:
            DataLost: messages that were to be read have been deleted.
            QueuesGone: queues have been absent for too long, and data loss is not allowed.
        """
        self._throttle()
        start_offsets = from_plain(start)
        bounds = self._query(lambda cluster: self._observe(cluster, start_offsets))
        self._latest = start_offsets | _ends(bounds)
        end = advance(
            start_offsets,
            bounds,
            target=self._target,
            max_rows=self._max_rows(limit, bounds),
            fail_on_data_loss=self._options.fail_on_data_loss,
        )
        return dict(to_plain(end))

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """The queue ends seen by the last lookup, for the query's progress."""
        return None if self._latest is None else dict(to_plain(self._latest))

    def commit(self, end: dict[str, Any]) -> None:
        """Commit the position of `commitGroup`. Informational, so failures are only logged."""
        group = self._options.commit_group
        if group is None:
            return
        offsets = {
            queue: offset for queue, offset in from_plain(end).items() if queue not in self._absent
        }
        try:
            self._query(lambda cluster: cluster.commit(group, offsets))
        except BolideError as exc:
            _rare_log.warning(group, "cannot commit the position of group %s: %s", group, exc)

    # Partitions, on the driver and in tasks

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        return to_partitions(ranges_between(from_plain(start), from_plain(end)), self._options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_range_blocking(self._connection, partition.value, self._read_options)

    # Lookups, on the driver

    def _throttle(self) -> None:
        time.sleep(max(0.0, self._last_poll + _MIN_POLL_INTERVAL - time.monotonic()))
        self._last_poll = time.monotonic()

    def _query(self, operation: Callable[[Cluster], Awaitable[T]]) -> T:
        return ask(self._connection, operation, patience=self._options.patience)

    async def _resolve(self, cluster: Cluster) -> dict[MessageQueue, int]:
        queues = await require_queues(cluster, self._options)
        return await cluster.resolve(self._start, queues)

    async def _bounds(self, cluster: Cluster) -> dict[MessageQueue, Bounds]:
        return await cluster.find_bounds(await find_queues(cluster, self._options))

    async def _observe(
        self, cluster: Cluster, start_offsets: Offsets
    ) -> dict[MessageQueue, Bounds]:
        """Bounds of the queues. Absent queues are left out; a run with a target waits for them."""
        known = {queue for queue in start_offsets if is_subscribed(queue.topic, self._options)}
        while True:
            bounds = await self._bounds(cluster)
            self._absent = known - bounds.keys()
            should_wait = self._absences.should_wait(self._absent)
            if self._target is None:
                return bounds
            if not should_wait:
                # A queue that was absent when the target was set still belongs to it.
                self._target = _ends({q: b for q, b in bounds.items() if q in known}) | self._target
                return bounds
            await asyncio.sleep(_ABSENT_POLL_INTERVAL)

    def _max_rows(self, limit: ReadLimit, queues: Iterable[MessageQueue]) -> int | None:
        """The limit on the offsets of a batch; None for no limit."""
        if isinstance(limit, ReadMaxBytes):
            return self._rows_of(limit.max_bytes, queues)
        if not isinstance(limit, ReadMaxRows):
            return None
        max_bytes = self._options.max_bytes_per_trigger
        by_size = None if max_bytes is None else self._rows_of(max_bytes, queues)
        return limit.max_rows if by_size is None else min(by_size, limit.max_rows)

    def _rows_of(self, max_bytes: int, queues: Iterable[MessageQueue]) -> int | None:
        size = self._query(lambda cluster: record_size(cluster, queues))
        return max(1, int(max_bytes / size)) if size else None


def to_partitions(ranges: list[QueueRange], options: SourceOptions) -> list[InputPartition]:
    """Split ranges as the options ask; queues stay in order."""
    parts = split(ranges, options.min_partitions or 1, options.max_records_per_partition)
    return [InputPartition(part) for part in parts]


def _start_of(options: SourceOptions) -> Position:
    position = options.start(default="earliest")
    if position == Latest() or _contains(position, LATEST):
        raise BadPosition(
            "startingOffsets: a batch cannot begin at latest (-1): nothing would be read"
        )
    return position


def _end_of(options: SourceOptions) -> Position:
    position = options.end()
    if position == Earliest() or _contains(position, EARLIEST):
        raise BadPosition(
            "endingOffsets: a batch cannot end at earliest (-2): nothing would be read"
        )
    return position


def _contains(position: Position, offset: int) -> bool:
    return isinstance(position, Exact) and offset in position.offsets.values()


def _ends(bounds: Mapping[MessageQueue, Bounds]) -> dict[MessageQueue, int]:
    return {queue: last for queue, (_, last) in bounds.items()}
