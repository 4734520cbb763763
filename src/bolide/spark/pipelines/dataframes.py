"""DataFrame helpers of the built-in pipelines: result tables, SQL filters, lists of messages."""

from pathlib import PurePosixPath

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn
from pyspark.sql.types import TimestampType

from bolide.errors import ConfigError
from bolide.spark.archive.files import files_at
from bolide.spark.pipelines.definition import Table

_TIME = "yyyy-MM-dd HH:mm:ss.SSS"
_ZEROS = r"(:00)?\.000$"
_LINES = (".jsonl", ".json", ".ndjson")
_WORDS = (".txt", ".ids")


def as_table(title: str, frame: DataFrame) -> Table:
    """Collect a small frame as a table. Timestamps become texts in the session's time zone."""
    rows = [[_cell(value) for value in row] for row in _with_texts(frame).collect()]
    return Table(title, tuple(frame.columns), rows)


def _with_texts(frame: DataFrame) -> DataFrame:
    """Format timestamps in Spark, as Python would convert them to its own time zone."""
    times = [each.name for each in frame.schema.fields if isinstance(each.dataType, TimestampType)]
    texts = {name: fn.regexp_replace(fn.date_format(name, _TIME), _ZEROS, "") for name in times}
    return frame.withColumns(texts)


def _cell(value: object) -> object:
    if isinstance(value, float):
        return round(value, 3)
    if isinstance(value, list):
        return " ".join(map(str, value))
    return value


def filter_by_sql(frame: DataFrame, condition: str, *, option: str) -> DataFrame:
    """The rows for which a user's SQL condition is true.

    Raises:
        ConfigError: the condition is invalid or names unknown columns; names the option.
    """
    try:
        return frame.where(condition)
    except (AnalysisException, ParseException) as exc:
        reason = str(exc).strip().splitlines()[0]
        raise ConfigError(f"{option}={condition!r}: {reason}") from exc


def write_message_list(rows: DataFrame, path: str) -> None:
    """Write one file of JSON lines if the name has such a suffix, else a directory of Parquet.

    Replaces an existing list. A single file must fit into the driver's memory.
    """
    if PurePosixPath(path).suffix not in _LINES:
        rows.coalesce(1).write.mode("overwrite").parquet(path)
        return
    lines = [row[0] for row in rows.selectExpr("to_json(struct(*))").collect()]
    place = PurePosixPath(path)
    text = "".join(f"{line}\n" for line in lines)
    files_at(rows.sparkSession, str(place.parent)).overwrite(place.name, text.encode())


def read_message_list(spark: SparkSession, path: str) -> DataFrame:
    """Read Parquet, JSON lines (.jsonl), or lines of ids (.txt) as the column `message_id`."""
    suffix = PurePosixPath(path).suffix
    if suffix in _LINES:
        return spark.read.json(path)
    if suffix in _WORDS:
        return (
            spark.read.text(path).selectExpr("trim(value) as message_id").where("message_id != ''")
        )
    return spark.read.parquet(path)
