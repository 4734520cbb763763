"""Where the rows of a declared pipeline go."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from bolide.spark.pipelines.work import EachBatch, Screen

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter


@dataclass(frozen=True, slots=True, kw_only=True)
class FormatSink:
    """What `DataFrame.writeStream` is told; with `table` it goes to a table of the catalog."""

    format: str | None
    options: Mapping[str, str] = field(default_factory=dict, repr=False)  # has secrets
    output_mode: str = "append"
    partition_by: tuple[str, ...] = ()
    table: str | None = None

    @property
    def text(self) -> str:
        place = self.table or self.options.get("path") or self.options.get("topic")
        return " ".join(word for word in (self.format, place) if word)

    def writer(self, frame: "DataFrame", screen: Screen) -> "DataStreamWriter":
        del screen  # a sink of Spark's own tells nobody how far it is
        writer = frame.writeStream.outputMode(self.output_mode).options(**self.options)
        writer = writer.format(self.format) if self.format else writer
        return writer.partitionBy(*self.partition_by) if self.partition_by else writer

    def start(self, writer: "DataStreamWriter") -> "StreamingQuery":
        return writer.toTable(self.table) if self.table else writer.start()


def jdbc_sink(options: Mapping[str, str], unique: tuple[str, ...] = ()) -> EachBatch:
    """A table of a database, by Spark's JDBC writer.

    A batch that was cut off comes again. With `unique` columns it adds no row twice: the first
    batch of a run, the only one that can be a repeat, is compared with what the table has.
    """
    return EachBatch(f"jdbc {options.get('dbtable', '')}", _Rows(options, unique).write)


class _Rows:
    def __init__(self, options: Mapping[str, str], unique: tuple[str, ...]) -> None:
        self._options = options
        self._unique = list(unique)
        self._may_repeat = bool(unique)

    def write(self, rows: "DataFrame", batch: int, screen: Screen) -> None:
        del batch, screen
        if self._may_repeat:
            there = rows.sparkSession.read.format("jdbc").options(**self._options).load()
            rows = rows.join(there.select(*self._unique), on=self._unique, how="left_anti")
        rows.write.format("jdbc").options(**self._options).mode("append").save()
        self._may_repeat = False
