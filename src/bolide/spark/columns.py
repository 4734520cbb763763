"""The columns of both sources: those of a message, which users do not choose."""

from typing import TYPE_CHECKING

from bolide.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSource
    from pyspark.sql.types import StructType


def refuse_another(schema: "StructType", source: "DataSource") -> None:
    """Spark takes a schema that the user gives without a question.

    Raises:
        ConfigError: it is not that of the source.
    """
    own = source.schema()
    if schema.simpleString() != (own if isinstance(own, str) else own.simpleString()):
        raise ConfigError(
            "the columns of a message cannot be chosen by .schema(…): select them, leave"
            " properties out by includeProperties=false, or read JSON bodies by valueSchema"
        )
