"""A Spark source without cost of its own: it yields one prepared batch repeatedly.

Its rate is what Spark itself allows for rows of our schema, the ceiling for our sources.
"""

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from bolide.arrow.schema import message_schema

BATCH_ROWS = 10_000


class ReadySource(DataSource):
    """Options: rows, size (of a body), partitions."""

    @classmethod
    def name(cls) -> str:
        return "ready"

    def schema(self) -> StructType:
        found = from_arrow_schema(message_schema())
        assert isinstance(found, StructType)
        return found

    def reader(self, schema: StructType) -> "ReadyReader":
        options = self.options
        return ReadyReader(
            int(options["rows"]), int(options["size"]), int(options.get("partitions", "4"))
        )


class ReadyReader(DataSourceReader):
    def __init__(self, rows: int, size: int, partitions: int) -> None:
        self._rows, self._size, self._partitions = rows, size, partitions

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(self._rows // self._partitions)] * self._partitions

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        batch = ready_batch(BATCH_ROWS, self._size)
        for start in range(0, partition.value, BATCH_ROWS):
            yield batch.slice(0, min(BATCH_ROWS, partition.value - start))


def ready_batch(rows: int, size: int) -> pa.RecordBatch:
    """Rows like those of the measured topic."""
    schema = message_schema()
    columns = [_column(field, rows, size) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _column(field: pa.Field, rows: int, size: int) -> pa.Array:
    if pa.types.is_map(field.type):
        value = [(f"name{number}", f"value{number}") for number in range(4)]
        value += [("KEYS", "key0"), ("TAGS", "TagA"), ("UNIQ_KEY", "7F0000010000" + "0" * 20)]
        return pa.array([value] * rows, field.type)
    if pa.types.is_binary(field.type):
        return pa.array([b"x" * size] * rows, field.type)
    if pa.types.is_string(field.type):
        return pa.array([_text(field.name)] * rows, field.type)
    return pa.array(range(rows), field.type)


def _text(name: str) -> str:
    if name in {"message_id", "offset_message_id"}:
        return "7F0000010000" + "0" * 20
    if name.endswith("_host"):
        return "127.0.0.1:10911"
    return "TagA"
