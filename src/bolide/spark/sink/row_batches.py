"""Splitting of rows into send requests, limited by queue, number of rows and bytes."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bolide.model.message_checks import InvalidMessage, check_topic
from bolide.model.message_queue import MessageQueue
from bolide.model.names import is_sendable
from bolide.spark.sink.columns import Columns
from bolide.spark.sink.encoding import ItemEncoder
from bolide.spark.sink.options import SinkOptions
from bolide.spark.sink.routing import ANY_QUEUE, DedupKeys, QueueList, Routing
from bolide.spark.sink.rows import Numbers, Rows, Task

MAX_BATCH_BYTES = 1024 * 1024
"""Maximum size of the items in one request; a longer item is sent alone."""
Flags: TypeAlias = np.ndarray[Any, np.dtype[np.bool_]]
_MAX_ENCODED_ROWS = 10_000  # limits of one encoding step
_MAX_ENCODED_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class RowBatch:
    """Rows for one queue, or for any queue."""

    topic: str
    queue: MessageQueue | None
    body: bytes
    """The encoded items, back to back."""
    rows: Sequence[int]
    """Row numbers in the partition."""
    is_batchable: bool
    """Whether the rows fit into one request; delayed and oversized rows are sent one by one."""


class RowBatcher:
    """Splits the rows of one task into row batches."""

    def __init__(self, columns: Columns, options: SinkOptions, task: Task) -> None:
        self.rows = 0
        """Rows seen so far."""
        self._columns = columns
        self._options = options
        self._task = task
        self._items = ItemEncoder(columns, options)
        self._keys = DedupKeys(columns, options)
        self._routing = Routing(columns, options)

    def split(self, batch: pa.RecordBatch, queues_of: QueueList) -> Iterator[RowBatch]:
        """Split a record batch; the rows of one queue stay in order.

        Raises:
            RowFailed: a row cannot be sent. Batches before it may have been sent.
            BolideError: the queues of a topic cannot be looked up.
        """
        for part in _encodable_slices(batch):
            numbers = np.arange(self.rows, self.rows + part.num_rows)
            rows = Rows(part, self._task, numbers, self._options.topic)
            keys = self._keys.of(rows)
            for of_topic, own_keys in _by_topic(rows, keys):
                yield from self._split_topic(of_topic, own_keys, queues_of)
            self.rows += len(rows)

    def _split_topic(
        self, rows: Rows, keys: pa.Array | None, queues_of: QueueList
    ) -> Iterator[RowBatch]:
        topic = _checked_topic(rows)
        items = self._items.encode(rows, keys)
        if self._routing.is_free:
            yield from self._split_queue(
                topic, None, items, self._unbatchable(rows, items), rows.numbers
            )
            return
        queues = queues_of(topic)
        choice, unbatchable = (
            self._routing.choose(rows, queues, keys),
            self._unbatchable(rows, items),
        )
        for index in np.unique(choice):
            chosen = np.flatnonzero(choice == index)
            queue = None if index == ANY_QUEUE else queues[index]
            own = items.take(pa.array(chosen))
            yield from self._split_queue(
                topic, queue, own, unbatchable[chosen], rows.numbers[chosen]
            )

    def _split_queue(
        self,
        topic: str,
        queue: MessageQueue | None,
        items: pa.Array,
        unbatchable: Flags,
        numbers: Numbers,
    ) -> Iterator[RowBatch]:
        _, offsets, data = items.buffers()
        ends = np.frombuffer(offsets, np.int32)[items.offset : items.offset + len(items) + 1]
        for start, stop in batch_bounds(np.diff(ends), unbatchable, self._options.batch_size):
            body = data[int(ends[start]) : int(ends[stop])].to_pybytes()
            is_batchable = not unbatchable[start]
            yield RowBatch(
                topic, queue, body, numbers[start:stop].tolist(), is_batchable=is_batchable
            )

    def _unbatchable(self, rows: Rows, items: pa.Array) -> Flags:
        """Mask of the rows that need a request of their own."""
        unbatchable = pc.greater(pc.binary_length(items), MAX_BATCH_BYTES)
        for name in ("delay", "delay_level"):
            if self._columns.has(name):
                delayed = pc.greater(rows.whole_numbers(name), 0)
                unbatchable = pc.or_(unbatchable, pc.fill_null(delayed, False))
        return unbatchable.to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]


def batch_bounds(sizes: Numbers, unbatchable: Flags, max_rows: int) -> Iterator[tuple[int, int]]:
    """Start and end of each batch, as large as the limits allow."""
    ends = np.cumsum(sizes)
    switches = [*(np.flatnonzero(np.diff(unbatchable)) + 1).tolist(), len(sizes)]
    start = 0
    while start < len(sizes):
        before = ends[start - 1] if start else 0
        by_size = int(np.searchsorted(ends, before + MAX_BATCH_BYTES, side="right"))
        switch = switches[bisect_right(switches, start)]
        stop = min(max(by_size, start + 1), start + max_rows, switch)
        yield start, stop
        start = stop


def _encodable_slices(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Bound an encoding step: Arrow's offsets have 32 bits, and encoded rows exist twice."""
    count = batch.num_rows
    step = min(_MAX_ENCODED_ROWS, max(1, count * _MAX_ENCODED_BYTES // max(1, batch.nbytes)))
    for start in range(0, count, step):
        yield batch.slice(start, step)


def _by_topic(rows: Rows, keys: pa.Array | None) -> Iterator[tuple[Rows, pa.Array | None]]:
    if rows.topic is not None:
        yield rows, keys
        return
    topics = rows.text("topic")
    rows.refuse(pc.is_null(topics), "column topic: it is null or empty")
    encoded = topics.dictionary_encode()
    codes = encoded.indices.to_numpy()
    for code, topic in enumerate(encoded.dictionary.to_pylist()):
        chosen = np.flatnonzero(codes == code)
        yield rows.take(chosen, topic), None if keys is None else keys.take(pa.array(chosen))


def _checked_topic(rows: Rows) -> str:
    topic = rows.topic or ""
    try:
        check_topic(topic)
    except InvalidMessage as exc:
        raise rows.failure(0, f"column topic: {exc.reason}") from exc
    if not is_sendable(topic):
        raise rows.failure(0, "the topic is reserved for the broker")
    return topic
