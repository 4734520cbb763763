"""The data source `rocketmq`: the entry points through which Spark reads and writes topics.

Spark builds and pickles the source in processes of its own, so a source holds options and opens no
connection. Readers define no `pushFilters`: with it Spark 4.3 returns wrong rows for a DataFrame
that is used twice. Broker-side filters are options instead.
"""

from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.pandas.types import from_arrow_schema

from bolide.errors import ConfigError
from bolide.spark.options import SourceOptions

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class RocketMQSource(DataSource):
    """Reads messages of topics as rows, and writes rows as messages."""

    @classmethod
    def name(cls) -> str:
        return "rocketmq"

    def schema(self) -> "StructType":
        """The columns of a message. Raises ConfigError for invalid options."""
        return from_arrow_schema(self._source_options().reading().schema)

    def reader(self, schema: "StructType") -> DataSourceReader:
        from bolide.spark.readers import BatchReader  # noqa: PLC0415

        check_schema(schema, self)
        return BatchReader(self._source_options())

    def streamReader(self, schema: "StructType") -> DataSourceStreamReader:  # noqa: N802
        from bolide.spark.readers import StreamReader  # noqa: PLC0415

        check_schema(schema, self)
        return StreamReader(self._source_options())

    def writer(self, schema: "StructType", overwrite: bool) -> DataSourceWriter:
        from bolide.spark.sink.writer import BatchSink  # noqa: PLC0415

        return BatchSink.of(self.options, schema, overwrite=overwrite)

    def streamWriter(  # noqa: N802
        self, schema: "StructType", overwrite: bool
    ) -> DataSourceStreamWriter:
        from bolide.spark.sink.writer import StreamSink  # noqa: PLC0415

        return StreamSink.of(self.options, schema, overwrite=overwrite)

    def _source_options(self) -> SourceOptions:
        return SourceOptions.of(self.options)


def check_schema(schema: "StructType", source: "DataSource") -> None:
    """Refuse a schema given by `.schema(…)`: Spark accepts any without checking.

    Raises:
        ConfigError: the schema differs from that of the source.
    """
    own = source.schema()
    if schema.simpleString() != (own if isinstance(own, str) else own.simpleString()):
        raise ConfigError(
            "the columns of a message cannot be chosen by .schema(…): select them, leave"
            " properties out by includeProperties=false, or read JSON bodies by valueSchema"
        )
