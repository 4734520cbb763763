"""Small frames as tables for people and programs."""

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import DataFrame
from pyspark.sql import functions as fn
from pyspark.sql.types import TimestampType

from bolide.errors import ConfigError
from bolide.spark.pipelines.work import Table

_TIME = "yyyy-MM-dd HH:mm:ss.SSS"
_ZEROS = r"(:00)?\.000$"


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


def chosen_by(frame: DataFrame, condition: str, *, option: str) -> DataFrame:
    """The rows of which an SQL expression of the user's is true.

    Raises:
        ConfigError: it is none, or names columns that are not there; names the option.
    """
    try:
        return frame.where(condition)
    except (AnalysisException, ParseException) as exc:
        reason = str(exc).strip().splitlines()[0]
        raise ConfigError(f"{option}={condition!r}: {reason}") from exc
