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
    """All rows of a frame: it must be a small one. Times are texts in the session's zone."""
    rows = [[_cell(value) for value in row] for row in _with_texts(frame).collect()]
    return Table(title, tuple(frame.columns), rows)


def _with_texts(frame: DataFrame) -> DataFrame:
    """Python would turn times into those of its own zone."""
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
    """The rows of which an SQL expression of the user's is true.

    Raises:
        ConfigError: it is none, or names columns that are not there; names the option.
    """
    try:
        return frame.where(condition)
    except (AnalysisException, ParseException) as exc:
        reason = str(exc).strip().splitlines()[0]
        raise ConfigError(f"{option}={condition!r}: {reason}") from exc


def write_message_list(rows: DataFrame, path: str) -> None:
    """One file of JSON lines if the name ends so, else a directory of Parquet; replaces the old.

    Only a list that fits into the driver's memory should be one file.
    """
    if PurePosixPath(path).suffix not in _LINES:
        rows.coalesce(1).write.mode("overwrite").parquet(path)
        return
    lines = [row[0] for row in rows.selectExpr("to_json(struct(*))").collect()]
    place = PurePosixPath(path)
    text = "".join(f"{line}\n" for line in lines)
    files_at(rows.sparkSession, str(place.parent)).overwrite(place.name, text.encode())


def read_message_list(spark: SparkSession, path: str) -> DataFrame:
    """Parquet, JSON lines (.jsonl), or message ids line by line (.txt): a column `message_id`."""
    suffix = PurePosixPath(path).suffix
    if suffix in _LINES:
        return spark.read.json(path)
    if suffix in _WORDS:
        return (
            spark.read.text(path).selectExpr("trim(value) as message_id").where("message_id != ''")
        )
    return spark.read.parquet(path)
