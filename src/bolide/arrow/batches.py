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
from bolide.protocol.inner_batch import unwrap_records
from bolide.protocol.record import Buffer
from bolide.protocol.record_errors import BadRecord

log = logging.getLogger(__name__)


BATCH_ROWS = 10_000
BATCH_BYTES = 16 * 1024 * 1024
_STREAM = "bolide_stream"
_SIZE_FIELD = 4


class BatchBuilder:
    """Collects records from successive buffers and builds record batches of bounded size."""

    def __init__(  # noqa: PLR0913  independent keyword options
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
        """Configure the contents and the size of the batches.

        Args:
            broker: value of the column `broker` in all rows; None is null.
            topic: value of the column `topic` in all rows; None takes it from each record.
            wanted: which records become rows, such as `Wanted(first_offset=5, end_offset=9)`.
            include_properties: whether to add the column `properties`.
            value: type of the column `value`, if bodies are to be decoded as JSON.
            max_rows: rows per batch.
            max_bytes: bytes of bodies and properties per batch; the message that exceeds the limit
                is the last of its batch.
        """
        self.schema = message_schema(include_properties=include_properties, value=value)
        self._broker = broker
        self._topic = topic
        self._value = value
        self.columns = Columns(
            wanted, properties=include_properties, max_rows=max_rows, max_size=max_bytes
        )

    def add(self, body: Buffer, *, offset_delta: int = 0) -> Iterator[pa.RecordBatch]:
        """Add the body of a pull reply and yield the batches it fills; exhaust the iterator.

        Raises:
            BadRecord: the bytes are not a record; the records before it were added.
        """
        position = 0
        while True:
            position, stop, reason = self.columns.add(body, position, offset_delta=offset_delta)
            if stop is Stop.END:
                return
            if stop is Stop.BATCH:
                end = position + int.from_bytes(body[position : position + _SIZE_FIELD])
                yield from self.add_batch(body[position:end], offset_delta=offset_delta)
                position = end
                continue
            if stop is not Stop.FULL:
                raise BadRecord(position, reason or f"there are {stop.value} bytes")
            yield self.build()

    def add_batch(self, record: Buffer, *, offset_delta: int = 0) -> Iterator[pa.RecordBatch]:
        """Add the messages of one inner batch, as `add` does."""
        yield from self.add(unwrap_records(bytes(record)), offset_delta=offset_delta)

    def flush(self) -> Iterator[pa.RecordBatch]:
        """Yield a batch of the remaining rows, if any."""
        if self.columns.rows:
            yield self.build()

    def build(self) -> pa.RecordBatch:
        """Build a batch of all rows added since the last one."""
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
    """Record batches of one schema; each iteration reads them again from the source.

    Implements the Arrow C stream interface, which DuckDB, Polars and `pyarrow.table` accept.
    """

    @property
    @abstractmethod
    def schema(self) -> pa.Schema:
        """The schema of every batch."""

    @abstractmethod
    def __iter__(self) -> Iterator[pa.RecordBatch]: ...

    def reader(self) -> pa.RecordBatchReader:
        """A `pyarrow.RecordBatchReader` over one iteration."""
        return pa.RecordBatchReader.from_batches(self.schema, iter(self))

    def to_table(self) -> pa.Table:
        """All rows, in memory."""
        return pa.Table.from_batches(self, self.schema)

    def to_pandas(self, **options: Any) -> Any:
        """All rows as a pandas DataFrame; options are those of `pyarrow.Table.to_pandas`."""
        return self.to_table().to_pandas(**options)

    def to_duckdb(self, connection: Any, name: str) -> Any:
        """Store all rows in a new table of a DuckDB connection, a few batches in memory at a time.

        Returns:
            The DuckDB relation of the table.
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
