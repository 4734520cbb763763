"""Queue selection and deduplication keys of rows.

| Rows with                      | go to                                                   |
| ------------------------------ | ------------------------------------------------------- |
| `queue_id` (and `broker`)      | that queue                                              |
| `sharding_key`                 | the queue of its hash, as Java's producers choose it    |
| the option `keepOrder`         | one queue for all rows of a source queue                |
| a deduplication key            | the queue of its hash, as every producer chooses it     |
| none of these                  | any: a request's rows together, queues in turn          |
"""

from collections.abc import Callable, Iterator, Sequence
from zlib import crc32

import pyarrow as pa
import pyarrow.compute as pc

from bolide.client.producer.selectors import hash_code
from bolide.model.message_queue import MessageQueue
from bolide.spark.sink.columns import Columns
from bolide.spark.sink.encoding import row_ids
from bolide.spark.sink.options import Dedup, SinkOptions
from bolide.spark.sink.rows import Numbers, Rows, map_distinct

ANY_QUEUE = -1
"""Stands for any queue in place of an index into the queue list."""
QueueList = Callable[[str], Sequence[MessageQueue]]
"""Returns the writable queues of a topic, sorted. Raises RouteNotFound."""
MAX_KEY_LENGTH = 255


class Routing:
    """Chooses the queue of each row."""

    def __init__(self, columns: Columns, options: SinkOptions) -> None:
        self._columns = columns
        self._keep_order = options.keep_order

    @property
    def is_free(self) -> bool:
        """Whether every row may go to any queue."""
        columns = self._columns
        return not (
            columns.is_routed or columns.is_keyed or columns.has("sharding_key") or self._keep_order
        )

    def choose(
        self, rows: Rows, queues: Sequence[MessageQueue], dedup_keys: pa.Array | None
    ) -> Numbers:
        """For each row the index of its queue in the list, or ANY_QUEUE.

        Raises:
            RowFailed: a row names a queue that does not exist.
        """
        choices = []
        if self._columns.is_routed:
            choices.append(self._by_queue_id(rows, queues))
        if self._columns.has("sharding_key"):
            choices.append(
                map_distinct(rows.text("sharding_key"), _hash_modulo(len(queues)), pa.int64())
            )
        if self._keep_order and self._columns.source is not None:
            choices.append(_by_source(rows, self._columns.source, len(queues)))
        if dedup_keys is not None:
            choices.append(_by_key(dedup_keys, len(queues)))
        return pc.coalesce(*choices, pa.scalar(ANY_QUEUE, pa.int64())).to_numpy()  # type: ignore[no-any-return]

    def _by_queue_id(self, rows: Rows, queues: Sequence[MessageQueue]) -> pa.Array:
        """Indexes of the queues that rows name; null where a row names none."""
        numbers = rows.whole_numbers("queue_id").to_pylist()
        has_broker = self._columns.has("broker")
        brokers = rows.text("broker").to_pylist() if has_broker else [None] * len(numbers)
        indexes: dict[tuple[str | None, int], list[int]] = {}
        for queue_index, queue in enumerate(queues):
            indexes.setdefault((queue.broker_name, queue.queue_id), []).append(queue_index)
            indexes.setdefault((None, queue.queue_id), []).append(queue_index)
        found: list[int | None] = []
        for index, (broker, number) in enumerate(zip(brokers, numbers, strict=True)):
            matches = indexes.get((broker, number), []) if number is not None else [None]
            if len(matches) != 1:
                raise rows.failure(index, _queue_error(queues, broker, number))
            found.append(matches[0])
        return pa.array(found, pa.int64())


def _queue_error(queues: Sequence[MessageQueue], broker: str | None, number: int | None) -> str:
    of_broker = f" of broker {broker!r}" if broker else ""
    names = sorted({queue.broker_name for queue in queues if queue.queue_id == number})
    if names and broker is None:
        return (
            f"column queue_id: brokers {', '.join(names)} all have a queue {number}:"
            " add a column broker"
        )
    available = ", ".join(f"{queue.broker_name}/{queue.queue_id}" for queue in queues)
    return f"column queue_id: there is no queue {number}{of_broker} to send to, only {available}"


def _hash_modulo(count: int) -> Callable[[str | None], int | None]:
    return lambda key: None if key is None else abs(hash_code(key)) % count


def _by_source(rows: Rows, source: tuple[str, ...], count: int) -> pa.Array:
    """Map consecutive source queues to consecutive target queues, which spreads them evenly."""
    topic, broker, queue, _ = source
    names = pc.binary_join_element_wise(
        rows.batch.column(topic).cast(pa.string()), rows.batch.column(broker).cast(pa.string()), "/"
    )
    starts = map_distinct(
        names, lambda name: None if name is None else crc32(name.encode()), pa.int64()
    )
    sums = pc.add(starts, rows.whole_numbers(queue))
    return pc.subtract(sums, pc.multiply(pc.divide(sums, count), count))


def _by_key(keys: pa.Array, count: int) -> pa.Array:
    """The queue that `selectors.dedup_queue` chooses, for a sorted list."""
    hashes = [
        None if key is None else crc32(key) % count for key in keys.cast(pa.binary()).to_pylist()
    ]
    return pa.array(hashes, pa.int64())


class DedupKeys:
    """Deduplication keys of rows in order; remembers the origin of the last row.

    Rows with the same origin are numbered, as one source row may have become several. The numbering
    is stable as long as those rows are adjacent, which holds without a shuffle.
    """

    def __init__(self, columns: Columns, options: SinkOptions) -> None:
        self._columns = columns
        self._dedup = options.dedup
        self._last: str | None = None
        self._count = 0

    def of(self, rows: Rows) -> pa.Array | None:
        """Null where a row has no key. Raises RowFailed for a row that needs a key and has none."""
        if not self._columns.is_keyed or not len(rows):
            return None
        found = list(self._candidates(rows))
        keys = pc.coalesce(*found) if len(found) > 1 else found[0]
        if self._dedup is not Dedup.AUTO:
            rows.refuse(pc.is_null(keys), "it has neither a dedup_key nor a known origin")
        rows.refuse(
            pc.greater(pc.utf8_length(keys), MAX_KEY_LENGTH),
            f"its key for de-duplication is over {MAX_KEY_LENGTH} characters",
        )
        rows.refuse(
            pc.match_substring_regex(keys, "[[:cntrl:]]"),
            "its key for de-duplication holds control characters",
        )
        return keys

    def _candidates(self, rows: Rows) -> Iterator[pa.Array]:
        if self._columns.has("dedup_key"):
            yield rows.text("dedup_key")
        if self._dedup is Dedup.AUTO:
            return
        if self._columns.source is not None:
            yield self._numbered(source_positions(rows, self._columns.source))
        if self._dedup is Dedup.ROW:
            yield row_ids(rows)

    def _numbered(self, positions: pa.Array) -> pa.Array:
        """The positions, with `#1`, `#2` … appended from the second row of a position on."""
        before = pa.concat_arrays([pa.array([self._last], pa.string()), positions[:-1]])
        if pc.any(pc.equal(positions, before)).as_py():
            return pa.array(
                [self._number(position) for position in positions.to_pylist()], pa.string()
            )
        self._last, self._count = positions[-1].as_py(), 0
        return positions

    def _number(self, position: str | None) -> str | None:
        self._count = self._count + 1 if position == self._last else 0
        self._last = position
        return f"{position}#{self._count}" if position and self._count else position


def source_positions(rows: Rows, source: tuple[str, ...]) -> pa.Array:
    """The origin of rows as `src:topic/broker/queue@offset`; null where a part is missing."""
    topic, broker, queue, offset = (rows.batch.column(name).cast(pa.string()) for name in source)
    return pc.binary_join_element_wise("src:", topic, "/", broker, "/", queue, "@", offset, "")
