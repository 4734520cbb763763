"""What can be read as a table, batch after batch, and given to those who take tables."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

_STREAM = "bolide_stream"


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
