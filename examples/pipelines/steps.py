"""Steps of the pipelines here: functions of a DataFrame."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as fn


def mark(frame: DataFrame) -> DataFrame:
    """Give each message the tag `big`."""
    return frame.withColumn("tags", fn.lit("big"))
