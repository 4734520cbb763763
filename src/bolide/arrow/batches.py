"""Arrow record batches built from stored records, and the base class of iterable tables.

The input is records in the storage format, as pull replies and commit log files contain them.
"""

import logging
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from bolide.arrow.json_values import decode_values
from bolide.arrow.schema import PROPERTIES, TIMESTAMP, message_schema
from bolide.kernel import Columns
from bolide.kernel.column_buffers import EVERYTHING, ColumnBuffers, Pairs, Strings, Wanted
from bolide.kernel.results import Stop
from bolide.protocol.record import Buffer
from bolide.protocol.record_errors import BadRecord

log = logging.getLogger(__name__)


BATCH_ROWS = 10_000
BATCH_BYTES = 16 * 1024 * 1024
_STREAM = "bolide_stream"


class Batches:
    """Collects records, buffer after buffer, and gives a batch whenever one is full."""

    def __init__(  # noqa: PLR0913  what a batch may be
        self,
        *,
        broker: str | None,
        topic: str | None = None,
        wanted: Wanted = EVERYTHING,
        include_properties: bool = True,
        value: pa.StructType | None = None,
        max_rows: int = BATCH_ROWS,
        max_bytes: int = BATCH_BYTES,
    ) -> None:
        """Say what the batches shall hold.

        Args:
            broker: what the column says in all rows; None is null.
            topic: the same; None takes each record's own.
            wanted: which records become rows, such as `Wanted(first_offset=5, end_offset=9)`.
            include_properties: whether there is such a column.
            value: the type of the column `value`, if bodies are to be read as JSON.
            max_rows: in one batch.
            max_bytes: of bodies and properties; the message that goes past it is the last of its
                batch.
        """
        self.schema = message_schema(include_properties=include_properties, value=value)
        self._broker = broker
        self._topic = topic
        self._value = value
        self.columns = Columns(
            wanted, properties=include_properties, max_rows=max_rows, max_size=max_bytes
        )

    def add(self, body: Buffer, *, offset_delta: int = 0) -> Iterator[pa.RecordBatch]:
        """Take in the body of a pull reply; gives the batches that are full. Exhaust it.

        Raises:
            BadRecord: the bytes are no records; those before are taken in.
        """
        position = 0
        while True:
            position, stop, reason = self.columns.add(body, position, offset_delta=offset_delta)
            if stop is Stop.END:
                return
            if stop is not Stop.FULL:
                raise BadRecord(position, reason or f"there are {stop.value} bytes")
            yield self.cut()

    def rest(self) -> Iterator[pa.RecordBatch]:
        """A batch of what is left, unless there is nothing."""
        if self.columns.rows:
            yield self.cut()

    def cut(self) -> pa.RecordBatch:
        """A batch of all that was taken in since the last one."""
        if self.columns.left_compressed:
            log.warning(
                "%s bodies stay compressed: they do not inflate, or bolide[codecs] is missing",
                self.columns.left_compressed,
            )
        columns = self.columns.cut()
        arrays = [*self._arrays(columns)]
        if columns.properties is not None:
            arrays.append(_map(columns.rows, columns.properties))
        if self._value is not None:
            arrays.append(decode_values(arrays[self.schema.names.index("body")], self._value))
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _arrays(self, columns: ColumnBuffers) -> Iterator[pa.Array]:
        rows, strings = columns.rows, pa.string()
        topic = self._topic
        yield _strings(strings, rows, columns.topic) if topic is None else pa.repeat(topic, rows)
        yield pa.repeat(pa.scalar(self._broker, strings), rows)
        yield _numbers(pa.int32(), rows, columns.queue_id)
        yield _numbers(pa.int64(), rows, columns.queue_offset)
        yield _numbers(pa.int64(), rows, columns.physical_offset)
        yield _strings(strings, rows, columns.message_id)
        yield _strings(strings, rows, columns.offset_message_id)
        yield _strings(strings, rows, columns.keys)
        yield _strings(strings, rows, columns.tags)
        yield _strings(pa.binary(), rows, columns.body)
        yield _numbers(TIMESTAMP, rows, columns.born_timestamp)
        yield _numbers(TIMESTAMP, rows, columns.store_timestamp)
        yield _strings(strings, rows, columns.born_host)
        yield _strings(strings, rows, columns.store_host)
        yield _numbers(pa.int32(), rows, columns.reconsume_times)
        yield _numbers(pa.int32(), rows, columns.sys_flag)
        yield _numbers(pa.int32(), rows, columns.flag)


def _numbers(kind: pa.DataType, rows: int, numbers: Any) -> pa.Array:
    return pa.Array.from_buffers(kind, rows, [None, pa.py_buffer(numbers)])


def _strings(kind: pa.DataType, rows: int, strings: Strings) -> pa.Array:
    valid = None if strings.valid is None else pa.py_buffer(strings.valid)
    buffers = [valid, pa.py_buffer(strings.offsets), pa.py_buffer(strings.data)]
    return pa.Array.from_buffers(kind, rows, buffers)


def _map(rows: int, pairs: Pairs) -> pa.Array:
    texts = (_strings(pa.string(), pairs.total, each) for each in (pairs.names, pairs.values))
    entries = pa.StructArray.from_arrays(
        [*texts], fields=[PROPERTIES.key_field, PROPERTIES.item_field]
    )
    offsets = pa.py_buffer(pairs.offsets)
    return pa.Array.from_buffers(PROPERTIES, rows, [None, offsets], children=[entries])


class TableSource(ABC):
    """Record batches of one schema; each iteration reads anew.

    Whoever takes Arrow streams takes it as it is: DuckDB, Polars, `pyarrow.table(...)`.
    """

    @property
    @abstractmethod
    def schema(self) -> pa.Schema:
        """That of every batch."""

    @abstractmethod
    def __iter__(self) -> Iterator[pa.RecordBatch]: ...

    def reader(self) -> pa.RecordBatchReader:
        """Arrow's own reader of one iteration."""
        return pa.RecordBatchReader.from_batches(self.schema, iter(self))

    def to_table(self) -> pa.Table:
        """All of it, in memory."""
        return pa.Table.from_batches(self, self.schema)

    def to_pandas(self, **options: Any) -> Any:
        """All of it as a pandas DataFrame; options are those of `pyarrow.Table.to_pandas`."""
        return self.to_table().to_pandas(**options)

    def to_duckdb(self, connection: Any, name: str) -> Any:
        """Store all of it in a new table of a DuckDB connection, a few batches in memory at a time.

        Returns:
            DuckDB's relation of the table.
        """
        quoted = '"' + name.replace('"', '""') + '"'
        connection.register(_STREAM, self.reader())
        try:
            connection.execute(f"CREATE TABLE {quoted} AS SELECT * FROM {_STREAM}")  # noqa: S608
        finally:
            connection.unregister(_STREAM)
        return connection.table(quoted)

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self.reader().__arrow_c_stream__(requested_schema)
