"""Streaming reads of `rocketmq`: positions in queues, micro-batches, and who is told of them.

One reader lives on the driver for offsets and plans; copies of it, made by another process, read
in tasks. So nothing is opened before it is needed, and a plan comes from its arguments alone: it
is made again after a failure, in a new process, and must be the same.

A queue that is not in the start of a batch but in its end begins at 0. An end before its start is
that of a queue that was made anew, which begins at 0 too. In both cases the tasks find out what is
still there.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from bolide.arrow.cluster import Cluster, ask
from bolide.arrow.offsets import Bounds, Offsets, from_plain, to_plain
from bolide.arrow.position_lookup import record_size
from bolide.arrow.topic_reader import read_range_blocking
from bolide.errors import BolideError
from bolide.logs import ThrottledLog
from bolide.model.message_queue import MessageQueue
from bolide.spark.advance import Absence, advance, ranges_between
from bolide.spark.batch import to_partitions
from bolide.spark.options import SourceOptions
from bolide.spark.subscription import find_queues, is_wanted, require_queues

T = TypeVar("T")

_rare_log = ThrottledLog(logging.getLogger(__name__))
_LOOK_AGAIN = 0.5
"""Seconds between two looks for a broker that is away."""
_LOOKS_APART = 0.2
"""Seconds between two looks at all: Spark asks a hundred times a second while nothing comes."""


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Spark's view of a stream. Offsets are `{"topic": {"broker": {"queue": offset}}}`."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._connection = options.connection()
        self._reading = options.reading()
        self._start = options.start(default="latest")
        self._absence = Absence(options.patience, fail=options.fail_on_data_loss)
        self._initial: dict[MessageQueue, int] | None = None
        self._latest: dict[MessageQueue, int] | None = None
        self._away: set[MessageQueue] = set()
        self._looked = -_LOOKS_APART
        self._target: dict[MessageQueue, int] | None = None
        """Where a run ends that takes only what is there when it begins."""

    # Offsets, on the driver

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Asked for twice by Spark: `latest` is looked up once."""
        if self._initial is None:
            self._initial = self._ask(self._resolve)
        return dict(to_plain(self._initial))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        if self._options.max_offsets_per_trigger is not None:
            return ReadMaxRows(self._options.max_offsets_per_trigger)
        if self._options.max_bytes_per_trigger is not None:
            return ReadMaxBytes(self._options.max_bytes_per_trigger)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._target = _ends(self._ask(self._bounds))

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Where the next batch ends; the start itself if there is nothing new.

        Raises:
            DataLost: messages that were to be read are gone, and that is not allowed.
            QueuesGone: queues have been away for too long, and that is not allowed.
        """
        self._pause()
        begun = from_plain(start)
        bounds = self._ask(lambda cluster: self._look(cluster, begun))
        self._latest = begun | _ends(bounds)
        end = advance(
            begun,
            bounds,
            target=self._target,
            max_rows=self._max_rows(limit, bounds),
            fail_on_data_loss=self._options.fail_on_data_loss,
        )
        return dict(to_plain(end))

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """What the last look saw, for the query's progress."""
        return None if self._latest is None else dict(to_plain(self._latest))

    def commit(self, end: dict[str, Any]) -> None:
        """Tell the group; Spark calls this one batch late. It is for show, so it never fails."""
        group = self._options.commit_group
        if group is None:
            return
        offsets = {queue: at for queue, at in from_plain(end).items() if queue not in self._away}
        try:
            self._ask(lambda cluster: cluster.commit(group, offsets))
        except BolideError as exc:
            _rare_log.warning(group, "group %s was not told the position: %s", group, exc)

    # Work

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        return to_partitions(ranges_between(from_plain(start), from_plain(end)), self._options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_range_blocking(self._connection, partition.value, self._reading)

    # Questions

    def _pause(self) -> None:
        time.sleep(max(0.0, self._looked + _LOOKS_APART - time.monotonic()))
        self._looked = time.monotonic()

    def _ask(self, question: Callable[[Cluster], Awaitable[T]]) -> T:
        return ask(self._connection, question, patience=self._options.patience)

    async def _resolve(self, cluster: Cluster) -> dict[MessageQueue, int]:
        queues = await require_queues(cluster, self._options)
        return await cluster.resolve(self._start, queues)

    async def _bounds(self, cluster: Cluster) -> dict[MessageQueue, Bounds]:
        return await cluster.find_bounds(await find_queues(cluster, self._options))

    async def _look(self, cluster: Cluster, begun: Offsets) -> dict[MessageQueue, Bounds]:
        """What the queues hold; those that are away are left out, but a run to a target waits."""
        known = {queue for queue in begun if is_wanted(queue.topic, self._options)}
        while True:
            bounds = await self._bounds(cluster)
            self._away = known - bounds.keys()
            waiting = self._absence.judge(self._away)
            if self._target is None:
                return bounds
            if not waiting:
                # What was away when the target was set belongs to it all the same.
                self._target = _ends({q: b for q, b in bounds.items() if q in known}) | self._target
                return bounds
            await asyncio.sleep(_LOOK_AGAIN)

    def _max_rows(self, limit: ReadLimit, queues: Iterable[MessageQueue]) -> int | None:
        """How many offsets a batch may have; None is all there are."""
        if isinstance(limit, ReadMaxBytes):
            return self._rows_of(limit.max_bytes, queues)
        if not isinstance(limit, ReadMaxRows):
            return None
        max_bytes = self._options.max_bytes_per_trigger
        by_size = None if max_bytes is None else self._rows_of(max_bytes, queues)
        return limit.max_rows if by_size is None else min(by_size, limit.max_rows)

    def _rows_of(self, max_bytes: int, queues: Iterable[MessageQueue]) -> int | None:
        size = self._ask(lambda cluster: record_size(cluster, queues))
        return max(1, int(max_bytes / size)) if size else None


def _ends(bounds: Mapping[MessageQueue, Bounds]) -> dict[MessageQueue, int]:
    return {queue: last for queue, (_, last) in bounds.items()}
