"""The data source `rocketmq`: what Spark asks for, and who does it.

Spark builds and pickles it in processes of its own, so it holds options and opens nothing.
Readers define no `pushFilters`: with it Spark 4.3 returns wrong rows for a DataFrame that is used
twice. Filters of the broker are options instead.
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

from bolide.spark.columns import refuse_another
from bolide.spark.options import SourceOptions

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class RocketMQSource(DataSource):
    """Messages of topics as rows, and rows as messages."""

    @classmethod
    def name(cls) -> str:
        return "rocketmq"

    def schema(self) -> "StructType":
        """The columns of a message. Raises ConfigError for options that cannot be used."""
        return from_arrow_schema(self._source_options().reading().schema)

    def reader(self, schema: "StructType") -> DataSourceReader:
        from bolide.spark.batch import BatchReader  # noqa: PLC0415

        refuse_another(schema, self)
        return BatchReader(self._source_options())

    def streamReader(self, schema: "StructType") -> DataSourceStreamReader:  # noqa: N802
        from bolide.spark.stream import StreamReader  # noqa: PLC0415

        refuse_another(schema, self)
        return StreamReader(self._source_options())

    def writer(self, schema: "StructType", overwrite: bool) -> DataSourceWriter:
        from bolide.spark.sink import BatchSink  # noqa: PLC0415

        return BatchSink.of(self.options, schema, overwrite=overwrite)

    def streamWriter(  # noqa: N802
        self, schema: "StructType", overwrite: bool
    ) -> DataSourceStreamWriter:
        from bolide.spark.sink import StreamSink  # noqa: PLC0415

        return StreamSink.of(self.options, schema, overwrite=overwrite)

    def _source_options(self) -> SourceOptions:
        return SourceOptions.of(self.options)
